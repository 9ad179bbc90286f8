"""Schedule a kernel whose result is blocked so that each work-item writes whole texels.

An image can only be written a texel at a time. TVM's code generator takes any store
for that of a texel, so a schedule that stores lanes one by one gives wrong numbers
without a word. Here each work-item computes the four lanes of its texels as vectors.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from adt.model.texture.blocks import LANES
from adt.model.texture.guard import image_faults, lowering

WORK_GROUP = 64
"""Work-items in a work-group; every OpenCL device of a phone takes as many."""


SPATIAL, REDUCE = 0, 2
"""TVM's kinds of block iterators."""


class NotSchedulable(Exception):
    """A kernel cannot write images; what is said is the reason, for the report."""


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


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """What TVM's scheduling raises meanwhile becomes NotSchedulable."""
    import tvm
    from tvm import s_tir

    try:
        yield
    except (s_tir.schedule.ScheduleError, tvm.error.InternalError, ValueError) as why:
        raise NotSchedulable(f"TVM's scheduling refuses it: {_first_line(why)}") from why


def element_schedule(function: Any, target: Any) -> Any:
    """Schedule the TIR *function*, whose output is a buffer, with one work-item for each element.

    Raises:
        NotSchedulable: TVM's rule for that does not take it.
    """
    import tvm
    from tvm.s_tir import dlight

    module = tvm.IRModule({"main": function})
    try:
        with target:
            return dlight.ApplyDefaultSchedule(dlight.gpu.Fallback())(module)["main"]
    except (tvm.error.InternalError, RuntimeError, ValueError) as why:
        raise NotSchedulable(f"TVM's scheduling refuses it: {_first_line(why)}") from why


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
        raise NotSchedulable(f"TVM cannot lower it: {_last_line(why)}") from why
    if faults:
        raise NotSchedulable(faults[0])


@dataclass(frozen=True)
class KernelBlocks:
    """The blocks of a kernel that are left once all that can be is computed where it is read."""

    store: Any
    """Writes the output."""
    before: tuple[Any, ...]
    """What the store needs, from the last to the first: in private memory of a work-item."""
    reduction: Any | None
    """The one of *before* that accumulates."""


def kernel_blocks(schedule: Any, *, by_lane: bool = False) -> KernelBlocks:
    """Inline what can be in the unscheduled kernel; put into private memory what cannot.

    Args:
        by_lane: see :func:`texel_schedule`.

    Raises:
        NotSchedulable: it has several reductions, or is not of that form.
    """
    root = schedule.get_sblock("root")
    blocks = schedule.get_child_blocks(root)
    reductions = [block for block in blocks if _reduces(schedule, block)]
    if len(reductions) > 1:
        raise NotSchedulable(f"it has {len(reductions)} reductions")
    if any(schedule.get_child_blocks(block) for block in blocks):
        raise NotSchedulable("its blocks are nested")
    outputs = schedule.get_output_blocks(root)
    if len(outputs) != 1:
        raise NotSchedulable(f"it has {len(outputs)} outputs")
    reduction, last = (reductions[0] if reductions else None), outputs[0]
    epilogue = reduction is None or not _same(schedule, last, reduction)
    for block in blocks:
        if not any(_same(schedule, block, kept) for kept in (last, reduction) if kept is not None):
            schedule.compute_inline(block)
    if reduction is not None and epilogue:
        schedule.set_scope(reduction, 0, "local")
    store = schedule.cache_write(last, 0, "local") if by_lane or not epilogue else last
    before = [last] if by_lane and epilogue else []
    if reduction is not None:
        before.append(reduction)
    return KernelBlocks(store, tuple(before), reduction)


def texel_loops(schedule: Any, store: Any) -> list[Any]:
    """The loops of the block *store*, of which the last runs over the lanes of a texel.

    Raises:
        NotSchedulable: it does not.
    """
    loops: list[Any] = schedule.get_loops(store)
    if not loops or int(schedule.get(loops[-1]).extent) != LANES:
        raise NotSchedulable("its last axis is no texel")
    return loops


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


def reduction_loops(schedule: Any, reduction: Any, depth: int) -> tuple[list[Any], list[Any]]:
    """The loops of *reduction* inside the *depth* outermost ones: those over texels (the last
    one over a texel's lanes), and those that it accumulates over.

    Raises:
        NotSchedulable: it does not run over texels.
    """
    loops = schedule.get_loops(reduction)[depth:]
    kinds = [int(iterator.iter_type) for iterator in schedule.get(reduction).iter_vars[-len(loops) :]]
    spatial = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == SPATIAL]
    reduce = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == REDUCE]
    if int(schedule.get(spatial[-1]).extent) != LANES or len(spatial) + len(reduce) != len(loops):
        raise NotSchedulable("its reduction does not run over texels")
    return spatial, reduce


def _vectorize_reduction(schedule: Any, reduction: Any, depth: int) -> None:
    """Accumulate all lanes at once: the lane's loop becomes the innermost one."""
    spatial, reduce = reduction_loops(schedule, reduction, depth)
    lane = spatial[-1]
    schedule.reorder(*reduce, lane)
    schedule.vectorize(lane)  # before the decomposition, after which it is refused
    schedule.decompose_reduction(reduction, reduce[0])


def _reduces(schedule: Any, block: Any) -> bool:
    return any(int(iterator.iter_type) != SPATIAL for iterator in schedule.get(block).iter_vars)


def _same(schedule: Any, one: Any, other: Any) -> bool:
    return bool(schedule.get(one).same_as(schedule.get(other)))


def _first_line(why: BaseException) -> str:
    return _lines(why)[0][:160]


def _last_line(why: BaseException) -> str:
    return _lines(why)[-1][:160]


def _lines(why: BaseException) -> list[str]:
    return [line.strip() for line in str(why).splitlines() if line.strip()] or [type(why).__name__]
