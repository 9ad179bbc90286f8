"""The RPC tracker, servers on devices, and sessions with them."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adt.bundle.platforms import platform_named
from adt.cli.app import Commands, app
from adt.cli.command import Rendering, command
from adt.cli.terminal import span
from adt.errors import RpcError
from adt.host.document import aligned
from adt.options.option import MaybePath, Real, Text, option
from adt.options.request import Request, resolve_settings, takes
from adt.options.resolve import load_settings
from adt.options.sections import FOR, DeviceSettings, RpcSettings
from adt.verbs.device import device_of
from adt.verbs.options import BUNDLE, KEY, PORT, TRACKER_ADDRESS

if TYPE_CHECKING:
    from adt.bundle.bundle import TargetBundle
    from adt.device.deploy.store import Deployment
    from adt.device.device import Device
    from adt.rpc.board import ServePlan
    from adt.rpc.server import RpcServer, ServerStatus
    from adt.rpc.tracker import TrackerInfo

PORT_END = option("Last port to try.", default=None, least=1, most=65535)
EXPOSE = option("Listen on the network: whoever reaches it can run programs here.", default=False)
USE_TRACKER = option(
    "Register with the tracker; else clients connect directly.",
    "--use-tracker/--no-tracker",
    default=True,
    help="Do not register with a tracker: clients connect directly.",
)


class TrackerRequest(Request):
    """Request of :func:`adt.tracker_start`."""

    port: int | None = PORT
    port_end: int | None = PORT_END
    expose: bool = EXPOSE


class RpcStartRequest(Request):
    """Request of :func:`adt.rpc_start`."""

    serial: Text = DeviceSettings.serial
    timeout: Real = DeviceSettings.timeout
    key: str = KEY
    bundle: MaybePath = BUNDLE
    tracker: str = TRACKER_ADDRESS
    use_tracker: bool = USE_TRACKER
    port: int | None = PORT
    port_end: int | None = PORT_END


class ServeHereRequest(Request):
    """Request of :func:`adt.rpc_serve_here`."""

    key: str = KEY
    bundle: MaybePath = BUNDLE
    tracker: str = TRACKER_ADDRESS
    port: int | None = PORT
    expose: bool = EXPOSE


class ServeRequest(Request):
    """Request of :func:`adt.rpc_serve`."""

    key: str = KEY
    bundle: MaybePath = BUNDLE
    tracker: str = TRACKER_ADDRESS
    port: int | None = PORT
    expose: bool = EXPOSE
    use_tracker: bool = USE_TRACKER
    board: str = option("Board, as ssh takes it.", default="USER@BOARD")
    platform: str = option("Platform of the board.", *FOR, default="linux-aarch64", offers="platform")


log = logging.getLogger("adt.rpc")


@dataclass(frozen=True)
class RpcStatus:
    """Everything that is known of RPC on this machine."""

    tracker: TrackerInfo
    servers: tuple[ServerStatus, ...]


def served_bundle(serial: str) -> TargetBundle | None:
    """Find the bundle that the server on *serial* runs from, when it was built here and is still there."""
    from adt.bundle.bundle import cached_bundles
    from adt.device.deploy.payload import payload_of
    from adt.rpc import state

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
    from adt.rpc import tracker as tracking

    ports = request.settings.rpc.tracker_ports.chosen(request.port, request.port_end)
    return tracking.start(ports, expose=request.expose)


def tracker_stop() -> TrackerInfo:
    """Stop the tracker; ``running`` of the result tells whether it had run."""
    from adt.rpc import tracker as tracking

    return tracking.stop()


def tracker_status(tracker: str = "") -> TrackerInfo:
    """Ask the tracker for its servers; one that does not run is no error.

    Args:
        tracker: ``HOST:PORT`` of another tracker than adt's own.
    """
    from adt.rpc import tracker as tracking

    return tracking.status(tracker)


@takes(RpcStartRequest)
def rpc_start(request: RpcStartRequest) -> RpcServer:
    """Deploy a bundle, start an RPC server from it on the device, and return when clients can use it.

    Without a key it is rpc.key of the settings, else ``android`` or the device's platform. Adt's own tracker
    is started when needed; each port is tried on this machine and on the device.

    Raises:
        RpcError, TrackerError: it does not become ready.
        MismatchError: no bundle fits the device.
    """
    from adt.device.deploy import store
    from adt.rpc import server
    from adt.verbs.bundles import choose_bundle

    settings = request.settings.rpc
    ports = settings.ports.chosen(request.port, request.port_end)
    device = device_of(request.settings.device)
    report = store.deploy(
        device, choose_bundle(device.facts.platforms, request.bundle, device=device, server=True), None
    )
    log.debug("deployed %s", report.deployment.directory)
    return server.start(
        device,
        report.deployment,
        key=request.key or settings.key,
        tracker_address=request.tracker,
        use_tracker=request.use_tracker,
        ports=ports,
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
    """Start an RPC server from *deployment* as the settings say, or return the one that runs from it."""
    from adt.rpc import server

    return server.start(
        device,
        deployment,
        key=key or settings.key,
        tracker_address=tracker_address,
        ports=settings.ports,
        tracker_ports=settings.tracker_ports,
    )


def rpc_stop(serial: str | None = None, *, all: bool = False) -> tuple[str, ...]:
    """End servers and remove every trace of them, here and on the devices; the tracker stays.

    Args:
        serial: the device; None: device.serial of the settings, else ANDROID_SERIAL, else the only server's.
        all: the servers on all devices.

    Returns:
        The serials of those that were stopped.

    Raises:
        RpcError: several servers run and none was named, or one does not end.
    """
    from adt.rpc import server

    settings = resolve_settings({"device.serial": serial}).settings.device
    if all:
        return server.stop_all()
    named = settings.serial or os.environ.get("ANDROID_SERIAL", "")
    serials = [named] if named else [status.serial for status in server.statuses()]
    if len(serials) > 1:
        raise RpcError(
            f"{len(serials)} servers run and none was chosen: {', '.join(serials)}",
            remedy="Name one with --serial, or end them all: adt rpc stop --all",
        )
    return tuple(serial for serial in serials if server.stop(serial))


def rpc_status(tracker: str = "") -> RpcStatus:
    """Ask the tracker for its queues, and look at every server; what does not run is no error.

    Args:
        tracker: ``HOST:PORT`` of another tracker than adt's own.
    """
    from adt.rpc import server
    from adt.rpc import tracker as tracking

    return RpcStatus(tracking.status(tracker), server.statuses())


@takes(ServeRequest)
def rpc_serve(request: ServeRequest) -> ServePlan:
    """Plan the commands that serve RPC on a board without ADB; run nothing.

    Raises:
        MismatchError: no bundle for the platform was built here.
        RpcError: the bundle has no tvm_rpc.
    """
    from adt.rpc import board, server
    from adt.rpc import tracker as tracking
    from adt.verbs.bundles import choose_bundle

    settings = request.settings.rpc
    opened = choose_bundle((platform_named(request.platform).name,), request.bundle, server=True)
    address = request.tracker or tracking.running() or f"127.0.0.1:{settings.tracker_port}"
    if request.expose:
        log.warning(tracking.EXPOSED, "server")
    return board.plan(
        opened,
        board=request.board,
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
    from adt.rpc import board, server
    from adt.rpc import tracker as tracking
    from adt.verbs.bundles import choose_bundle

    settings = request.settings.rpc
    opened = choose_bundle(("host",), request.bundle, server=True)
    if request.expose:
        log.warning(tracking.EXPOSED, "server")
    words = board.arguments(
        key=server.check_key(request.key or settings.key or "board"),
        port=request.port or settings.port,
        tracker=request.tracker,
        expose=request.expose,
    )
    return board.serve(opened, words)


@contextmanager
def rpc_session(
    *,
    key: str = "",
    tracker: str | None = None,
    timeout: float | None = 600.0,
    address: str | None = None,
    wait: float | None = None,
) -> Iterator[Any]:
    """Open a TVM RPC session with a device, for as long as the block runs.

    ``with adt.rpc_session(key="android") as remote: remote.upload("lib.so")``

    Args:
        key: what the device is registered as; empty: rpc.key of the settings, else ``android``.
        tracker: ``host:port``; None: adt's own.
        timeout: seconds after which the server ends the session; None: never.
        address: ``host:port`` of a server without a tracker, to connect to directly.
        wait: seconds to wait until a device is free; None: a minute.

    Yields:
        ``tvm.rpc.RPCSession``.

    Raises:
        TrackerError: no tracker runs, none of its devices has the key, or all are in use.
        RpcError: the server cannot be reached, ended during the session, or the time limit was over.
    """
    from adt.rpc import session

    chosen = key or load_settings().settings.rpc.key or ("" if address else "android")
    with session.open_session(
        key=chosen,
        tracker_address=tracker or "",
        address=address or "",
        timeout=timeout,
        wait=session.WAIT if wait is None else wait,
    ) as connection:
        yield connection.remote


tracker = typer.Typer(cls=Commands, help="Start, stop or show TVM's tracker on this machine.")
app.add_typer(tracker, name="tracker", no_args_is_help=True)
rpc = typer.Typer(cls=Commands, help="Start, stop or show RPC servers on devices.")
app.add_typer(rpc, name="rpc", no_args_is_help=True)


@command("adt tracker start --port 9190", group=tracker, name="start")
def tracker_start_command(request: TrackerRequest) -> Rendering:
    """Start the tracker; one that runs already stays."""
    info = tracker_start(request)
    already = " already" if info.already else ""
    line = f"tracker{already} runs on {info.address} (pid {info.pid}, log {info.log})"
    return Rendering("tracker-start", info, [line])


@command("adt tracker stop", group=tracker, name="stop")
def tracker_stop_command() -> Rendering:
    """Stop the tracker; nothing of it is left."""
    before = tracker_stop()
    return Rendering(
        "tracker-stop",
        {"stopped": before.running, "address": before.address or None},
        [f"stopped the tracker on {before.address}" if before.running else "no tracker ran"],
    )


@command("adt tracker status", group=tracker, name="status")
def tracker_status_command(tracker: Annotated[str, TRACKER_ADDRESS]) -> Rendering:
    """Show the tracker, its queues and its servers."""
    info = tracker_status(tracker)
    servers = info.summary.servers if info.summary else ()
    lines = [*_tracker_lines(info), *(f"server  {server.key:<20} {server.address}" for server in servers)]
    return Rendering("tracker-status", info, lines)


@command("adt rpc start --key android", phone=True, group=rpc, name="start")
def rpc_start_command(request: RpcStartRequest) -> Rendering:
    """Deploy and start an RPC server on a device; returns when clients can use it."""
    server = rpc_start(request)
    return Rendering("rpc-start", server, [server.ready_line])


@command("adt rpc stop --all", group=rpc, name="stop")
def rpc_stop_command(
    serial: Annotated[str | None, DeviceSettings.serial],
    everything: Annotated[bool, option("Stop the servers on all devices.", "--all", default=False)],
) -> Rendering:
    """End servers and remove every trace of them, here and on the devices."""
    stopped = rpc_stop(serial, all=everything)
    none = "no server ran" + (f" on {serial}" if serial else "")
    lines = [f"stopped the server on {serial}" for serial in stopped]
    return Rendering("rpc-stop", {"stopped": stopped}, lines or [none])


@command("adt rpc status --json", group=rpc, name="status")
def rpc_status_command(tracker: Annotated[str, TRACKER_ADDRESS]) -> Rendering:
    """Show the tracker's queues, and every server with its state."""
    status = rpc_status(tracker)
    return Rendering("rpc-status", status, _status_lines(status))


@command("adt rpc serve --board pi@board --key rpi", group=rpc, name="serve")
def rpc_serve_command(
    request: ServeRequest,
    run: Annotated[bool, option("Serve on this machine, which is the board, now.", default=False)],
) -> Rendering:
    """Print what to run for a server on a board without ADB, or run it (--run)."""
    if run:
        here = ServeHereRequest(**request.keywords_of(ServeHereRequest))
        raise typer.Exit(rpc_serve_here(here))
    plan = rpc_serve(request)
    return Rendering("rpc-serve", plan, plan.commands)


def _tracker_lines(info: TrackerInfo) -> Iterator[str]:
    if info.running:
        mine = f" (pid {info.pid}, up {span(info.uptime)})" if info.pid else ""
        warning = " EXPOSED to the network" if info.exposed else ""
        yield f"tracker on {info.address}{mine}{warning}" + (f": {info.error}" if info.error else "")
    else:
        yield "no tracker" + (f" on {info.address}" if info.address else "") + f": {info.error}"
    if info.summary is not None:
        yield ""
        queues = info.summary.queues
        rows = [(queue.key, str(queue.total), str(queue.free), str(queue.pending)) for queue in queues]
        yield from aligned([("key", "total", "free", "pending"), *rows])


def _status_lines(status: RpcStatus) -> Iterator[str]:
    yield from _tracker_lines(status.tracker)
    if not status.servers:
        yield "no server: adt rpc start --serial S --key K"
        return
    yield ""
    head = ("serial", "key", "state", "server", "pid", "uptime", "restarts")
    yield from aligned([head, *map(_server_row, status.servers)])
    for server in status.servers:
        if server.last_error:
            yield f"{server.serial}: {server.last_error} (log {server.log})"


def _server_row(server: ServerStatus) -> tuple[str, ...]:
    return (
        server.serial,
        server.key,
        server.state,
        server.address or "-",
        str(server.device_pid or "-"),
        span(server.uptime) if server.uptime else "-",
        str(server.restarts),
    )
