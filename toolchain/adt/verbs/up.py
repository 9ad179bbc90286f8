"""All of it in one verb."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adt.bundle.platforms import platform_named
from adt.cli.command import Rendering, command
from adt.cli.terminal import status_line
from adt.compiler.importers.shapes import parse_shapes
from adt.errors import MismatchError
from adt.host.document import form, in_document
from adt.host.extras import require_tvm
from adt.options.option import Directory, Number, PathTo, Real, Shapes, Text, option, python
from adt.options.request import Request, takes
from adt.options.sections import BuildSettings, CompileSettings, DeviceSettings, Settings, VerifySettings
from adt.verbs import options as shared
from adt.verbs.arrays import described, save_npz, summary
from adt.verbs.compile import tuned_job
from adt.verbs.deploy import deploy_to, open_place
from adt.verbs.device import check_computes, device_of, emulator_start, open_device
from adt.verbs.verify import VerifyResult, failure, verification_lines, verify_at

if TYPE_CHECKING:
    from adt.bundle.bundle import TargetBundle
    from adt.device.device import Device
    from adt.host.ndk import Ndk
    from adt.package.package import ModelPackage


class UpRequest(Request):
    """Request of :func:`adt.up`."""

    model: PathTo = option(shared.MODEL, kw_only=False)
    params: Mapping[str, Any] | None = shared.PARAMS
    serial: Text = DeviceSettings.serial
    timeout: Real = DeviceSettings.timeout
    platform: Text = BuildSettings.platform
    target: Text = CompileSettings.target
    shapes: Shapes = CompileSettings.shapes
    ndk: Directory = BuildSettings.ndk
    inputs: shared.Arrays | None = shared.INPUTS
    seed: Number = VerifySettings.seed
    db: Directory = CompileSettings.db
    tuned_on: Text = CompileSettings.tuned_on
    progress: Callable[[str], None] = shared.PROGRESS
    on_plan: Callable[[UpPlan], None] = python(
        "Called once with the resolved plan, before anything is made.", default=shared.quiet
    )
    on_step: Callable[[Step], None] = python("Called after each step.", default=shared.quiet)
    trust: bool = shared.TRUST
    insecure_no_digest: bool = shared.INSECURE_NO_DIGEST


VIRTUAL_PLATFORM, HOST = "linux-aarch64", "host"


@dataclass(frozen=True)
class Step:
    """One finished step of :func:`adt.up`."""

    name: str
    note: str
    """Description of what it did, or that it reused what was there."""
    seconds: float


@dataclass(frozen=True)
class UpPlan:
    """Plan of :func:`adt.up`, resolved before its first step."""

    model: Path
    inputs: Mapping[str, list[int]]
    """The fixed shape of each input; an open batch dimension is 1 unless ``shapes`` says otherwise."""
    platform: str
    target: str
    device: str
    """Serial of the device; empty: a virtual device will be started."""
    reason: str
    tvm_source: str
    """The TVM source tree that was asked for, or the providers that will be tried."""
    max_abs: float
    max_rel: float


@dataclass(frozen=True)
class UpResult:
    """Result of :func:`up`."""

    plan: UpPlan
    steps: tuple[Step, ...]
    package: ModelPackage = field(metadata=form(convert=lambda package: package.path))
    verified: VerifyResult = field(metadata=form("verification"))

    @property
    @in_document()
    def outputs(self) -> list[dict[str, Any]]:
        """Name, type, shape and figures of each output."""
        return described(self.verified.outputs)


@takes(UpRequest)
def up(request: UpRequest) -> UpResult:
    """Do all of it: build, compile, find or start a device, deploy, run there, verify.

    Without *serial* and with no device connected, a virtual device is started
    and left running. Earlier bundles and packages are reused. For ``host`` the
    model runs on this machine; nothing is built for that.

    Raises:
        Whatever the verbs raise; a difference over the tolerance does not.
    """
    from adt.compiler.importers import model_store
    from adt.device.place import DevicePlace, Opened

    require_tvm()
    from adt.compiler.compilation import CompileJob
    from adt.compiler.compile import cached_package
    from adt.compiler.importers.importer import declared_inputs

    # A faulty model fails here, not after a build.
    fixed = declared_inputs(request.model, parse_shapes(request.shapes))
    here = request.settings.build.platform == HOST and request.named("serial") is None
    device = None if here else _connected_device(request)
    platform = device.platform if device else HOST if here else VIRTUAL_PLATFORM
    settings = request.but(platform=request.platform or platform).settings
    if platform_named(settings.build.platform).name != platform:
        name = device.serial if device else "the virtual device"
        raise MismatchError(
            f"{name} is {platform}, not {settings.build.platform}",
            remedy=f"Give --for {platform}, or choose another device with --serial.",
        )
    request.on_plan(plan := _up_plan(request.model, fixed, settings, device))
    steps: list[Step] = []
    began = time.monotonic()

    def finish(name: str, note: str) -> None:
        nonlocal began
        steps.append(Step(name, note, time.monotonic() - began))
        request.on_step(steps[-1])
        began = time.monotonic()

    ndk, bundle = (None, None) if here else _built(request, settings, finish)
    job = CompileJob(request.model, platform_named(settings.build.platform), settings, ndk, bundle)
    computes = job.target().device
    if device:
        check_computes(device, computes)
    package = cached_package(tuned_job(job))
    note = "reused" if package.cached else f"compiled {package.manifest.total} kernels"
    finish("compile", f"{note}: {package.path.name}")

    if bundle is None:
        ready = open_place(package, request, None, measures=False)
    else:
        if device is None:
            started = emulator_start(opencl=computes == "opencl")
            device = open_device(started.serial, settings.device.limit)
            note = f"started {started.serial}: arm64 Linux behind real ADB, not Android, no speed"
            finish("emulator", note)
        report = deploy_to(device, package, bundle)
        sent = f"sent {len(report.sent_files)} files, {report.sent_bytes:,} bytes"
        finish("deploy", f"{sent if report.sent_files else 'reused'}: {device.serial}")
        ready = Opened(DevicePlace(device, report.deployment), package, bundle)
    sets = (request.inputs,) if request.inputs is not None else None
    find_model = partial(model_store.source_model, package)
    verified = verify_at(ready, settings, find_model, sets, trust=request.trust)
    finish("verify", "passed" if verified.verification.passed else "FAILED")
    return UpResult(plan, tuple(steps), package, verified)


def _built(
    request: UpRequest, settings: Settings, finish: Callable[[str, str], None]
) -> tuple[Ndk | None, TargetBundle]:
    """Build the bundle of *settings*, once the model is known to be one that TVM can import."""
    from adt.bundle.build import build_bundle
    from adt.bundle.bundle import MANIFEST
    from adt.bundle.plan import plan_build
    from adt.compiler.importers.importer import import_model

    plan = plan_build(settings)
    tree = plan.source
    finish("source", f"TVM {tree.version} from {tree.provider}: {tree.reason}")
    if not (plan.bundle_dir / MANIFEST).is_file():
        imported = import_model(request.model, parse_shapes(request.shapes))
        finish("import", f"{len(imported.inputs)} inputs, {len(imported.outputs)} outputs: TVM can import it")
    built = build_bundle(plan, progress=request.progress)
    note = "reused" if built.reused else f"compiled {built.compiled} translation units"
    finish("build-target", f"{note}: {built.bundle.path.name}")
    return plan.ndk, built.bundle


def _up_plan(
    model: Path, fixed: Mapping[str, tuple[int, ...]], settings: Settings, device: Device | None
) -> UpPlan:
    from adt.measure.verify import limits_for

    if device:
        reason = f"{device.serial} is connected and is {device.platform}"
    elif settings.build.platform == HOST:
        reason = "none: the model runs on this machine"
    else:
        reason = "no device is connected: a virtual device will be started and left running"
    limits = limits_for(settings.compile.precision, settings.verify)
    return UpPlan(
        model,
        {name: list(shape) for name, shape in fixed.items()},
        settings.build.platform,
        settings.compile.target,
        device.serial if device else "",
        reason,
        settings.tvm.tvm_source or settings.tvm.provider,
        limits.max_abs,
        limits.max_rel,
    )


def _connected_device(request: UpRequest) -> Device | None:
    """Return the device that was asked for or is connected; None when there is none at all."""
    from adt.device import selection

    if not request.serial and not os.environ.get("ANDROID_SERIAL") and not selection.reachable():
        return None
    return device_of(request.settings.device)


@command("adt up model.onnx", "adt up model.onnx --serial SERIAL --target adreno")
def up_command(
    request: UpRequest,
    output: Annotated[Path | None, shared.output("File for the outputs, .npz.", "--output", "-o")],
    as_json: bool,
) -> Rendering:
    """Build, compile, deploy, run and verify a model; without a phone on a virtual device, or --for host."""
    on_plan, on_step = (shared.quiet, shared.quiet) if as_json else (_show_plan, _show_step)
    with status_line("adt up") as progress:
        result = up(request.but(on_plan=on_plan, on_step=on_step, progress=progress))
    if output:
        save_npz(output, result.verified.outputs)
    return Rendering("up", result, _lines(result), failure(result.verified, result.package.path))


def _lines(result: UpResult) -> Iterator[str]:
    for name, array in result.verified.outputs.items():
        yield summary(name, array)
    yield from verification_lines(result.verified)
    yield f"package  {result.package.path}"
    if result.verified.emulated:
        yield "the virtual device is left running: adt emulator stop"


def _show_plan(plan: UpPlan) -> None:
    typer.echo(f"model       {plan.model}")
    for name, shape in plan.inputs.items():
        typer.echo(f"input       {name}: {', '.join(map(str, shape))}")
    typer.echo(f"target      {plan.target} on {plan.platform}")
    typer.echo(f"device      {plan.reason}")
    if plan.platform != HOST:
        typer.echo(f"TVM source  {plan.tvm_source}")
    typer.echo(f"tolerance   {plan.max_abs:g} absolute, or {plan.max_rel:g} relative, to onnxruntime")
    device_steps = "source → build-target → compile → device → deploy → verify"
    typer.echo(f"steps       {'compile → verify' if plan.platform == HOST else device_steps}")


def _show_step(step: Step) -> None:
    typer.echo(f"✓ {step.name:<13} {step.seconds:7.2f} s  {step.note}")
