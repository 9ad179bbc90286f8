"""Models and kernels: compile them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from adt.bundle.libraries import AUTO, NONE
from adt.bundle.platforms import platform_named
from adt.cli.command import Rendering, command
from adt.cli.endings import command_with
from adt.compiler.importers.formats import require_model
from adt.compiler.importers.shapes import parse_shapes
from adt.errors import MismatchError, dependent
from adt.host.disk import check_directory, check_output
from adt.host.document import aligned
from adt.host.extras import require_tvm
from adt.host.isolated import begin
from adt.options.option import (
    Directory,
    Flag,
    MaybePath,
    Number,
    Paths,
    PathTo,
    Shapes,
    Switch,
    Text,
    Texts,
    option,
    python,
    values_of,
)
from adt.options.request import Request, takes
from adt.options.sections import BuildSettings, CompileSettings
from adt.package.reports import Accuracy
from adt.verbs import options as shared
from adt.verbs.default_platform import with_platform
from adt.verbs.device import open_device, probe_device
from adt.verbs.inspect import offload_lines

if TYPE_CHECKING:
    from adt.bundle.bundle import TargetBundle
    from adt.compiler.compilation import CompileJob
    from adt.compiler.importers.importer import Explanation
    from adt.compiler.kernels import CompiledKernel
    from adt.compiler.networks.known import NetworkSummary
    from adt.package.manifest import PackageLike
    from adt.package.package import ModelPackage


class CompileRequest(Request):
    """Request of :func:`adt.compile`."""

    model: PathTo = option(shared.MODEL, kw_only=False)
    params: Mapping[str, Any] | None = shared.PARAMS
    platform: Text = BuildSettings.platform
    ndk: Directory = BuildSettings.ndk
    api_level: Number = BuildSettings.api_level
    target: Text = CompileSettings.target
    cpu: Text = CompileSettings.cpu
    opt_level: Number = CompileSettings.opt_level
    shapes: Shapes = CompileSettings.shapes
    precision: Text = CompileSettings.precision
    keep_float32: Texts = CompileSettings.keep_float32
    half_only: Texts = CompileSettings.half_only
    offload: Text = CompileSettings.offload
    tf32: Flag = CompileSettings.tf32
    texture_choice: Text = CompileSettings.texture_choice
    bundle: MaybePath = shared.LINKED_BUNDLE
    like: str | None = shared.LIKE
    db: Directory = CompileSettings.db
    tuned_on: Text = CompileSettings.tuned_on
    accuracy: Switch = CompileSettings.accuracy
    check: Switch = CompileSettings.check
    out: MaybePath = option(
        "Directory of the package, or x.tar for one file; else MODEL-PLATFORM here.",
        "--out",
        "-o",
        default=None,
        check=check_directory,
        metavar="PATH",
    )
    accuracy_inputs: Paths = option(
        "Sample to compare half precision on; repeatable; else random inputs.", default=(), metavar="FILE.npz"
    )
    use_cache: bool = option(
        "Copy the package if the same was compiled before.", "--cache/--no-cache", "--use-cache", default=True
    )
    passes: Sequence[Callable[[Any], Any]] = python(
        "Passes of your own, from ``tvm.IRModule`` to ``tvm.IRModule``: run in their order on the imported "
        "model, before precision, libraries and adt's own passes. What they make is not cached.",
        default=(),
    )
    trust: bool = shared.TRUST
    insecure_no_digest: bool = shared.INSECURE_NO_DIGEST


class ExplainRequest(Request):
    """Request of :func:`adt.explain`."""

    model: PathTo = option(shared.MODEL, kw_only=False)
    params: Mapping[str, Any] | None = shared.PARAMS
    shapes: Shapes = CompileSettings.shapes
    trust: bool = shared.TRUST
    insecure_no_digest: bool = shared.INSECURE_NO_DIGEST


class KernelRequest(Request):
    """Request of :func:`adt.compile_kernel`."""

    platform: Text = BuildSettings.platform
    ndk: Directory = BuildSettings.ndk
    api_level: Number = BuildSettings.api_level
    target: Text = CompileSettings.target
    cpu: Text = CompileSettings.cpu
    opt_level: Number = CompileSettings.opt_level
    bundle: MaybePath = shared.LINKED_BUNDLE
    kernel: Any = option(
        "The tensors of a TE computation, inputs first; or a PrimFunc of TVMScript; or a ``tvm.IRModule`` of "
        "PrimFuncs. For OpenCL, one without thread bindings gets a simple schedule.",
        kw_only=False,
    )
    name: str = python(
        "What a single function is called; empty: as it calls itself, else ``main``.", default=""
    )
    out: MaybePath = python(
        "The library; by default ``<name>-<platform>.so`` here.", default=None, check=check_output
    )


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
    request: Request, *, server: bool = False, preferred: Callable[[], TargetBundle | None] = lambda: None
) -> CompileJob:
    """Resolve a model, or none, and all that it is compiled with, but for its records (:func:`tuned_job`).

    A bundle that is not named must have an RPC *server*, and is *preferred* if that fits.
    """
    from adt.bundle.bundle import load_bundle
    from adt.compiler.targets import settings_and_platform
    from adt.host.ndk import find_ndk
    from adt.verbs.bundles import choose_bundle

    require_tvm()
    from adt.compiler.compilation import CompileJob, package_target

    options, model_like = {"model": Path(), "like": None, **values_of(request)}, None
    if (like := options["like"]) is not None:
        platform, model_like = _like(like, request)
        request = request.but(platform=platform)
    settings, chosen = settings_and_platform(with_platform(request))
    ndk = find_ndk(settings.build.ndk) if chosen.android else None
    if request.named("ndk"):
        find_ndk(settings.build.ndk)  # named wrongly, it is the reason of all that fails
    linked = load_bundle(options["bundle"]) if options["bundle"] else None
    if linked is None and chosen.android:
        computes = package_target(chosen, settings, model_like).device
        linked = choose_bundle((chosen.name,), server=server, computes=computes, preferred=preferred())
    return CompileJob(
        options["model"], platform=chosen, settings=settings, ndk=ndk, bundle=linked, like=model_like
    )


def tuned_job(job: CompileJob) -> CompileJob:
    """Add to *job* what records decide: libraries of ``--offload auto``, and a database's schedules."""
    job = measured_offload(job)
    settings = job.settings.compile
    if not settings.db:
        if settings.tuned_on:
            raise dependent("--tuned-on", "--db")
        return job
    from adt.compiler.passes.records.key import tvm_key
    from adt.tuning.database.tuned_schedules import tuning_for_target

    records, target = Path(settings.db), job.target()
    tuning = tuning_for_target(records, target, tvm_key(), tuned_on=settings.tuned_on, like=job.like)
    return replace(job, tuning=tuning)


def measured_offload(job: CompileJob) -> CompileJob:
    """Put in the place of ``--offload auto`` of *job* the libraries of the fastest benchmark, or none."""
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

    return explain_model(request.model, parse_shapes(request.shapes))


def _like(serial: str, request: Request) -> tuple[str, PackageLike]:
    """Return the platform of the device *serial*, unless *request* names one, and what to compile for."""
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
    """
    job = job_of(request)
    from adt.compiler import kernels

    out = request.out or Path(f"{request.name or 'kernel'}-{job.platform.name}.so")
    return kernels.compile_kernel(request.kernel, out, job, name=request.name)


def network(name: str) -> Path:
    """Write the ONNX file of a well-known network, untrained: for measuring where no model is at hand.

    Args:
        name: as :func:`networks` has it, or spelled alike.

    Raises:
        ModelError: no network has that name.
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


@command(
    "adt compile model.onnx --for linux-aarch64 -o model-pkg",
    "adt compile model.onnx --for android-arm64-v8a -o model-pkg",
)
def compile_command(
    request: CompileRequest,
    explains: Annotated[
        bool, option("Only say what the import does with each operator.", "--explain", default=False)
    ],
) -> Rendering:
    """Compile a model to a ModelPackage: mod.so, mod.json and mod.params."""
    if explains:
        explanation = explain(ExplainRequest(**request.keywords_of(ExplainRequest)))
        return Rendering(
            "compile-explain",
            explanation,
            _explanation_lines(explanation),
            exit_code=explanation.exit_code,
        )
    package = compile(request)
    return Rendering("compile", package, _lines(package))


def _explanation_lines(explanation: Explanation) -> Iterator[str]:
    yield from aligned([(row.status, str(row.count), row.op, row.note) for row in explanation.ops])
    yield f"{explanation.file} ({explanation.format}) " + (explanation.problem or "can be imported")
    if explanation.remedy:
        yield f"remedy: {explanation.remedy}"
    if explanation.options:
        yield f"  {command_with(explanation.options)}"


def _lines(package: ModelPackage) -> Iterator[str]:
    from adt.package.package import KernelCheck

    facts, compilation = package.manifest, package.manifest.made
    for kind, specs in (("input", facts.entry().inputs), ("output", facts.entry().outputs)):
        for spec in specs:
            yield f"{kind:<8} {spec.name}: {spec.dtype}[{', '.join(map(str, spec.shape))}]"
    yield f"kernels  {facts.total} for {facts.target.device} ({facts.target.triple}), {facts.tuned} tuned"
    if compilation.tuning:
        yield f"tuning   {compilation.tuning.origin}"
        for kernel in compilation.tuning.kept:
            yield f"         {kernel} keeps the untuned schedule: it was the fastest"
        for kernel in compilation.tuning.refused:
            yield f"         {kernel} is untuned: its record does not apply any more"
    if compilation.textures:
        yield f"textures {compilation.textures.summary}"
        for operator in compilation.textures.convolutions:
            if operator.reason:
                yield f"         {operator.name} stays in buffers: {operator.reason}"
    if compilation.integers:
        yield f"int8     {compilation.integer_summary}"
    if compilation.blocked:
        yield f"blocked  {compilation.blocked_summary}"
        for operator in compilation.blocked:
            if operator.reason:
                yield f"         {operator.name} stays plain: {operator.reason}"
    if compilation.offload:
        from adt.package.inspection.inspection import Inspection

        yield from offload_lines(compilation.offload, Inspection(package))
    checked = package.checked
    if isinstance(checked, KernelCheck):
        yield (
            f"checked  right on {checked.device}: off the CPU by {checked.worst:.2g} of an output's"
            f" magnitude at most (limit {checked.limit:g})"
        )
    elif checked is not None:
        yield f"checked  no: {checked.reason}"
    if compilation.accuracy:
        yield from _accuracy_lines(compilation.accuracy)
    yield f"package  {package.place}{' (from the cache)' * package.cached}"


def _accuracy_lines(accuracy: Accuracy) -> Iterator[str]:
    for output in accuracy.outputs:
        yield (
            f"accuracy {output.name}: {accuracy.precision} against float32 on {accuracy.inputs}: max abs "
            f"{output.max_abs:.3g} of {output.magnitude:.3g} (rel {output.max_rel:.3g}), mean abs "
            f"{output.mean_abs:.3g}, cosine {output.cosine:.8g}"
            + ("" if output.top1 is None else f", same top class {output.top1:.0%}")
            + ("" if output.finite else ", NaN or infinite where float32 is not")
            + ("" if output.compared else ", nothing finite to compare")
        )


@command("adt networks")
def networks_command() -> Rendering:
    """List the untrained networks that can be compiled, tuned and measured by name."""
    rows = networks()
    return Rendering("networks", {"networks": rows}, _network_lines(rows))


def _network_lines(networks: Sequence[NetworkSummary]) -> Iterator[str]:
    yield f"{'network':<20} {'picture':>9} {'parameters':>12} {'million MACs':>13}"
    for network in networks:
        picture = f"{network.size}x{network.size}"
        yield f"{network.name:<20} {picture:>9} {network.parameters:>12,} {network.macs / 1e6:>13,.1f}"
