"""Models and kernels: compile them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from adt.api.bundles import choose_bundle
from adt.api.requests import (
    CompileRequest,
    ExplainRequest,
    JobRequest,
    KernelRequest,
)
from adt.bundle.bundle import TargetBundle, load_bundle
from adt.bundle.libraries import AUTO, NONE
from adt.bundle.platforms import platform_named
from adt.compiler.importers.formats import require_model
from adt.compiler.targets import settings_and_platform
from adt.errors import ConfigError, MismatchError
from adt.host.isolated import begin
from adt.host.ndk import find_ndk
from adt.host.versions import require_tvm
from adt.options.request import takes
from adt.package.manifest import PackageLike
from adt.package.package import ModelPackage

if TYPE_CHECKING:
    from adt.compiler.compilation import CompileJob
    from adt.compiler.importers.importer import Explanation
    from adt.compiler.kernels import CompiledKernel
    from adt.compiler.networks.known import NetworkSummary

log = logging.getLogger("adt.compile")


@takes(CompileRequest)
def compile(request: CompileRequest) -> ModelPackage:  # the verb's name; Python's own is not used here
    """Compile a model to a ModelPackage for a platform.

    ``.checked`` of the result says what came of running its OpenCL kernels here.

    Raises:
        NoDevice, DeviceNotReady, DeviceError: with *like*, the device is absent or not usable.
        ToolNotFound: TVM is not installed, or in versions that are known to break.
        ConfigError: no such target or processor, or it contradicts the platform; or *db* has records of
            several devices.
        PackageError: *db* is no tuning database.
        VerifyFailed: the OpenCL kernels compute wrong numbers.
        ModelError, UnsupportedOp, CompileError, MismatchError: see :mod:`adt.errors`.
    """
    require_tvm()
    from adt.compiler.assemble import package_name
    from adt.compiler.compile import compile_to
    from adt.compiler.passes.precision.accuracy import warn

    require_model(request.model)
    job = replace(job_of(request), accuracy_inputs=request.accuracy_inputs, passes=tuple(request.passes))
    job = tuned_job(job)
    out = request.out or Path(f"{package_name(request.model)}-{job.platform.name}")
    package = compile_to(job, out, use_cache=request.use_cache)
    if package.manifest.made.accuracy:
        warn(package.manifest.made.accuracy)  # also of a package from the cache
    return package


def job_of(
    request: JobRequest, *, server: bool = False, preferred: Callable[[], TargetBundle | None] = lambda: None
) -> CompileJob:
    """A model and all that it is compiled with, resolved; its records are not (:func:`tuned_job`).

    Args:
        server: a bundle that is not named must have an RPC server; …
        preferred: … and is this one, if it fits.

    Raises:
        Those of :func:`compile`.
    """
    require_tvm()
    from adt.compiler.compilation import CompileJob, package_target

    model_like = None
    if request.like is not None:
        platform, model_like = _like(request.like, request)
        request = request.but(platform=platform)
    settings, chosen = settings_and_platform(request.resolved)
    linked = load_bundle(request.bundle) if request.bundle else None
    if linked is None and chosen.android:
        computes = package_target(chosen, settings, model_like).device
        linked = choose_bundle((chosen.name,), server=server, computes=computes, preferred=preferred())
    return CompileJob(
        request.model,
        platform=chosen,
        settings=settings,
        ndk=find_ndk(settings.build.ndk) if chosen.android else None,
        bundle=linked,
        like=model_like,
    )


def tuned_job(job: CompileJob) -> CompileJob:
    """*job* with what records decide: libraries of ``--offload auto``, and a database's schedules.

    Raises:
        ConfigError: the database has records of several devices, or none of the one that was chosen.
        PackageError: there is no database.
    """
    job = measured_offload(job)
    settings = job.settings.compile
    if not settings.db:
        if settings.tuned_on:
            raise ConfigError(
                f"records of {settings.tuned_on} were asked for (--tuned-on), and no database that has them",
                remedy="Name the database, too: --db DIR",
            )
        return job
    from adt.compiler.passes.records.key import tvm_key
    from adt.tuning.database.tuned_schedules import tuning_for_target

    records, target = Path(settings.db), job.target()
    tuning = tuning_for_target(records, target, tvm_key(), tuned_on=settings.tuned_on, like=job.like)
    return replace(job, tuning=tuning)


def measured_offload(job: CompileJob) -> CompileJob:
    """*job* with what ``--offload auto`` stands for: the libraries of the fastest benchmark, or none."""
    settings, source = job.settings, job.model
    if settings.compile.offload != AUTO:
        return job
    from adt.compiler.compilation import package_target
    from adt.compiler.importers.model_store import model_sha256
    from adt.measure import history
    from adt.measure.history import fastest_offload

    fastest = fastest_offload(
        history.load(),
        model_sha256(source) if source.is_file() else "",
        package_target(job.platform, settings, job.like).name,
        job.platform.name,
        settings.compile.precision,
        job.like.soc if job.like else "",
        tuned=bool(settings.compile.db),
    )
    offload = fastest.subject.offload if fastest else NONE
    reason = f"measured on {fastest.machine.name} at {fastest.when}" if fastest else "nothing was measured"
    log.info("--offload auto: %s (%s)", offload, reason)
    return replace(job, settings=replace(settings, compile=settings.compile.but(offload=offload)))


@takes(ExplainRequest)
def explain(request: ExplainRequest) -> Explanation:
    """Say what importing a model does with each of its operators, and why it fails if it does.

    Raises:
        ModelError: the file is missing or of no format that adt reads.
        ToolNotFound: TVM, or what the model's format needs, is not installed.
    """
    require_tvm()
    if str(request.model).endswith(".onnx"):
        begin("onnxslim")  # while TVM is imported here
    from adt.compiler.importers.importer import explain_model
    from adt.compiler.importers.shapes import parse_shapes

    return explain_model(request.model, parse_shapes(request.shapes))


def _like(serial: str, request: JobRequest) -> tuple[str, PackageLike]:
    """The platform of the device *serial*, unless *request* names one, and what to compile for."""
    from adt.api.device import open_device, probe_device
    from adt.device.probe import package_like

    device = probe_device(open_device(serial, request.settings.device.limit))
    platform = request.named("platform")
    if platform is not None and platform_named(platform).name not in device.platforms:
        raise MismatchError(
            f"{serial} is {', '.join(device.platforms)}, not {platform}",
            remedy="Leave --for out, or name another device with --like.",
        )
    chosen = platform or device.platforms[0]
    return chosen, package_like(device, platform_named(chosen).machine)


@takes(KernelRequest)
def compile_kernel(request: KernelRequest) -> CompiledKernel:
    """Compile a kernel to a shared library, to be loaded on a device over RPC; tensors lie in buffers.

    ``adt.compile_kernel([A, B], name="add_one", platform="linux-aarch64")``; then, in a session of
    :func:`adt.rpc_session`, ``remote.upload(library.path)`` and
    ``remote.load_module(library.path.name)["add_one"](a, b)``.

    Raises:
        ToolNotFound: TVM or the platform's compiler is not installed, or TVM is in versions that break.
        ModelError: *kernel* is no kernel.
        ConfigError, CompileError, MismatchError, NdkError: see :mod:`adt.errors`.
    """
    require_tvm()
    from adt.compiler import kernels

    settings, chosen = settings_and_platform(request.resolved)
    linked = load_bundle(request.bundle) if request.bundle else None
    if linked is None and chosen.android:
        linked = choose_bundle((chosen.name,))
    return kernels.compile_kernel(
        request.kernel,
        request.out or Path(f"{request.name or 'kernel'}-{chosen.name}.so"),
        name=request.name,
        platform=chosen,
        settings=settings,
        ndk=find_ndk(settings.build.ndk) if chosen.android else None,
        bundle=linked,
    )


def network(name: str) -> Path:
    """Write the ONNX file of a well-known network, untrained: for measuring where no model is at hand.

    Args:
        name: as :func:`networks` has it, or spelled alike.

    Raises:
        ModelError: no network has that name.
        DiskError: there is no room or no access.
    """
    from adt.compiler.networks.known import known_name, network_file, no_network

    known = known_name(name)
    if known is None:
        raise no_network(name)
    return network_file(known)


def networks() -> tuple[NetworkSummary, ...]:
    """List the networks that a model's name may be, with their parameters and multiplications."""
    from adt.compiler.networks.known import NETWORKS, summary

    return tuple(map(summary, NETWORKS))
