"""``adt devices``, ``adt emulator``, ``adt deploy`` and ``adt run``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adt.cli.app import Commands, Json, Serial, Verbose, app, emit_json

if TYPE_CHECKING:
    from adt.device.virtual.emulator import EmulatorInfo

Package = Annotated[Path, typer.Argument(help="A package that `adt compile` made.")]
Bundle = Annotated[Path | None, typer.Option(help="The bundle; else the one built here.", metavar="DIR")]
Input = Annotated[Path | None, typer.Option("--input", "-i", help="Inputs by name, as .npz.")]
Timeout = Annotated[float | None, typer.Option(help="Seconds that the run on the device may take.")]
Seed = Annotated[int | None, typer.Option(help="Seed of made-up inputs.")]


@app.command(epilog="Example: adt devices --json")
def devices(as_json: Json = False, verbose: Verbose = False) -> None:
    """List the devices that adb sees."""
    from adt import api

    found = api.devices()
    if as_json:
        emit_json("devices", {"devices": [vars(device) for device in found]})
        return
    if not found:
        typer.echo("no device: connect a phone with USB debugging on, or run `adt emulator start`")
    for device in found:
        typer.echo(f"{device.serial:<22} {device.state:<14} {device.transport:<9} {device.model}")


emulator = typer.Typer(
    cls=Commands, help="The virtual device: an arm64 Linux behind real ADB; not Android, no speed."
)
app.add_typer(emulator, name="emulator", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="Its name; several can run.")]


@emulator.command("start", epilog="Example: adt emulator start")
def emulator_start(
    name: Name = "default",
    port: Annotated[int | None, typer.Option(help="Its ADB port on 127.0.0.1; else a free one.")] = None,
    rootfs: Annotated[
        Path | None, typer.Option(help="Your own root file system, e.g. an Android /system tree.")
    ] = None,
    data_size: Annotated[str | None, typer.Option(help="Size of /data, e.g. 64M; else unlimited.")] = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Start a virtual device and connect adb to it."""
    from adt import api

    info = api.emulator_start(name, port=port, rootfs=rootfs, data_size=data_size)
    _show_emulators("emulator-start", (info,), as_json)


@emulator.command("stop", epilog="Example: adt emulator stop")
def emulator_stop(name: Name = "default", as_json: Json = False, verbose: Verbose = False) -> None:
    """Stop a virtual device."""
    from adt import api

    info = api.emulator_stop(name)
    if as_json:
        _show_emulators("emulator-stop", (info,), as_json)
    else:
        typer.echo(f"stopped {info.name} ({info.serial})")


@emulator.command("list", epilog="Example: adt emulator list")
def emulator_list(as_json: Json = False, verbose: Verbose = False) -> None:
    """List the virtual devices of this machine."""
    from adt import api

    _show_emulators("emulator-list", api.emulator_list(), as_json)


def _show_emulators(verb: str, found: tuple[EmulatorInfo, ...], as_json: bool) -> None:
    if as_json:
        emit_json(verb, {"emulators": [vars(info) for info in found]})
        return
    if not found:
        typer.echo("no virtual device: adt emulator start")
    for info in found:
        state = f"running, pid {info.pid}" if info.running else "stopped"
        typer.echo(f"{info.name:<12} {info.serial:<18} {state:<22} arm64 Linux, not Android, no speed")


@app.command(epilog="Example: adt deploy model-pkg --serial 127.0.0.1:5555")
def deploy(
    package: Package,
    serial: Serial = None,
    bundle: Bundle = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Send a package and its bundle to a device; what is there is not sent again."""
    from adt import api

    result = api.deploy(package, serial=serial, bundle=bundle)
    report = result.report
    if as_json:
        fields: dict[str, Any] = {
            "serial": result.serial,
            "sent_files": report.sent_files,
            "sent_bytes": report.sent_bytes,
            "reused_files": report.reused_files,
            "mended_files": report.mended_files,
            "deployment": report.deployment.directory,
        }
        emit_json("deploy", fields)
        return
    typer.echo(f"device      {result.serial}")
    typer.echo(f"sent        {len(report.sent_files)} files, {report.sent_bytes:,} bytes")
    typer.echo(f"reused      {len(report.reused_files)} files")
    typer.echo(f"deployment  {report.deployment.directory}")


@app.command(epilog="Example: adt run model-pkg --input in.npz --output out.npz")
def run(
    package: Package,
    serial: Serial = None,
    bundle: Bundle = None,
    inputs: Input = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the outputs here, .npz.")
    ] = None,
    seed: Seed = None,
    entry: Annotated[str, typer.Option(help="Entry function.")] = "main",
    run_count: Annotated[int, typer.Option(min=1, help="Timed runs.")] = 1,
    dry_run: Annotated[int, typer.Option(min=0, help="Runs before them that are not timed.")] = 0,
    timeout: Timeout = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Run a package on a device and show or save its outputs."""
    from adt import api
    from adt.cli.arrays import describe, load_npz, save_npz, summary

    given = load_npz(inputs) if inputs else None
    result = api.run(
        package,
        serial=serial,
        bundle=bundle,
        inputs=given,
        seed=seed,
        entry=entry,
        run_count=run_count,
        dry_run=dry_run,
        timeout=timeout,
    )
    if output:
        save_npz(output, result.outputs)
    if as_json:
        fields: dict[str, Any] = {"outputs": describe(result.outputs), "output": output}
        emit_json("run", fields | {"virtual_device": result.virtual, "report": result.report})
        return
    for name, array in result.outputs.items():
        typer.echo(summary(name, array))
    if output:
        typer.echo(f"wrote {output}")
