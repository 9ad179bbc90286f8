"""A package in a virtual machine at the other end of an RPC session, wherever that is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass

from adt.device import selection
from adt.device.deploy.payload import payload_of
from adt.device.place import THIS_MACHINE, HostPlace
from adt.errors import AdtError, MismatchError, exclusive
from adt.options.option import MaybePath, PathTo, Real, Text, option
from adt.options.request import Request, takes
from adt.options.sections import DeviceSettings
from adt.package.compatibility import check_own_cpu, check_pair
from adt.package.files import LIBRARY
from adt.package.package import ModelPackage, load_package
from adt.rpc import session
from adt.rpc.session import RemoteModel, remote_model
from adt.rpc.temporary_server import Endpoint, device_server, local_server
from adt.verbs.bundles import choose_bundle
from adt.verbs.deploy import deploy_to, runs_here
from adt.verbs.device import device_of
from adt.verbs.options import BUNDLE, PACKAGE, REMOTE_KEY, REMOTE_TRACKER
from adt.verbs.rpc import served_bundle


class RemoteRequest(Request):
    """Request of :func:`adt.open_remote`."""

    package: PathTo = option(PACKAGE, kw_only=False)
    serial: Text = DeviceSettings.serial
    timeout: Real = DeviceSettings.timeout
    bundle: MaybePath = BUNDLE
    key: str = REMOTE_KEY
    tracker: str = REMOTE_TRACKER


@dataclass(frozen=True)
class Remote:
    """A model that is loaded over RPC."""

    model: RemoteModel
    name: str
    """Name of the place: the device's serial, this machine, or the server's address."""
    label: str
    """Description of the place for people and reports."""
    emulated: bool | None
    """Its processor is emulated: times there are no device's speed. None: a server that adt did not start,
    of which nothing is known."""


@takes(RemoteRequest)
def open_remote(request: RemoteRequest) -> AbstractContextManager[Remote]:
    """Load a package over RPC for as long as the block runs; afterwards nothing that this started is left.

    With a key or a tracker it goes to whatever device the tracker gives, and is uploaded.
    Else it goes to one device: deployed there, it is loaded from where it is, by the server
    that runs there or one for this block. A package for this machine gets a server here.
    """
    return connect(load_package(request.package), request)


@contextmanager
def connect(package: ModelPackage, request: RemoteRequest) -> Iterator[Remote]:
    """Load *package* over RPC as :func:`open_remote` does."""
    settings = request.settings
    with ExitStack() as stack:
        library, known = "", None
        if request.key or request.tracker:
            if request.named("serial") is not None or request.bundle is not None:
                raise exclusive(
                    "--serial and --bundle", "--key and --tracker", "a tracker chooses the device"
                )
            endpoint = Endpoint(request.key or settings.rpc.key or "android", tracker=request.tracker)
        elif runs_here(package, request):
            check_own_cpu(package.manifest)
            bundle = choose_bundle(package, request.bundle, server=True)
            server = stack.enter_context(local_server(bundle))
            endpoint = Endpoint(server.key, address=server.address)
            known = THIS_MACHINE, HostPlace(bundle, package).label, False
        else:
            device = device_of(request.settings.device)
            served = served_bundle(device.serial)
            bundle = choose_bundle(package, request.bundle, device=device, server=True, preferred=served)
            deployment = deploy_to(device, package, bundle).deployment
            alone = f"{deployment.base}/deployments/{payload_of(bundle, None).digest}"
            serving = device_server(device, deployment, bundle=alone, ports=settings.rpc.ports)
            endpoint = stack.enter_context(serving)
            library = f"{deployment.directory}/model/{LIBRARY}"
            known = device.serial, device.facts.label, device.facts.emulated
        connection = stack.enter_context(
            session.open_session(
                key=endpoint.key,
                tracker_address=endpoint.tracker,
                address=endpoint.address,
                timeout=settings.device.run_seconds,
            )
        )
        place = known or _tracked_device(connection, package)
        model = stack.enter_context(remote_model(connection.remote, package, library=library))
        yield Remote(model, *place)


def _tracked_device(connection: session.Session, package: ModelPackage) -> tuple[str, str, bool | None]:
    """Return name, label and whether it is emulated, of the device that the tracker gave, if it fits."""
    address, serial = connection.target.address, connection.serial
    if not serial:
        return address, f"the RPC server at {address}", None
    try:
        facts = selection.select(serial).facts
    except AdtError:  # adb does not see it any more; the session may go on all the same
        return serial, serial, None
    platform = package.manifest.target.platform
    if platform not in facts.platforms:
        raise MismatchError(
            f"{package.manifest.name} is compiled for {platform}; the tracker gave {serial}, which "
            f"runs {' or '.join(facts.platforms)}",
            remedy=f"Compile it for that: adt compile --for {facts.platforms[0]}; or name another --key.",
        )
    if served := served_bundle(serial):
        check_pair(served.manifest, package.manifest)
    return serial, facts.label, facts.emulated
