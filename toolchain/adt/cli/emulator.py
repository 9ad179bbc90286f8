"""``adt emulator``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from adt.api.requests import EmulatorName, EmulatorRequest
from adt.cli.app import Commands, app, emit_json
from adt.cli.command import Keywords, command

if TYPE_CHECKING:
    from adt.virtual.emulator import EmulatorInfo

emulator = typer.Typer(
    cls=Commands, help="The virtual device: a Linux (arm64) behind real ADB; not Android, no speed."
)
app.add_typer(emulator, name="emulator", no_args_is_help=True)


@command("adt emulator start", EmulatorRequest, group=emulator, name="start")
def emulator_start(keywords: Keywords, as_json: bool) -> None:
    """Start a virtual device and connect adb to it."""
    import adt

    _show_emulators("emulator-start", (adt.emulator_start(**keywords),), as_json)


@command("adt emulator stop", EmulatorName, group=emulator, name="stop")
def emulator_stop(keywords: Keywords, as_json: bool) -> None:
    """Stop a virtual device."""
    import adt

    info = adt.emulator_stop(**keywords)
    if as_json:
        _show_emulators("emulator-stop", (info,), as_json)
    else:
        typer.echo(f"stopped {info.name} ({info.serial})")


@command("adt emulator list", group=emulator, name="list")
def emulator_list(as_json: bool) -> None:
    """List the virtual devices of this machine."""
    import adt

    _show_emulators("emulator-list", adt.emulator_list(), as_json)


def _show_emulators(verb: str, devices: tuple[EmulatorInfo, ...], as_json: bool) -> None:
    if as_json:
        emit_json(verb, {"emulators": [vars(info) for info in devices]})
        return
    if not devices:
        typer.echo("no virtual device: adt emulator start")
    for info in devices:
        state = f"running, pid {info.pid}" if info.running else "stopped"
        typer.echo(f"{info.name:<12} {info.serial:<18} {state:<22} {info.abi}, virtual: no speed to quote")
