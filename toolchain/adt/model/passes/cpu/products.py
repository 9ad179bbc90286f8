"""Products by a tensor that the model computes, as attention has them.

    parallel for batch, tile of rows:  for panel of columns:
        for k:  for row in tile:  for vector in panel:  sum[row][vector] += a[row][k] * b[k][vector]
        store the tile, with all that is fused behind it

Where a row of the right operand is no whole vectors in memory (transposed keys, 197 tokens), it is packed
into panels ``(…, ceil(N/L), K, L)`` first. How an operand was transposed is how the kernel reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from adt.model.passes.cpu.decisions import Decisions
from adt.model.passes.cpu.kernel import (
    Kernel,
    NoSchedule,
    extent_of,
    parallel,
    partition,
    reduce_loops,
    spatial_loops,
    work_of,
)
from adt.model.passes.cpu.tiles import best_tile
from adt.model.passes.cpu.vectors import Vectors
from adt.model.passes.layout.blocks import ceil_blocks
from adt.model.passes.layout.rewriter import static_shape
from adt.model.passes.precision.half import SINGLE
from adt.model.passes.products import Products, Read, broadcast, sums_of, whole

SUMS, PANELS = "product_sums", "product_panels"
"""The blocks of such a kernel: the sums, and the right operand where it is packed."""
TERMS = "terms"
"""The block whose lanes take the terms of a sum: too few rows share those."""
LEAST_ROWS = 4
"""Rows from which on it is worth to pack what they share."""


class CpuProducts(Products):
    """Makes a kernel of each product of float32 by a computed tensor, where the shapes are known."""

    transposes_results = False

    def __init__(self, module: Any, vectors: Vectors) -> None:
        super().__init__(module)
        self.vectors = vectors

    def takes(self, left: Any, right: Any) -> bool:
        """Whether the product of these operands becomes a kernel."""
        if left.struct_info.dtype != SINGLE or not super().takes(left, right):
            return False
        return (static_shape(left) or ())[-2] >= LEAST_ROWS or self.view_of(right).lies_along(-2)

    def product(self, left: Any, right: Any, _result: Any, _order: Sequence[int] = ()) -> Any:
        """The call that computes the product of these operands."""
        a, b = self.view_of(left), self.view_of(right)
        lanes = _lanes(b.shape[-1], self.vectors)
        if not a.lies_along(-1):
            a = whole(left)
        shapes = a.shape, b.shape
        if a.shape[-2] >= LEAST_ROWS and (b.shape[-1] % lanes or not b.lies_along(-1)):
            return self.emit_product(a, b, lambda x, y: _in_panels(a.read(x), b.read(y), shapes, lanes))
        name = SUMS if a.shape[-2] >= LEAST_ROWS else TERMS
        return self.emit_product(a, b, lambda x, y: sums_of(a.read(x), b.read(y), shapes, SINGLE, name))


def _lanes(columns: int, vectors: Vectors) -> int:
    """The narrowest vectors of which as few hold all *columns*."""
    widths = [lanes for lanes in (4, 8, 16) if lanes <= vectors.lanes]
    return min(widths, key=lambda lanes: (ceil_blocks(columns, lanes), lanes))


def _in_panels(a: Read, b: Read, shapes: Sequence[Sequence[int]], lanes: int) -> Any:
    """The tensor expression of a product whose right operand is packed into panels of so many *lanes*."""
    from tvm import te, tirx

    (*_, rows, terms), (*batch_b, _, columns) = shapes
    batch, (of_a, of_b) = broadcast(shapes)
    k = te.reduce_axis((0, terms), "k")

    def packed(*at: Any) -> Any:
        part, place, lane = at[-3:]
        column = part * lanes + lane
        value = b(*at[:-3], place, column)
        return tirx.if_then_else(column < columns, value, 0.0) if columns % lanes else value

    packs = te.compute((*batch_b, ceil_blocks(columns, lanes), terms, lanes), packed, name=PANELS)

    def term(*at: Any) -> Any:
        *places, row, part, lane = at
        return te.sum(a(*of_a(places), row, k) * packs(*of_b(places), part, k, lane), axis=k)

    sums = te.compute((*batch, rows, ceil_blocks(columns, lanes), lanes), term, name=SUMS)
    return te.compute(
        (*batch, rows, columns), lambda *at: sums(*at[:-1], at[-1] // lanes, at[-1] % lanes), name="product"
    )


def product(schedule: Any, vectors: Vectors, _decisions: Decisions) -> str:
    """A product by a tensor that the model computes.

    Raises:
        NoSchedule: it is none.
    """
    kernel = Kernel(schedule)
    if not any(name.startswith(SUMS) for name in kernel.sums) or len(kernel.sums) != 1:
        raise NoSchedule("it is no product of computed tensors")
    packs = [name for name in kernel.names if name.startswith(PANELS)]
    store, (sums,) = kernel.store_apart(keep=(*packs, *kernel.sums))
    *batch, row, column = schedule.get_loops(store)
    rows, columns = extent_of(schedule, row), extent_of(schedule, column)
    packed = extent_of(schedule, schedule.get_loops(schedule.get_sblock(packs[0]))[-1]) if packs else 0
    lanes = packed or _lanes(columns, vectors)
    tile = best_tile(rows, 1, ceil_blocks(columns, lanes), vectors)
    part, lane = schedule.split(column, [None, lanes])
    panel, deep = schedule.split(part, [None, tile.deep])
    tiles, wide = schedule.split(row, [None, tile.wide])
    outer = [*batch, tiles, panel]
    schedule.reorder(*outer, wide, deep, lane)
    for loop in (wide, deep):
        schedule.unroll(loop)
    schedule.vectorize(lane)
    work = work_of(schedule, sums)
    schedule.compute_at(sums, panel, preserve_unit_loops=True)
    inner = spatial_loops(schedule, sums)[len(outer) :]
    (terms,) = reduce_loops(schedule, sums)
    again, once = schedule.split(terms, [None, 4 if extent_of(schedule, terms) % 4 == 0 else 1])
    schedule.reorder(again, once, *inner)
    for loop in (once, *inner[:-1]):
        schedule.unroll(loop)
    schedule.vectorize(inner[-1])
    if packs:
        _pack(schedule, schedule.get_sblock(packs[0]), columns % lanes > 0)
    if columns % lanes:
        partition(schedule, panel)
    if rows % tile.wide == 0:
        parallel(schedule, [*batch, tiles], work)
    elif batch:
        partition(schedule, tiles)
        parallel(schedule, batch, work)
    else:
        partition(schedule, parallel(schedule, [tiles], work))
    schedule.decompose_reduction(sums, reduce_loops(schedule, sums)[0])
    return f"{tile.wide} rows of {tile.deep} x {lanes} columns at once"


def _pack(schedule: Any, block: Any, ragged: bool) -> None:
    """The right operand into panels."""
    work = work_of(schedule, block)
    *outer, part, _term, lane = schedule.get_loops(block)
    schedule.vectorize(lane)
    if ragged:
        partition(schedule, part)
    else:
        outer.append(part)
    if outer:
        parallel(schedule, outer, work)
