"""Rules for kernels whose result is blocked, by which each work-item writes whole texels.

TVM's code generator takes any store to an image for that of a texel, so a schedule that stores lanes one by
one gives wrong numbers without a word. Here each work-item computes the four lanes of its texels as vectors.
Convolutions are in :mod:`adt.compiler.passes.gpu.convolution`.

A pool over a whole map has few texels, and windows of thousands of places: most of a GPU would be idle. There
the work-items of a work-group each reduce a part of a window, and one of them, behind a barrier, the parts.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import s_tir, tirx
from tvm.s_tir.schedule import LoopRV, SBlockRV

from adt.compiler.ir.nodes import tir_nodes
from adt.compiler.passes.gpu.tiles import power_over, powers
from adt.compiler.passes.layout.blocks import BYTES, FLOATS
from adt.compiler.passes.layout.signature import REDUCE, SPATIAL, reduces
from adt.compiler.passes.scheduling import Decisions, NoSchedule, divisors, unroll_all
from adt.compiler.targets.gpu import Gpu
from adt.package.reports import LANES, SCOPE

WORK_GROUP = 64
"""Work-items in a work-group; every OpenCL device of a phone takes as many."""
LEAST_GROUP = 16
"""Work-items of a group that a search tries, at least."""
MOST_WIDE = 4
"""Texels of a row that a work-item computes, at most; each fills four registers."""
UNROLLED = (0, 64, 128, 256)
"""Statements up to which loops over a window are unrolled."""
ITEMS = (256, 128, 64, 32)
"""Work-items in a work-group of a kernel that writes a buffer."""
POOLED = ("sum_blocks", "max_blocks")
"""Names of the blocks that accumulate: see :func:`adt.compiler.passes.layout.blocks.pool`."""
MOST_ALONE = 32
"""Places of a window that one work-item takes by itself."""


@dataclass(frozen=True)
class KernelBlocks:
    """The blocks of a kernel that are left once all that can be is computed where it is read."""

    store: Any
    """Writes the output."""
    before: tuple[Any, ...]
    """Blocks that the store needs, from the last to the first: in private memory of a work-item."""
    reduction: Any | None
    """The one of *before* that accumulates."""


def kernel_blocks(
    schedule: s_tir.Schedule, *, by_lane: bool = False, kept: Sequence[SBlockRV] = ()
) -> KernelBlocks:
    """Inline the blocks of the unscheduled kernel but *kept*, or put them into private memory."""
    root = schedule.get_sblock("root")
    blocks = schedule.get_child_blocks(root)
    reductions = [block for block in blocks if reduces(schedule.get(block))]
    if len(reductions) > 1:
        raise NoSchedule(f"it has {len(reductions)} reductions")
    if any(schedule.get_child_blocks(block) for block in blocks):
        raise NoSchedule("its blocks are nested")
    outputs = schedule.get_output_blocks(root)
    if len(outputs) != 1:
        raise NoSchedule(f"it has {len(outputs)} outputs")
    reduction, last = (reductions[0] if reductions else None), outputs[0]
    epilogue = reduction is None or not _same(schedule, last, reduction)
    for block in blocks:
        if not any(_same(schedule, block, other) for other in (last, reduction, *kept) if other is not None):
            schedule.compute_inline(block)
    if reduction is not None and epilogue:
        schedule.set_scope(reduction, 0, "local")
    store = schedule.cache_write(last, 0, "local") if by_lane or not epilogue else last
    before = [last] if by_lane and epilogue else []
    if reduction is not None:
        before.append(reduction)
    return KernelBlocks(store, tuple(before), reduction)


def texel_loops(schedule: s_tir.Schedule, store: SBlockRV) -> list[LoopRV]:
    """Return the loops of the block *store*, the last over the lanes of a texel."""
    loops: list[LoopRV] = schedule.get_loops(store)
    if len(loops) < 2 or int(schedule.get(loops[-1]).extent) != LANES:
        raise NoSchedule("its last axis is no texel")
    return loops


def reduction_loops(
    schedule: s_tir.Schedule, reduction: SBlockRV, depth: int
) -> tuple[list[LoopRV], list[LoopRV]]:
    """Return the loops of *reduction* inside the *depth* outermost: over texels, lanes last, and terms."""
    loops = schedule.get_loops(reduction)[depth:]
    kinds = [int(iterator.iter_type) for iterator in schedule.get(reduction).iter_vars[-len(loops) :]]
    spatial = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == SPATIAL]
    reduce = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == REDUCE]
    if int(schedule.get(spatial[-1]).extent) != LANES or len(spatial) + len(reduce) != len(loops):
        raise NoSchedule("its reduction does not run over texels")
    return spatial, reduce


def reduce_loops(schedule: s_tir.Schedule, reduction: SBlockRV) -> list[LoopRV]:
    """Return the loops that *reduction* accumulates over, outermost first."""
    kinds = [int(axis.iter_type) for axis in schedule.get(reduction).iter_vars]
    loops = schedule.get_loops(reduction)[-len(kinds) :]
    return [loop for loop, kind in zip(loops, kinds, strict=True) if kind != SPATIAL]


def unroll(schedule: s_tir.Schedule, loop: LoopRV, statements: int) -> None:
    """Unroll *loop*, and loops inside of it, up to *statements*, by marks that TVM's lowering reads."""
    if statements:
        schedule.annotate(loop, "pragma_auto_unroll_max_step", statements)
        schedule.annotate(loop, "pragma_unroll_explicit", 1)


def _same(schedule: s_tir.Schedule, block: SBlockRV, other: SBlockRV) -> bool:
    return bool(schedule.get(block).same_as(schedule.get(other)))


def texels(schedule: s_tir.Schedule, gpu: Gpu, decisions: Decisions, *, by_lane: bool = False) -> None:
    """Schedule a kernel whose single output's last axis is a texel, with at most one reduction.

    With *by_lane* lanes are computed one by one, then stored as a texel: TVM cannot vectorise ``erf``.
    """
    blocks = kernel_blocks(schedule, by_lane=by_lane)
    *outer, lane = texel_loops(schedule, blocks.store)
    wide = decisions.choose("wide", divisors(int(schedule.get(outer[-1]).extent), MOST_WIDE))
    if wide > 1:
        outer[-1], several = schedule.split(outer[-1], [None, wide])
        schedule.unroll(several)
    innermost = _bind(schedule, outer, decisions.choose("group", _groups(schedule, outer, gpu)))
    for part in blocks.before:
        schedule.compute_at(part, innermost, preserve_unit_loops=True)
    if blocks.reduction is not None:
        depth = len(schedule.get_loops(blocks.store)) - 1 - (wide > 1)
        most = decisions.choose("unroll", UNROLLED)
        vectorize_reduction(schedule, blocks.reduction, depth, together=wide > 1, unrolled=most)
    schedule.vectorize(lane)


def writes_texels(function: tirx.PrimFunc) -> bool:
    """Return True if the TIR *function* writes a tensor whose last axis is a texel."""
    shape = function.buffer_map[function.params[-1]].shape
    return len(shape) > 3 and int(shape[-1]) == LANES


def moves_texels(function: tirx.PrimFunc) -> bool:
    """Return True if the unscheduled *function*, of floats and bytes, writes texels, and at most pools."""
    if not writes_texels(function):
        return False
    numbers = all(str(buffer.dtype) in (*FLOATS, *BYTES) for buffer in function.buffer_map.values())
    sums = (block for block in tir_nodes(function.body, tirx.SBlock) if block.init is not None)
    return numbers and all(block.name_hint.startswith(POOLED) for block in sums)


def reads_images(function: tirx.PrimFunc) -> bool:
    """Return True if the TIR *function* reads images and writes a buffer."""
    *inputs, output = (function.buffer_map[parameter].scope() for parameter in function.params)
    return SCOPE in inputs and output != SCOPE


def elements(schedule: s_tir.Schedule, gpu: Gpu, decisions: Decisions) -> None:
    """Schedule a kernel that writes a buffer, with one work-item for each element."""
    blocks = kernel_blocks(schedule)
    loops = schedule.get_loops(blocks.store)
    if not loops:
        raise NoSchedule("it computes one number")
    items = decisions.choose("items", [size for size in ITEMS if size <= max(gpu.work_group, ITEMS[-1])])
    group, item = schedule.split(schedule.fuse(*loops), [None, items])
    schedule.bind(group, "blockIdx.x")
    schedule.bind(item, "threadIdx.x")
    for part in blocks.before:
        schedule.compute_at(part, item, preserve_unit_loops=True)
    if blocks.reduction is not None:
        first, *_ = reduce_loops(schedule, blocks.reduction)
        unroll(schedule, first, decisions.choose("unroll", UNROLLED))
        schedule.decompose_reduction(blocks.reduction, first)


def _groups(schedule: s_tir.Schedule, loops: Sequence[LoopRV], gpu: Gpu) -> list[tuple[int, ...]]:
    """Return the shapes of a work-group over *loops*: as wide as they are, and then the others."""
    extents = [int(schedule.get(loop).extent) for loop in reversed(loops)]
    axes = [*extents[:2], *([math.prod(extents[2:])] if len(extents) > 2 else [])]
    room, usual = WORK_GROUP, []
    for extent in axes:
        usual.append(min(room, power_over(extent)))
        room //= usual[-1]
    sizes = [powers(min(WORK_GROUP, power_over(extent))) for extent in axes]
    least = min(LEAST_GROUP, math.prod(usual))
    shapes = [shape for shape in itertools.product(*sizes) if least <= math.prod(shape) <= gpu.work_group]
    return [tuple(usual), *(shape for shape in shapes if shape != tuple(usual))]


def _bind(schedule: s_tir.Schedule, loops: Sequence[LoopRV], shape: Sequence[int]) -> LoopRV:
    """Bind one work-item to each iteration of *loops*, in groups of this *shape*; return the innermost loop.

    Each axis is split by itself: of a fused loop TVM cannot tell that a work-item needs but one texel.
    """
    *others, x = loops
    axes = [x, *([others.pop()] if others else []), *([schedule.fuse(*others)] if others else [])]
    groups, items = [], []
    for name, loop, size in zip("xyz", axes, shape, strict=False):
        group, item = schedule.split(loop, [None, size])
        groups.append((group, f"blockIdx.{name}"))
        items.append((item, f"threadIdx.{name}"))
    order = [loop for loop, _ in (*reversed(groups), *reversed(items))]
    schedule.reorder(*order)
    for loop, thread in (*groups, *items):
        schedule.bind(loop, thread)
    return order[-1]


def vectorize_reduction(
    schedule: s_tir.Schedule, reduction: SBlockRV, depth: int, *, together: bool = False, unrolled: int = 0
) -> None:
    """Accumulate all lanes at once, in the innermost loop; *together*: of several texels of a work-item."""
    (*places, lane), reduce = reduction_loops(schedule, reduction, depth)
    schedule.reorder(*reduce, *(places if together else ()), lane)
    unroll_all(schedule, places if together else ())
    unroll(schedule, reduce[0], unrolled)
    schedule.vectorize(lane)  # before the decomposition, after which it is refused
    schedule.decompose_reduction(reduction, reduce[0])


def is_global_pool(function: tirx.PrimFunc) -> bool:
    """Return True if the unscheduled TIR *function* pools whole maps, large ones, of a blocked tensor."""
    return _window(function) > MOST_ALONE


def pool(schedule: s_tir.Schedule, gpu: Gpu, _decisions: Decisions) -> None:
    """Schedule a pool of whole maps, with several work-items for each texel."""
    places = _window(schedule.mod["main"])
    blocks = kernel_blocks(schedule)
    total = blocks.reduction
    if total is None or not places:
        raise NoSchedule("it pools no whole maps")
    parts, texels = shares_of(places, int(schedule.get(total).writes[0].buffer.shape[1]), gpu)
    _, window = reduction_loops(schedule, total, 0)
    place = schedule.fuse(*window) if len(window) > 1 else window[0]
    _rest, part = schedule.split(place, [None, parts])
    partial = schedule.rfactor(part, 0)
    schedule.set_scope(partial, 0, "shared")
    added = schedule.cache_write(partial, 0, "local")

    image, depth, *ones, lane = texel_loops(schedule, blocks.store)
    group, item = schedule.split(depth, [None, texels])
    group = schedule.fuse(image, group)
    schedule.bind(group, "blockIdx.x")
    # Of the work-items that share a texel, the first finishes it. A fused loop of extent 1 is in no index.
    alone = schedule.fuse(schedule.add_unit_loop(item), schedule.add_unit_loop(item))
    _, first = schedule.split(alone, [None, parts])
    schedule.bind(first, "threadIdx.x")
    schedule.bind(item, "threadIdx.y")
    for block in blocks.before:
        schedule.compute_at(block, item, preserve_unit_loops=True)
    vectorize_reduction(schedule, total, len(schedule.get_loops(blocks.store)) - len(ones) - 1)
    schedule.vectorize(lane)

    schedule.compute_at(added, group, preserve_unit_loops=True)
    part, _image, item, *_, lane = schedule.get_loops(added)[1:]
    schedule.bind(part, "threadIdx.x")
    schedule.bind(item, "threadIdx.y")
    schedule.vectorize(lane)
    schedule.compute_at(partial, item, preserve_unit_loops=True)
    vectorize_reduction(schedule, partial, len(schedule.get_loops(added)) - len(ones) - 1)


def shares_of(window: int, depth: int, gpu: Gpu) -> tuple[int, int]:
    """Deal out windows of *window* places of each of *depth* blocks of channels.

    Returns the work-items of a texel, as many as fit one work-group with four places each, and the texels of
    a work-group: short windows are put together until it fills a wave.
    """
    parts = divisors(window, min(gpu.work_group, window // 4))[-1]
    if parts == 1:
        raise NoSchedule(f"a window of {window} places cannot be dealt out evenly")
    fitting = divisors(depth, gpu.work_group // parts)
    return parts, next((size for size in fitting if size * parts >= gpu.wave), fitting[-1])


def _window(function: tirx.PrimFunc) -> int:
    """Count the places of the window of the whole map that *function* pools; 0: it does not."""
    windows: list[int] = []
    for block in tir_nodes(function.body, tirx.SBlock):
        if not block.name_hint.startswith(POOLED):
            continue
        extents = [(int(axis.iter_type), int(axis.dom.extent)) for axis in block.iter_vars]
        _, _, *places, _ = (extent for kind, extent in extents if kind == SPATIAL)
        if math.prod(places) == 1:
            windows.append(math.prod(extent for kind, extent in extents if kind != SPATIAL))
    return windows[0] if len(windows) == 1 else 0
