"""Schedule a kernel whose result is blocked so that each work-item writes whole texels.

An image can only be written a texel at a time. TVM's code generator takes any store
for that of a texel, so a schedule that stores lanes one by one gives wrong numbers
without a word. Here each work-item computes the four lanes of its texels as vectors.
"""

from __future__ import annotations

from typing import Any

from adt.model.targets.gpu import Gpu
from adt.model.texture.blocks import LANES, STAGE
from adt.model.texture.deciding import Decider, Settled
from adt.model.texture.direct import Convolution, convolution_of, direct_sums
from adt.model.texture.guard import image_faults, lowering
from adt.model.texture.kernel_blocks import (
    NotSchedulable,
    first_line,
    kernel_blocks,
    last_line,
    reduction_loops,
    refusals,
    texel_loops,
)
from adt.model.texture.shared_sums import shared_sums
from adt.model.texture.tiles import Tile, best_tile
from adt.model.unit_reductions import plain_unit_reductions

WORK_GROUP = 64
"""Work-items in a work-group; every OpenCL device of a phone takes as many."""


def texel_schedule(function: Any, *, by_lane: bool = False) -> Any:
    """Schedule the TIR *function*; its single output's last axis is a texel.

    Kernels with at most one reduction are taken: what comes before it is computed
    where it is read, what follows it is computed on the accumulated texel.

    Args:
        by_lane: compute what is stored lane by lane, in private memory, and store it as a
            texel then: for operators that TVM cannot vectorise (``erf``, choices by a lane).

    Returns:
        The scheduled function.

    Raises:
        NotSchedulable: it has several reductions, or is not of that form.
    """
    from tvm import s_tir

    schedule = s_tir.Schedule(function)
    with refusals():
        _schedule(schedule, by_lane)
    return schedule.mod["main"]


def writes_texels(function: Any) -> bool:
    """Whether the TIR *function* writes a tensor whose last axis is a texel."""
    shape = function.buffer_map[function.params[-1]].shape
    return len(shape) > 3 and int(shape[-1]) == LANES


def is_convolution(function: Any) -> bool:
    """Whether the unscheduled TIR *function* is a convolution on blocked tensors."""
    blocks = getattr(function.body.block, "alloc_buffers", ())
    return any(buffer.name.startswith(STAGE) for buffer in blocks)


def convolution_schedule(function: Any, gpu: Gpu, *, by_lane: bool = False) -> Any:
    """Schedule the TIR *function*, a convolution on blocked tensors, for *gpu*.

    Args:
        by_lane: see :func:`texel_schedule`.

    Raises:
        NotSchedulable: it is none, or there is no schedule for it.
    """
    from tvm import s_tir

    schedule = s_tir.Schedule(function)
    with refusals():
        conv = convolution_of(schedule, by_lane=by_lane)
        tile = best_tile(conv.sums, gpu)
        if tile is None:
            raise NotSchedulable("no tile of it fits the GPU")
        schedule_convolution(schedule, conv, tile, Settled())
    return schedule.mod["main"]


def schedule_convolution(schedule: Any, conv: Convolution, tile: Tile, decide: Decider) -> None:
    """Schedule *conv* by *tile*, or by what *decide* makes of it.

    Raises:
        NotSchedulable: the kernel does not write texels, or cannot share its sums.
    """
    (shared_sums if tile.parts > 1 else direct_sums)(schedule, conv, tile, decide)


def element_schedule(function: Any, target: Any) -> Any:
    """Schedule the TIR *function*, whose output is a buffer, with one work-item for each element.

    Raises:
        NotSchedulable: TVM's rule for that does not take it.
    """
    import tvm
    from tvm.s_tir import dlight

    module = plain_unit_reductions()(tvm.IRModule({"main": function}))
    try:
        with target:
            return dlight.ApplyDefaultSchedule(dlight.gpu.Fallback())(module)["main"]
    except (tvm.error.InternalError, RuntimeError, ValueError) as why:
        raise NotSchedulable(f"TVM's scheduling refuses it: {first_line(why)}") from why


def proven(function: Any, target: Any) -> None:
    """Lower the scheduled *function*, some of whose arguments are images, as compiling will.

    Raises:
        NotSchedulable: it would use images wrongly, or cannot be lowered.
    """
    import tvm

    bound = function.with_attr({"target": target, "global_symbol": "kernel"})
    try:
        with target:
            lowered = lowering()(tvm.IRModule({"kernel": bound}))
        faults = image_faults(lowered)
    except (tvm.error.InternalError, RuntimeError, ValueError, TypeError) as why:
        raise NotSchedulable(f"TVM cannot lower it: {last_line(why)}") from why
    if faults:
        raise NotSchedulable(faults[0])


def _schedule(schedule: Any, by_lane: bool) -> None:
    blocks = kernel_blocks(schedule, by_lane=by_lane)
    *outer, lane = texel_loops(schedule, blocks.store)
    innermost = _bind(schedule, outer)
    for part in blocks.before:
        schedule.compute_at(part, innermost, preserve_unit_loops=True)
    if blocks.reduction is not None:
        _vectorize_reduction(schedule, blocks.reduction, depth=len(schedule.get_loops(blocks.store)) - 1)
    schedule.vectorize(lane)


def _bind(schedule: Any, loops: list[Any]) -> Any:
    """One work-item for each iteration of *loops*; returns the innermost loop.

    Each axis is split by itself: of a fused and split loop TVM cannot tell that a
    work-item needs one texel only where the split does not divide the axes.
    """
    *others, x = loops
    axes = [x, *([others.pop()] if others else []), *([schedule.fuse(*others)] if others else [])]
    room = WORK_GROUP
    groups, items = [], []
    for name, loop in zip("xyz", axes, strict=False):
        size = min(room, power_of_two_within(int(schedule.get(loop).extent)))
        room //= size
        group, item = schedule.split(loop, [None, size])
        groups.append((group, f"blockIdx.{name}"))
        items.append((item, f"threadIdx.{name}"))
    order = [loop for loop, _ in (*reversed(groups), *reversed(items))]
    schedule.reorder(*order)
    for loop, thread in (*groups, *items):
        schedule.bind(loop, thread)
    return order[-1]


def power_of_two_within(extent: int) -> int:
    """The smallest power of two that is not below *extent*, and at most the work-group's."""
    return min(WORK_GROUP, 1 << max(extent - 1, 0).bit_length())


def _vectorize_reduction(schedule: Any, reduction: Any, depth: int) -> None:
    """Accumulate all lanes at once: the lane's loop becomes the innermost one."""
    spatial, reduce = reduction_loops(schedule, reduction, depth)
    lane = spatial[-1]
    schedule.reorder(*reduce, lane)
    schedule.vectorize(lane)  # before the decomposition, after which it is refused
    schedule.decompose_reduction(reduction, reduce[0])
