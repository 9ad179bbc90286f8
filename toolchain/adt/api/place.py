"""The place where a package runs: this machine for what is compiled for it, else a device."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from adt.api.chosen import chosen_device
from adt.api.deploy import bundle_for, deploy_to
from adt.device.place import DevicePlace, HostPlace, Place
from adt.errors import ConfigError
from adt.model.package import ModelPackage, load_package
from adt.target.bundle import TargetBundle
from adt.target.platforms import PLATFORMS

HOST = "host"


@dataclass(frozen=True)
class Opened:
    """A package that is ready to run."""

    place: Place
    package: ModelPackage
    bundle: TargetBundle


def open_place(package: Path, *, serial: str | None = None, bundle: Path | None = None) -> Opened:
    """Make *package* ready: deploy it, or with one that was compiled for this machine look for the bundle.

    Args:
        serial: the device; see :func:`adt.api.chosen.chosen_device`.
        bundle: None for the one that was built here.

    Raises:
        MismatchError, PackageError: package, bundle and device do not fit each other, or no bundle was built.
        ConfigError: a device is named for a package that runs on this machine.
        NoDevice, AmbiguousDevice, DeviceNotReady, DeviceError, DeviceFull: see :mod:`adt.errors`.
    """
    opened = load_package(package)
    if opened.manifest.target.platform == HOST and opened.manifest.target.machine == PLATFORMS[HOST].machine:
        if serial is not None:
            raise ConfigError(
                f"{opened.manifest.name} is compiled for this machine, not for the device {serial}",
                remedy="Leave --serial away, or compile it for the device: adt compile --for PLATFORM.",
            )
        found = bundle_for(opened, bundle)
        return Opened(HostPlace(found, opened), opened, found)
    device = chosen_device(serial)
    found = bundle_for(opened, bundle)
    deployed = deploy_to(device, opened, found)
    return Opened(DevicePlace(device, deployed.report.deployment), opened, found)
