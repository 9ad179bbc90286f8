"""The Relax passes that a model goes through for its target, and the TIR pipeline that follows them.

For GPUs :mod:`adt.compiler.passes.gpu.pipeline` runs first, unless a model is to stay plain; then they are
TVM's own, inside of ``tvm.compile``, as for CPUs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.relax.backend.gpu_generic import pipeline as generic

from adt.compiler.ir.flops import count_flops
from adt.compiler.ir.nodes import relax_nodes, tir_nodes
from adt.compiler.ir.rewriter import Rewriter, fold_shape_values, is_flat
from adt.compiler.passes.cpu.pipeline import can_block, with_blocks
from adt.compiler.passes.cpu.recurrence import CpuSteps
from adt.compiler.passes.cpu.schedules import schedule_kernels
from adt.compiler.passes.cpu.vectors import Vectors, vectors_of
from adt.compiler.passes.extrema import without_counts_of_nan
from adt.compiler.passes.fusion import cpu_dispatch, gpu_dispatch
from adt.compiler.passes.gpu import schedules as gpu_schedules
from adt.compiler.passes.gpu.choice import TextureChooser
from adt.compiler.passes.gpu.pipeline import for_gpu
from adt.compiler.passes.gpu.placement import image_limits
from adt.compiler.passes.gpu.recurrence import GpuSteps, bind_recurrences
from adt.compiler.passes.inlining import bounded_expressions
from adt.compiler.passes.lowering import tir_pipeline
from adt.compiler.passes.precision.single import has_half
from adt.compiler.passes.records.schedules import KernelSchedules, take_schedules
from adt.compiler.passes.recurrence import RecurrentSteps
from adt.compiler.passes.workarounds import plain_unit_reductions, plan_memory, shorten_kernel_names
from adt.compiler.targets import ModelTarget
from adt.compiler.targets.gpu import ANY_ADRENO, Gpu
from adt.errors import UnsupportedOp
from adt.package.graphs import collect_kernels, kernels_of
from adt.package.reports import Convolution, TextureReport


@dataclass(frozen=True)
class PreparedModule:
    """Arguments of ``tvm.compile``."""

    module: tvm.IRModule
    params: Mapping[str, tvm.runtime.Tensor]
    """Parameters that follow the inputs of ``main``, in order."""
    relax_pipeline: Any
    tir_pipeline: str
    textures: TextureReport | None
    """None: the target has none."""
    blocked: tuple[Convolution, ...]
    """Result for each convolution and matrix product of a GPU without textures."""
    plain: Mapping[str, Any]
    """The kernels before they are scheduled, by name; complete once the Relax pipeline has run."""
    integers: tuple[Convolution, ...] = ()
    """Result for each convolution and matrix product of a quantized model, where integers are summed."""


def prepare_module(
    module: tvm.IRModule,
    params: Mapping[str, tvm.runtime.Tensor],
    target: ModelTarget,
    alignment: int,
    schedules: KernelSchedules,
    chooser: TextureChooser,
    *,
    plain: bool = False,
) -> PreparedModule:
    """Prepare the imported *module* for *target*; with *plain*, a CPU computes plain loops on its tensors."""
    if target.device != "cpu":
        _refuse_branches(module, target)
        module = Rewriter(fold_shape_values(module)).run() if is_flat(module) else module
    else:
        _refuse_threads(module)
        module = without_counts_of_nan()(module)

    tvm_target = tvm.target.Target(target.spec)
    blocks = target.device == "cpu" and not plain
    vectors = vectors_of(tvm_target, half=has_half(module)) if blocks else None
    if vectors is not None and can_block(module):
        fused, weights, integers = with_blocks(
            Rewriter(fold_shape_values(module)).run(), params, tvm_target, vectors
        )
        lower, kernels = kernel_pipeline(schedules, vectors), kernels_of(fused)
        return PreparedModule(fused, weights, lower, tir_pipeline(alignment), None, (), kernels, integers)
    if target.gpu is None or chooser.setting == "never" or not (target.textures or is_flat(module)):
        kernels = {}
        passes = relax_pipeline(target.device, kernels, schedules, vectors, target.gpu or ANY_ADRENO)
        lower = tir_pipeline(alignment, buffers=target.gpu is not None)
        return PreparedModule(module, params, passes, lower, None, (), kernels)
    limits = image_limits(tvm_target) if target.textures else None
    placed = for_gpu(module, params, tvm_target, limits, schedules, gpu=target.gpu, chooser=chooser)
    return PreparedModule(
        placed.module,
        placed.params,
        fused_pipeline(schedules, target.gpu),
        tir_pipeline(alignment, textures=target.textures, buffers=not target.textures),
        placed.report if target.textures else None,
        () if target.textures else placed.report.convolutions,
        placed.plain,
        placed.integers,
    )


def recurrent_steps(target: ModelTarget) -> RecurrentSteps:
    """Return how *target* computes the steps of a recurrent layer."""
    return GpuSteps(target.gpu) if target.gpu else CpuSteps()


def _refuse_branches(module: tvm.IRModule, target: ModelTarget) -> None:
    """Refuse a branch: it is decided on the host, and would read its condition from the GPU's memory."""
    if branches := relax_nodes(module["main"], relax.If):
        raise UnsupportedOp(
            f"the model branches at run time ({len(branches)} If), which no kernel for {target.name} can",
            remedy="Compile it with --target cpu, or export it with the branch decided.",
        )


def _refuse_threads(module: tvm.IRModule) -> None:
    """Refuse loops bound to threads: TVM's code generator for CPUs says no more than "not implemented"."""
    for variable, function in module.functions_items():
        if isinstance(function, tirx.PrimFunc) and any(
            loop.thread_binding is not None for loop in tir_nodes(function.body, tirx.For)
        ):
            raise UnsupportedOp(
                f"the kernel {variable.name_hint} binds loops to a GPU's threads, which a CPU has none of",
                remedy="Compile it for a GPU with check=False, and give adt verify right outputs: "
                "--reference FILE.npz.",
            )


def relax_pipeline(
    device: str,
    plain: dict[str, Any],
    schedules: KernelSchedules,
    vectors: Vectors | None = None,
    gpu: Gpu = ANY_ADRENO,
) -> tvm.transform.Pass:
    """Make the pipeline of ``tvm.compile`` for kernels on *device* (``cpu``, ``opencl`` or ``cuda``).

    *plain* gets the kernels before they are scheduled, by name. A CPU's rules schedule for *vectors*, if any.
    """
    if device == "cpu":  # TVM's default build fuses nothing by itself: each operator would be a loop
        fusion, rest = [*cpu_dispatch(), relax.get_pipeline("zero")], kernel_pipeline(schedules, vectors)
    else:
        target = tvm.target.Target.current(allow_none=True)
        *legalize, fuse_operators, fuse_kernels, _ = generic.legalize_passes(target)  # no schedule rules
        fusion = [*gpu_dispatch(target), *legalize, bounded_expressions(), fuse_operators, fuse_kernels]
        rest = fused_pipeline(schedules, gpu)
    # Views of reshapes are made before kernels are scheduled: then TVM no longer knows them.
    views = relax.transform.RewriteDataflowReshape(), relax.transform.DeadCodeElimination(["main"])
    collect = [shorten_kernel_names(), count_flops(), collect_kernels(plain)]
    return tvm.transform.Sequential([*fusion, *collect, *views, rest])


def kernel_pipeline(schedules: KernelSchedules, vectors: Vectors | None) -> tvm.transform.Pass:
    """Return the rest of a CPU's pipeline: kernels get one of *schedules*, or one for *vectors*, if given."""
    rules = [] if vectors is None else [schedule_kernels(vectors)]
    return tvm.transform.Sequential([take_schedules(schedules), *rules, relax.get_pipeline("default_build")])


def fused_pipeline(schedules: KernelSchedules, gpu: Gpu = ANY_ADRENO) -> tvm.transform.Pass:
    """Return the rest of a GPU's pipeline: kernels get one of *schedules*, or one by the rules for *gpu*."""
    target = tvm.target.Target.current(allow_none=True)
    return tvm.transform.Sequential(
        [
            bind_recurrences(),
            plain_unit_reductions(),
            take_schedules(schedules),
            gpu_schedules.schedule_kernels(gpu),
            *generic.dataflow_lower_passes(target)[1:],  # all but the views
            plan_memory(),
            *generic.finalize_passes(target)[1:],  # all but its plan of the memory
        ]
    )
