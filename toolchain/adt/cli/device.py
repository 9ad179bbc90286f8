"""``adt devices`` and ``adt adb``."""

from __future__ import annotations

import logging
import os
import shlex
import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from adt.api.requests import AdbRequest, DevicesRequest
from adt.cli.app import emit_json
from adt.cli.command import Given, command
from adt.host.columns import aligned

if TYPE_CHECKING:
    from adt.device.overview import DeviceOverview

log = logging.getLogger("adt.adb")


@command("adt devices --json", DevicesRequest)
def devices(given: Given, as_json: bool) -> None:
    """List the devices that adb sees: state, model, SoC, GPU, API level, ABIs; what to do about bad ones."""
    import adt

    found = adt.devices(**given)
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


@command(
    "adt adb --serial 127.0.0.1:5555 -- logcat -d",
    AdbRequest,
    name="adb",
    json=False,
    context_settings={"allow_interspersed_args": False},
    no_args_is_help=True,
)
def run_adb(given: Given) -> None:
    """Run the adb that adt uses, with the chosen device; input, output and exit code are adb's."""
    import adt

    command = adt.adb_command(**given)
    log.debug("$ %s", shlex.join(command.argv))
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and what we become would, too
        signal.signal(number, signal.SIG_DFL)
    # Not a child of ours: the terminal, ctrl-C and the way it ends are then adb's own.
    os.execve(command.argv[0], command.argv, os.environ | command.environment)
