"""Products by a tensor that the model computes, as attention has them.

    parallel for batch, tile of rows:  for panel of columns:
        for k:  for row in tile:  for vector in panel:  sum[row][vector] += a[row][k] * b[k][vector]
        store the tile, with all that is fused behind it

Where a row of the right operand is no whole vectors in memory (transposed keys, 197 tokens), it is packed
into panels ``(…, ceil(N/L), K, L)`` first. How an operand was transposed is how the kernel reads it. Whole
numbers are always packed, ``(…, ceil(N/L), K/T, L, T)``: an instruction sums T products in each lane.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import tvm
from tvm import relax, s_tir, te, tirx
from tvm.s_tir.schedule import SBlockRV

from adt.compiler.ir.rewriter import static_shape
from adt.compiler.passes.cpu.kernel import (
    Kernel,
    extent_of,
    parallel,
    partition,
    reduce_loops,
    spatial_loops,
    work_of,
)
from adt.compiler.passes.cpu.tiles import best_tile
from adt.compiler.passes.cpu.vectors import Vectors
from adt.compiler.passes.dot import SUMS as WHOLE
from adt.compiler.passes.dot import Dot, dot_of_computed, intrinsic
from adt.compiler.passes.integers.sums import LEAST_ROWS
from adt.compiler.passes.layout.blocks import ceil_blocks
from adt.compiler.passes.precision.half import SINGLE
from adt.compiler.passes.products import Products, Read, broadcast, sums_of, whole
from adt.compiler.passes.scheduling import Decisions, NoSchedule, unroll_all

SUMS, PANELS = "product_sums", "product_panels"
"""The blocks of such a kernel: the sums, and the right operand where it is packed."""
TERMS = "terms"
"""The block whose lanes take the terms of a sum: too few rows share those."""


class CpuProducts(Products):
    """Rewriter of products of float32, or integers, by computed tensors of known shapes to kernels."""

    transposes_results = False

    def __init__(self, module: tvm.IRModule, vectors: Vectors) -> None:
        super().__init__(module)
        self.vectors = vectors

    def takes(self, left: relax.Expr, right: relax.Expr) -> bool:
        """Return True if the product of these operands becomes a kernel."""
        if self._dot_of(left, right):
            return True
        if left.struct_info.dtype != SINGLE or not super().takes(left, right):
            return False
        return (static_shape(left) or ())[-2] >= LEAST_ROWS or self.view_of(right).lies_along(-2)

    def _dot_of(self, left: relax.Expr, right: relax.Expr) -> Dot | None:
        """Return the instruction that sums the products of these operands, if they are computed integers."""
        dot = dot_of_computed(self.vectors.dots)
        types = tuple(str(tensor.struct_info.dtype) for tensor in (left, right))
        if dot is None or isinstance(right, relax.Constant) or types != (dot.data, dot.weights):
            return None
        return dot

    def product(self, left: relax.Expr, right: relax.Expr, _result: Any, _order: Sequence[int] = ()) -> Any:
        """Emit the call that computes the product of these operands."""
        a, b = self.view_of(left), self.view_of(right)
        lanes = _lanes(b.shape[-1], self.vectors)
        if not a.lies_along(-1):
            a = whole(left)
        shapes = a.shape, b.shape
        dot, many = self._dot_of(left, right), a.shape[-2] >= LEAST_ROWS
        if dot or (many and (b.shape[-1] % lanes or not b.lies_along(-1))):
            each = dot.terms if dot else 0
            return self.emit_product(a, b, lambda x, y: _in_panels(a.read(x), b.read(y), shapes, lanes, each))
        name = SUMS if many else TERMS
        return self.emit_product(a, b, lambda x, y: sums_of(a.read(x), b.read(y), shapes, SINGLE, name))


def _lanes(columns: int, vectors: Vectors) -> int:
    """Choose the narrowest vectors of which as few hold all *columns*."""
    widths = [lanes for lanes in (4, 8, 16) if lanes <= vectors.lanes]
    return min(widths, key=lambda lanes: (ceil_blocks(columns, lanes), lanes))


def _in_panels(a: Read, b: Read, shapes: Sequence[Sequence[int]], lanes: int, each: int = 0) -> Any:
    """Express a product by panels of *lanes* of the right operand, *each* integers a lane (0: floats)."""
    (*_, rows, terms), (*batch_b, _, columns) = shapes
    batch, (of_a, of_b) = broadcast(shapes)
    reduced = [te.reduce_axis((0, terms // (each or 1)), "k")]
    reduced += [te.reduce_axis((0, each), "term")] if each else []

    def place(indices: Sequence[tirx.PrimExpr]) -> Any:
        return indices[0] * each + indices[1] if each else indices[0]

    def packed(*at: tirx.PrimExpr) -> Any:
        *places, part, k, lane = at[: len(at) - bool(each)]
        column = part * lanes + lane
        value = b(*places, place((k, at[-1])), column)
        zero = tirx.const(0, value.dtype)
        return tirx.if_then_else(column < columns, value, zero) if columns % lanes else value

    extents = (ceil_blocks(columns, lanes), terms // (each or 1), lanes, *([each] if each else []))
    packs = te.compute((*batch_b, *extents), packed, name=PANELS)

    def term(*at: tirx.PrimExpr) -> Any:
        *places, row, part, lane = at
        left, right = (
            a(*of_a(places), row, place(reduced)),
            packs(*of_b(places), part, reduced[0], lane, *reduced[1:]),
        )
        return te.sum(left.astype(WHOLE) * right.astype(WHOLE) if each else left * right, axis=reduced)

    sums = te.compute((*batch, rows, ceil_blocks(columns, lanes), lanes), term, name=SUMS)
    return te.compute(
        (*batch, rows, columns), lambda *at: sums(*at[:-1], at[-1] // lanes, at[-1] % lanes), name="product"
    )


def product(schedule: s_tir.Schedule, vectors: Vectors, _decisions: Decisions) -> str:
    """Schedule a product by a tensor that the model computes."""
    kernel = Kernel(schedule)
    if not any(name.startswith(SUMS) for name in kernel.sums) or len(kernel.sums) != 1:
        raise NoSchedule("it is no product of computed tensors")
    packs = [name for name in kernel.names if name.startswith(PANELS)]
    store, (sums,) = kernel.store_apart(keep=(*packs, *kernel.sums))
    *batch, row, column = schedule.get_loops(store)
    rows, columns = extent_of(schedule, row), extent_of(schedule, column)
    if dot := dot_of_computed(vectors.dots) if len(reduce_loops(schedule, sums)) > 1 else None:
        vectors = replace(vectors, by_element=False, dtype=WHOLE, dots=(dot,))
    of_lanes = -2 if dot else -1
    packed = extent_of(schedule, schedule.get_loops(schedule.get_sblock(packs[0]))[of_lanes]) if packs else 0
    lanes = packed or _lanes(columns, vectors)
    tile = best_tile(rows, 1, ceil_blocks(columns, lanes), vectors)
    part, lane = schedule.split(column, [None, lanes])
    panel, deep = schedule.split(part, [None, tile.deep])
    row_tiles, wide = schedule.split(row, [None, tile.wide])
    outer = [*batch, row_tiles, panel]
    schedule.reorder(*outer, wide, deep, lane)
    unroll_all(schedule, (wide, deep), lane)
    work = work_of(schedule, sums)
    schedule.compute_at(sums, panel, preserve_unit_loops=True)
    inner = spatial_loops(schedule, sums)[len(outer) :]
    terms, *term = reduce_loops(schedule, sums)
    again, once = schedule.split(terms, [None, 4 if extent_of(schedule, terms) % 4 == 0 else 1])
    schedule.reorder(again, once, *inner, *term)
    unroll_all(schedule, (once, *inner[:-1]))
    if not dot:
        schedule.vectorize(inner[-1])
    if packs:
        _pack(schedule, schedule.get_sblock(packs[0]), columns % lanes > 0, of_terms=dot is not None)
    if columns % lanes:
        partition(schedule, panel)
    if rows % tile.wide == 0:
        parallel(schedule, [*batch, row_tiles], work)
    elif batch:
        partition(schedule, row_tiles)
        parallel(schedule, batch, work)
    else:
        partition(schedule, parallel(schedule, [row_tiles], work))
    start = schedule.decompose_reduction(sums, reduce_loops(schedule, sums)[0])
    if dot:
        schedule.vectorize(schedule.get_loops(start)[-1])
        schedule.tensorize(schedule.get_loops(sums)[-2], intrinsic(dot, lanes))
    return f"{tile.wide} rows of {tile.deep} x {lanes} columns at once"


def _pack(schedule: s_tir.Schedule, block: SBlockRV, ragged: bool, *, of_terms: bool) -> None:
    work = work_of(schedule, block)
    *outer, part, _term, lane = schedule.get_loops(block)[: -1 if of_terms else None]
    if of_terms:
        schedule.unroll(schedule.get_loops(block)[-1])
    else:
        schedule.vectorize(lane)
    if ragged:
        partition(schedule, part)
    else:
        outer.append(part)
    if outer:
        parallel(schedule, outer, work)
