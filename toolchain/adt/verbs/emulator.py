"""Virtual devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from adt.cli.app import Commands, app
from adt.cli.command import Rendering, command
from adt.options.option import MaybePath, option, values_of
from adt.options.request import Request, takes

if TYPE_CHECKING:
    from adt.virtual.emulator import EmulatorInfo


NAME = option("Its name; several can run.", default="default", kw_only=False, offers="virtual_device")


class EmulatorRequest(Request):
    """Request of :func:`adt.emulator_start`."""

    name: str = option(NAME, default="default", kw_only=False)
    port: int | None = option("Its ADB port on 127.0.0.1; else a free one.", default=None)
    rootfs: MaybePath = option("Your own root file system, e.g. an Android /system tree.", default=None)
    data_size: str | None = option("Size of /data, e.g. 64M; else unlimited.", default=None)
    abi: str | None = option("arm64-v8a, or x86_64 without emulation on such a machine.", default=None)
    opencl: bool = option("With OpenCL: PoCL, which computes on the processor.", default=False)


@takes(EmulatorRequest)
def emulator_start(request: EmulatorRequest) -> EmulatorInfo:
    """Start a virtual device (a Linux, arm64 by default, behind real ADB) and connect adb to it.

    Raises:
        EmulatorError: this machine cannot run one; the message says what to install or switch on.
        ConfigError: an argument is not one.
    """
    from adt.device import selection
    from adt.virtual import emulator

    info = emulator.start(**values_of(request))
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
    """List every virtual device on this machine."""
    from adt.virtual import emulator

    return emulator.listing()


group = typer.Typer(
    cls=Commands, help="The virtual device: a Linux (arm64) behind real ADB; not Android, no speed."
)
app.add_typer(group, name="emulator", no_args_is_help=True)


@command("adt emulator start", group=group, name="start")
def emulator_start_command(request: EmulatorRequest) -> Rendering:
    """Start a virtual device and connect adb to it."""
    return _rendering("emulator-start", (emulator_start(request),))


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
