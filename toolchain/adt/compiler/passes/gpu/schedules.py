"""Schedules of kernels for GPUs, by rules and without a search.

The first rule that takes a kernel, and uses its images rightly, schedules it: a convolution or product on
blocked tensors, a reduction, rows, a pool of whole maps, or anything that writes texels. What writes a buffer
and reads images gets a work-item for each element.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.s_tir import dlight
from tvm.s_tir.dlight import ScheduleRule

from adt.compiler.ir.flops import SCHEDULED
from adt.compiler.ir.nodes import tir_nodes
from adt.compiler.ir.passes import module_pass
from adt.compiler.passes.gpu.convolution import convolution
from adt.compiler.passes.gpu.products import product
from adt.compiler.passes.gpu.rows import is_dealt, is_other_reduction, reduction, rows, with_own_places
from adt.compiler.passes.gpu.texels import elements, is_global_pool, pool, reads_images, texels, writes_texels
from adt.compiler.passes.indices import narrow_indices
from adt.compiler.passes.layout.blocks import is_convolution
from adt.compiler.passes.lowering import image_faults, texture_lowering
from adt.compiler.passes.scheduling import Decisions, NoSchedule, refusals
from adt.compiler.passes.workarounds import plain_unit_reductions
from adt.compiler.targets.gpu import Gpu
from adt.errors import last_line

log = logging.getLogger("adt.compile")


@dataclass(frozen=True)
class Rule:
    """One way to schedule kernels."""

    takes: Callable[[tirx.PrimFunc], bool]
    """True for the unscheduled kernels that it is for."""
    schedule: Callable[..., s_tir.Schedule | None]
    """Schedules a kernel, given TVM's Schedule, the Gpu and Decisions, or raises NoSchedule; what it returns
    is the Schedule of a kernel that it wrote anew."""
    by_lane: bool = False
    """True if it is tried again, computing lane by lane, where TVM has no vectors of what is computed."""
    narrow: bool = False
    """True if TVM cannot lower its schedules with indices of 64 bits: the number of a work-item has 32."""
    finish: Callable[[tirx.PrimFunc], tirx.PrimFunc] | None = None
    """Transforms the scheduled kernel."""

    @property
    def forms(self) -> tuple[Rule, ...]:
        """Forms of itself: as it is, and perhaps the same lane by lane."""
        by_lane = replace(self, schedule=partial(self.schedule, by_lane=True), by_lane=False)
        return (self, by_lane) if self.by_lane else (self,)


def elements_by_tvm(schedule: s_tir.Schedule, _gpu: Gpu, _decisions: Decisions) -> s_tir.Schedule:
    """Schedule a kernel that writes a buffer, with one work-item for each element, by TVM's rule."""
    module = plain_unit_reductions()(schedule.mod)
    return s_tir.Schedule(dlight.ApplyDefaultSchedule(dlight.gpu.Fallback())(module)["main"])


CONVOLUTION = Rule(is_convolution, convolution, by_lane=True)
TEXELS = Rule(writes_texels, texels, by_lane=True)
ELEMENTS = Rule(lambda _function: True, elements_by_tvm)
TILED = (CONVOLUTION, TEXELS, Rule(reads_images, elements))
"""Rules that leave something open; the last is for what compiling gives :data:`ELEMENTS`."""
RULES = (
    CONVOLUTION,
    Rule(is_other_reduction, reduction, narrow=True),
    Rule(is_dealt, rows, by_lane=True, narrow=True, finish=with_own_places),
    Rule(is_global_pool, pool, narrow=True),
    TEXELS,
)


def schedule_of(
    function: tirx.PrimFunc,
    target: tvm.target.Target,
    gpu: Gpu,
    decisions: Decisions,
    rules: Sequence[Rule] = RULES,
) -> tuple[s_tir.Schedule, tirx.PrimFunc]:
    """Schedule the TIR *function* by the first of *rules* that takes it and uses its images rightly.

    Returns TVM's Schedule and the kernel, which may be finished; NoSchedule, for the first rule's reason, if
    none does.
    """
    reasons: list[NoSchedule] = []
    for form in (form for rule in rules if rule.takes(function) for form in rule.forms):
        start = narrow_indices(function) if form.narrow else function
        try:
            with target, refusals():
                schedule = s_tir.Schedule(start)
                schedule = form.schedule(schedule, gpu, decisions) or schedule
            result = schedule.mod["main"]
            result = form.finish(result) if form.finish else result
            prove(result, target)
        except NoSchedule as reason:
            reasons.append(reason)
        else:
            return schedule, result
    raise reasons[0] if reasons else NoSchedule("no rule takes it")


def prove(function: tirx.PrimFunc, target: tvm.target.Target) -> None:
    """Lower the scheduled *function*, as compiling will; NoSchedule if it cannot, or uses images wrongly."""
    bound = function.with_attr({"target": target, "global_symbol": "kernel"})
    try:
        with target:
            lowered = texture_lowering()(tvm.IRModule({"kernel": bound}))
        faults = image_faults(lowered)
    except (tvm.error.InternalError, RuntimeError, ValueError, TypeError) as error:
        raise NoSchedule(f"TVM cannot lower it: {last_line(error):.160}") from error
    if faults:
        raise NoSchedule(faults[0])


PLAIN = (Rule(lambda _function: True, product, by_lane=True, narrow=True),)
"""Rules for kernels of plain buffers, which come before TVM's."""
TVM_RULES = ("Matmul", "GEMV", "Reduction", "GeneralReduction", "Fallback")


def schedule_kernels(gpu: Gpu) -> tvm.transform.Pass:
    """Return the pass that schedules kernels that have no schedule: by adt's rule, or else by TVM's.

    A rule of TVM's that raises (0.25's GEMV does, on some fused epilogues) counts as one that does not apply.
    """

    @module_pass("adt.GpuSchedules")
    def schedule(module: tvm.IRModule) -> tvm.IRModule:
        target = tvm.target.Target.current()
        result = tvm.IRModule(dict(module.functions_items()), module.attrs, module.global_infos)
        for variable, function in module.functions_items():
            if isinstance(function, tirx.PrimFunc) and SCHEDULED not in (function.attrs or {}):
                with contextlib.suppress(NoSchedule):
                    _, kernel = schedule_of(function, target, gpu, Decisions(), PLAIN)
                    result.update_func(variable, kernel.with_attr(SCHEDULED, True))
        with _any_gpu(target):
            rules = (_careful(getattr(dlight.gpu, rule)()) for rule in TVM_RULES)
            return dlight.ApplyDefaultSchedule(*rules)(result)

    return schedule()


def _any_gpu(target: tvm.target.Target) -> Any:
    """Remove the words from *target* by which TVM's rules know an Adreno GPU or Android.

    Their branch for these schedules some matrix-vector products (0.25's GEMV) wrongly. It also depends on
    the host's triple: what is checked here would not be what the device gets.
    """
    limits = {name: int(value) for name, value in target.attrs.items() if isinstance(value, int)}
    arch = {"arch": str(target.attrs["arch"])} if "arch" in target.attrs else {}
    keys = [str(key) for key in target.keys if key not in ("adreno", "texture")]
    return tvm.target.Target(
        {"kind": target.kind.name, "keys": keys, **arch, **limits, "host": {"kind": "llvm"}}
    )


def _careful(rule: Any) -> Any:
    """Wrap *rule* so that it does not apply where it raises, nor where it is known to be wrong."""
    wrong = _splits_what_it_sums if type(rule).__name__ == "Reduction" else lambda _function: False

    class Careful(ScheduleRule):  # type: ignore[misc]
        def apply(self, func: Any, target: tvm.target.Target, tunable: bool) -> Any:
            try:
                return None if wrong(func) else rule.apply(func, target, tunable)
            except Exception as error:  # rules fail with whatever Python or TVM raises
                log.debug("TVM's schedule rule %s fails on a kernel: %s", type(rule).__name__, error)
                return None

    return Careful()


def _splits_what_it_sums(function: Any) -> bool:
    """Return True if a sum of the kernel reads at an index that divides one, as grouped convolutions do.

    The rule Reduction then keeps the sums in another order of axes than what reads them (TVM 0.25).
    """
    sums = (block for block in tir_nodes(function.body, tirx.SBlock) if block.init is not None)
    return any(tir_nodes(block.body, tirx.FloorDiv) for block in sums)
