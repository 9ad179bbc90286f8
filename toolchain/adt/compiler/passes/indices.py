"""Indices of an unscheduled kernel, as TVM's scheduling and lowering need them."""

from __future__ import annotations

import logging
import math
from typing import Any

import tvm
from tvm import arith, ir, tirx

from adt.compiler.ir.nodes import block_with, tir_nodes

log = logging.getLogger("adt.compile")


def narrow_indices(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return *function* with indices of 32 bits where those do, before loops are partitioned."""
    try:
        sizes = [math.prod(map(int, buffer.shape)) for buffer in function.buffer_map.values()]
        if max(sizes, default=0) >= 1 << 31:
            return function
        narrow = tirx.transform.ForceNarrowIndexToInt32()(tvm.IRModule({"main": function}))
    except (tvm.error.InternalError, TypeError, ValueError) as reason:  # open shapes, tensors of int64
        log.debug("its indices stay: %s", str(reason).strip()[-200:])
        return function
    if any(call.dtype == "int64" for call in tir_nodes(narrow["main"].body, tirx.Call)):
        return function  # TVM leaves the types of calls in indices, which nothing fits then
    return narrow["main"]


def simple_indices(function: tirx.PrimFunc) -> Any:
    """Simplify the indices of *function* by the extents of each block's axes.

    TVM makes wrong indices of remainders that are none (:mod:`adt.compiler.passes.cpu.reads`).
    """

    def simplified(block: tirx.SBlock) -> Any:
        if not isinstance(block.body, tirx.BufferStore):
            return None
        ranges = arith.Analyzer()
        for axis in block.iter_vars:
            if getattr(axis.dom.extent, "value", 0) != 1:  # it would become 0, and rules look where axes are
                ranges.bind(axis.var, axis.dom)

        def load(node: Any) -> Any:
            return tirx.BufferLoad(node.buffer, [ranges.simplify(index) for index in node.indices])

        def read(region: tirx.BufferRegion) -> Any:
            return tirx.BufferRegion(
                region.buffer,
                [
                    ir.Range.from_min_extent(ranges.simplify(part.min), ranges.simplify(part.extent))
                    for part in region.region
                ],
            )

        body = tirx.stmt_functor.ir_transform(block.body, None, load, ["tirx.BufferLoad"])
        return block_with(block, body, [read(region) for region in block.reads])

    return function.with_body(
        tirx.stmt_functor.ir_transform(function.body, None, simplified, ["tirx.SBlock"])
    )
