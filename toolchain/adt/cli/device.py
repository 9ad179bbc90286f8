"""``adt devices``."""

from __future__ import annotations

import typer

from adt.cli.app import Json, Verbose, app, emit_json


@app.command(epilog="Example: adt devices --json")
def devices(as_json: Json = False, verbose: Verbose = False) -> None:
    """List the devices that adb sees."""
    import adt

    found = adt.devices()
    if as_json:
        emit_json("devices", {"devices": [vars(device) for device in found]})
        return
    if not found:
        typer.echo("no device: connect a phone with USB debugging on, or run `adt emulator start`")
    for device in found:
        typer.echo(f"{device.serial:<22} {device.state:<14} {device.transport:<9} {device.model}")
