"""Reductions: pools, products of computed tensors, softmax and normalizations; their sums in registers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tvm import ir, s_tir, te, tirx
from tvm.s_tir.schedule import LoopRV, SBlockRV

from adt.compiler.ir.nodes import tir_nodes
from adt.compiler.passes.cpu.kernel import (
    UNROLLED_TAPS,
    VECTORS_EACH,
    Kernel,
    extent_of,
    loops_of,
    parallel,
    partition,
    reduce_loops,
    spatial_loops,
    vector_width,
    work_of,
)
from adt.compiler.passes.cpu.vectors import Vectors
from adt.compiler.passes.layout.blocks import ceil_blocks
from adt.compiler.passes.layout.signature import SPATIAL, variables_of
from adt.compiler.passes.normalizations import Element
from adt.compiler.passes.scheduling import Decisions, NoSchedule, divisors, unroll_all

ROW = "whole_row"
"""The blocks that hold a row with what it lacks to whole vectors."""
MOST_SHARED = 8
"""Vectors of sums that share what is read along the last axis."""


def reduction(schedule: s_tir.Schedule, vectors: Vectors, _decisions: Decisions) -> str:
    """Schedule one reduction: sums in registers, lanes along the output's last axis or along the sum."""
    kernel = Kernel(schedule)
    if len(kernel.sums) != 1:
        raise NoSchedule(f"it has {len(kernel.sums)} reductions")
    store, (sums,) = kernel.store_apart(keep=kernel.sums)
    loops = schedule.get_loops(store)
    if not loops:
        schedule.add_unit_loop(store)  # TVM fails to part the sums beside a block without a loop
        stages = _lane_sums(schedule, sums, vectors)
        if len(stages) == 1:
            raise NoSchedule("it is a scalar of few terms")
        _vectorize_stages(schedule, stages, None, vectors)
        return "the terms of the only sum in lanes"
    work = work_of(schedule, sums)
    places = math.prod(extent_of(schedule, loop) for loop in spatial_loops(schedule, sums))
    if places < math.prod(extent_of(schedule, loop) for loop in loops):
        raise NoSchedule("its sums are each read by several elements")
    *outer, last = loops
    width = vector_width(extent_of(schedule, last), vectors.lanes)
    if width == 1 or _terms_lie_together(schedule, sums):
        _sum_along_lanes(schedule, store, sums, vectors, work)
        return "the terms of a sum in lanes"
    tiled = _row_to_share(schedule, sums) if outer else None
    if extent_of(schedule, last) % width == 0 and width <= vectors.lanes:
        width *= max(divisors(extent_of(schedule, last) // width, MOST_SHARED))
    size = width & -width  # LLVM keeps no vectors of 48 in registers
    part, several, vector = schedule.split(last, [None, width // size, size])
    schedule.unroll(several)
    if tiled is not None and tiled < len(outer):
        shared = max(1, MOST_SHARED * vectors.lanes // max(width, vectors.lanes))
        size = max(divisors(extent_of(schedule, outer[tiled]), shared))
        tiles, within = schedule.split(outer[tiled], [None, size])
        outer = [*outer[:tiled], tiles, *outer[tiled + 1 :], part]
        schedule.reorder(*outer, within, several, vector)
        schedule.unroll(within)
    else:
        outer = [*outer, part]
    schedule.vectorize(vector)
    schedule.compute_at(sums, outer[-1], preserve_unit_loops=True)
    reduce = reduce_loops(schedule, sums)
    inner = spatial_loops(schedule, sums)[len(outer) :]
    schedule.reorder(*reduce, *inner)
    if math.prod(extent_of(schedule, loop) for loop in reduce) <= UNROLLED_TAPS:
        unroll_all(schedule, reduce)
    *inner, last = inner
    part, lane = schedule.split(last, [None, size])
    unroll_all(schedule, (*inner, part), lane)
    parallel(schedule, outer, work)
    schedule.decompose_reduction(sums, reduce_loops(schedule, sums)[0])
    return f"{width} sums in lanes"


def _sum_along_lanes(
    schedule: s_tir.Schedule, store: SBlockRV, sums: SBlockRV, vectors: Vectors, work: int
) -> None:
    """Schedule few outputs with long sums: a lane takes every term that is a vector behind its last."""
    outer = schedule.get_loops(store)
    stages = _lane_sums(schedule, sums, vectors)
    for stage in reversed(stages):
        schedule.compute_at(stage, outer[-1], preserve_unit_loops=True)
    at = parallel(schedule, outer, work)
    _vectorize_stages(schedule, stages, at, vectors)


def _terms_lie_together(schedule: s_tir.Schedule, sums: SBlockRV) -> bool:
    """True if one term after the other is read of whatever differs by term."""
    block = schedule.get(sums)
    loads = tir_nodes(block.body, tirx.BufferLoad)
    terms = {axis.var for axis in block.iter_vars if int(axis.iter_type) != SPATIAL}
    last = [variables_of(load.indices[-1:]) for load in loads if terms & variables_of(load.indices)]
    return bool(last) and all(used and used <= terms for used in last)


def _lane_sums(schedule: s_tir.Schedule, sums: SBlockRV, vectors: Vectors) -> list[SBlockRV]:
    """Sum the terms of *sums* in lanes first, where they are many and divide; return the blocks, *sums* last.

    Several vectors first, since each addition waits for the one before it; in the end four numbers.
    """
    stages = []
    for lanes in (VECTORS_EACH * vectors.lanes, vectors.lanes, 4):
        last = reduce_loops(schedule, sums)[-1]
        length = extent_of(schedule, last)
        if length % lanes == 0 and length >= (8 if lanes > vectors.lanes else 2) * lanes:
            _, lane = schedule.split(last, [None, lanes])
            stages.append(schedule.rfactor(lane, len(schedule.get(sums).writes[0].buffer.shape)))
    return [*stages, sums]


def _vectorize_stages(
    schedule: s_tir.Schedule, stages: Sequence[SBlockRV], at: LoopRV | None, vectors: Vectors
) -> None:
    """Turn the loops of *stages* in *at*, or all, into vectors; then part their sums from their starts."""
    for stage in stages:
        _vectorize_row(schedule, stage, at, vectors)
    for stage in stages:
        if reduce := reduce_loops(schedule, stage):
            schedule.decompose_reduction(stage, reduce[0])


def _vectorize_row(schedule: s_tir.Schedule, block: SBlockRV, at: LoopRV | None, vectors: Vectors) -> None:
    """Turn the places of *block* inside of *at* into vectors, within the terms of its sums."""
    variables = [schedule.get(loop).loop_var for loop in schedule.get_loops(block)]
    outside = set() if at is None else {*variables[: variables.index(schedule.get(at).loop_var) + 1]}
    places, reduce = loops_of(schedule, block)
    row = [
        place
        for place in places
        if schedule.get(place).loop_var not in outside and extent_of(schedule, place) > 1
    ]
    if not row:
        return
    extent = extent_of(schedule, row[-1])
    width = VECTORS_EACH * vectors.lanes if reduce else vectors.lanes
    if reduce and extent <= width:
        schedule.reorder(*reduce, row[-1])
        schedule.vectorize(row[-1])
    elif not reduce:
        part, vector = schedule.split(row[-1], [None, width])
        schedule.vectorize(vector)
        partition(schedule, part)  # where there is anything behind whole vectors


def _row_to_share(schedule: s_tir.Schedule, sums: SBlockRV) -> int | None:
    """Return the output axis whose places can share vectors: all read the same along the last axis."""
    block = schedule.get(sums)
    axes = [iterator.var for iterator in block.iter_vars if int(iterator.iter_type) == SPATIAL]
    if len(axes) < 2:
        return None
    loads = tir_nodes(block.body, tirx.BufferLoad)
    along = [variables_of(load.indices) for load in loads if not load.buffer.same_as(block.writes[0].buffer)]
    vectors = [used for used in along if axes[-1] in used]
    if not vectors or len(along) == len(vectors):
        return None
    places = reversed(range(len(axes) - 1))
    return next((place for place in places if not any(axes[place] in used for used in vectors)), None)


def rows(schedule: s_tir.Schedule, vectors: Vectors, _decisions: Decisions) -> str:
    """Schedule several reductions of each row: a row at a time, or over other axes a vector of rows."""
    if not Kernel(schedule).sums:
        raise NoSchedule("it has no reductions")
    _inline_before_store(schedule)
    kernel = Kernel(schedule)
    store = schedule.get_sblock(kernel.output)
    loops = schedule.get_loops(store)
    own = _axes_of_sums(schedule, kernel)
    if len(loops) < 2 or not own:
        raise NoSchedule("it has no rows")
    outer, across = [loops[place] for place in own], own != list(range(len(own)))
    if across:
        rest = [loop for place, loop in enumerate(loops) if place not in own]
        last = extent_of(schedule, outer[-1])
        part, vector = schedule.split(outer[-1], [None, max(divisors(last, VECTORS_EACH * vectors.lanes))])
        outer[-1] = part
        schedule.reorder(*outer, *rest, vector)
    work = sum(work_of(schedule, schedule.get_sblock(name)) for name in kernel.sums)
    names = [name for name in kernel.names if name != kernel.output]
    for name in reversed(names):
        block = schedule.get_sblock(name)
        if name not in kernel.sums and not name.startswith(ROW) and not _reads_sums(schedule, block):
            schedule.compute_inline(block)
            names.remove(name)
    stages = []
    for name in names:
        block = schedule.get_sblock(name)
        along = name in kernel.sums and not across
        stages += _lane_sums(schedule, block, vectors) if along else [block]
    for block in reversed(stages):
        schedule.compute_at(block, outer[-1], preserve_unit_loops=True)
    at = parallel(schedule, outer, work)  # before sums are divided, after which it is refused
    _vectorize_stages(schedule, [*stages, store], at, vectors)
    return "a vector of rows at a time" if across else "a row at a time"


def _inline_before_store(schedule: s_tir.Schedule) -> None:
    """Compute where each element is stored what it alone goes through before, as to be quantized."""
    kernel = Kernel(schedule)
    store = schedule.get_sblock(kernel.output)
    places = work_of(schedule, store)
    while behind := [
        block
        for block in schedule.get_producers(store)
        if not reduce_loops(schedule, block)
        and work_of(schedule, block) == places
        and len(schedule.get_consumers(block)) == 1
        and not schedule.get(block).name_hint.startswith(ROW)
    ]:
        for block in behind:
            schedule.compute_inline(block)


def _axes_of_sums(schedule: s_tir.Schedule, kernel: Kernel) -> list[int]:
    """Return the output's axes that sums have, too, or what is computed of sums for each row."""

    def written(name: str) -> tirx.Buffer:
        return schedule.get(schedule.get_sblock(name)).writes[0].buffer

    sizes = {math.prod(map(int, written(name).shape)) for name in kernel.sums}
    buffers = [written(name) for name in kernel.names if name != kernel.output]
    by_row = [buffer for buffer in buffers if math.prod(map(int, buffer.shape)) in sizes]
    block = schedule.get(schedule.get_sblock(kernel.output))
    loads = tir_nodes(block.body, tirx.BufferLoad)
    own = [load for load in loads if any(load.buffer.same_as(buffer) for buffer in by_row)]
    used = variables_of([index for load in own for index in load.indices])
    return [place for place, iterator in enumerate(block.iter_vars) if iterator.var in used]


def _reads_sums(schedule: s_tir.Schedule, block: SBlockRV) -> bool:
    return any(reduce_loops(schedule, producer) for producer in schedule.get_producers(block))


def whole_vectors(function: tirx.PrimFunc, vectors: Vectors) -> tirx.PrimFunc:
    """Return the unscheduled TIR *function* with the terms of its only reduction as one axis of whole
    vectors; the same one where they are, or do not lie together.

        for part:  start = min(part * lanes, length - lanes)
                   for lane:  sum += term[start + lane] if start + lane >= part * lanes else 0

    The last vector begins earlier where the terms are not whole vectors: terms that the vector before has,
    too, change no maximum or minimum, and are left out of a sum.
    """
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
    """Return the number of sums in which *length* terms are added up first; 1: they are too few."""
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
    """Return *function* whose *block* has axes of other *sizes*, reads at *places*, and stores *value*."""
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

    kinds = ["tirx.For", "tirx.SBlock"]
    return function.with_body(tirx.stmt_functor.ir_transform(function.body, None, resized, kinds))


class VectorRow:
    """The rows of a tensor, and the whole vectors that hold one; a place has the tensor's indices.

    A row that is no whole vectors is copied first, with what changes no result behind it, so that only the
    copy and the store of :func:`rows` go by elements.
    """

    def __init__(self, x: te.Tensor, lanes: int) -> None:
        self.x = x
        (*self.outer, self.length) = (int(extent) for extent in x.shape)
        size = lanes if self.length > lanes else 4
        self.padded = ceil_blocks(self.length, size) * size

    def filled(self, value: float) -> Element:
        """Pad each row with *value* up to whole vectors."""
        if self.padded == self.length:
            return lambda *at: self.x(*at)
        rest = tirx.const(value, "float32")
        return self.each(lambda *at: tirx.if_then_else(at[-1] < self.length, self.x(*at), rest), ROW)

    def each(self, value: Element, name: str) -> Element:
        """Compute a tensor of whole vectors."""
        tensor = te.compute((*self.outer, self.padded), value, name=name)
        return lambda *at: tensor(*at)

    def masked(self, value: Element, name: str) -> Element:
        """Compute a tensor of whole vectors where a row is none; else return *value*, soon computed again."""
        if self.padded == self.length:
            return value
        rest = tirx.const(0, "float32")
        return self.each(lambda *at: tirx.Select(at[-1] < self.length, value(*at), rest), f"{ROW}_{name}")

    def reduced(self, reduce: Any, value: Element, name: str) -> Element:
        """Reduce to a tensor of one element for each row."""
        k = te.reduce_axis((0, self.padded), "k")
        tensor = te.compute(tuple(self.outer), lambda *at: reduce(value(*at, k), axis=k), name=name)
        return lambda *at: tensor(*at[:-1])

    def result(self, value: Element, name: str) -> te.Tensor:
        """Compute the tensor, without what is behind a row."""
        return te.compute(self.x.shape, lambda *at: value(at, at), name=name)
