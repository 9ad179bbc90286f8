"""Run of a package's kernels for a GPU on this machine at once, compared with the CPU.

A GPU's kernels can be wrong without a word: a schedule that races, a driver that miscompiles. So the same
kernels, with this machine's code around them, run on its OpenCL device (PoCL on the CPU is one) beside the
same model compiled for the CPU. What this cannot show: that another device's driver compiles them as well. Of
kernels for CUDA, whose schedules are OpenCL's, it shows the schedules, for OpenCL runs them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from adt.bundle.libraries import titles
from adt.bundle.platforms import platform_named
from adt.compiler.assemble import assemble
from adt.compiler.compilation import Compilation
from adt.compiler.importers.value_ranges import rounds_within
from adt.compiler.ir.rewriter import bind_params
from adt.compiler.link import linker_for
from adt.compiler.passes import words
from adt.compiler.passes.integers.rules import in_integers
from adt.compiler.passes.precision.policy import multiplications
from adt.compiler.targets import ModelTarget
from adt.errors import AdtError, DownloadError, InputError, RunError, SourceError, ToolNotFound, VerifyFailed
from adt.host.disk import scratch_directory
from adt.numerics import MAX_CHANGED, TOLERANCES, Array, gaps, hardly_changed, steps_allowed, within
from adt.package.host_run.opencl import HostOpenCl, opencl_device
from adt.package.host_run.run import NO_OPENCL, HostRun, run_package, run_packages
from adt.package.inputs.random import random_inputs
from adt.package.package import KernelCheck, ModelPackage, OutputCheck, SkippedCheck

Arrays = Mapping[str, Array]

log = logging.getLogger("adt.compile")

STEPS_WITHIN = 8 / 255
"""Share of an output's magnitude that passes where a model rounds to 8 bits within: what is on the edge of
two steps falls to either side, which makes some steps at the end. A wrong index is off by far more."""
MOST = 0.5  # share of an output's magnitude by which no kernel may differ
LEAST_MAGNITUDE = 0.01
"""A smaller output counts as of this magnitude: behind a sigmoid, what is nearly 0 is mostly rounding."""
TIMEOUT = 900.0  # seconds for both runs; a CPU compiles a large network's kernels for minutes
MUCH = 3_000_000_000
"""Multiplications beyond which a model is not checked on a CPU unless it is asked for: it takes minutes."""
SEED = 0


def check(compilation: Compilation, package: ModelPackage, mode: str) -> KernelCheck | SkippedCheck:
    """Compare *package*'s kernels for a GPU on this machine with the CPU, on random inputs.

    *package* was compiled from *compilation*. With the *mode* ``on`` it is an error when this cannot be done;
    with ``auto`` it is done where it can, but for CUDA.
    """
    if compilation.target.device == "cuda":
        if mode == "auto":
            return SkippedCheck(
                "CUDA does not run where it is compiled; --check runs the schedules by OpenCL"
            )
        compilation = replace(compilation, target=_as_opencl(compilation.target))
    device = opencl_device()
    if obstacle := _obstacle(device, package, compilation.target):
        reason, remedy = obstacle
        if mode == "on":
            raise ToolNotFound(f"the kernels cannot be checked here: {reason}", remedy=remedy)
        return SkippedCheck(reason)
    count = multiplications(compilation.imported.module)
    if mode == "auto" and count > MUCH and device is not None and not device.gpu:
        much = f"{count / 1e9:.1f} billion multiplications"
        return SkippedCheck(f"{much} take minutes on {device}; --check does it")
    try:
        inputs = random_inputs(package.manifest.entry().inputs, SEED)
    except InputError as error:
        return _skipped(mode, error.what, error)
    log.info("checking the kernels on %s (--no-check leaves it out)", device)
    with scratch_directory("check") as scratch:
        gpu = _for_host(compilation, package, compilation.target, scratch / "gpu")
        cpu = _for_host(compilation, package, None, scratch / "cpu")
        try:
            computed, expected = run_packages([HostRun(gpu, inputs), HostRun(cpu, inputs)], timeout=TIMEOUT)
        except (RunError, SourceError, DownloadError, ToolNotFound) as error:
            return _not_run(error, device, mode)
        limit = TOLERANCES[package.manifest.precision].kernel
        if rounds_within(compilation.imported.module["main"]):
            changed = partial(run_package, cpu, hardly_changed(inputs, SEED), timeout=TIMEOUT)
            limit = limit_of_steps(limit, computed, expected, changed)
    return _compared(computed, expected, package, str(device), mode, limit)


def limit_of_steps(limit: float, computed: Arrays, expected: Arrays, changed: Callable[[], Arrays]) -> float:
    """Return how much outputs may differ where a model rounds to 8 bits within; *limit* is for other models.

    *changed* gives what is expected for inputs that are hardly changed. It is asked where outputs differ by
    more than usual, for some models make much of one step.
    """
    limit = max(limit, STEPS_WITHIN)
    if _spread(computed, expected) <= limit:
        return limit
    return max(limit, min(2 * _spread(changed(), expected), MOST))


def _spread(computed: Arrays, expected: Arrays) -> float:
    """Return the greatest difference of an output of floats."""
    rows = (compare(name, computed[name], expected[name], 0.0) for name in expected)
    return max((row.difference for row in rows if row.floating), default=0.0)


def _obstacle(
    device: HostOpenCl | None, package: ModelPackage, target: ModelTarget
) -> tuple[str, str] | None:
    """Return why the kernels cannot run here, and what would change that; None: they can."""
    manifest = package.manifest
    if device is None:
        return "this machine has no OpenCL device (apt-get install pocl-opencl-icd gives it one)", NO_OPENCL
    if manifest.libraries:
        return (
            f"{titles(manifest.libraries)}, which computes part of it, is not on this machine",
            "Check the same model with --offload none; on the device, adt verify compares the whole package.",
        )
    if target.textures and not device.images:
        return (
            f"{device} has no images",
            "Check the same model with --target adreno-buffer, or with another driver (PoCL has images).",
        )
    if manifest.needs_half and not device.fp16:
        return (
            f"{device} does not compute in half precision",
            "Check the same model in float32 (--precision float32), or install an OpenCL driver that does: a "
            "GPU's, or Intel's for processors (docs/precision.md).",
        )
    return None


def _as_opencl(cuda: ModelTarget) -> ModelTarget:
    """Return the target of OpenCL that has the same schedules."""
    spec = {name: value for name, value in cuda.spec.items() if name != "arch"} | {"kind": "opencl"}
    return replace(cuda, name="opencl", device="opencl", vdevices=("opencl",), spec=spec)


def _for_host(
    compilation: Compilation, package: ModelPackage, gpu: ModelTarget | None, directory: Path
) -> Path:
    """Compile the model to a package that this machine runs: on its OpenCL device, or on its CPU."""
    host = platform_named("host")
    settings, imported = compilation.settings, compilation.imported
    cpu: dict[str, Any] = {"kind": "llvm", "mtriple": host.llvm_triple(0)}
    if gpu is not None:
        own = gpu.device == package.manifest.target.device and compilation.platform == host
        if own and settings.compile.offload == "none":
            return package.path
        target = replace(gpu, spec={**gpu.spec, "host": cpu}, cpu_features=())
    else:
        target = ModelTarget("cpu", "cpu", cpu, ("cpu",))
        if package.manifest.made.integers:  # floats are rounded otherwise, which adds up
            module, _ = in_integers(bind_params(imported.module, imported.params), words.DATA)
            imported = replace(imported, module=module, params={})
    directory.mkdir()
    there = replace(
        compilation,
        imported=imported,
        target=target,
        platform=host,
        settings=replace(settings, compile=settings.compile.but(offload="none")),  # no CLML runs here
        linker=linker_for(host, ndk=None, api_level=0, bundle=None),
        alignment=host.alignment,
        like=None,
        tuning=compilation.tuning if gpu is not None else None,
        plain=gpu is None,  # by the walk that blocks tensors for textures, too, its faults would not be seen
    )
    return assemble(there, directory).path


def _not_run(error: AdtError, device: HostOpenCl | None, mode: str) -> SkippedCheck:
    if "BUILD_PROGRAM_FAILURE" in f"{error.what}{error.details}":
        raise VerifyFailed(
            f"{device} refuses the source of the kernels",
            remedy="Use --target adreno-buffer or opencl, and report it; --no-check compiles all the same.",
            details=error.details,
        ) from error
    return _skipped(mode, error.what, error)


def _skipped(mode: str, reason: str, error: AdtError) -> SkippedCheck:
    """Say that the kernels are not checked, or raise *error* where they have to be."""
    if mode == "on":
        raise error
    log.warning("the kernels are not checked: %s", reason)
    return SkippedCheck(reason)


def _compared(
    computed: Arrays, expected: Arrays, package: ModelPackage, device: str, mode: str, limit: float
) -> KernelCheck | SkippedCheck:
    quanta = package.manifest.made.quanta
    rows = tuple(
        compare(name, computed[name], expected[name], limit, quanta.get(name, 0.0)) for name in expected
    )
    wrong = [row for row in rows if not row.passed]
    empty = [row for row in wrong if row.nothing_finite]
    if not wrong:
        return KernelCheck(device=device, inputs=f"random, seed {SEED}", limit=limit, outputs=rows)
    if not empty:
        textures = package.manifest.made.textures is not None
        raise VerifyFailed(
            f"the kernels compute wrong numbers on {device}: output {wrong[0].name!r} differs from the CPU by"
            f" {wrong[0].difference:.2g} of its magnitude (limit {limit:g})"
            if wrong[0].floating
            else f"the kernels compute wrong numbers on {device}: {wrong[0].difference:.2%} of output "
            f"{wrong[0].name!r} differ from the CPU (limit {MAX_CHANGED:.0%})",
            remedy=("Keep tensors in buffers (--target adreno-buffer), and report" if textures else "Report")
            + " it with the model; --no-check writes the package all the same.",
            details="\n".join(f"{row.name}: {row.difference:.3g}" for row in rows),
        )
    reason = (
        f"nothing finite could be compared: all of output {empty[0].name!r} is NaN or infinite on random "
        "inputs, on the CPU, too"
    )
    error = VerifyFailed(
        f"the kernels cannot be checked: {reason}",
        remedy="--no-check writes the package all the same; adt verify --input FILE.npz compares it "
        "on inputs for which the model gives numbers.",
    )
    return _skipped(mode, reason, error)


def compare(name: str, computed: Array, expected: Array, limit: float, quantum: float = 0.0) -> OutputCheck:
    """Compare *computed* with *expected*; at most *limit*, and one *quantum* of a quantized output, pass.

    The difference is the greatest one over the greatest magnitude expected, or over :data:`LEAST_MAGNITUDE`
    if that is more; of integers, the share that differs (by more than one step, where they are quantised).
    NaN and infinity must come at the same places, and not everywhere: else the difference is infinite.
    """
    floating = expected.dtype.kind == "f"
    pair = gaps(computed, expected)
    if not floating:
        share = pair.changed(steps_allowed(expected.dtype.name))
        return OutputCheck(name, share, floating, share <= MAX_CHANGED)
    if pair.gap.size and not pair.finite.any():
        return OutputCheck(name, float("inf"), floating, False, nothing_finite=pair.comparable)
    gap = float(pair.gap.max(initial=0.0))
    # Three digits: what is stored must not depend on the last bits of a driver.
    difference = float(f"{gap / max(pair.magnitude, LEAST_MAGNITUDE):.3g}")
    return OutputCheck(name, difference, floating, difference <= limit or within(gap, quantum))
