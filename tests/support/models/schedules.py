"""Schedules that no search chose: simple, right, and other than those that compiling gives."""

from typing import Any

from adt.compiler.passes.records.schedules import load_intrinsics
from adt.compiler.passes.records.traces import trace_text
from adt.tuning.search.design_space import rule_space, uses_texels
from adt.tuning.tasks import Task


def hand_trace(task: Task, target: dict[str, Any]) -> str:
    """Return the trace of a schedule of *task* for TVM's *target*.

    On a CPU each operator's outer loops run in parallel; on a GPU each element has a work-item, in groups
    of 32; kernels with images get what their space begins with, and blocked ones of a CPU another tile.
    """
    import tvm

    load_intrinsics()
    parsed = tvm.target.Target(target)
    if space := rule_space(task.module["main"], parsed):
        if uses_texels(task.module["main"], parsed):
            point = space.point({})
        else:
            point = space.point({"channels": 1}) or space.point({"wide": 1})
        assert point
        return point.candidate.trace
    schedule = tvm.s_tir.Schedule(task.module)
    apply_by_hand(schedule, gpu=target["kind"] != "llvm")
    return trace_text(schedule.trace)


def apply_by_hand(schedule: Any, *, gpu: bool) -> None:
    """Schedule what is no kernel with images, see :func:`hand_trace`."""
    for block in schedule.get_child_blocks(schedule.get_sblock("root")):
        _schedule(schedule, block, gpu=gpu)


def _schedule(schedule: Any, block: Any, *, gpu: bool) -> None:
    loops = schedule.get_loops(block)
    spatial = [
        loop
        for loop, var in zip(loops, schedule.get(block).iter_vars, strict=True)
        if int(var.iter_type) == 0
    ]
    if not gpu:
        schedule.parallel(schedule.fuse(*spatial[:2]))
        return
    schedule.reorder(*spatial, *(loop for loop in loops if not any(loop.same_as(other) for other in spatial)))
    group, item = schedule.split(schedule.fuse(*spatial), [None, 32])
    schedule.bind(group, "blockIdx.x")
    schedule.bind(item, "threadIdx.x")
