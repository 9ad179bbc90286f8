"""The blocks of a kernel that is to be scheduled by texels, and what they run over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import s_tir
from tvm.s_tir.schedule import LoopRV, SBlockRV

from adt.compiler.passes.layout.signature import REDUCE, SPATIAL, reduces
from adt.compiler.passes.scheduling import NoSchedule
from adt.package.reports import LANES


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
    """Inline the blocks of the unscheduled kernel but *kept*, or put them into private memory.

    Raises:
        NoSchedule: it has several reductions, or is not of that form.
    """
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
    """Return the loops of *reduction* inside the *depth* outermost ones: those over texels (the last
    one over a texel's lanes), and those that it accumulates over.
    """
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
