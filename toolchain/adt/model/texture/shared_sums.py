"""Schedule a convolution with few texels and long sums: several work-items share each sum.

The fours of input channels are dealt out to the work-items of one work-group. Each adds up
its part, for a tile of texels, as in :mod:`~adt.model.texture.direct`, and puts it into local
memory; after a barrier one of them adds the parts up, and stores the texels. The deep layers
of a network have hundreds of texels and thousands of products in each sum: without this most
of a GPU would be idle.
"""

from __future__ import annotations

from typing import Any

from adt.model.texture.blocks import LANES
from adt.model.texture.deciding import Decider
from adt.model.texture.direct import Convolution, accumulate, bind, finish, split_output
from adt.model.texture.kernel_blocks import NotSchedulable, reduction_loops
from adt.model.texture.tiles import PARTS_OF_A_PIXEL, Tile

AXES = 3
"""Of work-groups, and of work-items."""


def shared_sums(schedule: Any, conv: Convolution, tile: Tile, decide: Decider) -> None:
    """Schedule *conv* by *tile*.

    Raises:
        NotSchedulable: the kernel does not write texels, or cannot share its sums.
    """
    total, sums = conv.blocks.reduction, conv.sums
    if not sums.texels or sums.lanes != LANES or sums.fours % tile.parts or tile.group[2] != 1:
        raise NotSchedulable("its sums cannot be cut into parts")
    _, (channel, *_window) = reduction_loops(schedule, total, 0)
    fours, _four = schedule.split(channel, [None, LANES])
    cut = decide.tile(schedule, fours, [sums.fours // tile.parts, tile.parts], PARTS_OF_A_PIXEL[-1])
    _rest, part = schedule.split(fours, cut)
    partial = schedule.rfactor(part, 0)
    schedule.set_scope(partial, 0, "shared")
    added = schedule.cache_write(partial, 0, "local")

    loops = split_output(schedule, conv, tile, decide)
    bind(schedule, loops.groups, "blockIdx")
    x, y, z = loops.items
    # Of the work-items that share a sum, the first finishes it. A fused loop of extent 1 is in no index.
    alone = schedule.fuse(schedule.add_unit_loop(z), z)
    _, first = schedule.split(alone, [None, cut[1]])
    bind(schedule, (x, y, first), "threadIdx")
    finish(schedule, conv, loops)
    _add_up(schedule, total, depth=len(schedule.get_loops(conv.blocks.store)) - len(loops.registers) - 1)

    schedule.compute_at(added, loops.groups[0], preserve_unit_loops=True)
    part, images, depth, *axes, lane = schedule.get_loops(added)[AXES:]
    columns = axes.pop()
    rows = axes.pop() if axes else schedule.add_unit_loop(columns)
    if sums.matrix:
        images, columns = columns, images
    others = (images, depth)
    row, texels_y = schedule.split(rows, loops.down)
    column, texels_x = schedule.split(columns, loops.across)
    schedule.reorder(part, row, column, *others, texels_y, texels_x, lane)
    bind(schedule, (column, row, part), "threadIdx")
    for loop in (*others, texels_y, texels_x):
        schedule.unroll(loop)
    schedule.vectorize(lane)
    schedule.compute_at(partial, column, preserve_unit_loops=True)
    accumulate(schedule, conv, partial, depth=2 * AXES, tile=tile, decide=decide)


def _add_up(schedule: Any, total: Any, depth: int) -> None:
    """Schedule *total*, which adds the parts, inside of *depth* loops."""
    (*texels, lane), parts = reduction_loops(schedule, total, depth)
    schedule.reorder(*parts, *texels, lane)
    for loop in texels:
        schedule.unroll(loop)
    schedule.vectorize(lane)  # before the decomposition, after which it is refused
    schedule.decompose_reduction(total, parts[0])
