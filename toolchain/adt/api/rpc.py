"""The RPC tracker, servers on devices, and sessions with them."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from adt.api.bundles import choose_bundle
from adt.api.device import device_of
from adt.api.requests import (
    RpcStartRequest,
    ServeHereRequest,
    ServeRequest,
    TrackerRequest,
)
from adt.bundle.bundle import TargetBundle
from adt.bundle.bundle_cache import cached_bundles
from adt.bundle.platforms import platform_named
from adt.device.deploy import store
from adt.device.deploy.payload import payload_of
from adt.device.deploy.store import Deployment
from adt.device.device import Device
from adt.errors import RpcError
from adt.options.request import resolve_settings, takes
from adt.options.resolve import load_settings
from adt.options.sections import RpcSettings
from adt.rpc import board, server, session, state
from adt.rpc import tracker as tracking
from adt.rpc.board import ServePlan
from adt.rpc.server import RpcServer, ServerStatus
from adt.rpc.tracker import TrackerInfo

log = logging.getLogger("adt.rpc")


@dataclass(frozen=True)
class RpcStatus:
    """Everything that is known of RPC on this machine."""

    tracker: TrackerInfo
    servers: tuple[ServerStatus, ...]
    """By serial."""


def served_bundle(serial: str) -> TargetBundle | None:
    """The bundle that the server on *serial* runs from, when it was built here and is still there."""
    record = state.read_server(state.server_home(serial))
    directory = record.deployment if record is not None and record.serves else ""
    matches = (
        bundle for bundle in cached_bundles() if directory.endswith(f"/{payload_of(bundle, None).digest}")
    )
    return next(matches, None)


@takes(TrackerRequest)
def tracker_start(request: TrackerRequest) -> TrackerInfo:
    """Start TVM's tracker in the background, or return the one that runs (``already``).

    TVM's RPC is remote code execution by design.

    Raises:
        TrackerError: no port is free, or it does not come up.
    """
    ports = request.settings.rpc.tracker_ports.chosen(request.port, request.port_end)
    return tracking.start(ports, expose=request.expose)


def tracker_stop() -> TrackerInfo:
    """Stop the tracker; ``running`` of the result tells whether it had run."""
    return tracking.stop()


def tracker_status(tracker_address: str = "") -> TrackerInfo:
    """Ask the tracker for its servers; one that does not run is no error.

    Args:
        tracker_address: ``HOST:PORT`` of another tracker than adt's own.
    """
    return tracking.status(tracker_address)


@takes(RpcStartRequest)
def rpc_start(request: RpcStartRequest) -> RpcServer:
    """Deploy a bundle, start an RPC server from it on the device, and return when clients can use it.

    Without a key it is rpc.key of the settings, else ``android`` or the device's platform. Adt's own tracker
    is started when needed; each port is tried on this machine and on the device.

    Raises:
        RpcError, TrackerError: it does not become ready.
        MismatchError: no bundle fits the device.
        NoDevice, AmbiguousDevice, DeviceNotReady, DeviceError, DeviceFull: see :mod:`adt.errors`.
    """
    settings = request.settings.rpc
    device = device_of(request.settings.device)
    report = store.deploy(
        device, choose_bundle(device.facts.platforms, request.bundle, device=device, server=True), None
    )
    log.debug("deployed %s", report.deployment.directory)
    return server.start(
        device,
        report.deployment,
        key=request.key or settings.key,
        tracker_address=request.tracker_address,
        use_tracker=request.use_tracker,
        ports=settings.ports.chosen(request.port, request.port_end),
        tracker_ports=settings.tracker_ports,
    )


def serve_deployed(
    device: Device,
    deployment: Deployment | str,
    settings: RpcSettings,
    *,
    key: str = "",
    tracker_address: str = "",
) -> RpcServer:
    """Start an RPC server from *deployment* as the settings say, or return the one that runs from it.

    Args:
        deployment, tracker_address: see :func:`adt.rpc.server.start`.
    """
    return server.start(
        device,
        deployment,
        key=key or settings.key,
        tracker_address=tracker_address,
        ports=settings.ports,
        tracker_ports=settings.tracker_ports,
    )


def rpc_stop(serial: str | None = None, *, everything: bool = False) -> tuple[str, ...]:
    """End servers and remove every trace of them, here and on the devices; the tracker stays.

    Args:
        serial: the device; None: device.serial of the settings, else ANDROID_SERIAL, else the only server's.
        everything: the servers on all devices.

    Returns:
        The serials of those that were stopped.

    Raises:
        RpcError: several servers run and none was named, or one does not end.
    """
    settings = resolve_settings({"device.serial": serial}).settings.device
    if everything:
        return server.stop_all()
    named = settings.serial or os.environ.get("ANDROID_SERIAL", "")
    serials = [named] if named else [status.serial for status in server.statuses()]
    if len(serials) > 1:
        raise RpcError(
            f"{len(serials)} servers run and none was chosen: {', '.join(serials)}",
            remedy="Name one with --serial, or end them all: adt rpc stop --all",
        )
    return tuple(serial for serial in serials if server.stop(serial))


def rpc_status(tracker_address: str = "") -> RpcStatus:
    """Ask the tracker for its queues, and look at every server; what does not run is no error.

    Args:
        tracker_address: ``HOST:PORT`` of another tracker than adt's own.
    """
    return RpcStatus(tracking.status(tracker_address), server.statuses())


@takes(ServeRequest)
def rpc_serve(request: ServeRequest) -> ServePlan:
    """The commands that serve RPC on a board without ADB; runs nothing.

    Raises:
        MismatchError: no bundle for the platform was built here.
        RpcError: the bundle has no tvm_rpc.
    """
    settings = request.settings.rpc
    opened = choose_bundle((platform_named(request.platform).name,), request.bundle, server=True)
    address = request.tracker_address or tracking.running() or f"127.0.0.1:{settings.tracker_port}"
    if request.expose:
        log.warning(tracking.EXPOSED, "server")
    return board.plan(
        opened,
        board=request.board_address,
        key=server.check_key(request.key or settings.key or opened.manifest.platform),
        port=request.port or settings.port,
        tracker=address if request.use_tracker else "",
        expose=request.expose,
    )


@takes(ServeHereRequest)
def rpc_serve_here(request: ServeHereRequest) -> int:
    """Serve RPC on this very machine, in the foreground, from its own bundle; returns tvm_rpc's exit code.

    Without a tracker's address clients connect directly.

    Raises:
        MismatchError: there is no bundle for this machine.
        RpcError: the bundle has no tvm_rpc.
    """
    settings = request.settings.rpc
    opened = choose_bundle(("host",), request.bundle, server=True)
    if request.expose:
        log.warning(tracking.EXPOSED, "server")
    words = board.arguments(
        key=server.check_key(request.key or settings.key or "board"),
        port=request.port or settings.port,
        tracker=request.tracker_address,
        expose=request.expose,
        work="",
        custom_address="" if request.expose else "127.0.0.1",
    )[:-1]
    return board.serve(opened, words)


@contextmanager
def rpc_session(
    *,
    key: str = "",
    tracker: str | None = None,
    timeout: float | None = 600.0,
    address: str | None = None,
    wait: float = session.WAIT,
) -> Iterator[Any]:
    """A TVM RPC session with a device, for as long as the block runs.

    ``with adt.rpc_session(key="android") as remote: remote.upload("lib.so")``

    Args:
        key: what the device is registered as; empty: rpc.key of the settings, else ``android``.
        tracker: ``host:port``; None: adt's own.
        timeout: seconds after which the server ends the session; None: never.
        address: ``host:port`` of a server without a tracker, to connect to directly.
        wait: seconds to wait until a device is free.

    Yields:
        ``tvm.rpc.RPCSession``.

    Raises:
        TrackerError: no tracker runs, none of its devices has the key, or all are in use.
        RpcError: the server cannot be reached, ended during the session, or the time limit was over.
    """
    chosen = key or load_settings().settings.rpc.key or ("" if address else "android")
    with session.open_session(
        key=chosen,
        tracker_address=tracker or "",
        address=address or "",
        timeout=timeout,
        wait=wait,
    ) as connection:
        yield connection.remote
