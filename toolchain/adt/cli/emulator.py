"""``adt emulator``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adt.cli import completions
from adt.cli.app import Commands, Json, Verbose, app, emit_json

if TYPE_CHECKING:
    from adt.virtual.emulator import EmulatorInfo

emulator = typer.Typer(
    cls=Commands, help="The virtual device: a Linux (arm64) behind real ADB; not Android, no speed."
)
app.add_typer(emulator, name="emulator", no_args_is_help=True)
Name = Annotated[
    str,
    typer.Argument(
        help="Its name; several can run.",
        autocompletion=completions.virtual_device,
    ),
]


@emulator.command("start", epilog="Example: adt emulator start")
def emulator_start(
    name: Name = "default",
    port: Annotated[int | None, typer.Option(help="Its ADB port on 127.0.0.1; else a free one.")] = None,
    rootfs: Annotated[
        Path | None, typer.Option(help="Your own root file system, e.g. an Android /system tree.")
    ] = None,
    data_size: Annotated[str | None, typer.Option(help="Size of /data, e.g. 64M; else unlimited.")] = None,
    abi: Annotated[
        str | None, typer.Option(help="arm64-v8a, or x86_64 without emulation on such a machine.")
    ] = None,
    opencl: Annotated[
        bool, typer.Option("--opencl", help="With OpenCL: PoCL, which computes on the processor.")
    ] = False,
    fault: Annotated[
        list[str] | None,
        typer.Option(
            help="For tests: what goes wrong on purpose; repeatable.", metavar="drop-after=1m@once|…"
        ),
    ] = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Start a virtual device and connect adb to it."""
    import adt

    info = adt.emulator_start(
        name, port=port, rootfs=rootfs, data_size=data_size, abi=abi, opencl=opencl, fault=fault or ()
    )
    _show_emulators("emulator-start", (info,), as_json)


@emulator.command("fault", epilog="Example: adt emulator fault default stall-after=64k enospc@once")
def emulator_fault(
    name: Name = "default",
    specifications: Annotated[
        list[str] | None, typer.Argument(metavar="[SPEC]...", help="The faults in place of the present ones.")
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="No faults any more.")] = False,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """For tests: show or change what goes wrong on purpose in a running virtual device."""
    import adt

    if clear and specifications:
        raise typer.BadParameter("--clear takes no SPEC")
    armed = adt.emulator_fault(name, [] if clear else specifications or None)
    if as_json:
        emit_json("emulator-fault", {"name": name, "faults": armed})
        return
    typer.echo("\n".join(armed) or "no faults")


@emulator.command("stop", epilog="Example: adt emulator stop")
def emulator_stop(name: Name = "default", as_json: Json = False, verbose: Verbose = False) -> None:
    """Stop a virtual device."""
    import adt

    info = adt.emulator_stop(name)
    if as_json:
        _show_emulators("emulator-stop", (info,), as_json)
    else:
        typer.echo(f"stopped {info.name} ({info.serial})")


@emulator.command("list", epilog="Example: adt emulator list")
def emulator_list(as_json: Json = False, verbose: Verbose = False) -> None:
    """List the virtual devices of this machine."""
    import adt

    _show_emulators("emulator-list", adt.emulator_list(), as_json)


def _show_emulators(verb: str, found: tuple[EmulatorInfo, ...], as_json: bool) -> None:
    if as_json:
        emit_json(verb, {"emulators": [vars(info) for info in found]})
        return
    if not found:
        typer.echo("no virtual device: adt emulator start")
    for info in found:
        state = f"running, pid {info.pid}" if info.running else "stopped"
        typer.echo(f"{info.name:<12} {info.serial:<18} {state:<22} {info.abi}, virtual: no speed to quote")
