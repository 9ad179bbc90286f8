"""``adt emulator``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adt.cli.app import Commands, app, emit_json
from adt.cli.command import command
from adt.options.option import option

if TYPE_CHECKING:
    from adt.virtual.emulator import EmulatorInfo

emulator = typer.Typer(
    cls=Commands, help="The virtual device: a Linux (arm64) behind real ADB; not Android, no speed."
)
app.add_typer(emulator, name="emulator", no_args_is_help=True)


NAME = option("Its name; several can run.", default="default", kw_only=False, offers="virtual_device")


@command("adt emulator start", group=emulator, name="start")
def emulator_start(
    name: Annotated[str, NAME],
    port: Annotated[int | None, option("Its ADB port on 127.0.0.1; else a free one.", default=None)],
    rootfs: Annotated[
        Path | None, option("Your own root file system, e.g. an Android /system tree.", default=None)
    ],
    data_size: Annotated[str | None, option("Size of /data, e.g. 64M; else unlimited.", default=None)],
    abi: Annotated[
        str | None, option("arm64-v8a, or x86_64 without emulation on such a machine.", default=None)
    ],
    opencl: Annotated[bool, option("With OpenCL: PoCL, which computes on the processor.", default=False)],
    as_json: bool,
) -> None:
    """Start a virtual device and connect adb to it."""
    from adt.api import emulator

    info = emulator.emulator_start(
        name, port=port, rootfs=rootfs, data_size=data_size, abi=abi, opencl=opencl
    )
    _show_emulators("emulator-start", (info,), as_json)


@command("adt emulator stop", group=emulator, name="stop")
def emulator_stop(name: Annotated[str, NAME], as_json: bool) -> None:
    """Stop a virtual device."""
    from adt.api import emulator

    info = emulator.emulator_stop(name)
    if as_json:
        _show_emulators("emulator-stop", (info,), as_json)
    else:
        typer.echo(f"stopped {info.name} ({info.serial})")


@command("adt emulator list", group=emulator, name="list")
def emulator_list(as_json: bool) -> None:
    """List the virtual devices of this machine."""
    from adt.api import emulator

    _show_emulators("emulator-list", emulator.emulator_list(), as_json)


def _show_emulators(verb: str, devices: tuple[EmulatorInfo, ...], as_json: bool) -> None:
    if as_json:
        emit_json(verb, {"emulators": [vars(info) for info in devices]})
        return
    if not devices:
        typer.echo("no virtual device: adt emulator start")
    for info in devices:
        state = f"running, pid {info.pid}" if info.running else "stopped"
        typer.echo(f"{info.name:<12} {info.serial:<18} {state:<22} {info.abi}, virtual: no speed to quote")
