"""Convolutions and products on blocked tensors: a tile of sums in registers, a lane for each output channel.

    parallel for tile:
        for block of 16 channels:  for tap:  for four in block:          # the sums of a tile
            for channel in 4:  for position in tile:  for deep:  sum[deep][position] += x * w[deep]
        store the tile, with all that is fused behind it

The tile is chosen by :mod:`adt.model.passes.cpu.tiles`.
"""

from __future__ import annotations

import math
from typing import Any

from adt.model.passes.cpu.kernel import (
    LONGEST_VECTOR,
    UNROLLED_TAPS,
    WORTH_A_THREAD,
    Kernel,
    NoSchedule,
    divisors,
    extent_of,
    parallel,
    partition,
    reduce_loops,
    spatial_loops,
    work_of,
)
from adt.model.passes.cpu.tiles import FEW, best_tile
from adt.model.passes.cpu.vectors import Vectors
from adt.model.passes.layout.blocks import STAGE

DEPTHWISE_WIDE = 8
"""Positions along a row whose sums a depthwise convolution keeps at once, at most."""
ONCE = 4
"""Channels that a step without loops takes."""
UNROLLED_BY_LLVM = 3
"""Steps of a loop over tiles, which LLVM unrolls where they are so few, and then spills on Arm: such a loop
is made one with the next outer one."""


def convolution(schedule: Any, vectors: Vectors) -> str:
    """A convolution or product on blocked tensors.

    Raises:
        NoSchedule: it is none.
    """
    kernel = Kernel(schedule)
    stages = [name for name in kernel.names if name.startswith(STAGE)]
    if len(stages) != 1 or len(kernel.sums) != 1:
        raise NoSchedule("it is no convolution")
    store, (sums,) = kernel.store_apart(keep=(*stages, *kernel.sums))
    stage = schedule.get_sblock(stages[0])
    loops = schedule.get_loops(store)
    lanes = extent_of(schedule, loops[-1])
    if lanes > vectors.lanes or len(loops) < 4:
        raise NoSchedule("its last axis is no block")
    images, depth, *axes, lane = loops
    channels = extent_of(schedule, reduce_loops(schedule, sums)[0])
    if _depthwise(schedule, sums):
        return _depthwise_loops(schedule, store, sums, stage, vectors)
    *rows, row = axes
    if extent_of(schedule, images) > 1 and math.prod(extent_of(schedule, axis) for axis in axes) == 1:
        images, row, rows = row, images, rows  # a product: each row of it is an image of one pixel
    column = rows[-1] if rows else schedule.add_unit_loop(row)
    width, height, blocks = (extent_of(schedule, axis) for axis in (row, column, depth))
    each = vectors.registers_for(lanes, str(schedule.get(sums).writes[0].buffer.dtype))
    tile = best_tile(width, height, blocks, vectors, each)
    widened = None
    if _has_border(schedule, stage):
        _copy_with_border(schedule, stage)
    elif vectors.by_element and _widens(schedule, stage, len(loops)):
        widened = stage
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
    work = work_of(schedule, sums)
    schedule.compute_at(sums, row_tile, preserve_unit_loops=True)
    _accumulate(schedule, sums, len(outer), channels, ONCE if vectors.by_element else lanes)
    if vectors.by_element:
        _read_by_vectors(schedule, sums, vectors, widened)
    if width % tile.wide:
        outer.remove(row_tile)
        partition(schedule, row_tile)
    parallel(schedule, outer, work)
    schedule.decompose_reduction(sums, reduce_loops(schedule, sums)[0])
    return f"{tile.high}x{tile.wide} positions of {tile.deep} x {lanes} channels at once"


def _accumulate(schedule: Any, sums: Any, depth: int, channels: int, size: int) -> None:
    """The loops of *sums* inside of *depth* others: *size* channels, taps, four of the channels, the tile."""
    *tile, lane = spatial_loops(schedule, sums)[depth:]
    channel, *windows = reduce_loops(schedule, sums)
    block, within = schedule.split(channel, [None, size if channels % size == 0 else channels])
    extent = extent_of(schedule, within)
    again, once = schedule.split(
        within, [None, ONCE if extent % ONCE == 0 else extent if extent < ONCE else 1]
    )
    schedule.reorder(block, *windows, again, once, *tile, lane)
    for loop in (once, *tile):
        schedule.unroll(loop)
    schedule.vectorize(lane)


def _read_by_vectors(schedule: Any, sums: Any, vectors: Vectors, stage: Any | None) -> None:
    """Read the channels of each position of the tile into a vector first, where they lie together: each is
    multiplied from there. One at a time LLVM loads pairs of them ahead, and spills.

    Args:
        stage: what is computed in that place, if it is not read from memory.
    """
    _, *windows, outside, channels = reduce_loops(schedule, sums)
    block = schedule.get(sums)
    shape = block.reads[0].buffer.shape
    blocked = len(shape) == len(block.writes[0].buffer.shape)
    together = blocked and int(shape[-1]) % extent_of(schedule, channels) == 0
    if together:
        tile = stage or schedule.cache_read(sums, 0, "global")
        schedule.compute_at(tile, outside, preserve_unit_loops=True)
        *positions, lane = schedule.get_loops(tile)[-len(shape) :]
        for loop in positions:
            schedule.unroll(loop)
        schedule.vectorize(lane)
    longest = math.inf if vectors.registers <= FEW else 0 if together else UNROLLED_BY_LLVM
    if windows and extent_of(schedule, windows[-1]) <= longest:
        schedule.fuse(*windows)


def _depthwise(schedule: Any, sums: Any) -> bool:
    """Whether each lane reads a channel of its own: the weight, read second, has the blocks second."""
    result = schedule.get(sums).writes[0].buffer.shape
    weight = schedule.get(sums).reads[1].buffer.shape
    channels = extent_of(schedule, reduce_loops(schedule, sums)[0])
    return channels == 1 == int(weight[0]) and int(weight[1]) == int(result[1])


def _depthwise_loops(schedule: Any, store: Any, sums: Any, stage: Any, vectors: Vectors) -> str:
    """A depthwise convolution: the taps of a few positions, one vector each."""
    *outer, row, lane = schedule.get_loops(store)
    lanes = extent_of(schedule, lane)
    each = vectors.registers_for(lanes, str(schedule.get(sums).writes[0].buffer.dtype))
    most = min(DEPTHWISE_WIDE, vectors.registers // 4) // each if vectors.by_element else DEPTHWISE_WIDE
    size = max(divisors(extent_of(schedule, row), most))
    row_tile, wide = schedule.split(row, [None, size])
    schedule.unroll(wide)
    schedule.vectorize(lane)
    work = work_of(schedule, sums)
    schedule.compute_at(sums, row_tile, preserve_unit_loops=True)
    at = len(outer) + 1
    reduce = reduce_loops(schedule, sums)
    spatial = spatial_loops(schedule, sums)[at:]
    schedule.reorder(*reduce, *spatial)
    taps = math.prod(extent_of(schedule, loop) for loop in reduce)
    for loop in (*(reduce if taps <= UNROLLED_TAPS else ()), *spatial[:-1]):
        schedule.unroll(loop)
    schedule.vectorize(spatial[-1])
    if _has_border(schedule, stage):
        if vectors.by_element and extent_of(schedule, row_tile) <= UNROLLED_BY_LLVM:
            schedule.fuse(outer[-1], row_tile)
        channel = schedule.fuse(*outer[:2])
        if work >= WORTH_A_THREAD:
            schedule.parallel(channel)
        schedule.compute_at(stage, channel, preserve_unit_loops=True)
        schedule.vectorize(schedule.get_loops(stage)[-1])
    else:
        schedule.compute_inline(stage)
        parallel(schedule, outer, work)
    schedule.decompose_reduction(sums, reduce_loops(schedule, sums)[0])
    return f"depthwise, {size} positions of {lanes} channels at once"


def _has_border(schedule: Any, stage: Any) -> bool:
    """Whether what the window reads is not the input itself: there are zeros around it."""
    from tvm import tirx

    value = schedule.get(stage).body.value
    return not isinstance(value.value if isinstance(value, tirx.Cast) else value, tirx.BufferLoad)


def _widens(schedule: Any, stage: Any, axes: int) -> bool:
    """Whether what the window reads are blocks, of so many *axes*, in a wider type than the input's."""
    block = schedule.get(stage)
    types = {str(region.buffer.dtype) for region in (*block.reads, *block.writes)}
    return len(types) > 1 and len(block.writes[0].buffer.shape) == axes


def _copy_with_border(schedule: Any, stage: Any) -> None:
    """The input with its border, by rows."""
    work = work_of(schedule, stage)
    *outer, last = schedule.get_loops(stage)
    if extent_of(schedule, last) <= LONGEST_VECTOR:
        schedule.vectorize(last)
    parallel(schedule, outer[:-1], work)
