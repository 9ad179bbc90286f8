"""Schedule a convolution on blocked tensors: each work-item keeps a tile of sums in registers.

For each four input channels and each row of the window, a work-item reads the row's texels
that its tile needs, once, into registers (the block :data:`~adt.model.texture.blocks.STAGE`,
which holds the border's zeros, too), then for each column of the window one texel of weights
for each of the four channels and each block of output channels, and multiplies them all:

    for four in channels:  for row in window:
        x[...] = texels of the row
        for column in window:               # unrolled, as is all below
            w[4] = texels of weights
            for lane in 4:  for texel in tile:  sum[texel] += x[texel + column].lane * w[lane]

What follows the sums (bias, activation, residual) is computed on them before they are stored.
:mod:`~adt.model.texture.shared_sums` is the same with several work-items for each sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from adt.model.texture.blocks import LANES, STAGE
from adt.model.texture.deciding import Decider
from adt.model.texture.kernel_blocks import (
    KernelBlocks,
    NotSchedulable,
    kernel_blocks,
    reduction_loops,
    texel_loops,
)
from adt.model.texture.tiles import DEPTHS, HEIGHTS, MOST_WIDE, Sums, Tile

MOST_FOURS = 4
"""Fours of channels in one iteration."""
SHORT = 48
"""Statements of an iteration that is worth doubling."""
UNROLLED = 128
"""Statements up to which loops over rows and channels are unrolled, too: of a longer kernel the H200 made
nothing, and drivers compile it longer."""


@dataclass(frozen=True)
class Convolution:
    """The blocks of a convolution's kernel, and what it computes."""

    blocks: KernelBlocks
    stage: Any
    """Reads the input, with its border."""
    sums: Sums


def convolution_of(schedule: Any, *, by_lane: bool = False) -> Convolution:
    """The convolution that the unscheduled kernel is.

    Args:
        by_lane: see :func:`adt.model.texture.schedule.texel_schedule`.

    Raises:
        NotSchedulable: it is none.
    """
    root = schedule.get_sblock("root")
    names = [schedule.get(block).name_hint for block in schedule.get_child_blocks(root)]
    if sum(name.startswith(STAGE) for name in names) != 1:
        raise NotSchedulable("it is no convolution")
    stage = schedule.get_sblock(next(name for name in names if name.startswith(STAGE)))
    blocks = kernel_blocks(schedule, by_lane=by_lane, kept=(stage,))
    if blocks.reduction is None:
        raise NotSchedulable("it does not accumulate")
    schedule.set_scope(stage, 0, "local")
    return Convolution(blocks, stage, _sums(schedule, blocks, stage))


def _sums(schedule: Any, blocks: KernelBlocks, stage: Any) -> Sums:
    texels = [int(extent) for extent in schedule.get(blocks.reduction).writes[0].buffer.shape]
    stored = [int(extent) for extent in schedule.get(blocks.store).writes[0].buffer.shape]
    if any(size > limit for size, limit in zip(stored, texels, strict=True)):
        raise NotSchedulable("its sums are fewer than the texels that it stores")
    images, depth, *axes, _lane = texels
    matrix = images > 1 and max(axes) == 1
    if matrix:
        images, axes = 1, [*axes[:-1], images]
    _, first, *staged = (int(extent) for extent in schedule.get(stage).writes[0].buffer.shape)
    iterators = schedule.get(blocks.reduction).iter_vars[len(texels) :]
    channels, *window = (int(iterator.dom.extent) for iterator in iterators)
    blocked = len(staged) > len(axes)
    # TE drops no axis of extent 1; a hull of n windows of k, each s after the last, is (n - 1) * s + k.
    strides = [
        max(1, (hull - size) // (extent - 1)) if extent > 1 else 1
        for hull, extent, size in zip(staged, axes, window, strict=False)
    ]
    fours = channels // LANES if blocked and channels % LANES == 0 else 1 if channels <= LANES else channels
    return Sums(
        images=images,
        depth=depth,
        height=axes[0] if len(axes) > 1 else 1,
        width=axes[-1],
        fours=fours,
        lanes=channels // fours,
        rows=window[0] if len(axes) > 1 else 1,
        columns=window[-1],
        stride=(strides[0] if len(axes) > 1 else 1, strides[-1]),
        texels=blocked,
        grouped=blocked and channels > 1 and first * LANES >= 2 * channels,
        matrix=matrix,
    )


@dataclass(frozen=True)
class Loops:
    """The loops over a kernel's output."""

    groups: tuple[Any, ...]
    items: tuple[Any, ...]
    """Over work-groups and work-items: x, y, z."""
    registers: tuple[Any, ...]
    """Over a work-item's texels, from the outermost on."""
    lane: Any
    across: tuple[Any, Any]
    down: tuple[Any, Any]
    """How many work-items there are in a work-group along x and y, and how many texels each has."""


def direct_sums(schedule: Any, conv: Convolution, tile: Tile, decide: Decider) -> None:
    """Schedule *conv* by *tile*; each sum is one work-item's.

    Raises:
        NotSchedulable: the kernel does not write texels.
    """
    loops = split_output(schedule, conv, tile, decide)
    bind(schedule, loops.groups, "blockIdx")
    bind(schedule, loops.items, "threadIdx")
    finish(schedule, conv, loops)
    depth = len(loops.groups) + len(loops.items)
    accumulate(schedule, conv, conv.blocks.reduction, depth=depth, tile=tile, decide=decide)


def split_output(schedule: Any, conv: Convolution, tile: Tile, decide: Decider) -> Loops:
    """Cut the output's loops and put them in order; nothing is bound yet.

    Raises:
        NotSchedulable: it does not write texels.
    """
    *outer, lane = texel_loops(schedule, conv.blocks.store)
    images, depth, *axes = outer
    x = axes.pop()
    if conv.sums.matrix:
        images, x = x, images
    y = axes.pop() if axes else schedule.add_unit_loop(x)
    sums = conv.sums
    deepest = 1 if sums.grouped or sums.lanes == 1 else DEPTHS[-1]
    wanted = zip(
        (x, y, depth),
        (sums.width, sums.height, sums.depth),
        tile.group,
        (tile.wide, tile.high, tile.deep),
        (MOST_WIDE, HEIGHTS[-1], deepest),
        strict=True,
    )
    beyond: list[Any] = []
    levels: tuple[list[Any], ...] = ([], [], [])
    extents: list[Any] = []
    for loop, extent, size, register, most in wanted:
        if int(schedule.get(loop).extent) != extent:  # sums beyond the output's end are not stored
            outside, loop = schedule.split(loop, [None, extent])
            beyond.append(outside)
        extents.append(decide.tile(schedule, loop, [extent // (size * register), size, register], most))
        for level, part in zip(levels, schedule.split(loop, extents[-1]), strict=True):
            level.append(part)
    groups, items, registers = levels
    schedule.reorder(images, *beyond, *reversed(groups), *reversed(items), *reversed(registers), lane)
    groups[2] = schedule.fuse(images, *beyond, groups[2])
    (_, *across), (_, *down), _ = extents
    return Loops(tuple(groups), tuple(items), tuple(reversed(registers)), lane, tuple(across), tuple(down))


def bind(schedule: Any, loops: Sequence[Any], axis: str) -> None:
    """Make work-groups or work-items of *loops*: along x, y and z."""
    for name, loop in zip("xyz", loops, strict=True):
        schedule.bind(loop, f"{axis}.{name}")


def finish(schedule: Any, conv: Convolution, loops: Loops) -> None:
    """Compute what follows the sums on all texels of a work-item, each as a vector."""
    for loop in loops.registers:
        schedule.unroll(loop)
    schedule.vectorize(loops.lane)
    for part in conv.blocks.before:
        schedule.compute_at(part, loops.items[0], preserve_unit_loops=True)


def accumulate(
    schedule: Any, conv: Convolution, block: Any, *, depth: int, tile: Tile, decide: Decider
) -> None:
    """Schedule *block*, which accumulates, inside of *depth* loops; where sums are shared its channels
    are cut into fours already."""
    (*texels, lane), reduce = reduction_loops(schedule, block, depth)
    channel, *window = reduce
    sums = conv.sums
    inner = []
    if tile.parts > 1:
        inner = [window.pop(0)]
    elif sums.texels and sums.lanes == LANES:
        channel, four = schedule.split(channel, [None, LANES])
        inner = [four]
    elif sums.lanes > 1:
        channel, inner = schedule.add_unit_loop(channel), [channel]
    *rows, column = window
    statements = sums.columns * sums.lanes * (tile.sums + tile.deep) + tile.wide
    fours = sums.fours // tile.parts
    twice = 2 if sums.rows == 1 and statements <= SHORT and fours % 2 == 0 else 1
    cut = decide.tile(schedule, channel, [fours // twice, twice], MOST_FOURS)
    channel, again = schedule.split(channel, cut)
    schedule.reorder(channel, again, *rows, column, *inner, *texels, lane)
    for loop in (again, column, *inner, *texels):
        schedule.unroll(loop)
    schedule.vectorize(lane)  # before the decomposition, after which it is refused
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
        _copy_texels(schedule, copy, _depth(schedule, block, loop))
    decide.unroll(schedule, channel, UNROLLED)
    schedule.decompose_reduction(block, channel)


def _depth(schedule: Any, block: Any, loop: Any) -> int:
    """How many loops of *block* there are down to *loop*."""
    found = schedule.get(loop)
    return 1 + next(
        place for place, own in enumerate(schedule.get_loops(block)) if schedule.get(own).same_as(found)
    )


def _copy_texels(schedule: Any, block: Any, depth: int) -> None:
    """Unroll the copy *block* inside of *depth* loops, four lanes at once where it copies four."""
    *others, last = schedule.get_loops(block)[depth:]
    for loop in others:
        schedule.unroll(loop)
    if int(schedule.get(last).extent) == LANES:
        schedule.vectorize(last)
    else:
        schedule.unroll(last)
