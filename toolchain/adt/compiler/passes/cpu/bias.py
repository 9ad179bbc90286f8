"""Sums that start from the bias instead of zero: one operation less for each, and depthwise ones have few."""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import ir, tirx

from adt.compiler.ir.nodes import block_with, tir_nodes
from adt.compiler.passes.layout.signature import variables_of


def sums_from_bias(statement: tirx.Stmt) -> Any:
    """The scheduled TIR *statement* of a convolution on blocked tensors with sums that start from the bias.

    As it is where nothing is added to them that is the same at all positions.
    """
    blocks = tir_nodes(statement, tirx.SBlock)
    starts = [block for block in blocks if _starts_from_zero(block)]
    if len(starts) != 1:
        return statement
    (start,) = starts
    sums = start.body.buffer
    for store in blocks:
        addition = _bias_addition(store, sums)
        if addition is not None:
            break
    else:
        return statement
    of_store = dict(zip(addition.a.indices, start.body.indices, strict=True))
    place = [tirx.stmt_functor.substitute(index, of_store) for index in addition.b.indices]
    bias = tirx.BufferLoad(addition.b.buffer, place)
    region = tirx.BufferRegion(bias.buffer, [ir.Range.from_min_extent(index, 1) for index in place])

    def replaced(block: tirx.SBlock) -> Any:
        if block.same_as(start):
            return block_with(block, tirx.BufferStore(sums, bias, block.body.indices), [region])
        return (
            block_with(block, _without(block.body, addition), block.reads) if block.same_as(store) else None
        )

    return tirx.stmt_functor.ir_transform(statement, replaced, None, ["tirx.SBlock"])


def _starts_from_zero(block: tirx.SBlock) -> bool:
    value = block.body.value if isinstance(block.body, tirx.BufferStore) else None
    return isinstance(value, tirx.FloatImm) and value.value == 0 and block.name_hint.endswith("_init")


def _bias_addition(block: tirx.SBlock, sums: Any) -> Any | None:
    """Return where *block* adds to *sums* what depends on their channel only."""
    if not isinstance(block.body, tirx.BufferStore) or block.body.buffer.same_as(sums):
        return None
    for addition in tir_nodes(block.body, tirx.Add):
        load, bias = addition.a, addition.b
        if (
            isinstance(load, tirx.BufferLoad)
            and load.buffer.same_as(sums)
            and isinstance(bias, tirx.BufferLoad)
        ):
            _, _, *positions, _ = load.indices
            if not variables_of(bias.indices) & variables_of(positions):
                return addition
    return None


def _without(statement: tirx.Stmt, addition: Any) -> Any:
    """The *statement* with only the first operand of each *addition*."""

    def replaced(node: Any) -> Any:
        return node.a if tvm_ffi.structural_equal(node, addition) else None

    return tirx.stmt_functor.ir_transform(statement, replaced, None, ["tirx.Add"])
