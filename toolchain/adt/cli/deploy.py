"""``adt deploy`` and ``adt run``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from adt.cli.app import Json, Serial, Verbose, app, emit_json

Package = Annotated[Path, typer.Argument(help="A package that `adt compile` made.")]
Bundle = Annotated[Path | None, typer.Option(help="The bundle; else the one built here.", metavar="DIR")]
Input = Annotated[Path | None, typer.Option("--input", "-i", help="Inputs by name, as .npz.")]
Timeout = Annotated[float | None, typer.Option(help="Seconds that the run on the device may take.")]
Seed = Annotated[int | None, typer.Option(help="Seed of made-up inputs.")]


@app.command(epilog="Example: adt deploy model-pkg --serial 127.0.0.1:5555")
def deploy(
    package: Package,
    serial: Serial = None,
    bundle: Bundle = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Send a package and its bundle to a device; what is there is not sent again."""
    import adt

    result = adt.deploy(package, serial=serial, bundle=bundle)
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
    import adt
    from adt.cli.arrays import describe, load_npz, save_npz, summary

    given = load_npz(inputs) if inputs else None
    result = adt.run(
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
