"""Terms of a sum or an extremum that are read one after the other, in whole vectors.

    for part:  start = min(part * lanes, length - lanes)
               for lane:  sum += term[start + lane] if start + lane >= part * lanes else 0

The last vector begins earlier where the terms are not whole vectors: terms that the vector before has, too,
change no maximum or minimum, and are left out of a sum.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tvm import ir, tirx

from adt.compiler.ir.nodes import tir_nodes
from adt.compiler.passes.cpu.kernel import VECTORS_EACH
from adt.compiler.passes.cpu.vectors import Vectors
from adt.compiler.passes.layout.blocks import ceil_blocks
from adt.compiler.passes.layout.signature import SPATIAL, variables_of


def whole_vectors(function: tirx.PrimFunc, vectors: Vectors) -> tirx.PrimFunc:
    """Return the unscheduled TIR *function* with the terms of its only reduction as one axis of whole
    vectors; the same one where they are, or do not lie together."""
    blocks = [block for block in tir_nodes(function.body, tirx.SBlock) if block.init is not None]
    if len(blocks) != 1 or not isinstance(blocks[0].body, tirx.BufferStore):
        return function
    (block,) = blocks
    axes, value = _together(block), block.body.value
    extents = [int(axis.dom.extent) for axis in axes]
    length = math.prod(extents)
    lanes = _lanes(length, vectors)
    ragged = length % lanes > 0
    if lanes == 1 or not (ragged or len(axes) > 1) or not isinstance(value, tirx.Add | tirx.Max | tirx.Min):
        return function
    term = axes[-1].var
    first = term // lanes * lanes
    place = tirx.min(first, length - lanes) + term % lanes if ragged else term
    places, rest = {}, place
    for axis, extent in reversed(list(zip(axes, extents, strict=True))):
        places[axis.var] = rest if axis is axes[0] else rest % extent
        rest = rest // extent
    added = tirx.stmt_functor.substitute(value.b, places)
    if ragged and isinstance(value, tirx.Add):
        added = tirx.Select(place >= first, added, tirx.const(0, added.dtype))
    sizes = {axis.var: 1 for axis in axes} | {term: ceil_blocks(length, lanes) * lanes}
    return _resized(function, block, sizes, places, type(value)(value.a, added))


def _lanes(length: int, vectors: Vectors) -> int:
    """Return the number of sums in which :mod:`adt.compiler.passes.cpu.reduction` adds *length* terms up
    first; 1: they are too few."""
    *larger, least = (VECTORS_EACH * vectors.lanes, 8), (vectors.lanes, 2), (4, 2)
    for (lanes, times), below in zip(larger, (vectors.lanes, 4), strict=True):
        if ceil_blocks(length, below) * below >= times * lanes:
            return lanes
    return least[0] if length >= math.prod(least) else 1


def _together(block: tirx.SBlock) -> list[Any]:
    """Return the reduced axes of *block* that make one row of each tensor whose elements differ by term."""
    reduced = [axis for axis in block.iter_vars if int(axis.iter_type) != SPATIAL]
    terms = {axis.var for axis in reduced}
    loads = tir_nodes(block.body.value, tirx.BufferLoad)
    shapes = {
        tuple(load.indices): tuple(load.buffer.shape) for load in loads if terms & variables_of(load.indices)
    }
    axes: list[Any] = []
    for axis in reversed(reduced):
        place, extent = -1 - len(axes), axis.dom.extent
        if not isinstance(extent, tirx.IntImm) or not all(
            len(indices) >= -place
            and indices[place].same_as(axis.var)
            and all(shape[at] == row.dom.extent for at, row in zip(range(place + 1, 0), axes, strict=True))
            for indices, shape in shapes.items()
        ):
            break
        axes.insert(0, axis)
    return axes if shapes else []


def _resized(
    function: tirx.PrimFunc,
    block: tirx.SBlock,
    sizes: Mapping[Any, int],
    places: Mapping[Any, Any],
    value: tirx.PrimExpr,
) -> Any:
    """Return *function* whose *block* has axes of other *sizes*, reads at other *places*, and stores
    *value*."""
    realizations = tir_nodes(function.body, tirx.SBlockRealize)
    (bound,) = (node.iter_values for node in realizations if node.block.same_as(block))
    loops = dict(zip(bound, (sizes.get(axis.var) for axis in block.iter_vars), strict=True))

    def axis_of(axis: Any) -> Any:
        if axis.var not in sizes:
            return axis
        extent = ir.Range(0, tirx.const(sizes[axis.var], axis.var.dtype))
        return tirx.IterVar(extent, axis.var, axis.iter_type)

    def read(region: tirx.BufferRegion) -> Any:
        moved = [(tirx.stmt_functor.substitute(part.min, places), part.extent) for part in region.region]
        return tirx.BufferRegion(region.buffer, [ir.Range.from_min_extent(*part) for part in moved])

    def resized(node: Any) -> Any:
        if isinstance(node, tirx.For):
            extent = loops.get(node.loop_var)
            return node if extent is None else tirx.For(node.loop_var, node.min, extent, node.kind, node.body)
        if node.name_hint != block.name_hint:
            return node
        store = tirx.BufferStore(block.body.buffer, value, block.body.indices)
        axes = [axis_of(axis) for axis in block.iter_vars]
        return tirx.SBlock(axes, [*map(read, block.reads)], block.writes, block.name_hint, store, block.init)

    body = tirx.stmt_functor.ir_transform(function.body, None, resized, ["tirx.For", "tirx.SBlock"])
    return tirx.PrimFunc(function.params, body, function.ret_type, function.buffer_map, function.attrs)
