"""Rows of softmax and normalizations on a GPU, each dealt out to work-items of one work-group, and reductions
that TVM's rules for sums do not take.

Work-item p of P takes every P-th vector of a row, so that neighbours read what lies together, and keeps
them in registers where they are few. What each has of a sum or a maximum goes to the others through local
memory; of many, a work-item first puts eight together, and then these::

    own x = x[p], x[p + P], …    own part = sum of them    shared parts[p] = own part    barrier
    shared eights[p] = sum of 8 parts    barrier    own total = sum of P / 8 eights

Where a row is not the last axis, as the places of a blocked map are not, the lanes of a vector have sums of
their own. A place is ``(outer…, column, item, step, lane)``: the indices before the row, which vector
of the axis behind it, the work-item, how many it had before, and the lane.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import arith, ir, s_tir, te, tirx
from tvm.s_tir.schedule import SBlockRV

from adt.compiler.ir.nodes import block_with, tir_nodes
from adt.compiler.passes.gpu.texels import reduce_loops, writes_texels
from adt.compiler.passes.gpu.tiles import powers
from adt.compiler.passes.layout.blocks import ceil_blocks
from adt.compiler.passes.layout.signature import SPATIAL, reduces, variables_of
from adt.compiler.passes.normalizations import Element
from adt.compiler.passes.scheduling import Decisions, divisors
from adt.compiler.targets.gpu import Gpu
from adt.package.reports import LANES

OWN, SHARED = "own_", "shared_"
"""Beginnings of the names of stages: in registers of a work-item, and in local memory."""
TOGETHER = 8
"""Parts that a work-item puts together at a time."""
LARGEST_GROUP = 1 << 10
"""Work-items that share a row at most."""
ALONE = 16
"""Elements of a row that one work-item takes by itself."""
LEAST_SHARING = 4
"""Work-items that share a longer one, so that neighbours read 64 bytes."""
MOST_UNROLLED = 32
"""Steps of a loop whose vectors are to be registers, not places in memory."""
BEFORE_ELEMENTWISE = {"op_pattern": 4}
"""The attribute by which TVM fuses into a kernel the elementwise operators that follow it."""
LEAST_SHARED = 32
"""Terms from which work-items share them."""
LEAST_EACH = 4
"""Least number of terms of a work-item that shares them."""


@dataclass(frozen=True)
class Deal:
    """Distribution of the vectors of a row."""

    items: int
    """Work-items of a row."""
    steps: int
    """Vectors of each."""
    kept: bool
    """They fit its registers."""


def deal_of(vectors: int, lanes: int, outer: Sequence[int], gpu: Gpu) -> Deal:
    """Distribute rows of *vectors* vectors of *lanes* elements, one for each index of the axes *outer*.

    As few work-items share a row as keep it in their registers, the GPU busy and its waves full.
    """
    room = 2 * gpu.sums  # elements: half of what a convolution keeps, for there may be two results of each
    sizes = [size for size in powers(min(gpu.work_group, LARGEST_GROUP)) if size >= LEAST_SHARING]
    if vectors * lanes <= ALONE or not sizes:
        return Deal(1, vectors, kept=vectors * lanes <= ALONE)

    def suffices(size: int) -> bool:
        busy = size * math.prod(outer) >= gpu.items and size * _rows_together(outer, size, gpu) >= gpu.wave
        return size >= vectors or (busy and ceil_blocks(vectors, size) * lanes <= room)

    steps = ceil_blocks(vectors, next(filter(suffices, sizes), sizes[-1]))
    return Deal(ceil_blocks(vectors, steps), steps, kept=steps * lanes <= room)


def lanes_of(extent: int) -> int:
    """Return the number of elements of a vector along an axis."""
    return LANES if extent % LANES == 0 else 1


class DealtRow:
    """The rows of a tensor, dealt out; see :class:`adt.compiler.passes.normalizations.Row`."""

    def __init__(self, x: te.Tensor, gpu: Gpu, *, apart: bool = False) -> None:
        """Deal out the rows of *x*: its last axis; with *apart*, the axes between the first two and it."""
        self.x = x
        shape = [int(extent) for extent in x.shape]
        first, end = (2, len(shape) - 1) if apart else (len(shape) - 1, len(shape))
        self.outer, self.axes = shape[:first], shape[first:end]
        self.length = math.prod(self.axes)
        self.apart = apart
        self.lanes = lanes_of(shape[-1])
        self.columns = shape[-1] // self.lanes if apart else 1
        self.vectors = self.length if apart else self.length // self.lanes
        self.deal = deal_of(self.vectors, self.lanes, [*self.outer, self.columns], gpu)
        self.whole = self.deal.items * self.deal.steps == self.vectors

    def filled(self, value: float) -> Element:
        """Read from registers, if a row is kept there; else where it is wanted."""
        return self._within(lambda *at: self.x(*self._indices(at)), value, "x")

    def masked(self, value: Element, name: str) -> Element:
        """Return *value* itself where work-items have no places behind a row."""
        return value if self.whole else self._within(value, 0.0, name)

    def each(self, value: Element, name: str) -> Element:
        """Keep *value* in registers, if a row is kept there."""
        if not self.deal.kept:
            return value
        shape = (*self.outer, self.columns, self.deal.items, self.deal.steps, self.lanes)
        stage = te.compute(shape, value, name=f"{OWN}{name}")
        return lambda *at: stage(*at)

    def reduced(self, reduce: Element, value: Element, name: str) -> Element:
        """Reduce so that each work-item has the result."""
        items = self.deal.items
        total = self._part(reduce, value, name)
        neutral = tirx.const(0, "float32") if reduce is te.sum else te.min_value("float32")

        def together(
            parts: te.Tensor,
            count: int,
            place: Callable[[tirx.PrimExpr, tirx.PrimExpr], tirx.PrimExpr],
            suffix: str,
        ) -> te.Tensor:
            """Reduce *count* parts, each at the *place* of a work-item and a number."""
            number = te.reduce_axis((0, count), "part")

            def term(*at: tirx.PrimExpr) -> tirx.PrimExpr:
                *outer, item, lane = at
                where = place(item, number)
                part = parts(*outer, where, lane)
                return reduce(tirx.if_then_else(tirx.all(where < items), part, neutral), number)

            return te.compute(parts.shape, term, name=f"{OWN}{name}_{suffix}")

        if items > TOGETHER:
            parts = _shared(total, f"{name}_parts")
            total = together(parts, TOGETHER, lambda item, k: item // TOGETHER * TOGETHER + k, "eight")
        if items > 1:
            step = TOGETHER if items > TOGETHER else 1
            parts = _shared(total, f"{name}_eights" if items > TOGETHER else f"{name}_parts")
            total = together(parts, ceil_blocks(items, step), lambda _item, k: k * step, "total")
        return lambda *at: total(*at[:-2], at[-1] if self.apart else 0)

    def _part(self, reduce: Element, value: Element, name: str) -> te.Tensor:
        """Reduce a work-item's own part of a row: ``[outer…, column, item, 1 or lane]``."""
        shape = (*self.outer, self.columns, self.deal.items)
        step, lane = te.reduce_axis((0, self.deal.steps), "step"), te.reduce_axis((0, self.lanes), "lane")

        def of_lane(*at: tirx.PrimExpr) -> tirx.PrimExpr:
            return reduce(value(*at[:-1], step, at[-1]), step)

        if self.apart or self.lanes == 1:
            return te.compute((*shape, self.lanes), of_lane, name=f"{OWN}{name}")
        by_lane = te.compute((*shape, self.lanes), of_lane, name=f"{OWN}{name}_lanes")
        return te.compute((*shape, 1), lambda *at: reduce(by_lane(*at[:-1], lane), lane), name=f"{OWN}{name}")

    def result(self, value: Element, name: str) -> te.Tensor:
        """Compute the tensor, whose stages are those of :func:`rows`."""
        return te.compute(self.x.shape, lambda *indices: value(self._place(indices), indices), name=name)

    def _within(self, value: Element, outside: float, name: str) -> Element:
        def element(*at: tirx.PrimExpr) -> tirx.PrimExpr:
            *_, item, step, _lane = at
            inside = step * self.deal.items + item < self.vectors
            return tirx.if_then_else(inside, value(*at), tirx.const(outside, "float32"))

        return self.each(value if self.whole else element, name)

    def _indices(self, at: Sequence[tirx.PrimExpr]) -> list[tirx.PrimExpr]:
        *outer, column, item, step, lane = at
        vector = step * self.deal.items + item
        place: tirx.PrimExpr = vector if self.apart else vector * self.lanes + lane
        along: list[tirx.PrimExpr] = []
        for extent in reversed(self.axes[1:]):
            along, place = [place % extent, *along], place // extent
        return [*outer, place, *along, *([column * self.lanes + lane] if self.apart else [])]

    def _place(self, indices: Sequence[tirx.PrimExpr]) -> list[tirx.PrimExpr]:
        count = len(self.outer)
        along: tirx.PrimExpr = 0
        for index, extent in zip(indices[count:], self.axes, strict=False):
            along = along * extent + index
        last = indices[-1] if self.apart else along
        vector = along if self.apart else along // self.lanes
        column = last // self.lanes if self.apart else 0
        return [
            *indices[:count],
            column,
            vector % self.deal.items,
            vector // self.deal.items,
            last % self.lanes,
        ]


def _shared(part: te.Tensor, name: str) -> te.Tensor:
    return te.compute(part.shape, lambda *at: part(*at), name=f"{SHARED}{name}")


def is_dealt(function: tirx.PrimFunc) -> bool:
    """Return True if the unscheduled TIR *function* goes through rows in this way."""
    return any(block.name_hint.startswith(OWN) for block in tir_nodes(function.body, tirx.SBlock))


def with_own_places(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Index by a loop over work-items where each reads its own, not by quotients: only then does TVM see
    that a work-item needs no room for the others' elements."""
    analyzer = arith.Analyzer()
    for loop in tir_nodes(function.body, tirx.For):
        analyzer.bind(loop.loop_var, ir.Range.from_min_extent(loop.min, loop.extent))

    output = function.buffer_map[function.params[-1]]

    def in_loops(realize: tirx.SBlockRealize) -> Any:
        block = realize.block
        if len(block.writes) != 1 or not block.writes[0].buffer.same_as(output):
            return None
        values = dict(zip((axis.var for axis in block.iter_vars), realize.iter_values, strict=True))

        def own(load: tirx.BufferLoad) -> Any:
            if not load.buffer.name.startswith(OWN):
                return None
            places = [tirx.stmt_functor.substitute(index, values) for index in load.indices]
            return tirx.BufferLoad(load.buffer, [analyzer.simplify(place) for place in places])

        body = tirx.stmt_functor.ir_transform(block.body, None, own, ["tirx.BufferLoad"])
        return tirx.SBlockRealize(
            realize.iter_values, realize.predicate, block_with(block, body, block.reads)
        )

    body = tirx.stmt_functor.ir_transform(function.body, None, in_loops, ["tirx.SBlockRealize"])
    return function.with_body(body)


def rows(schedule: s_tir.Schedule, gpu: Gpu, _decisions: Decisions, *, by_lane: bool = False) -> None:
    """Schedule a kernel of :class:`DealtRow`; *by_lane*: stored by elements, where TVM has no vectors."""
    root = schedule.get_sblock("root")
    blocks = {schedule.get(block).name_hint: schedule.get(block) for block in schedule.get_child_blocks(root)}
    (output,) = (schedule.get(block).name_hint for block in schedule.get_output_blocks(root))
    stages = [name for name in blocks if name.startswith((OWN, SHARED))]
    for name in blocks:
        if name != output and name not in stages:
            schedule.compute_inline(schedule.get_sblock(name))
    for name in stages:
        scope = "shared" if name.startswith(SHARED) else "local"
        schedule.set_scope(schedule.get_sblock(name), 0, scope)
    *before, items, lanes = next(
        [int(extent) for extent in blocks[name].writes[0].buffer.shape]
        for name in reversed(stages)
        if reduces(blocks[name])
    )
    store = schedule.get_sblock(output)
    loops = schedule.get_loops(store)
    outer, row = loops[: len(before) - 1], loops[len(before) - 1 :]
    apart = len(row) > 1
    if apart:
        column, lane = schedule.split(row.pop(), [None, lanes])
        vector = schedule.fuse(*row) if len(row) > 1 else row[0]
        outer = [*outer, column]
    else:
        vector, lane = schedule.split(row[0], [None, lanes_of(int(schedule.get(row[0]).extent))])
        outer = [*outer, schedule.add_unit_loop(vector)]
    step, item = schedule.split(vector, [None, items])
    schedule.reorder(*outer, item, step, lane)
    at = _axis_of_groups(before)
    group, together = schedule.split(outer[at], [None, _rows_together(before, items, gpu)])
    schedule.reorder(*outer[:at], group, *outer[at + 1 :], together)
    group = schedule.fuse(*outer[:at], group, *outer[at + 1 :])
    # Neighbours read what lies together: along the row, or columns of it.
    threads = ("threadIdx.y", "threadIdx.x") if apart and before[-1] > 1 else ("threadIdx.x", "threadIdx.y")
    schedule.bind(group, "blockIdx.x")
    schedule.bind(item, threads[0])
    schedule.bind(together, threads[1])
    for name in reversed(stages):
        schedule.compute_at(schedule.get_sblock(name), group, preserve_unit_loops=True)
    for name in stages:
        _finish(schedule, schedule.get_sblock(name), at, len(before), threads)
    if not by_lane:
        schedule.vectorize(lane)
    if int(schedule.get(step).extent) <= MOST_UNROLLED:
        schedule.unroll(step)


def _axis_of_groups(outer: Sequence[int]) -> int:
    """Return the axis before a row along which a work-group takes several."""
    return max((place for place, extent in enumerate(outer) if extent > 1), default=0)


def _rows_together(outer: Sequence[int], items: int, gpu: Gpu) -> int:
    """Return the number of rows of a work-group: a divisor, since all its work-items meet at a barrier."""
    fitting = divisors(outer[_axis_of_groups(outer)], gpu.work_group // items)
    return next((size for size in fitting if size * items >= gpu.wave), fitting[-1])


def _finish(schedule: s_tir.Schedule, stage: SBlockRV, at: int, before: int, threads: Sequence[str]) -> None:
    """Bind the loops of a *stage* and make vectors of its lanes."""
    loops = schedule.get_loops(stage)[1:]
    schedule.bind(loops[at], threads[1])
    schedule.bind(loops[before], threads[0])
    kinds = [int(axis.iter_type) for axis in schedule.get(stage).iter_vars]
    inner = list(zip(loops[before + 1 :], kinds[before + 1 :], strict=True))
    steps = [loop for loop, kind in inner if kind != SPATIAL]
    *places, lane = (loop for loop, kind in inner if kind == SPATIAL)
    schedule.reorder(*places, *steps, lane)
    if int(schedule.get(lane).extent) > 1:
        schedule.vectorize(lane)
    for loop in (*places, *steps):
        if int(schedule.get(loop).extent) <= MOST_UNROLLED:
            schedule.unroll(loop)
    if steps:
        schedule.decompose_reduction(stage, steps[0])


def is_other_reduction(function: tirx.PrimFunc) -> bool:
    """Return True if the unscheduled TIR *function* reduces once, not to a sum, and writes no texels."""
    blocks = [block for block in tir_nodes(function.body, tirx.SBlock) if block.init is not None]
    if len(blocks) != 1 or writes_texels(function):
        return False
    body = blocks[0].body
    return not isinstance(body, tirx.BufferStore) or not isinstance(body.value, tirx.Add)


def reduction(schedule: s_tir.Schedule, gpu: Gpu, _decisions: Decisions) -> None:
    """Schedule a maximum, minimum, product or the place of an extremum (:func:`is_other_reduction`).

    Where neighbouring results read neighbouring elements, each work-item computes one; else the work-items
    of a group share its terms, each reading every P-th, and TVM puts their parts together in local memory.
    """
    root = schedule.get_sblock("root")
    blocks = schedule.get_child_blocks(root)
    (total,) = (block for block in blocks if reduces(schedule.get(block)))
    (output,) = schedule.get_output_blocks(root)
    store = output
    if schedule.get(output).same_as(schedule.get(total)):
        store = schedule.cache_write(total, 0, "local")
    for block in blocks:
        if not any(schedule.get(block).same_as(schedule.get(other)) for other in (total, store)):
            schedule.compute_inline(block)
    for place in range(len(schedule.get(total).writes)):
        schedule.set_scope(total, place, "local")
    loops = schedule.get_loops(store) or [schedule.add_unit_loop(store)]
    results = schedule.fuse(*loops) if len(loops) > 1 else loops[0]
    count = int(schedule.get(results).extent)
    terms = _terms(schedule.get(total))
    if terms < LEAST_SHARED or not _reads_along_terms(schedule.get(total)):
        group, item = schedule.split(results, [None, min(gpu.work_group, count)])
        schedule.bind(group, "blockIdx.x")
        schedule.bind(item, "threadIdx.x")
        schedule.compute_at(total, item, preserve_unit_loops=True)
        schedule.decompose_reduction(total, reduce_loops(schedule, total)[0])
        return
    sizes = powers(min(gpu.work_group, LARGEST_GROUP, terms // LEAST_EACH))
    items = next((size for size in sizes[2:] if size * count >= gpu.items), sizes[-1])
    together = divisors(count, max(1, gpu.wave // items))[-1]
    group, one = schedule.split(results, [None, together])
    schedule.bind(group, "blockIdx.x")
    schedule.bind(one, "threadIdx.y")
    schedule.compute_at(total, one, preserve_unit_loops=True)
    reduce = reduce_loops(schedule, total)
    along = schedule.fuse(*reduce) if len(reduce) > 1 else reduce[0]
    step, item = schedule.split(along, [None, items])
    schedule.reorder(item, step)
    schedule.bind(item, "threadIdx.x")


def _terms(block: tirx.SBlock) -> int:
    return math.prod(int(axis.dom.extent) for axis in block.iter_vars if int(axis.iter_type) != SPATIAL)


def _reads_along_terms(block: tirx.SBlock) -> bool:
    """Return True if one term lies beside the other in memory."""
    last = {axis.var for axis in block.iter_vars if int(axis.iter_type) != SPATIAL}
    regions = [region for region in block.reads if region.region]
    return any(last & variables_of([region.region[-1].min]) for region in regions)
