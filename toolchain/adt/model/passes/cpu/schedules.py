"""Schedules of kernels for CPUs, by rules and without a search.

A convolution or product on blocked tensors keeps a tile of sums in registers
(:mod:`adt.model.passes.cpu.tiles`); a lane is an output channel:

    parallel for tile:
        for block of 16 channels:  for tap:  for four in block:          # the sums of a tile
            for channel in 4:  for position in tile:  for deep:  sum[deep][position] += x * w[deep]
        store the tile, with all that is fused behind it

Anything else has its last axis in lanes where that is long enough, its sums in registers, and what can be
computed where it is read is. A kernel that no rule takes stays a plain loop.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any

from adt.model.inspection.flops import SCHEDULED
from adt.model.passes.cpu.tiles import best_tile
from adt.model.passes.cpu.vector_math import vectorized_math
from adt.model.passes.cpu.vectors import Vectors
from adt.model.passes.layout.blocks import STAGE
from adt.model.passes.layout.signature import REDUCE, SPATIAL, reduces, variables_of
from adt.model.passes.nodes import tir_nodes

log = logging.getLogger("adt.compile")

WORTH_A_THREAD = 1 << 15
"""Multiply-adds, or elements, of a kernel from which on it is given to all threads: to start them takes
about as long as so many take one."""
UNROLLED_TAPS = 9
"""Taps of a window that are unrolled at most, where each is a vector of its own (depthwise, pools)."""
DEPTHWISE_WIDE = 8
MOST_SHARED = 8
"""Vectors of sums that share what is read along the last axis."""
VECTORS_EACH = 4
"""Vectors of sums that a reduction along other axes keeps at once."""
LONGEST_VECTOR = 16
"""Elements that one loop computes as a vector at most, whatever the registers."""
VECTOR_TYPES = ("float32", "float16", "int32", "int64")


class NoSchedule(Exception):
    """A rule does not take a kernel."""


def schedule_kernels(vectors: Vectors) -> Any:
    """The pass that schedules each kernel that has no schedule yet."""
    import tvm
    from tvm import tirx

    @tvm.transform.module_pass(opt_level=0, name="adt.CpuSchedules")  # type: ignore[untyped-decorator]
    def schedule(module: Any, _context: Any) -> Any:
        for name, function in module.functions.items():
            if isinstance(function, tirx.PrimFunc) and SCHEDULED not in (function.attrs or {}):
                module.update_func(name, scheduled(function, vectors, name.name_hint))
        return module

    return schedule


def scheduled(function: Any, vectors: Vectors, name: str = "") -> Any:
    """The TIR *function* by the first rule that takes it; as it is if none does."""
    import tvm
    from tvm import s_tir, tirx

    refusals = (NoSchedule, s_tir.schedule.ScheduleError, tvm.error.InternalError, ValueError, TypeError)
    for rule in RULES:
        schedule = s_tir.Schedule(function)
        try:
            rule(schedule, vectors)
        except refusals as reason:
            log.debug("%s: %s does not apply: %s", name, rule.__name__, str(reason).strip()[-200:])
            continue
        body = vectorized_math(schedule.mod["main"].body)
        made = tirx.PrimFunc(function.params, body, function.ret_type, function.buffer_map, function.attrs)
        return made.with_attr(SCHEDULED, True)
    return function


def convolution(schedule: Any, vectors: Vectors) -> None:
    """A convolution or product on blocked tensors.

    Raises:
        NoSchedule: it is none.
    """
    kernel = _Kernel(schedule)
    stages = [name for name in kernel.names if name.startswith(STAGE)]
    if len(stages) != 1 or len(kernel.sums) != 1:
        raise NoSchedule("it is no convolution")
    store, (sums,) = kernel.store_apart(keep=(*stages, *kernel.sums))
    stage = schedule.get_sblock(stages[0])
    loops = schedule.get_loops(store)
    lanes = _extent(schedule, loops[-1])
    if lanes > vectors.lanes or len(loops) < 4:
        raise NoSchedule("its last axis is no block")
    images, depth, *axes, lane = loops
    channels, *taps = (_extent(schedule, loop) for loop in _reduce_loops(schedule, sums))
    if _depthwise(schedule, sums):
        _depthwise_loops(schedule, store, sums, stage)
        return
    *rows, row = axes
    if _extent(schedule, images) > 1 and math.prod(_extent(schedule, axis) for axis in axes) == 1:
        images, row, rows = row, images, rows  # a product: each row of it is an image of one pixel
    column = rows[-1] if rows else schedule.add_unit_loop(row)
    width, height, blocks = (_extent(schedule, axis) for axis in (row, column, depth))
    tile = best_tile(width, height, blocks, vectors)
    if _has_border(schedule, stage):
        _copy_with_border(schedule, stage)
    else:
        schedule.compute_inline(stage)
    panel, deep = schedule.split(depth, [None, tile.deep])
    column_tile, high = schedule.split(column, [None, tile.high])
    row_tile, wide = schedule.split(row, [None, tile.wide])
    outer = [images, panel, *rows[:-1], column_tile, row_tile]
    schedule.reorder(*outer, high, wide, deep, lane)
    for loop in (high, wide, deep):
        schedule.unroll(loop)
    schedule.vectorize(lane)
    work = _work(schedule, sums)
    schedule.compute_at(sums, row_tile, preserve_unit_loops=True)
    _accumulate(schedule, sums, len(outer), channels, taps, lanes)
    _parallel(schedule, outer, work)
    schedule.decompose_reduction(sums, _reduce_loops(schedule, sums)[0])


def _accumulate(schedule: Any, sums: Any, depth: int, channels: int, taps: Sequence[int], lanes: int) -> None:
    """The loops of *sums* inside of *depth* others: channels in blocks, taps, four channels, the tile."""
    *tile, lane = _spatial_loops(schedule, sums)[depth:]
    channel, *windows = _reduce_loops(schedule, sums)
    block, within = schedule.split(channel, [None, lanes if channels % lanes == 0 else channels])
    extent = _extent(schedule, within)
    again, once = schedule.split(within, [None, 4 if extent % 4 == 0 else extent if extent < 4 else 1])
    schedule.reorder(block, *windows, again, once, *tile, lane)
    for loop in (once, *tile):
        schedule.unroll(loop)
    schedule.vectorize(lane)


def _depthwise(schedule: Any, sums: Any) -> bool:
    """Whether each lane reads a channel of its own: the weight, read second, has the blocks second."""
    result = schedule.get(sums).writes[0].buffer.shape
    weight = schedule.get(sums).reads[1].buffer.shape
    channels = _extent(schedule, _reduce_loops(schedule, sums)[0])
    return channels == 1 == int(weight[0]) and int(weight[1]) == int(result[1])


def _depthwise_loops(schedule: Any, store: Any, sums: Any, stage: Any) -> None:
    """A depthwise convolution: the taps of a few positions, one vector each."""
    *outer, row, lane = schedule.get_loops(store)
    size = max(_divisors(_extent(schedule, row), DEPTHWISE_WIDE))
    row_tile, wide = schedule.split(row, [None, size])
    schedule.unroll(wide)
    schedule.vectorize(lane)
    work = _work(schedule, sums)
    schedule.compute_at(sums, row_tile, preserve_unit_loops=True)
    at = len(outer) + 1
    reduce = _reduce_loops(schedule, sums)
    spatial = _spatial_loops(schedule, sums)[at:]
    schedule.reorder(*reduce, *spatial)
    taps = math.prod(_extent(schedule, loop) for loop in reduce)
    for loop in (*(reduce if taps <= UNROLLED_TAPS else ()), *spatial[:-1]):
        schedule.unroll(loop)
    schedule.vectorize(spatial[-1])
    if _has_border(schedule, stage):
        channel = schedule.fuse(*outer[:2])
        if work >= WORTH_A_THREAD:
            schedule.parallel(channel)
        schedule.compute_at(stage, channel, preserve_unit_loops=True)
        schedule.vectorize(schedule.get_loops(stage)[-1])
    else:
        schedule.compute_inline(stage)
        _parallel(schedule, outer, work)
    schedule.decompose_reduction(sums, _reduce_loops(schedule, sums)[0])


def reduction(schedule: Any, vectors: Vectors) -> None:
    """One reduction: its sums in registers, lanes along the last axis of the output or along the sum.

    Raises:
        NoSchedule: there is none, or there are several.
    """
    kernel = _Kernel(schedule)
    if len(kernel.sums) != 1:
        raise NoSchedule(f"it has {len(kernel.sums)} reductions")
    store, (sums,) = kernel.store_apart(keep=kernel.sums)
    loops = schedule.get_loops(store)
    if not loops:
        raise NoSchedule("it is a scalar")
    work = _work(schedule, sums)
    *outer, last = loops
    width = _vector_width(_extent(schedule, last), vectors.lanes)
    if width == 1:
        _sum_along_lanes(schedule, store, sums, vectors, work)
        return
    tiled = _row_to_share(schedule, sums) if outer else None
    part, vector = schedule.split(last, [None, width])
    if tiled is not None and tiled < len(outer):
        shared = max(1, MOST_SHARED * vectors.lanes // max(width, vectors.lanes))
        size = max(_divisors(_extent(schedule, outer[tiled]), shared))
        tiles, within = schedule.split(outer[tiled], [None, size])
        outer = [*outer[:tiled], tiles, *outer[tiled + 1 :], part]
        schedule.reorder(*outer, within, vector)
        schedule.unroll(within)
    else:
        outer = [*outer, part]
    schedule.vectorize(vector)
    schedule.compute_at(sums, outer[-1], preserve_unit_loops=True)
    reduce = _reduce_loops(schedule, sums)
    inner = _spatial_loops(schedule, sums)[len(outer) :]
    schedule.reorder(*reduce, *inner)
    if math.prod(_extent(schedule, loop) for loop in reduce) <= UNROLLED_TAPS:
        for loop in reduce:
            schedule.unroll(loop)
    for loop in inner[:-1]:
        schedule.unroll(loop)
    schedule.vectorize(inner[-1])
    _parallel(schedule, outer, work)
    schedule.decompose_reduction(sums, _reduce_loops(schedule, sums)[0])


def _sum_along_lanes(schedule: Any, store: Any, sums: Any, vectors: Vectors, work: int) -> None:
    """Few outputs, long sums: each lane takes every so-many-th term."""
    outer = schedule.get_loops(store)
    schedule.compute_at(sums, outer[-1], preserve_unit_loops=True)
    at = _parallel(schedule, outer, work)
    _partial_sums(schedule, sums, at, vectors)


def _partial_sums(schedule: Any, sums: Any, at: Any, vectors: Vectors) -> None:
    """Sum the terms of *sums*, inside of the loop *at*, in lanes first, where they are many and divide."""
    length = _extent(schedule, _reduce_loops(schedule, sums)[-1])
    if length % vectors.lanes == 0 and length >= 2 * vectors.lanes:
        _, lane = schedule.split(_reduce_loops(schedule, sums)[-1], [None, vectors.lanes])
        partial = schedule.rfactor(lane, len(schedule.get(sums).writes[0].buffer.shape))
        schedule.compute_at(partial, at, preserve_unit_loops=True)
        places, terms = _loops(schedule, partial)
        schedule.reorder(*terms, places[-1])
        schedule.vectorize(places[-1])
        schedule.decompose_reduction(partial, _reduce_loops(schedule, partial)[0])
    schedule.decompose_reduction(sums, _reduce_loops(schedule, sums)[0])


def _row_to_share(schedule: Any, sums: Any) -> int | None:
    """The output axis of which several places can share the vectors that are read: what is read along the
    last axis does not depend on it (rows of a matrix product, output channels of a convolution)."""
    from tvm import tirx

    block = schedule.get(sums)
    axes = [iterator.var for iterator in block.iter_vars if int(iterator.iter_type) == SPATIAL]
    if len(axes) < 2:
        return None
    loads = tir_nodes(block.body, tirx.BufferLoad)
    along = [variables_of(load.indices) for load in loads if not load.buffer.same_as(block.writes[0].buffer)]
    vectors = [used for used in along if axes[-1] in used]
    for place in reversed(range(len(axes) - 1)):
        if vectors and not any(axes[place] in used for used in vectors) and len(along) > len(vectors):
            return place
    return None


def rows(schedule: Any, vectors: Vectors) -> None:
    """Several reductions of each row, as softmax and normalizations have: a row at a time.

    Raises:
        NoSchedule: there are none, or they are not of rows.
    """
    kernel = _Kernel(schedule)
    if not kernel.sums:
        raise NoSchedule("it has no reductions")
    names = [name for name in kernel.names if name != kernel.output]
    store = schedule.get_sblock(kernel.output)
    loops = schedule.get_loops(store)
    axes = min((len(_spatial_loops(schedule, schedule.get_sblock(name))) for name in kernel.sums), default=0)
    if len(loops) < 2 or axes < 1:
        raise NoSchedule("it has no rows")
    outer = loops[: min(axes, len(loops) - 1)]
    work = sum(_work(schedule, schedule.get_sblock(name)) for name in kernel.sums)
    for name in reversed(names):
        block = schedule.get_sblock(name)
        if name not in kernel.sums and not _reads_sums(schedule, block):
            schedule.compute_inline(block)
        else:
            schedule.compute_at(block, outer[-1], preserve_unit_loops=True)
    at = _parallel(schedule, outer, work)  # before sums are divided, after which it is refused
    for name in (*kernel.sums, kernel.output):
        _vectorize_row(schedule, schedule.get_sblock(name), at, vectors)


def _reads_sums(schedule: Any, block: Any) -> bool:
    return any(_reduce_loops(schedule, producer) for producer in schedule.get_producers(block))


def _vectorize_row(schedule: Any, block: Any, at: Any, vectors: Vectors) -> None:
    """The loops of *block* inside of *at* by vectors: its places, or the terms of its sums."""
    places, reduce = _loops(schedule, block)
    row = schedule.get(at)
    if reduce and schedule.get(places[-1]).same_as(row):
        _partial_sums(schedule, block, at, vectors)
    elif reduce:
        schedule.decompose_reduction(block, reduce[0])
    elif _extent(schedule, places[-1]) % vectors.lanes == 0 and not schedule.get(places[-1]).same_as(row):
        schedule.vectorize(schedule.split(places[-1], [None, vectors.lanes])[1])


def elements(schedule: Any, vectors: Vectors) -> None:
    """No reduction: each element on its own, in lanes.

    Raises:
        NoSchedule: it has a reduction, or no loops.
    """
    kernel = _Kernel(schedule)
    if kernel.sums:
        raise NoSchedule("it has a reduction")
    store, _ = kernel.store_apart(keep=())
    loops = schedule.get_loops(store)
    if not loops:
        raise NoSchedule("it is a scalar")
    extents = [_extent(schedule, loop) for loop in loops]
    count = math.prod(extents)
    dtype = str(schedule.get(store).writes[0].buffer.dtype)
    width = _vector_width(extents[-1], vectors.lanes) if dtype in VECTOR_TYPES else 1
    *outer, last = loops
    if width == 1 and count % vectors.lanes == 0 and dtype in VECTOR_TYPES:
        outer, last, width = [], schedule.fuse(*loops), vectors.lanes
    if width > 1:
        part, vector = schedule.split(last, [None, width])
        schedule.vectorize(vector)
        outer = [*outer, part]
    else:
        outer = loops
    if count >= WORTH_A_THREAD:
        spread = schedule.fuse(*outer)
        tasks, _ = schedule.split(spread, [None, max(1, WORTH_A_THREAD // 4 // width)])
        schedule.parallel(tasks)


RULES: tuple[Callable[[Any, Vectors], None], ...] = (convolution, reduction, rows, elements)


class _Kernel:
    """The blocks of an unscheduled kernel."""

    def __init__(self, schedule: Any) -> None:
        self.schedule = schedule
        root = schedule.get_sblock("root")
        blocks = schedule.get_child_blocks(root)
        outputs = schedule.get_output_blocks(root)
        if len(outputs) != 1 or any(schedule.get_child_blocks(block) for block in blocks):
            raise NoSchedule("it has several outputs, or blocks in blocks")
        self.names = [schedule.get(block).name_hint for block in blocks]
        self.output = schedule.get(outputs[0]).name_hint
        self.sums = tuple(
            name for name, block in zip(self.names, blocks, strict=True) if reduces(schedule.get(block))
        )

    def store_apart(self, keep: Sequence[str]) -> tuple[Any, list[Any]]:
        """Inline all blocks but those to *keep* and the output; the one that stores, and the reductions.

        What stores is apart from what sums, so that sums stay in registers.
        """
        schedule = self.schedule
        for name in self.names:
            if name not in keep and name != self.output:
                schedule.compute_inline(schedule.get_sblock(name))
        sums = [schedule.get_sblock(name) for name in self.sums]
        if self.output in self.sums:
            return schedule.cache_write(schedule.get_sblock(self.output), 0, "global"), sums
        return schedule.get_sblock(self.output), sums


def _extent(schedule: Any, loop: Any) -> int:
    return int(schedule.get(loop).extent)


def _loops(schedule: Any, block: Any) -> tuple[list[Any], list[Any]]:
    """The loops of *block* over places, and those that it accumulates over, outermost first."""
    from tvm import tirx

    loops, own = schedule.get_loops(block), schedule.get(block)
    if not loops:
        return [], []
    realizations = tir_nodes(schedule.get(loops[0]), tirx.SBlockRealize)
    (values,) = (node.iter_values for node in realizations if node.block.same_as(own))
    bound = zip(own.iter_vars, values, strict=True)
    reduced = variables_of([value for axis, value in bound if int(axis.iter_type) == REDUCE])
    reduce = [loop for loop in loops if schedule.get(loop).loop_var in reduced]
    return [loop for loop in loops if schedule.get(loop).loop_var not in reduced], reduce


def _reduce_loops(schedule: Any, block: Any) -> list[Any]:
    """The loops that *block* accumulates over, outermost first."""
    return _loops(schedule, block)[1]


def _spatial_loops(schedule: Any, block: Any) -> list[Any]:
    """The loops of *block* over places."""
    return _loops(schedule, block)[0]


def _work(schedule: Any, block: Any) -> int:
    """How often *block* is computed."""
    return math.prod(int(iterator.dom.extent) for iterator in schedule.get(block).iter_vars)


def _has_border(schedule: Any, stage: Any) -> bool:
    """Whether what the window reads is not the input itself: there are zeros around it."""
    from tvm import tirx

    return not isinstance(schedule.get(stage).body.value, tirx.BufferLoad)


def _copy_with_border(schedule: Any, stage: Any) -> None:
    """The input with its border, by rows."""
    work = _work(schedule, stage)
    *outer, last = schedule.get_loops(stage)
    if _extent(schedule, last) <= LONGEST_VECTOR:
        schedule.vectorize(last)
    _parallel(schedule, outer[:-1], work)


def _parallel(schedule: Any, loops: Sequence[Any], work: int) -> Any:
    """Give *loops* to all threads, as one, if it is worth it; the innermost of what they are then."""
    if work < WORTH_A_THREAD:
        return loops[-1]
    spread = schedule.fuse(*loops)
    schedule.parallel(spread)
    return spread


def _vector_width(extent: int, lanes: int) -> int:
    """How many of *extent* places one vector instruction or some of them take; 1: none."""
    for width in (size for size in (16, 8, 4) if size <= lanes):
        if extent % width == 0:
            return width * max(_divisors(extent // width, VECTORS_EACH))
    return lanes if extent > 2 * lanes else 1


def _divisors(number: int, most: int) -> list[int]:
    return [size for size in range(1, min(number, most) + 1) if number % size == 0]
