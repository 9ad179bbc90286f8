"""Products by a tensor that the model computes, as attention has them.

    parallel for batch, tile of rows:  for panel of columns:
        for k:  for row in tile:  for vector in panel:  sum[row][vector] += a[row][k] * b[k][vector]
        store the tile, with all that is fused behind it

Where a row of the right operand is no whole vectors in memory (transposed keys, 197 tokens), it is packed
into panels ``(…, ceil(N/L), K, L)`` first. How an operand was transposed is how the kernel reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from adt.model.passes.layout.rewriter import Rewriter, static_shape
from adt.model.passes.nodes import operator_name

SUMS, PANELS = "product_sums", "product_panels"
"""The blocks of such a kernel: the sums, and the right operand where it is packed."""
ROWS, TERMS = "rows", "terms"
"""Without panels, lanes take a row of the right operand, or the terms of a sum: too few rows share those."""
LEAST_ROWS = 4
"""Rows from which on it is worth to pack what they share."""


class Products(Rewriter):
    """Makes a kernel of each product of float32 by a computed tensor, where the shapes are known."""

    def __init__(self, module: Any, vectors: Vectors) -> None:
        super().__init__(module)
        self.vectors = vectors
        self.transposed: dict[Any, tuple[Any, tuple[int, ...]]] = {}
        """Variable that is another with permuted axes, to that one and the permutation."""

    def bind(self, binding: Any) -> None:
        call = binding.value
        name = operator_name(call)
        if name == "relax.matmul" and self._is_taken(*call.args):
            self.values[binding.var] = self._product(*call.args)
            return
        if name == "relax.permute_dims" and (shape := static_shape(binding.var)):
            axes = call.attrs.axes or reversed(range(len(shape)))
            self.transposed[binding.var] = (call.args[0], tuple(int(axis) % len(shape) for axis in axes))
        super().bind(binding)

    def _is_taken(self, left: Any, right: Any) -> bool:
        from tvm import relax

        shapes = static_shape(left), static_shape(right)
        if isinstance(right, relax.Constant) or left.struct_info.dtype != "float32" or None in shapes:
            return False
        if any(len(shape or ()) < 2 for shape in shapes):
            return False
        return (shapes[0] or ())[-2] >= LEAST_ROWS or self._columns_lie_together(right)

    def _product(self, left: Any, right: Any) -> Any:
        shapes = [static_shape(operand) or () for operand in (left, right)]
        lanes = _lanes(shapes[1][-1], self.vectors)
        a, of_a = self._source(left)
        if of_a[-1] != len(of_a) - 1:  # a row's elements are to lie together
            a, of_a = left, tuple(range(len(of_a)))
        b, of_b = self._source(right)
        form = ROWS
        if shapes[0][-2] < LEAST_ROWS:
            form = TERMS
        elif shapes[1][-1] % lanes or of_b[-1] != len(of_b) - 1:
            form = PANELS
        return self.builder.emit_te(
            lambda x, y: _product(_permuted(x, of_a), _permuted(y, of_b), shapes, lanes, form),
            self.copy(a),
            self.copy(b),
            primfunc_name_hint="product",
        )

    def _columns_lie_together(self, value: Any) -> bool:
        """Whether *value* is transposed, so that what is summed is a row of its source."""
        _, axes = self._source(value)
        return axes[-2] == len(axes) - 1

    def _source(self, value: Any) -> tuple[Any, tuple[int, ...]]:
        """The tensor that *value* is with permuted axes, and the permutation."""
        return self.transposed.get(value, (value, tuple(range(len(static_shape(value) or ())))))


def _lanes(columns: int, vectors: Vectors) -> int:
    """The narrowest vectors of which as few hold all *columns*."""
    widths = [lanes for lanes in (4, 8, 16) if lanes <= vectors.lanes]
    return min(widths, key=lambda lanes: (ceil_blocks(columns, lanes), lanes))


Read = Callable[..., Any]


def _permuted(tensor: Any, axes: Sequence[int]) -> Read:
    """*tensor* with permuted axes, by its indices."""
    return lambda *places: tensor(*(places[axes.index(axis)] for axis in range(len(axes))))


def _product(a: Read, b: Read, shapes: Sequence[Sequence[int]], lanes: int, form: str) -> Any:
    """The tensor expression; *shapes* of both operands, their first axes broadcast.

    Args:
        form: :data:`PANELS`, :data:`ROWS` or :data:`TERMS`.
    """
    from tvm import te, tirx

    (*batch_a, rows, terms), (*batch_b, _, columns) = shapes
    rank = max(len(batch_a), len(batch_b))
    padded = [[1] * (rank - len(batch)) + list(batch) for batch in (batch_a, batch_b)]
    batch = [max(extents) for extents in zip(*padded, strict=True)]
    k = te.reduce_axis((0, terms), "k")

    def own(places: Sequence[Any], extents: Sequence[int]) -> list[Any]:
        """The places in a batch that is broadcast."""
        last = list(places)[rank - len(extents) :]
        return [0 if extent == 1 else place for place, extent in zip(last, extents, strict=True)]

    def factor(*at: Any) -> Any:
        return a(*own(at[:rank], batch_a), at[rank], k)

    if form != PANELS:
        return te.compute(
            (*batch, rows, columns),
            lambda *at: te.sum(factor(*at) * b(*own(at[:rank], batch_b), k, at[-1]), axis=k),
            name=SUMS if form == ROWS else TERMS,
        )

    def packed(*at: Any) -> Any:
        part, term, lane = at[-3:]
        column = part * lanes + lane
        value = b(*at[:-3], term, column)
        return tirx.if_then_else(column < columns, value, 0.0) if columns % lanes else value

    packs = te.compute((*batch_b, ceil_blocks(columns, lanes), terms, lanes), packed, name=PANELS)
    sums = te.compute(
        (*batch, rows, ceil_blocks(columns, lanes), lanes),
        lambda *at: te.sum(factor(*at) * packs(*own(at[:rank], batch_b), at[-2], k, at[-1]), axis=k),
        name=SUMS,
    )
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
