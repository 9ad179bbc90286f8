"""``adt tracker`` and ``adt rpc``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adt.api.requests import (
    TRACKER_ADDRESS,
    RpcStartRequest,
    ServeHereRequest,
    ServeRequest,
    TrackerRequest,
)
from adt.cli.app import Commands, app
from adt.cli.command import Rendering, command
from adt.cli.terminal import span
from adt.host.columns import aligned
from adt.options.option import option
from adt.options.sections import DeviceSettings

if TYPE_CHECKING:
    from adt.api.rpc import RpcStatus
    from adt.rpc.server import RpcServer, ServerStatus
    from adt.rpc.tracker import TrackerInfo

tracker = typer.Typer(cls=Commands, help="TVM's tracker on this machine, in the background.")
app.add_typer(tracker, name="tracker", no_args_is_help=True)
rpc = typer.Typer(cls=Commands, help="RPC servers on devices, kept running in the background.")
app.add_typer(rpc, name="rpc", no_args_is_help=True)


@command("adt tracker start --port 9190", group=tracker, name="start")
def tracker_start(request: TrackerRequest) -> Rendering:
    """Start the tracker; one that runs already stays."""
    from adt.api import rpc

    info = rpc.tracker_start(request)
    already = " already" if info.already else ""
    line = f"tracker{already} runs on {info.address} (pid {info.pid}, log {info.log})"
    return Rendering("tracker-start", lambda: _tracker_fields(info), [line])


@command("adt tracker stop", group=tracker, name="stop")
def tracker_stop() -> Rendering:
    """Stop the tracker; nothing of it is left."""
    from adt.api import rpc

    before = rpc.tracker_stop()
    return Rendering(
        "tracker-stop",
        lambda: {"stopped": before.running, "address": before.address or None},
        [f"stopped the tracker on {before.address}" if before.running else "no tracker ran"],
    )


@command("adt tracker status", group=tracker, name="status")
def tracker_status(tracker_address: Annotated[str, TRACKER_ADDRESS]) -> Rendering:
    """Show the tracker, its queues and its servers."""
    from adt.api import rpc

    info = rpc.tracker_status(tracker_address)
    servers = info.summary.servers if info.summary else ()
    lines = [*_tracker_lines(info), *(f"server  {server.key:<20} {server.address}" for server in servers)]
    return Rendering("tracker-status", lambda: _tracker_fields(info), lines)


@command("adt rpc start --serial 127.0.0.1:5555 --key android", group=rpc, name="start")
def rpc_start(request: RpcStartRequest) -> Rendering:
    """Deploy and start an RPC server on a device; returns when clients can use it."""
    from adt.api import rpc

    server = rpc.rpc_start(request)
    return Rendering("rpc-start", lambda: server_fields(server), [server.ready_line])


def server_fields(server: RpcServer) -> dict[str, Any]:
    """A server that is ready, for a document."""
    names = ("serial", "key", "address", "tracker", "pid", "log", "already")
    return {name: getattr(server, name) for name in names} | {"tracker": server.tracker or None}


@command("adt rpc stop --all", group=rpc, name="stop")
def rpc_stop(
    serial: Annotated[str | None, DeviceSettings.serial],
    everything: Annotated[bool, option("The servers on all devices.", "--all", default=False)],
) -> Rendering:
    """End servers and remove every trace of them, here and on the devices."""
    from adt.api import rpc

    stopped = rpc.rpc_stop(serial, everything=everything)
    none = "no server ran" + (f" on {serial}" if serial else "")
    lines = [f"stopped the server on {serial}" for serial in stopped]
    return Rendering("rpc-stop", lambda: {"stopped": stopped}, lines or [none])


@command("adt rpc status --json", group=rpc, name="status")
def rpc_status(tracker_address: Annotated[str, TRACKER_ADDRESS]) -> Rendering:
    """Show the tracker's queues, and every server with its state."""
    from adt.api import rpc

    status = rpc.rpc_status(tracker_address)
    return Rendering(
        "rpc-status",
        lambda: {
            "tracker": _tracker_fields(status.tracker),
            "servers": [asdict(server) for server in status.servers],
        },
        _status_lines(status),
    )


@command("adt rpc serve --board pi@board --key rpi", group=rpc, name="serve")
def rpc_serve(
    request: ServeRequest,
    run: Annotated[bool, option("This machine is the board: serve here, now.", default=False)],
) -> Rendering:
    """Print what to run for a server on a board without ADB, or run it (--run)."""
    from adt.api import rpc

    if run:
        here = ServeHereRequest(**request.keywords_of(ServeHereRequest))
        raise typer.Exit(rpc.rpc_serve_here(here))
    plan = rpc.rpc_serve(request)
    names = ("commands", "bundle", "address", "exposed")
    return Rendering("rpc-serve", lambda: {name: getattr(plan, name) for name in names}, plan.commands)


def _tracker_fields(info: TrackerInfo) -> dict[str, Any]:
    fields = vars(info) | {"address": info.address or None, "pid": info.pid or None}
    del fields["summary"]
    if info.summary is not None:
        fields["queues"] = [asdict(queue) for queue in info.summary.queues]
        fields["servers"] = [asdict(server) for server in info.summary.servers]
    return fields


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
