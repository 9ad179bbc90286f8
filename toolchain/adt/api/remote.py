"""A package in a virtual machine at the other end of an RPC session, wherever that is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass

from adt.api.bundles import package_bundle
from adt.api.deploy import deploy_to
from adt.api.device import device_of
from adt.api.place import runs_here
from adt.api.requests import RemoteRequest
from adt.api.rpc import server_ports
from adt.bundle.bundle import TargetBundle
from adt.bundle.bundle_cache import cached_bundles
from adt.device import selection
from adt.device.deploy.payload import payload_of
from adt.device.place import THIS_MACHINE, HostPlace
from adt.errors import AdtError, ConfigError, MismatchError
from adt.model.package.compatibility import check_own_cpu, check_pair
from adt.model.package.files import LIBRARY
from adt.model.package.package import ModelPackage, load_package
from adt.options.request import takes
from adt.rpc import session, state
from adt.rpc.remote_model import RemoteModel, remote_model
from adt.rpc.temporary_server import Endpoint, device_server, local_server


@dataclass(frozen=True)
class Remote:
    """A model that is loaded over RPC."""

    model: RemoteModel
    name: str
    """Where it runs: the device's serial, this machine, or the server's address."""
    label: str
    """What that is, for people and reports."""
    emulated: bool | None
    """Its processor is emulated: times there are no device's speed. None: a server that adt did not start,
    of which nothing is known."""


@takes(RemoteRequest)
def open_remote(request: RemoteRequest) -> AbstractContextManager[Remote]:
    """Load a package over RPC for as long as the block runs; afterwards nothing that this started is left.

    With a key or a tracker it goes to whatever device the tracker gives, and is uploaded.
    Else it goes to one device: deployed there, it is loaded from where it is, by the server
    that runs there or one for this block. A package for this machine gets a server here.

    Raises:
        ConfigError: a device, or a bundle, together with a key or a tracker.
        MismatchError, PackageError: package, bundle and server do not fit each other.
        RpcError, TrackerError: no server, or it ended.
        RunError: the server failed.
        NoDevice, AmbiguousDevice, DeviceNotReady, DeviceError, DeviceFull: see :mod:`adt.errors`.
    """
    return connect(load_package(request.package), request)


@contextmanager
def connect(package: ModelPackage, request: RemoteRequest) -> Iterator[Remote]:
    """:func:`open_remote`, of a package that is loaded."""
    settings, explicit = request.settings, request.bundle
    with ExitStack() as stack:
        library = ""
        name, label, emulated = "", "", None
        if request.key or request.tracker:
            if request.named("serial") is not None or explicit is not None:
                raise ConfigError(
                    "a tracker chooses the device, and its server has a bundle already",
                    remedy="Leave --serial and --bundle away, or --key and --tracker.",
                )
            way = Endpoint(request.key or settings.rpc.key or "android", tracker=request.tracker)
        elif runs_here(package, request):
            check_own_cpu(package.manifest)
            bundle = package_bundle(package, explicit, server=True)
            here = stack.enter_context(local_server(bundle))
            way = Endpoint(here.key, address=here.address)
            name, label, emulated = THIS_MACHINE, HostPlace(bundle, package).label, False
        else:
            device = device_of(request)
            bundle = package_bundle(package, explicit, device=device, server=True)
            deployment = deploy_to(device, package, bundle).report.deployment
            alone = f"{deployment.base}/deployments/{payload_of(bundle, None).digest}"
            ports = server_ports(settings.rpc)
            way = stack.enter_context(device_server(device, deployment, bundle=alone, ports=ports))
            library = f"{deployment.directory}/model/{LIBRARY}"
            name, label, emulated = device.serial, device.facts.label, device.facts.emulated
        connected = stack.enter_context(
            session.open_session(
                key=way.key,
                tracker_address=way.tracker,
                address=way.address,
                timeout=settings.device.run_seconds,
            )
        )
        if not name:
            name, label, emulated = _given(connected, package)
        model = stack.enter_context(remote_model(connected.remote, package, library=library))
        yield Remote(model, name, label, emulated)


def _given(connected: session.Session, package: ModelPackage) -> tuple[str, str, bool | None]:
    """Name, label and whether it is emulated, of the device that the tracker gave.

    Raises:
        MismatchError: it is known, and it or its server's bundle does not fit the package.
    """
    address = connected.target.address
    if not connected.serial:
        return address, f"the RPC server at {address}", None
    try:
        facts = selection.select(connected.serial).facts
    except AdtError:  # adb does not see it any more; the session may go on all the same
        return connected.serial, connected.serial, None
    platform = package.manifest.target.platform
    if platform not in facts.platforms:
        raise MismatchError(
            f"{package.manifest.name} is compiled for {platform}; the tracker gave {connected.serial}, which "
            f"runs {' or '.join(facts.platforms)}",
            remedy=f"Compile it for that: adt compile --for {facts.platforms[0]}; or name another --key.",
        )
    if served := _served_bundle(connected.serial):
        check_pair(served.manifest, package.manifest)
    return connected.serial, facts.label, facts.emulated


def _served_bundle(serial: str) -> TargetBundle | None:
    """The bundle that the server on *serial* runs from, when it was built here and is still there."""
    record = state.read_server(state.server_home(serial))
    directory = record.deployment if record is not None else ""
    matches = (
        bundle for bundle in cached_bundles() if directory.endswith(f"/{payload_of(bundle, None).digest}")
    )
    return next(matches, None)
