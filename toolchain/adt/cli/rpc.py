"""``adt tracker`` and ``adt rpc``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from adt.api.requests import (
    RpcStartRequest,
    RpcStopRequest,
    ServeHereRequest,
    ServeRequest,
    TrackerAddress,
    TrackerRequest,
)
from adt.cli.app import Commands, app, emit_json
from adt.cli.command import Keywords, command
from adt.host.columns import aligned
from adt.options.option import Options, option, options_of

if TYPE_CHECKING:
    from adt.rpc.server import ServerStatus
    from adt.rpc.tracker import TrackerInfo
    from adt.rpc.wire import Queue

tracker = typer.Typer(cls=Commands, help="TVM's tracker on this machine, in the background.")
app.add_typer(tracker, name="tracker", no_args_is_help=True)
rpc = typer.Typer(cls=Commands, help="RPC servers on devices, kept running in the background.")
app.add_typer(rpc, name="rpc", no_args_is_help=True)


@command("adt tracker start --port 9190", TrackerRequest, group=tracker, name="start")
def tracker_start(keywords: Keywords, as_json: bool) -> None:
    """Start the tracker; one that runs already stays."""
    import adt

    info = adt.tracker_start(**keywords)
    if as_json:
        emit_json("tracker-start", _tracker_fields(info))
        return
    already = " already" if info.already else ""
    typer.echo(f"tracker{already} runs on {info.address} (pid {info.pid}, log {info.log})")


@command("adt tracker stop", group=tracker, name="stop")
def tracker_stop(as_json: bool) -> None:
    """Stop the tracker; nothing of it is left."""
    import adt

    before = adt.tracker_stop()
    if as_json:
        emit_json("tracker-stop", {"stopped": before.running, "address": before.address or None})
    elif before.running:
        typer.echo(f"stopped the tracker on {before.address}")
    else:
        typer.echo("no tracker ran")


@command("adt tracker status", TrackerAddress, group=tracker, name="status")
def tracker_status(keywords: Keywords, as_json: bool) -> None:
    """Show the tracker, its queues and its servers."""
    import adt

    info = adt.tracker_status(**keywords)
    if as_json:
        emit_json("tracker-status", _tracker_fields(info))
        return
    _show_tracker(info)
    if info.summary is not None:
        for server in info.summary.servers:
            typer.echo(f"server  {server.key:<20} {server.address}")


@command("adt rpc start --serial 127.0.0.1:5555 --key android", RpcStartRequest, group=rpc, name="start")
def rpc_start(keywords: Keywords, as_json: bool) -> None:
    """Deploy and start an RPC server on a device; returns when clients can use it."""
    import adt

    started = adt.rpc_start(**keywords)
    if as_json:
        fields: dict[str, Any] = {
            "serial": started.serial,
            "key": started.key,
            "address": started.address,
            "tracker": started.tracker or None,
            "pid": started.pid,
            "log": started.log,
            "already": started.already,
        }
        emit_json("rpc-start", fields)
    else:
        typer.echo(started.ready_line)


@command("adt rpc stop --all", RpcStopRequest, group=rpc, name="stop")
def rpc_stop(keywords: Keywords, as_json: bool) -> None:
    """End servers and remove every trace of them, here and on the devices."""
    import adt

    stopped = adt.rpc_stop(**keywords)
    if as_json:
        emit_json("rpc-stop", {"stopped": stopped})
        return
    for serial in stopped:
        typer.echo(f"stopped the server on {serial}")
    if not stopped:
        typer.echo("no server ran" + (f" on {keywords['serial']}" if keywords["serial"] else ""))


@command("adt rpc status --json", TrackerAddress, group=rpc, name="status")
def rpc_status(keywords: Keywords, as_json: bool) -> None:
    """Show the tracker's queues, and every server with its state."""
    import adt

    status = adt.rpc_status(**keywords)
    if as_json:
        servers = [asdict(server) for server in status.servers]
        emit_json("rpc-status", {"tracker": _tracker_fields(status.tracker), "servers": servers})
        return
    _show_tracker(status.tracker)
    if not status.servers:
        typer.echo("no server: adt rpc start --serial S --key K")
        return
    typer.echo("")
    head = ("serial", "key", "state", "server", "pid", "uptime", "restarts")
    typer.echo("\n".join(aligned([head, *map(_server_row, status.servers)])))
    for server in status.servers:
        if server.last_error:
            typer.echo(f"{server.serial}: {server.last_error} (log {server.log})")


class ServeFlags(Options):
    """Where it runs."""

    run: bool = option("This machine is the board: serve here, now.", default=False)


@command("adt rpc serve --board pi@board --key rpi", ServeRequest, ServeFlags, group=rpc, name="serve")
def rpc_serve(keywords: Keywords, flags: ServeFlags, as_json: bool) -> None:
    """Print what to run for a server on a board without ADB, or run it (--run)."""
    import adt

    if flags.run:
        here = {name: keywords[name] for name in options_of(ServeHereRequest)}
        raise typer.Exit(adt.rpc_serve_here(**here))
    plan = adt.rpc_serve(**keywords)
    if as_json:
        fields: dict[str, Any] = {"commands": plan.commands, "bundle": plan.bundle}
        emit_json("rpc-serve", fields | {"address": plan.address, "exposed": plan.exposed})
        return
    typer.echo("\n".join(plan.commands))


def _tracker_fields(info: TrackerInfo) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "running": info.running,
        "address": info.address or None,
        "exposed": info.exposed,
        "pid": info.pid or None,
        "uptime": info.uptime,
        "log": info.log,
        "already": info.already,
        "error": info.error,
    }
    if info.summary is not None:
        fields["queues"] = [asdict(queue) for queue in info.summary.queues]
        fields["servers"] = [asdict(server) for server in info.summary.servers]
    return fields


def _show_tracker(info: TrackerInfo) -> None:
    if info.running:
        mine = f" (pid {info.pid}, up {duration(info.uptime)})" if info.pid else ""
        warning = " EXPOSED to the network" if info.exposed else ""
        typer.echo(f"tracker on {info.address}{mine}{warning}" + (f": {info.error}" if info.error else ""))
    else:
        typer.echo("no tracker" + (f" on {info.address}" if info.address else "") + f": {info.error}")
    if info.summary is not None:
        typer.echo("")
        _show_queues(info.summary.queues)


def _show_queues(queues: tuple[Queue, ...]) -> None:
    rows = [(queue.key, str(queue.total), str(queue.free), str(queue.pending)) for queue in queues]
    typer.echo("\n".join(aligned([("key", "total", "free", "pending"), *rows])))


def _server_row(server: ServerStatus) -> tuple[str, ...]:
    return (
        server.serial,
        server.key,
        server.state,
        server.address or "-",
        str(server.device_pid or "-"),
        duration(server.uptime) if server.uptime else "-",
        str(server.restarts),
    )


def duration(seconds: float) -> str:
    """*seconds*, for people."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
