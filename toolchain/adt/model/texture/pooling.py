"""Schedule pools of blocked tensors: a work-item for each texel, or several that share the window of one.

A pool over a whole map has no more texels than blocks of channels, and windows of thousands
of places: with one work-item for each texel most of a GPU would be idle. There the places of
a window are dealt out to the work-items of one work-group; each adds up its part, or takes the
greatest, and puts it into local memory; after a barrier one of them does so with the parts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from adt.model.targets.gpu import Gpu
from adt.model.texture.kernel_blocks import (
    KernelBlocks,
    NotSchedulable,
    kernel_blocks,
    reduction_loops,
    refusals,
    texel_loops,
)
from adt.model.texture.tiles import divisors

POOLED = ("sum_texels", "max_texels")
"""Names of the blocks that accumulate: see :func:`adt.model.texture.blocks.pool`."""
SHORT = 32
"""Places of a window that one work-item takes by itself."""


def is_global_pool(function: Any) -> bool:
    """Whether the unscheduled TIR *function* pools whole maps, large ones, of a blocked tensor."""
    return _window(function) > SHORT


def pool_schedule(function: Any, gpu: Gpu) -> Any:
    """Schedule the TIR *function*, which pools whole maps, with several work-items for each texel.

    Raises:
        NotSchedulable: it does not, or the places of a map cannot be dealt out evenly.
    """
    import tvm
    from tvm import s_tir, tirx

    # TVM 0.25 cannot lower the place that a work-item reads (its number divided by the length of a row)
    # where the extents are of 64 bits: the number of a work-item has 32.
    narrow = tirx.transform.ForceNarrowIndexToInt32()(tvm.IRModule({"main": function}))
    schedule = s_tir.Schedule(narrow)
    with refusals():
        blocks = kernel_blocks(schedule)
        if blocks.reduction is None or not _window(function):
            raise NotSchedulable("it pools no whole maps")
        _, depth, *_ = (int(extent) for extent in schedule.get(blocks.reduction).writes[0].buffer.shape)
        shares = shares_of(_window(function), depth, gpu)
        _share(schedule, blocks, shares)
    return schedule.mod["main"]


@dataclass(frozen=True)
class Shares:
    """How the windows of a pool are dealt out."""

    parts: int
    """Work-items for each texel; they divide its window."""
    texels: int
    """Texels of a work-group; they divide the blocks of channels."""


def shares_of(window: int, depth: int, gpu: Gpu) -> Shares:
    """How to deal out windows of *window* places of each of *depth* blocks of channels.

    As many work-items as fit one work-group share a window, but none takes fewer than four places;
    short windows are put together until a work-group fills a wave.

    Raises:
        NotSchedulable: no number of work-items divides the window.
    """
    parts = divisors(window, min(gpu.work_group, window // 4))[-1]
    if parts == 1:
        raise NotSchedulable(f"a window of {window} places cannot be dealt out evenly")
    fitting = divisors(depth, gpu.work_group // parts)
    return Shares(parts, next((size for size in fitting if size * parts >= gpu.wave), fitting[-1]))


def _window(function: Any) -> int:
    """Places of the window of the whole map that *function* pools; 0: it does not."""
    from tvm import tirx

    found: list[int] = []

    def visit(node: Any) -> None:
        if not isinstance(node, tirx.SBlock) or not node.name_hint.startswith(POOLED):
            return
        extents = [(int(axis.iter_type), int(axis.dom.extent)) for axis in node.iter_vars]
        _, _, *places, _ = (extent for kind, extent in extents if kind == 0)
        if math.prod(places) == 1:
            found.append(math.prod(extent for kind, extent in extents if kind != 0))

    tirx.stmt_functor.post_order_visit(function.body, visit)
    return found[0] if len(found) == 1 else 0


def _share(schedule: Any, blocks: KernelBlocks, shares: Shares) -> None:
    total = blocks.reduction
    _, window = reduction_loops(schedule, total, 0)
    place = schedule.fuse(*window) if len(window) > 1 else window[0]
    _rest, part = schedule.split(place, [None, shares.parts])
    partial = schedule.rfactor(part, 0)
    schedule.set_scope(partial, 0, "shared")
    added = schedule.cache_write(partial, 0, "local")

    image, depth, *ones, lane = texel_loops(schedule, blocks.store)
    group, item = schedule.split(depth, [None, shares.texels])
    group = schedule.fuse(image, group)
    schedule.bind(group, "blockIdx.x")
    # Of the work-items that share a texel, the first finishes it. A fused loop of extent 1 is in no index.
    alone = schedule.fuse(schedule.add_unit_loop(item), schedule.add_unit_loop(item))
    _, first = schedule.split(alone, [None, shares.parts])
    for loop, thread in ((first, "x"), (item, "y")):
        schedule.bind(loop, f"threadIdx.{thread}")
    for block in blocks.before:
        schedule.compute_at(block, item, preserve_unit_loops=True)
    depth = len(schedule.get_loops(blocks.store)) - len(ones) - 1
    _accumulate(schedule, total, depth)
    schedule.vectorize(lane)

    schedule.compute_at(added, group, preserve_unit_loops=True)
    part, _image, item, *_, lane = schedule.get_loops(added)[1:]
    schedule.bind(part, "threadIdx.x")
    schedule.bind(item, "threadIdx.y")
    schedule.vectorize(lane)
    schedule.compute_at(partial, item, preserve_unit_loops=True)
    _accumulate(schedule, partial, len(schedule.get_loops(added)) - len(ones) - 1)


def _accumulate(schedule: Any, block: Any, depth: int) -> None:
    """Accumulate all lanes of a texel at once."""
    (*_, lane), window = reduction_loops(schedule, block, depth)
    schedule.reorder(*window, lane)
    schedule.vectorize(lane)  # before the decomposition, after which it is refused
    schedule.decompose_reduction(block, window[0])
