"""Put packages on a device and run them there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from adt.config.load import load_settings
from adt.device import deploy as deploying
from adt.device import selection
from adt.device.deploy import DeployReport
from adt.device.device import Device
from adt.device.runner import RunResult, run_on_device
from adt.errors import MismatchError
from adt.model.package import ModelPackage, load_package
from adt.target.build import find_bundle
from adt.target.bundle import TargetBundle, load_bundle
from adt.target.plan import plan_build
from adt.target.platforms import platform_named

if TYPE_CHECKING:
    from adt.bench.reference import Array


@dataclass(frozen=True)
class DeployResult:
    """A package and a bundle on a device."""

    serial: str
    package: ModelPackage
    bundle: TargetBundle
    report: DeployReport


def deploy(package: Path, *, serial: str | None = None, bundle: Path | None = None) -> DeployResult:
    """Send what is missing of *package* and its bundle to the device; a second time sends nothing.

    Raises:
        MismatchError: package, bundle and device do not fit each other.
        NoDevice, AmbiguousDevice, DeviceNotReady, DeviceError, DeviceFull: see :mod:`adt.errors`.
    """
    resolved = load_settings({"device.serial": serial}).settings
    opened = load_package(package)
    device = selection.select(resolved.device.serial or None)
    return deploy_to(device, opened, bundle_for(opened, bundle))


def bundle_for(package: ModelPackage, explicit: Path | None) -> TargetBundle:
    """The bundle to run *package* with: *explicit*, or the one built here for its platform."""
    if explicit:
        return load_bundle(explicit)
    platform = package.manifest.target.platform
    present = load_settings().settings
    if platform_named(present.build.platform).name != platform:  # a variant of the same platform stays
        present = load_settings({"build.platform": platform}).settings
    found = find_bundle(plan_build(present))
    if found is None:
        raise MismatchError(
            f"no bundle for {platform} was built here with the present settings",
            remedy=f"adt build-target --for {platform}, or pass --bundle DIR",
        )
    return found


def deploy_to(device: Device, package: ModelPackage, bundle: TargetBundle) -> DeployResult:
    report = deploying.deploy(device, bundle, package)
    return DeployResult(device.serial, package, bundle, report)


def run(
    package: Path,
    *,
    serial: str | None = None,
    bundle: Path | None = None,
    inputs: Mapping[str, Array] | None = None,
    seed: int | None = None,
    entry: str = "main",
    run_count: int = 1,
    dry_run: int = 0,
    timeout: float | None = None,
) -> RunResult:
    """Run the package on the device and return its outputs.

    Args:
        inputs: name to array; made up from *seed* when None.
        run_count: timed runs; dry_run: untimed ones before them.

    Raises:
        RunError, InputError: the runner refused or failed; its own message is passed on.
    """
    resolved = load_settings(
        {"device.serial": serial, "verify.seed": seed, "device.timeout": timeout}
    ).settings
    opened = load_package(package)
    device = selection.select(resolved.device.serial or None)
    deployed = deploy_to(device, opened, bundle_for(opened, bundle))
    return run_on_device(
        device,
        deployed.report.deployment,
        inputs=inputs,
        seed=resolved.verify.seed,
        entry=entry,
        run_count=run_count,
        dry_run=dry_run,
        device_kind=opened.manifest.target.device,
        timeout=resolved.device.timeout,
    )
