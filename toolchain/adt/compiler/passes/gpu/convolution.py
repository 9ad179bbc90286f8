"""Schedule of a convolution on blocked tensors: each work-item keeps a tile of sums in registers.

A work-item reads what its tile needs once into registers, the input by the block
:data:`~adt.compiler.passes.layout.blocks.STAGE`, which holds the border's zeros, too:

    for four in channels:  for row in window:
        x[...] = texels of the row
        for column in window:               # unrolled, as is all below
            w[4] = texels of weights
            for lane in 4:  for texel in tile:  sum[texel] += x[texel + column].lane * w[lane]

What follows the sums (bias, activation, residual) is computed on them before they are stored.

The deep layers of a network have hundreds of texels and thousands of products in each sum: most of a GPU
would be idle. There the fours of input channels are dealt out to the work-items of one work-group; each puts
its part of the sums into local memory, and after a barrier one adds them up and stores the texels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tvm import s_tir
from tvm.s_tir.schedule import LoopRV, SBlockRV

from adt.compiler.passes.gpu.texels import (
    KernelBlocks,
    kernel_blocks,
    reduction_loops,
    texel_loops,
    unroll,
    vectorize_reduction,
)
from adt.compiler.passes.gpu.tiles import Sums, Tile, iterations, ranked_groups, ranked_tiles
from adt.compiler.passes.layout.blocks import STAGE
from adt.compiler.passes.scheduling import Decisions, NoSchedule, unroll_all
from adt.compiler.passes.words import SUMS
from adt.compiler.targets.gpu import Gpu
from adt.package.reports import LANES

UNROLLED = (128, 0, 64, 256)
"""Statements up to which loops over rows and channels are unrolled, too: of a longer kernel than the first
the H200 made nothing, and drivers compile it longer; one was seen to compile for 20 s what 1024 give."""
AXES = 3
"""Number of axes of work-groups, and of work-items."""


@dataclass(frozen=True)
class ConvolutionKernel:
    """The blocks of a convolution's kernel, and what it computes."""

    blocks: KernelBlocks
    stage: Any
    """Reads the input, with its border."""
    sums: Sums


def convolution(schedule: s_tir.Schedule, gpu: Gpu, decisions: Decisions, *, by_lane: bool = False) -> None:
    """Schedule a blocked convolution; *by_lane* is as for :func:`adt.compiler.passes.gpu.texels.texels`."""
    conv = convolution_of(schedule, by_lane=by_lane)
    tiles = ranked_tiles(conv.sums, gpu)
    if not tiles:
        raise NoSchedule("no tile of it fits the GPU")
    tile = decisions.choose("tile", tiles)
    group = decisions.choose("group", ranked_groups(conv.sums, tile, gpu))
    schedule_convolution(schedule, conv, replace(tile, group=group), decisions)


def convolution_of(schedule: s_tir.Schedule, *, by_lane: bool = False) -> ConvolutionKernel:
    """Describe the convolution that the unscheduled kernel is."""
    root = schedule.get_sblock("root")
    names = [schedule.get(block).name_hint for block in schedule.get_child_blocks(root)]
    stages = [name for name in names if name.startswith(STAGE)]
    if len(stages) != 1:
        raise NoSchedule("it is no convolution")
    stage = schedule.get_sblock(stages[0])
    blocks = kernel_blocks(schedule, by_lane=by_lane, kept=(stage,))
    if blocks.reduction is None:
        raise NoSchedule("it does not accumulate")
    schedule.set_scope(stage, 0, "local")
    return ConvolutionKernel(blocks, stage, _sums(schedule, blocks, stage))


def _sums(schedule: s_tir.Schedule, blocks: KernelBlocks, stage: SBlockRV) -> Sums:
    texels = [int(extent) for extent in schedule.get(blocks.reduction).writes[0].buffer.shape]
    stored = [int(extent) for extent in schedule.get(blocks.store).writes[0].buffer.shape]
    if any(size > limit for size, limit in zip(stored, texels, strict=True)):
        raise NoSchedule("its sums are fewer than the texels that it stores")
    images, depth, *axes, _lane = texels
    matrix = images > 1 and max(axes) == 1
    if matrix:
        images, axes = 1, [*axes[:-1], images]
    _, first, *staged = (int(extent) for extent in schedule.get(stage).writes[0].buffer.shape)
    iterators = schedule.get(blocks.reduction).iter_vars[len(texels) :]
    channels, *window = (int(iterator.dom.extent) for iterator in iterators)
    words = str(schedule.get(stage).writes[0].buffer.dtype) == SUMS
    blocked = len(staged) > len(axes)
    *frames, height, width = [1, *axes] if len(axes) == 1 else axes
    # TE drops no axis of extent 1; a hull of n windows of k, each s after the last, is (n - 1) * s + k.
    strides = [
        max(1, (hull - size) // (extent - 1)) if extent > 1 else 1
        for hull, extent, size in zip(staged, axes, window, strict=False)
    ]
    if (blocked or words) and channels % LANES == 0:
        fours = channels // LANES
    else:
        fours = 1 if channels <= LANES else channels
    return Sums(
        images=images * math.prod(frames),
        depth=depth,
        height=height,
        width=width,
        fours=fours,
        lanes=channels // fours,
        rows=math.prod(window[:-1]),
        columns=window[-1],
        stride=(strides[-2] if len(axes) > 1 else 1, strides[-1]),
        texels=blocked,
        grouped=blocked and channels > 1 and first * LANES >= 2 * channels,
        matrix=matrix,
        words=words,
    )


def schedule_convolution(
    schedule: s_tir.Schedule, conv: ConvolutionKernel, tile: Tile, decisions: Decisions
) -> None:
    """Schedule *conv* by *tile*."""
    if tile.parts > 1:
        _shared_sums(schedule, conv, tile, decisions)
        return
    groups, items, registers = _split_output(schedule, conv, tile)
    _bind(schedule, groups, "blockIdx")
    _bind(schedule, items, "threadIdx")
    _finish(schedule, conv, items[0], registers)
    _accumulate(schedule, conv, conv.blocks.reduction, tile, decisions)


def _shared_sums(schedule: s_tir.Schedule, conv: ConvolutionKernel, tile: Tile, decisions: Decisions) -> None:
    """Schedule *conv* by *tile*; work-items share their sums."""
    total, sums = conv.blocks.reduction, conv.sums
    if not sums.in_fours or sums.fours % tile.parts or tile.group[2] != 1:
        raise NoSchedule("its sums cannot be cut into parts")
    _, (channel, *_window) = reduction_loops(schedule, total, 0)
    fours, _four = schedule.split(channel, [None, LANES])
    _rest, part = schedule.split(fours, [sums.fours // tile.parts, tile.parts])
    partial = schedule.rfactor(part, 0)
    schedule.set_scope(partial, 0, "shared")
    added = schedule.cache_write(partial, 0, "local")

    groups, (x, y, z), registers = _split_output(schedule, conv, tile)
    _bind(schedule, groups, "blockIdx")
    # Of the work-items that share a sum, the first finishes it. A fused loop of extent 1 is in no index.
    alone = schedule.fuse(schedule.add_unit_loop(z), z)
    _, first = schedule.split(alone, [None, tile.parts])
    _bind(schedule, (x, y, first), "threadIdx")
    _finish(schedule, conv, x, registers)
    depth = len(schedule.get_loops(conv.blocks.store)) - len(registers)
    vectorize_reduction(schedule, total, depth, together=True)

    schedule.compute_at(added, groups[0], preserve_unit_loops=True)
    part, images, depth, *axes, lane = schedule.get_loops(added)[AXES:]
    columns = axes.pop()
    rows = axes.pop() if axes else schedule.add_unit_loop(columns)
    if sums.matrix:
        images, columns = columns, images
    others = (images, depth, *axes)
    row, texels_y = schedule.split(rows, [tile.group[1], tile.high])
    column, texels_x = schedule.split(columns, [tile.group[0], tile.wide])
    schedule.reorder(part, row, column, *others, texels_y, texels_x, lane)
    _bind(schedule, (column, row, part), "threadIdx")
    unroll_all(schedule, (*others, texels_y, texels_x), lane)
    schedule.compute_at(partial, column, preserve_unit_loops=True)
    _accumulate(schedule, conv, partial, tile, decisions)


def _split_output(schedule: s_tir.Schedule, conv: ConvolutionKernel, tile: Tile) -> tuple[list[LoopRV], ...]:
    """Cut the output's loops and put them in order; nothing is bound yet.

    Returns those over work-groups and work-items (x, y, z), and a work-item's texels, the lanes innermost.
    """
    *outer, lane = texel_loops(schedule, conv.blocks.store)
    images, depth, *axes = outer
    x = axes.pop()
    if conv.sums.matrix:
        images, x = x, images
    y = axes.pop() if axes else schedule.add_unit_loop(x)
    extents = (conv.sums.width, conv.sums.height, conv.sums.depth)
    cuts = zip((x, y, depth), extents, tile.group, (tile.wide, tile.high, tile.deep), strict=True)
    beyond: list[Any] = []
    levels: tuple[list[Any], ...] = ([], [], [])
    for loop, extent, size, register in cuts:
        if int(schedule.get(loop).extent) != extent:  # sums beyond the output's end are not stored
            rest, loop = schedule.split(loop, [None, extent])
            beyond.append(rest)
        parts = schedule.split(loop, [extent // (size * register), size, register])
        for level, part in zip(levels, parts, strict=True):
            level.append(part)
    groups, items, registers = levels
    outside = (images, *axes, *beyond)
    schedule.reorder(*outside, *reversed(groups), *reversed(items), *reversed(registers), lane)
    groups[2] = schedule.fuse(*outside, groups[2])
    return groups, items, [*reversed(registers), lane]


def _bind(schedule: s_tir.Schedule, loops: Sequence[LoopRV], axis: str) -> None:
    for name, loop in zip("xyz", loops, strict=True):
        schedule.bind(loop, f"{axis}.{name}")


def _finish(
    schedule: s_tir.Schedule, conv: ConvolutionKernel, item: LoopRV, registers: Sequence[LoopRV]
) -> None:
    """Compute what follows the sums on all texels of a work-item, each as a vector."""
    *texels, lane = registers
    unroll_all(schedule, texels, lane)
    for part in conv.blocks.before:
        schedule.compute_at(part, item, preserve_unit_loops=True)


def _accumulate(
    schedule: s_tir.Schedule, conv: ConvolutionKernel, block: SBlockRV, tile: Tile, decisions: Decisions
) -> None:
    """Schedule *block*, which accumulates for a work-item; shared sums have channels in fours already."""
    (*texels, lane), (channel, *window) = reduction_loops(schedule, block, 2 * AXES)
    sums = conv.sums
    inner = []
    if tile.parts > 1:
        inner = [window.pop(0)]
    elif sums.in_fours:
        channel, four = schedule.split(channel, [None, LANES])
        inner = [four]
    elif sums.lanes > 1:
        channel, inner = schedule.add_unit_loop(channel), [channel]
    *rows, column = window
    fours = sums.fours // tile.parts
    count = decisions.choose("fours", iterations(sums, tile))
    channel, again = schedule.split(channel, [fours // count, count])
    schedule.reorder(channel, again, *rows, column, *inner, *texels, lane)
    # Vectors are made before the decomposition, after which that is refused.
    unroll_all(schedule, (again, column, *inner, *texels), lane)
    at = rows[-1] if rows else again
    weight = next(
        index
        for index, region in enumerate(schedule.get(block).reads)
        if not region.buffer.same_as(schedule.get(conv.stage).writes[0].buffer)
    )
    weights = schedule.cache_read(block, weight, "local")
    for copy, loop in ((conv.stage, at), (weights, column)):
        schedule.compute_at(copy, loop, preserve_unit_loops=True)
    for copy, loop in ((conv.stage, at), (weights, column)):
        _copy_texels(schedule, copy, block, loop)
    unroll(schedule, channel, decisions.choose("unroll", UNROLLED))
    schedule.decompose_reduction(block, channel)


def _copy_texels(schedule: s_tir.Schedule, copy: SBlockRV, block: SBlockRV, loop: LoopRV) -> None:
    """Unroll the block *copy* in the *loop* of *block*, four lanes at once where it copies four."""
    innermost = schedule.get(loop)
    loops = [schedule.get(own).same_as(innermost) for own in schedule.get_loops(block)]
    *others, last = schedule.get_loops(copy)[loops.index(True) + 1 :]
    unroll_all(schedule, others, last, vector=int(schedule.get(last).extent) == LANES)
