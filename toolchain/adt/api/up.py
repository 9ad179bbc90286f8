"""All of it in one verb."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from adt.api.deploy import deploy_to
from adt.api.device import device_of, open_device
from adt.api.emulator import emulator_start
from adt.api.requests import UpRequest
from adt.api.up_plan import Step, UpPlan
from adt.api.verify import VerifyResult, verify_at
from adt.bundle.build import build_bundle
from adt.bundle.bundle import MANIFEST
from adt.bundle.plan import plan_build
from adt.bundle.platforms import platform_named
from adt.compiler.importers import model_store
from adt.device import selection
from adt.device.device import Device
from adt.device.place import DevicePlace, Opened
from adt.errors import MismatchError
from adt.host.versions import require_tvm
from adt.measure.verify import limits_for
from adt.options.request import takes
from adt.options.sections import Settings
from adt.package.package import ModelPackage

VIRTUAL_PLATFORM = "linux-aarch64"
"""Platform of the virtual device."""


@dataclass(frozen=True)
class UpResult:
    """Result of :func:`up`."""

    plan: UpPlan
    steps: tuple[Step, ...]
    package: ModelPackage
    verified: VerifyResult


@takes(UpRequest)
def up(request: UpRequest) -> UpResult:
    """Do all of it: build, compile, find or start a device, deploy, run there, verify.

    Without *serial* and with no device connected, a virtual device is started
    and left running. Earlier bundles and packages are reused.

    Raises:
        Whatever the verbs raise; a difference over the tolerance does not.
    """
    require_tvm()
    from adt.api.model import tuned_job
    from adt.compiler.compilation import CompileJob
    from adt.compiler.compile import cached_package
    from adt.compiler.importers.importer import declared_inputs, import_model
    from adt.compiler.importers.shapes import parse_shapes

    model, shapes = request.model, parse_shapes(request.shapes)
    # A faulty model fails here, not after a build.
    fixed = declared_inputs(model, shapes)
    device = _connected_device(request)
    platform = device.platform if device else VIRTUAL_PLATFORM
    settings = request.but(platform=request.named("platform") or platform).settings
    if platform_named(settings.build.platform).name != platform:
        name = device.serial if device else "the virtual device"
        raise MismatchError(
            f"{name} is {platform}, not {settings.build.platform}",
            remedy="Leave --for out, or choose another device with --serial.",
        )
    request.on_plan(plan := _up_plan(model, fixed, settings, device))
    steps: list[Step] = []
    began = time.monotonic()

    def finish(name: str, note: str) -> None:
        nonlocal began
        steps.append(Step(name, note, time.monotonic() - began))
        request.on_step(steps[-1])
        began = time.monotonic()

    build_plan = plan_build(settings)
    tree = build_plan.source
    finish("source", f"TVM {tree.version} from {tree.provider}: {tree.reason}")
    if not (build_plan.bundle_dir / MANIFEST).is_file():
        imported = import_model(model, shapes)
        inputs, outputs = len(imported.inputs), len(imported.outputs)
        finish("import", f"{inputs} inputs, {outputs} outputs: TVM can import it")

    built = build_bundle(build_plan, progress=request.progress)
    note = "reused" if built.reused else f"compiled {built.compiled} translation units"
    finish("build-target", f"{note}: {built.bundle.path.name}")

    job = CompileJob(
        model,
        platform=platform_named(settings.build.platform),
        settings=settings,
        ndk=build_plan.ndk,
        bundle=built.bundle,
    )
    package = cached_package(tuned_job(job))
    note = "reused" if package.cached else f"compiled {package.manifest.total} kernels"
    finish("compile", f"{note}: {package.path.name}")

    if device is None:
        started = emulator_start()
        device = open_device(started.serial, request.settings.device.limit)
        finish("emulator", f"started {started.serial}: arm64 Linux behind real ADB, not Android, no speed")

    report = deploy_to(device, package, built.bundle).report
    sent = f"sent {len(report.sent_files)} files, {report.sent_bytes:,} bytes"
    finish("deploy", f"{sent if report.sent_files else 'reused'}: {device.serial}")

    ready = Opened(DevicePlace(device, report.deployment), package, built.bundle)
    sets = (request.inputs,) if request.inputs is not None else None
    find_model = partial(model_store.source_model, package)
    verified = verify_at(ready, settings, find_model, sets, trust=request.trust)
    finish("verify", "passed" if verified.verification.passed else "FAILED")
    return UpResult(plan, tuple(steps), package, verified)


def _up_plan(
    model: Path, fixed: Mapping[str, tuple[int, ...]], settings: Settings, device: Device | None
) -> UpPlan:
    if device:
        reason = f"{device.serial} is connected and is {device.platform}"
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
    """The device that was asked for or is connected; None when there is none at all."""
    if not request.serial and not os.environ.get("ANDROID_SERIAL") and not selection.reachable():
        return None
    return device_of(request.settings.device)
