"""``adt devices`` and ``adt adb``."""

from __future__ import annotations

import logging
import os
import shlex
import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from adt.cli.app import Json, Verbose, app, emit_json
from adt.cli.options import Serial, Timeout
from adt.host.columns import aligned

if TYPE_CHECKING:
    from adt.device.overview import DeviceOverview

log = logging.getLogger("adt.adb")


@app.command(epilog="Example: adt devices --json")
def devices(timeout: Timeout = None, as_json: Json = False, verbose: Verbose = False) -> None:
    """List the devices that adb sees: state, model, SoC, GPU, API level, ABIs; what to do about bad ones."""
    import adt

    found = adt.devices(timeout=timeout)
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


@app.command(
    "adb",
    epilog="Example: adt adb --serial 127.0.0.1:5555 -- logcat -d",
    context_settings={"allow_interspersed_args": False},
    no_args_is_help=True,
)
def run_adb(
    arguments: Annotated[
        list[str], typer.Argument(metavar="ADB_ARGUMENTS...", help="As adb takes them: shell ls, push, …")
    ],
    serial: Serial = None,
    verbose: Verbose = False,
) -> None:
    """Run the adb that adt uses, with the chosen device; input, output and exit code are adb's."""
    import adt

    command = adt.adb_command(arguments, serial=serial)
    log.debug("$ %s", shlex.join(command.argv))
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and what we become would, too
        signal.signal(number, signal.SIG_DFL)
    # Not a child of ours: the terminal, ctrl-C and the way it ends are then adb's own.
    os.execve(command.argv[0], command.argv, os.environ | command.environment)
