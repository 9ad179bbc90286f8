"""Virtual devices."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adt.cli.app import Commands, app
from adt.cli.command import Rendering, command
from adt.options.option import option

if TYPE_CHECKING:
    from adt.options.option import AnyPath
    from adt.virtual.emulator import EmulatorInfo


def emulator_start(
    name: str = "default",
    *,
    port: int | None = None,
    rootfs: AnyPath | None = None,
    data_size: str | None = None,
    abi: str | None = None,
    opencl: bool = False,
) -> EmulatorInfo:
    """Start a virtual device (a Linux, arm64 by default, behind real ADB) and connect adb to it.

    Args:
        name: several can run.
        port: its ADB port on 127.0.0.1; None: a free one.
        rootfs: a root file system of one's own, e.g. an Android /system tree.
        data_size: size of /data, e.g. 64M; None: unlimited.
        abi: arm64-v8a, or x86_64 without emulation on such a machine.
        opencl: with PoCL, which computes on the processor.

    Raises:
        EmulatorError: this machine cannot run one; the message says what to install or switch on.
        ConfigError: an argument is not one.
    """
    from adt.device import selection
    from adt.virtual import emulator

    root = Path(rootfs) if rootfs is not None else None
    info = emulator.start(name, port=port, rootfs=root, data_size=data_size, abi=abi, opencl=opencl)
    selection.connect(info.serial)
    return info


def emulator_stop(name: str = "default") -> EmulatorInfo:
    """Stop a virtual device and disconnect adb from it.

    Raises:
        EmulatorError: there is none of that name.
    """
    from adt.device import selection
    from adt.virtual import emulator

    info = emulator.stop(name)
    selection.disconnect(info.serial)
    return info


def emulator_list() -> tuple[EmulatorInfo, ...]:
    """Every virtual device on this machine."""
    from adt.virtual import emulator

    return emulator.listing()


group = typer.Typer(
    cls=Commands, help="The virtual device: a Linux (arm64) behind real ADB; not Android, no speed."
)
app.add_typer(group, name="emulator", no_args_is_help=True)


NAME = option("Its name; several can run.", default="default", kw_only=False, offers="virtual_device")


@command("adt emulator start", group=group, name="start")
def emulator_start_command(
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
) -> Rendering:
    """Start a virtual device and connect adb to it."""
    info = emulator_start(name, port=port, rootfs=rootfs, data_size=data_size, abi=abi, opencl=opencl)
    return _rendering("emulator-start", (info,))


@command("adt emulator stop", group=group, name="stop")
def emulator_stop_command(name: Annotated[str, NAME]) -> Rendering:
    """Stop a virtual device."""
    info = emulator_stop(name)
    return Rendering("emulator-stop", {"emulators": [info]}, [f"stopped {info.name} ({info.serial})"])


@command("adt emulator list", group=group, name="list")
def emulator_list_command() -> Rendering:
    """List the virtual devices of this machine."""
    return _rendering("emulator-list", emulator_list())


def _rendering(verb: str, devices: tuple[EmulatorInfo, ...]) -> Rendering:
    lines = []
    for info in devices:
        state = f"running, pid {info.pid}" if info.running else "stopped"
        lines.append(f"{info.name:<12} {info.serial:<18} {state:<22} {info.abi}, virtual: no speed to quote")
    return Rendering(verb, {"emulators": devices}, lines or ["no virtual device: adt emulator start"])
