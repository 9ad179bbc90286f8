"""``adt devices``, ``adt connect``, ``adt disconnect``, ``adt pair`` and ``adt logcat``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from adt.cli.app import Json, Serial, Verbose, app, emit_json
from adt.host.columns import aligned

if TYPE_CHECKING:
    from adt.device.overview import DeviceOverview

Address = Annotated[str, typer.Argument(metavar="HOST:PORT", help="Where the device is in the network.")]


@app.command(epilog="Example: adt devices --json")
def devices(as_json: Json = False, verbose: Verbose = False) -> None:
    """List the devices that adb sees: state, model, SoC, GPU, API level, ABIs; what to do about bad ones."""
    import adt

    found = adt.devices()
    if as_json:
        emit_json("devices", {"devices": [vars(device) for device in found]})
        return
    if not found:
        typer.echo("no device: connect a phone with USB debugging on, or run `adt emulator start`")
        return
    for line in table(found):
        typer.echo(line)
    for device in found:
        if device.problem:
            typer.echo(f"\n{device.serial}: {device.problem}\n  remedy: {device.remedy}")


def table(found: Sequence[DeviceOverview]) -> list[str]:
    """The devices, one aligned line each; ``-`` for what is not known."""
    rows: list[tuple[str, ...]] = [("SERIAL", "STATE", "VIA", "MODEL", "SOC", "GPU", "API", "ABIS")]
    for device in found:
        level = "" if device.api_level is None else str(device.api_level)
        texts = (device.serial, device.state, device.transport, device.model, device.soc, device.gpu)
        rows.append((*(text or "-" for text in texts), level or "-", ",".join(device.abis) or "-"))
    return aligned(rows)


@app.command(epilog="Example: adt connect 192.168.1.20:5555")
def connect(address: Address, as_json: Json = False, verbose: Verbose = False) -> None:
    """Connect adb to a device on the network."""
    import adt

    done = adt.connect(address)
    if as_json:
        emit_json("connect", vars(done))
        return
    typer.echo(f"{done.serial} was connected already" if done.already else f"connected {done.serial}")


@app.command(epilog="Example: adt disconnect 192.168.1.20:5555")
def disconnect(address: Address, as_json: Json = False, verbose: Verbose = False) -> None:
    """Make adb forget a device on the network."""
    import adt

    adt.disconnect(address)
    if as_json:
        emit_json("disconnect", {"serial": address})
        return
    typer.echo(f"disconnected {address}")


@app.command(epilog="Example: adt pair 192.168.1.20:37099 --code 123456")
def pair(
    address: Address,
    code: Annotated[
        str | None, typer.Option(help="The six digits that the phone shows; else they are asked for.")
    ] = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Pair with a phone for wireless debugging, once; then `adt connect` to its other port."""
    import adt

    said = adt.pair(address, code or _ask_for_code())
    if as_json:
        emit_json("pair", {"address": address, "said": said})
        return
    typer.echo(said)
    typer.echo("Now `adt connect` to the address that the phone shows under wireless debugging itself.")


def _is_terminal() -> bool:
    return sys.stdin.isatty()


def _ask_for_code() -> str:
    if not _is_terminal():
        from adt.errors import ConfigError

        raise ConfigError(
            "no pairing code, and no terminal to ask for it",
            remedy="Give the six digits that the phone shows: --code 123456",
        )
    return str(typer.prompt("Pairing code", err=True)).strip()


@app.command(epilog="Example: adt logcat '*:W' --since '11-21 07:30:00.000'")
def logcat(
    filters: Annotated[
        list[str] | None, typer.Argument(metavar="[FILTER]...", help="TAG:PRIORITY, as logcat takes them.")
    ] = None,
    serial: Serial = None,
    since: Annotated[
        str | None,
        typer.Option(help="A time on the device's clock (MM-DD hh:mm:ss.mmm), or a number of last lines."),
    ] = None,
    pid: Annotated[int | None, typer.Option(help="Only lines of this process.")] = None,
    dump: Annotated[bool, typer.Option("--dump", help="End after what is there already.")] = False,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Show a device's log as it comes; --json implies --dump."""
    import adt

    with adt.logcat(filters or (), serial=serial, since=since, pid=pid, dump=dump or as_json) as log:
        if as_json:
            emit_json("logcat", {"lines": [vars(line) for line in log], "dropped": log.dropped})
            return
        for line in log:
            typer.echo(str(line))
        if log.dropped:
            typer.echo(f"{log.dropped} lines came faster than they could be shown", err=True)
