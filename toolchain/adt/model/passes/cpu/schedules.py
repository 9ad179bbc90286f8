"""Schedules of kernels for CPUs, by rules and without a search.

The first rule that takes a kernel schedules it: a convolution or product on blocked tensors, one
reduction, several of each row, or no reduction. Anything but a convolution has its last axis in lanes
where that is long enough, its sums in registers, and what can be computed where it is read is. A kernel
that no rule takes stays a plain loop.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

from adt.model.inspection.flops import CPU_SCHEDULE, SCHEDULED
from adt.model.passes.cpu.bias import sums_from_bias
from adt.model.passes.cpu.convolution import convolution
from adt.model.passes.cpu.elementwise import elements
from adt.model.passes.cpu.kernel import NoSchedule
from adt.model.passes.cpu.recurrence import is_recurrence
from adt.model.passes.cpu.reduction import reduction, rows
from adt.model.passes.cpu.vector_math import shared_divisors, vectorized_math
from adt.model.passes.cpu.vectors import Vectors
from adt.model.passes.nodes import tir_nodes

log = logging.getLogger("adt.compile")


RULES: tuple[Callable[[Any, Vectors], str], ...] = (convolution, reduction, rows, elements)
"""Each schedules a kernel and says in a few words how, or raises NoSchedule."""


def schedule_kernels(vectors: Vectors) -> Any:
    """The pass that schedules each kernel that has no schedule yet."""
    import tvm
    from tvm import tirx

    @tvm.transform.module_pass(opt_level=0, name="adt.CpuSchedules")  # type: ignore[untyped-decorator]
    def schedule(module: Any, _context: Any) -> Any:
        for name, function in module.functions.items():
            if isinstance(function, tirx.PrimFunc) and SCHEDULED not in (function.attrs or {}):
                module.update_func(name, scheduled(function, vectors, name.name_hint))
        return module

    return schedule


def scheduled(function: Any, vectors: Vectors, name: str = "") -> Any:
    """The TIR *function* by the first rule that takes it; as it is if none does."""
    import tvm
    from tvm import s_tir

    if is_recurrence(function):
        return _finished(function, function.body, "all steps of a recurrent layer")
    refusals = (NoSchedule, s_tir.schedule.ScheduleError, tvm.error.InternalError, ValueError, TypeError)
    narrow = narrow_indices(function)
    for rule in RULES:
        schedule = s_tir.Schedule(narrow)
        try:
            words = rule(schedule, vectors)
        except refusals as reason:
            log.debug("%s: %s does not apply: %s", name, rule.__name__, str(reason).strip()[-200:])
            continue
        body = schedule.mod["main"].body
        if rule is rows:  # elsewhere what is divided may be rounded to quanta: there a last place counts
            body = shared_divisors(body)
        if rule is convolution and vectors.by_element:
            body = sums_from_bias(body)
        return _finished(narrow, body, words)
    return function


def _finished(function: Any, body: Any, words: str) -> Any:
    """*function* with the *body* that was scheduled as *words* say."""
    from tvm import tirx

    body = vectorized_math(body)
    finished = tirx.PrimFunc(function.params, body, function.ret_type, function.buffer_map, function.attrs)
    return finished.with_attr(SCHEDULED, True).with_attr(CPU_SCHEDULE, words)


def narrow_indices(function: Any) -> Any:
    """*function* with indices of 32 bits, where those do.

    TVM narrows them later, and then forgets which loops are to be partitioned.
    """
    import tvm
    from tvm import tirx

    try:
        sizes = [math.prod(map(int, buffer.shape)) for buffer in function.buffer_map.values()]
        if max(sizes, default=0) >= 1 << 31:
            return function
        narrow = tirx.transform.ForceNarrowIndexToInt32()(tvm.IRModule({"main": function}))
    except (tvm.error.InternalError, TypeError, ValueError) as reason:  # open shapes, tensors of int64
        log.debug("its indices stay: %s", str(reason).strip()[-200:])
        return function
    if any(call.dtype == "int64" for call in tir_nodes(narrow["main"].body, tirx.Call)):
        return function  # TVM leaves the types of calls in indices, which nothing fits then
    return narrow["main"]
