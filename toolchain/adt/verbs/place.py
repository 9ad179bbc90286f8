"""The place where a package runs: this machine for what is compiled for it, else a device."""

from __future__ import annotations

from pathlib import Path

from adt.device.place import DevicePlace, HostPlace, Opened
from adt.options.request import Request
from adt.package.compatibility import check_half, check_own_cpu
from adt.package.host_run.opencl import opencl_device
from adt.package.package import ModelPackage
from adt.verbs.bundles import package_bundle
from adt.verbs.deploy import deploy_to
from adt.verbs.device import device_of


def runs_here(package: ModelPackage, request: Request) -> bool:
    """Return True if *package* is for this machine, and no device (a virtual one of its kind) is named."""
    return request.named("serial") is None and package.manifest.target.for_this_machine


def open_place(package: ModelPackage, request: Request, named: Path | None) -> Opened:
    """Make *package* ready with the bundle *named* or the newest that fits: deploy it, or run it here."""
    if runs_here(package, request):
        check_own_cpu(package.manifest)
        bundle = package_bundle(package, named)
        if package.manifest.needs_half and (opencl := opencl_device()) is not None:
            check_half(package.manifest, f"{opencl} of this machine", fp16=opencl.fp16)
        return Opened(HostPlace(bundle, package), package, bundle)
    device = device_of(request.settings.device)
    bundle = package_bundle(package, named, device=device)
    deployed = deploy_to(device, package, bundle)
    return Opened(DevicePlace(device, deployed.report.deployment), package, bundle)
