"""A design space for kernels with images that leave a GPU idle: several work-items share each sum.

The deeper layers of a network have few texels and long sums. Here the channels of a sum are
dealt out to work-items of one work-group; each keeps its part in registers, puts it into
local memory, and one of them adds the parts up and stores the texel.
"""

from __future__ import annotations

from typing import Any

from adt.model.texture.blocks import LANES
from adt.model.texture.schedule import NotSchedulable, kernel_blocks, reduction_loops, texel_loops
from adt.tuning.texture_tiles import (
    accumulate,
    bind_groups,
    bind_items,
    largest_divisor,
    sample_tiles,
    sample_unrolling,
)

AXES = 3
"""Of work-groups and work-items."""
MOST_PARTS = 16
"""Of one sum."""


def parts_space(schedule: Any) -> None:
    """Sample a schedule whose work-items share the sums of texels.

    Raises:
        NotSchedulable: the kernel adds nothing up, or too little.
    """
    blocks = kernel_blocks(schedule)
    total = blocks.reduction
    if total is None or len(blocks.before) > 1:
        raise NotSchedulable("it does not accumulate")
    *outer, lane = texel_loops(schedule, blocks.store)
    if len(outer) < AXES:
        raise NotSchedulable("it has no axis of channels")
    count, partial, copied = _parts(schedule, total)

    x, y, z = axes = sample_tiles(schedule, outer, items_in="xy")
    group = bind_groups(schedule, axes)
    # Of the work-items that share a sum, the first finishes it. Fused loops of extent 1 are in no index.
    alone = schedule.fuse(schedule.add_unit_loop(z.item), z.item)
    _, one = schedule.split(alone, [None, count])
    bind_items(schedule, x.item, y.item, one)
    schedule.compute_at(total, x.item, preserve_unit_loops=True)
    depth = len(schedule.get_loops(blocks.store)) - len(axes) - 1
    accumulate(schedule, total, *reduction_loops(schedule, total, depth), ())
    for axis in axes:
        schedule.unroll(axis.register)
    schedule.vectorize(lane)

    schedule.compute_at(copied, group, preserve_unit_loops=True)
    part, *others, rows, columns, lane = schedule.get_loops(copied)[AXES:]
    row, texels_y = schedule.split(rows, y.tile[1:])
    column, texels_x = schedule.split(columns, x.tile[1:])
    registers = [*others, texels_y, texels_x]
    schedule.reorder(part, row, column, *registers, lane)
    bind_items(schedule, column, row, part)
    schedule.compute_at(partial, column, preserve_unit_loops=True)
    spatial, (rest, four, *taps) = reduction_loops(schedule, partial, 2 * AXES)
    accumulate(schedule, partial, spatial, [rest, *taps], [four])
    for loop in registers:
        schedule.unroll(loop)
    schedule.vectorize(lane)
    sample_unrolling(schedule)


def _parts(schedule: Any, total: Any) -> tuple[Any, Any, Any]:
    """Cut the sums of *total* into parts.

    Returns:
        How many parts (sampled), the block that adds one up, and the block that puts it into local memory.
        *total* then adds the parts.
    """
    _, (channels, *taps) = reduction_loops(schedule, total, 0)
    extent = int(schedule.get(channels).extent)
    if not taps or extent % LANES or extent == LANES:
        raise NotSchedulable("its sums are too short to be shared")
    fours, _four = schedule.split(channels, [None, LANES])
    usual = largest_divisor(extent // LANES, 4)
    if usual == 1:
        raise NotSchedulable("its sums cannot be cut into parts")
    tile = schedule.sample_perfect_tile(fours, 2, MOST_PARTS, decision=[extent // LANES // usual, usual])
    _rest, part = schedule.split(fours, tile)
    partial = schedule.rfactor(part, 0)
    schedule.set_scope(partial, 0, "shared")
    return tile[1], partial, schedule.cache_write(partial, 0, "local")
