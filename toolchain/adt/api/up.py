"""All of it in one verb."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from adt.api.chosen import chosen_device
from adt.api.deploy import deploy_to
from adt.api.emulator import emulator_start
from adt.api.requests import UpRequest
from adt.api.up_plan import Step, UpPlan
from adt.api.verify import VerifyResult, verify_at
from adt.bundle.build import build_bundle
from adt.bundle.bundle import MANIFEST, TargetBundle
from adt.bundle.plan import plan_build
from adt.bundle.platforms import platform_named
from adt.device import selection
from adt.device.device import Device
from adt.device.place import DevicePlace, Opened
from adt.errors import MismatchError
from adt.host.ndk import find_ndk
from adt.measure.verify import limits_for
from adt.model.package import model_store
from adt.model.package.package import ModelPackage
from adt.options.request import takes
from adt.options.sections import DeviceSettings, Settings

VIRTUAL_PLATFORM = "linux-aarch64"
"""What the virtual device is."""


@dataclass(frozen=True)
class UpResult:
    """What :func:`up` did."""

    plan: UpPlan
    steps: tuple[Step, ...]
    package: ModelPackage
    verified: VerifyResult


@takes(UpRequest)
def up(request: UpRequest) -> UpResult:
    """Do all of it: build, compile, find or start a device, deploy, run there, verify.

    Without *serial* and with no device connected, a virtual device is started
    and left running. What was made before is reused.

    Raises:
        Whatever the verbs raise; a difference over the tolerance does not.
    """
    from adt.model.importers.importer import declared_inputs, import_model
    from adt.model.importers.shapes import parse_shapes

    model = request.model
    # What is wrong with the model is said here, not after a build.
    fixed = declared_inputs(model, parse_shapes(request.shapes))
    device = _device_for_up(request)
    found = device.platform if device else VIRTUAL_PLATFORM
    resolved = request.but(platform=request.named("platform") or found).settings
    if platform_named(resolved.build.platform).name != found:
        raise MismatchError(
            f"{device.serial if device else 'the virtual device'} is {found}, not {resolved.build.platform}",
            remedy="Leave --for out, or choose another device with --serial.",
        )
    request.on_plan(plan := _up_plan(model, fixed, resolved, device))
    steps: list[Step] = []

    def done(name: str, note: str, began: float) -> None:
        steps.append(Step(name, note, time.monotonic() - began))
        request.on_step(steps[-1])

    began = time.monotonic()
    build_plan = plan_build(resolved)
    tree = build_plan.source
    done("source", f"TVM {tree.version} from {tree.provider}: {tree.why}", began)

    if not (build_plan.bundle_dir / MANIFEST).is_file():
        began = time.monotonic()
        imported = import_model(model, parse_shapes(resolved.compile.shapes))
        done(
            "import",
            f"{len(imported.inputs)} inputs, {len(imported.outputs)} outputs: TVM can import it",
            began,
        )

    began = time.monotonic()
    built = build_bundle(build_plan, progress=request.progress)
    what = "reused" if built.reused else f"compiled {built.compiled} translation units"
    done("build-target", f"{what}: {built.bundle.path.name}", began)

    began = time.monotonic()
    package = _package_for_up(model, resolved, built.bundle)
    made = "reused" if package.cached else f"compiled {package.manifest.total} kernels"
    done("compile", f"{made}: {package.path.name}", began)

    began = time.monotonic()
    if device is None:
        started = emulator_start()
        device = chosen_device(started.serial, request.timeout)
        done(
            "emulator", f"started {started.serial}: arm64 Linux behind real ADB, not Android, no speed", began
        )

    began = time.monotonic()
    deployed = deploy_to(device, package, built.bundle)
    report = deployed.report
    sent = (
        f"sent {len(report.sent_files)} files, {report.sent_bytes:,} bytes" if report.sent_files else "reused"
    )
    done("deploy", f"{sent}: {device.serial}", began)

    began = time.monotonic()
    ready = Opened(DevicePlace(device, report.deployment), package, built.bundle)
    sets = (request.inputs,) if request.inputs is not None else None
    verified = verify_at(ready, resolved, lambda: model_store.source_model(package), sets)
    done("verify", "passed" if verified.verification.passed else "FAILED", began)
    return UpResult(plan, tuple(steps), package, verified)


def _up_plan(
    model: Path, fixed: Mapping[str, tuple[int, ...]], resolved: Settings, device: Device | None
) -> UpPlan:
    if device:
        why = f"{device.serial} is connected and is {device.platform}"
    else:
        why = "no device is connected: a virtual device will be started and left running"
    limits = limits_for(resolved.compile.precision, resolved.verify)
    return UpPlan(
        model,
        {name: list(shape) for name, shape in fixed.items()},
        resolved.build.platform,
        resolved.compile.target,
        device.serial if device else "",
        why,
        resolved.tvm.tvm_source or resolved.tvm.provider,
        limits.max_abs,
        limits.max_rel,
    )


def _device_for_up(asked: DeviceSettings) -> Device | None:
    """The device that was asked for or is connected; None when there is none at all."""
    if not asked.serial and not os.environ.get("ANDROID_SERIAL") and not selection.reachable():
        return None
    return chosen_device(asked.serial, asked.limit)


def _package_for_up(model: Path, resolved: Settings, bundle: TargetBundle) -> ModelPackage:
    """The package of *model* in the cache, compiled when it is not there."""
    from adt.api.model import tuned_job
    from adt.model.compiled import Job, cached_package

    platform = platform_named(resolved.build.platform)
    ndk = find_ndk(resolved.build.ndk) if platform.android else None
    job = Job(model, platform=platform, settings=resolved, ndk=ndk, bundle=bundle)
    return cached_package(tuned_job(job))
