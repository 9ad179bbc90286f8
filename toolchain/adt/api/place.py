"""The place where a package runs: this machine for what is compiled for it, else a device."""

from __future__ import annotations

from pathlib import Path

from adt.api.bundles import package_bundle
from adt.api.chosen import chosen_device
from adt.api.deploy import deploy_to
from adt.api.requests import OnPlace
from adt.device.place import DevicePlace, HostPlace, Opened
from adt.model.host_run.opencl import opencl_device
from adt.model.package.compatibility import check_half, check_pair
from adt.model.package.package import load_package


def place_of(request: OnPlace) -> Opened:
    """Make the package of *request* ready where it belongs: :func:`open_place`."""
    return open_place(
        request.package, serial=request.named("serial"), bundle=request.bundle, timeout=request.timeout
    )


def open_place(
    package: Path, *, serial: str | None = None, bundle: Path | None = None, timeout: float | None = None
) -> Opened:
    """Make *package* ready: deploy it, or with one that was compiled for this machine look for the bundle.

    Args:
        serial: the device; see :func:`adt.api.chosen.chosen_device`. A package for this machine goes to a
            device only when one is named here (a virtual one of this machine's kind).
        bundle: None for the newest one built here that fits.
        timeout: see :func:`adt.api.chosen.chosen_device`.

    Raises:
        MismatchError, PackageError: package, bundle and device do not fit each other, or no bundle was built.
        NoDevice, AmbiguousDevice, DeviceNotReady, DeviceError, DeviceFull: see :mod:`adt.errors`.
    """
    opened = load_package(package)
    if serial is None and opened.manifest.target.for_this_machine:
        own = package_bundle(opened, bundle)
        check_pair(own.manifest, opened.manifest)
        if opened.manifest.needs_half and (opencl := opencl_device()) is not None:
            check_half(opened.manifest, f"{opencl} of this machine", fp16=opencl.fp16)
        return Opened(HostPlace(own, opened), opened, own)
    device = chosen_device(serial, timeout)
    fitting = package_bundle(opened, bundle, device=device)
    deployed = deploy_to(device, opened, fitting)
    return Opened(DevicePlace(device, deployed.report.deployment), opened, fitting)
