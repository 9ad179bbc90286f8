"""Relax pipelines for a target: TVM's own, with schedule rules that may fail on a kernel.

A rule that raises (TVM 0.25's GEMV does, on some fused epilogues) counts as one that
does not apply: the next one is tried, and the last takes every kernel.
"""

from __future__ import annotations

import logging
from typing import Any

log = logging.getLogger("adt.compile")


def relax_pipeline(device: str) -> Any:
    """The pipeline for kernels on *device* (``cpu`` or ``opencl``), as ``tvm.compile`` takes it."""
    return "default" if device == "cpu" else _opencl_pipeline()


def _opencl_pipeline() -> Any:
    import tvm
    from tvm.relax.backend.gpu_generic import pipeline as generic
    from tvm.s_tir import dlight

    rules = ("Matmul", "GEMV", "Reduction", "GeneralReduction", "Fallback")

    @tvm.transform.module_pass(opt_level=0, name="adt.OpenCLPipeline")  # type: ignore[untyped-decorator]
    def pipeline(module: Any, _context: Any) -> Any:
        target = tvm.target.Target.current()
        legalize = generic.legalize_passes(target)[:-1]  # all but its schedule rules
        schedule = dlight.ApplyDefaultSchedule(*(_forgiving(getattr(dlight.gpu, rule)()) for rule in rules))
        passes = [
            *generic.library_dispatch_passes(target),
            *legalize,
            schedule,
            *generic.dataflow_lower_passes(target),
            *generic.finalize_passes(target),
        ]
        return tvm.transform.Sequential(passes)(module)

    return pipeline


def _forgiving(rule: Any) -> Any:
    """*rule*, for which an exception means that it does not apply."""
    from tvm.s_tir.dlight import ScheduleRule

    class Forgiving(ScheduleRule):  # type: ignore[misc]
        def apply(self, func: Any, target: Any, tunable: bool) -> Any:
            try:
                return rule.apply(func, target, tunable)
            except Exception as why:  # rules fail with whatever Python or TVM raises
                log.debug("TVM's schedule rule %s fails on a kernel: %s", type(rule).__name__, why)
                return None

    return Forgiving()
