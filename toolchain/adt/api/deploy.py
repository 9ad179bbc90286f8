"""Put packages on devices, and remove what is old."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from adt.api.bundles import choose_bundle, package_bundle
from adt.api.device import device_of, open_device, probe_device
from adt.api.requests import (
    CleanManyRequest,
    CleanRequest,
    DeployManyRequest,
    DeployRequest,
)
from adt.bundle.bundle import TargetBundle
from adt.device import parallel
from adt.device.app import PrivateCopy, check_app, copy_into_app
from adt.device.deploy import removal, store
from adt.device.deploy.payload import payload_of
from adt.device.deploy.removal import CleanReport
from adt.device.deploy.store import DeployProgress, DeployReport
from adt.device.device import Device
from adt.device.parallel import Outcomes, Say
from adt.errors import ConfigError
from adt.options.request import takes
from adt.package.compatibility import check_half
from adt.package.package import ModelPackage, load_package

if TYPE_CHECKING:
    from adt.rpc.server import RpcServer

Result = TypeVar("Result")


@dataclass(frozen=True)
class DeployResult:
    """A bundle on a device, with a package or alone."""

    serial: str
    package: ModelPackage | None
    bundle: TargetBundle
    report: DeployReport
    private: PrivateCopy | None = None
    """Copy in an app's own directory, when that was asked for."""


@dataclass(frozen=True)
class Deployed:
    """All that one `deploy` put on one device."""

    serial: str
    results: tuple[DeployResult, ...]
    """One for each package, in order; the bundle alone comes first, when it was deployed too."""
    rpc: RpcServer | None
    """The server that is ready there; None when none was asked for."""


@takes(DeployRequest)
def deploy(request: DeployRequest) -> Deployed:
    """Send what is missing of packages and their bundle to a device; a bundle alone serves RPC there.

    A second time sends nothing, and the server that runs stays.

    Raises:
        MismatchError: package, bundle and device do not fit each other, or no bundle was built.
        RpcError, TrackerError: the server does not become ready; what was sent is complete.
        NoDevice, AmbiguousDevice, DeviceNotReady, DeviceError, DeviceFull: see :mod:`adt.errors`.
    """
    packages = _load_packages(request)
    return _deploy_on(device_of(request.settings.device), request, packages, request.say)


@takes(DeployManyRequest)
def deploy_many(request: DeployManyRequest) -> Outcomes[Deployed]:
    """:func:`deploy` on several devices at once; what fails on one is in its outcome and stops no other.

    Raises:
        PackageError, ConfigError: what is to be deployed is no package; nothing was done.
    """
    packages = _load_packages(request)
    return _on_each(request, lambda device, say: _deploy_on(device, request, packages, say))


def _on_each(
    request: DeployManyRequest | CleanManyRequest, work: Callable[[Device, Say], Result]
) -> Outcomes[Result]:
    return parallel.for_each(
        request.serials,
        work,
        opened=lambda serial: open_device(serial, request.settings.device.limit),
        on_event=request.on_event,
    )


def _load_packages(request: DeployRequest | DeployManyRequest) -> tuple[ModelPackage, ...]:
    packages = tuple(load_package(path) for path in request.packages)
    names = [package.manifest.name for package in packages]
    if len({package.path.resolve() for package in packages}) < len(packages):
        raise ConfigError(f"a package is named twice: {', '.join(names)}", remedy="Name each one once.")
    if request.run_as is not None:
        check_app(request.run_as)
    return packages


def _deploy_on(
    device: Device, request: DeployRequest | DeployManyRequest, packages: tuple[ModelPackage, ...], say: Say
) -> Deployed:
    serves = (not packages if request.rpc is None else request.rpc) and not request.dry_run
    jobs: list[tuple[TargetBundle, ModelPackage | None]] = []
    if serves or not packages:
        # The server has a deployment of its own: it then runs on, whichever packages come and go.
        platforms = device.facts.platforms
        jobs.append((choose_bundle(platforms, request.bundle, device=device, server=serves), None))
    jobs += [(package_bundle(package, request.bundle, device=device), package) for package in packages]
    results = []
    for bundle, package in jobs:
        name = package.manifest.name if package else bundle.manifest.preset
        say(f"deploying {name}")
        results.append(
            deploy_to(
                device,
                package,
                bundle,
                run_as=request.run_as or "",
                dry_run=request.dry_run,
                full_hash=request.full_hash,
                progress=_percent(say),
            )
        )
    server = None
    if serves:
        from adt.api.rpc import serve_deployed

        say("starting the RPC server")
        settings = request.settings.rpc
        server = serve_deployed(device, results[0].report.deployment, settings, key=request.key)
    return Deployed(device.serial, tuple(results), server)


def _percent(say: Say) -> DeployProgress:
    last = ""

    def report(name: str, done: int, total: int) -> None:
        nonlocal last
        text = f"{100 * done // max(1, total):3d} %  {name}"
        if text != last:
            last = text
            say(text)

    return report


def deploy_to(
    device: Device,
    package: ModelPackage | None,
    bundle: TargetBundle,
    *,
    run_as: str = "",
    dry_run: bool = False,
    full_hash: bool = False,
    progress: DeployProgress | None = None,
) -> DeployResult:
    """Send what is missing of *package* and *bundle* to *device*.

    Args:
        package: None for the bundle alone.
        run_as: a debuggable app, into whose own directory the deployment is copied; empty: none.
        dry_run, full_hash: see :func:`deploy`.
        progress: see :data:`adt.device.deploy.store.DeployProgress`.

    Raises:
        MismatchError, PackageError: package, bundle and device do not fit each other, or are damaged.
        ConfigError: *run_as* is no debuggable app of the device.
        DeviceNotReady, DeviceError, DeviceFull: see :mod:`adt.errors`.
    """
    if package is not None and package.manifest.needs_half and not dry_run:
        opencl = probe_device(device).opencl
        if opencl is not None and opencl.device is not None:  # else the run says what is the matter
            name = f"{opencl.device.name} of device {device.serial}"
            check_half(package.manifest, name, fp16=bool(opencl.device.fp16))
    report = store.deploy(device, bundle, package, dry_run=dry_run, full_hash=full_hash, progress=progress)
    copy = None
    if run_as and not dry_run:
        copy = copy_into_app(device, report.deployment, payload_of(bundle, package), run_as)
    return DeployResult(device.serial, package, bundle, report, copy)


@takes(CleanRequest)
def clean(request: CleanRequest) -> CleanReport:
    """Remove this user's old deployments from a device, and what only they needed; never one in use.

    Raises:
        NoDevice, AmbiguousDevice, DeviceNotReady, DeviceError: see :mod:`adt.errors`.
    """
    _check_keep(request)
    return removal.clean(device_of(request.settings.device), keep=request.keep, dry_run=request.dry_run)


@takes(CleanManyRequest)
def clean_many(request: CleanManyRequest) -> Outcomes[CleanReport]:
    """:func:`clean` on several devices at once.

    Raises:
        ConfigError: so many cannot be kept; nothing was done.
    """
    _check_keep(request)

    def clean_device(device: Device, say: Say) -> CleanReport:
        say("cleaning")
        return removal.clean(device, keep=request.keep, dry_run=request.dry_run)

    return _on_each(request, clean_device)


def _check_keep(request: CleanRequest | CleanManyRequest) -> None:
    if request.keep < 0:
        raise ConfigError(f"cannot keep {request.keep} deployments", remedy="Give 0 or more.")
