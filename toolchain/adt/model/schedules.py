"""Relax pipelines for a target: TVM's own, with schedule rules that may fail on a kernel.

A rule that raises (TVM 0.25's GEMV does, on some fused epilogues) counts as one that
does not apply: the next one is tried, and the last takes every kernel.
"""

from __future__ import annotations

import logging
from typing import Any

from adt.model.inspection.flops import count_flops
from adt.model.inspection.reference_kernels import kept
from adt.model.names import shorten_kernel_names
from adt.model.scans import scans_as_reductions
from adt.model.texture.memory import plan_memory
from adt.model.tuning.schedules import KernelSchedules, take_schedules
from adt.model.unit_reductions import plain_unit_reductions

log = logging.getLogger("adt.compile")


def relax_pipeline(device: str, plain: dict[str, Any], schedules: KernelSchedules) -> Any:
    """The pipeline for kernels on *device* (``cpu`` or ``opencl``), as ``tvm.compile`` takes it.

    Args:
        plain: gets the kernels before they are scheduled, by name.
        schedules: what kernels are scheduled by, before TVM's rules take the rest.
    """
    return (_cpu_pipeline if device == "cpu" else _opencl_pipeline)(plain, schedules)


def _cpu_pipeline(plain: dict[str, Any], schedules: KernelSchedules) -> Any:
    """TVM's default build, which by itself fuses nothing: each operator would be a loop of its own."""
    import tvm
    from tvm import relax

    @tvm.transform.module_pass(opt_level=0, name="adt.CpuPipeline")  # type: ignore[untyped-decorator]
    def pipeline(module: Any, _context: Any) -> Any:
        passes = [
            relax.backend.DispatchSampling(),
            relax.backend.DispatchSortScan(),
            relax.get_pipeline("zero"),
            shorten_kernel_names(),
            count_flops(),
            kept(plain),
            *_views(),
            take_schedules(schedules),
            relax.get_pipeline("default_build"),
        ]
        return tvm.transform.Sequential(passes)(module)

    return pipeline


def _opencl_pipeline(plain: dict[str, Any], schedules: KernelSchedules) -> Any:
    import tvm
    from tvm.relax.backend.gpu_generic import pipeline as generic

    @tvm.transform.module_pass(opt_level=0, name="adt.OpenCLPipeline")  # type: ignore[untyped-decorator]
    def pipeline(module: Any, _context: Any) -> Any:
        target = tvm.target.Target.current()
        legalize = generic.legalize_passes(target)[:-1]  # all but its schedule rules
        dispatch = [scans_as_reductions(), *generic.library_dispatch_passes(target)]
        before = [*dispatch, *legalize, shorten_kernel_names(), count_flops(), kept(plain)]
        passes = [*before, *_views(), fused_pipeline(schedules)]
        return tvm.transform.Sequential(passes)(module)

    return pipeline


def _views() -> tuple[Any, ...]:
    """Passes that make views of reshapes, whose kernels nothing calls then; of a scheduled kernel TVM could
    not tell that it is one."""
    from tvm import relax

    return relax.transform.RewriteDataflowReshape(), relax.transform.DeadCodeElimination(["main"])


def fused_pipeline(schedules: KernelSchedules) -> Any:
    """The rest of an OpenCL pipeline, for a module that is legalized and fused and whose reshapes are
    views: kernels that have no schedule get one, of *schedules* or by TVM's rules, and what is left of
    Relax is lowered for the VM."""
    import tvm
    from tvm.relax.backend.gpu_generic import pipeline as generic
    from tvm.s_tir import dlight

    rules = ("Matmul", "GEMV", "Reduction", "GeneralReduction", "Fallback")

    @tvm.transform.module_pass(opt_level=0, name="adt.FusedPipeline")  # type: ignore[untyped-decorator]
    def pipeline(module: Any, _context: Any) -> Any:
        target = tvm.target.Target.current()
        module = take_schedules(schedules)(plain_unit_reductions()(module))
        with _any_gpu(target):
            schedule = dlight.ApplyDefaultSchedule(*(_careful(getattr(dlight.gpu, rule)()) for rule in rules))
            module = schedule(module)
        lower = generic.dataflow_lower_passes(target)[1:]  # all but the views
        finalize = generic.finalize_passes(target)[1:]  # all but its plan of the memory
        passes = [*lower, plan_memory(), *finalize]
        return tvm.transform.Sequential(passes)(module)

    return pipeline


def _any_gpu(target: Any) -> Any:
    """*target* without the words by which TVM's rules know an Adreno GPU or Android.

    Their branch for these schedules some matrix-vector products (TVM 0.25's GEMV) so that
    the result is wrong, without a word. It also depends on the host's triple: what runs
    here to be checked would not be what the device gets.
    """
    import tvm

    limits = {name: int(value) for name, value in target.attrs.items() if isinstance(value, int)}
    keys = [str(key) for key in target.keys if key not in ("adreno", "texture")]
    return tvm.target.Target({"kind": target.kind.name, "keys": keys, **limits, "host": {"kind": "llvm"}})


def _careful(rule: Any) -> Any:
    """*rule*, which does not apply where it raises, nor where it is known to be wrong."""
    from tvm.s_tir.dlight import ScheduleRule

    wrong = _splits_what_it_sums if type(rule).__name__ == "Reduction" else lambda _function: False

    class Careful(ScheduleRule):  # type: ignore[misc]
        def apply(self, func: Any, target: Any, tunable: bool) -> Any:
            try:
                return None if wrong(func) else rule.apply(func, target, tunable)
            except Exception as why:  # rules fail with whatever Python or TVM raises
                log.debug("TVM's schedule rule %s fails on a kernel: %s", type(rule).__name__, why)
                return None

    return Careful()


def _splits_what_it_sums(function: Any) -> bool:
    """Whether a sum of the kernel reads at an index that divides one, as grouped convolutions do.

    The rule Reduction then keeps the sums in another order of axes than the rest of the kernel
    reads them (TVM 0.25): work-items take each other's.
    """
    from tvm import tirx

    found = []

    def look(node: Any) -> None:
        if isinstance(node, tirx.SBlock) and node.init is not None:
            tirx.stmt_functor.post_order_visit(
                node.body, lambda inner: found.append(inner) if isinstance(inner, tirx.FloorDiv) else None
            )

    tirx.stmt_functor.post_order_visit(function.body, look)
    return bool(found)
