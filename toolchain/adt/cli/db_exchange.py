"""``adt db export|import|publish|fetch``: what tunings found, for others and from them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from adt.cli.app import Json, Verbose, emit_json
from adt.cli.db import Database, Device, Driver, Into, Keep, Target, Tvm, added, contexts_fields, db


@db.command(epilog="Example: adt db export tuning --metaschedule json --device 'Adreno (TM) 650'")
def export(
    database: Database,
    metaschedule: Annotated[
        Path, typer.Option(metavar="DIR", help="Where to write MetaSchedule's two JSON files.")
    ],
    device: Device = "",
    driver: Driver = "",
    target: Target = "",
    tvm: Tvm = "",
    failures: Annotated[bool, typer.Option("--failures", help="Failed candidates, too.")] = False,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Write the records of one device and target for other programs that use MetaSchedule."""
    import adt

    done = adt.db_export(
        database,
        metaschedule=metaschedule,
        device=device,
        driver=driver,
        target=target,
        tvm=tvm,
        failures=failures,
    )
    if as_json:
        emit_json("db-export", vars(done) | {"context": vars(done.context)})
        return
    typer.echo(f"wrote {done.records:,} records of {done.workloads:,} kernels to {done.out}")


@db.command("import", epilog="Example: adt db import json --into tuning --device 'Adreno (TM) 650'")
def import_(
    files: Annotated[Path, typer.Argument(metavar="DIR", help="Directory of MetaSchedule's two JSON files.")],
    into: Into,
    device: Annotated[str, typer.Option(help="What they were measured on: the GPU, or the processor.")],
    driver: Annotated[str, typer.Option(help="The GPU's driver.")] = "",
    platform: Annotated[
        str | None, typer.Option("--for", help="Platform, with --target or --cpu.", metavar="PLATFORM")
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(help="What they were generated for, as for adt compile; else the records tell."),
    ] = None,
    cpu: Annotated[str | None, typer.Option(help="The processor, as for adt compile.")] = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Add the records that other programs made with MetaSchedule."""
    import adt
    from adt.tuning.database.selection import told

    done = adt.db_import(
        files, into=into, device=device, driver=driver, platform=platform, target=target, cpu=cpu
    )
    if as_json:
        emit_json("db-import", vars(done) | {"contexts": contexts_fields(done.contexts)})
        return
    typer.echo(added(done.records, done.duplicates, into))
    for context in done.contexts:
        typer.echo(f"  {told(context)}")
    if done.refused:
        typer.echo(f"passed over {len(done.refused):,} lines; the first: {done.refused[0]}")


@db.command(epilog="Example: adt db publish tuning -o adreno650.tar.gz --keep 3")
def publish(
    database: Database,
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write, NAME.tar.gz.")],
    keep: Keep = None,
    device: Device = "",
    driver: Driver = "",
    target: Target = "",
    tvm: Tvm = "",
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Write it as one file for others, without serial numbers; the same bytes for the same records."""
    import adt

    done = adt.db_publish(database, out, keep=keep, device=device, driver=driver, target=target, tvm=tvm)
    if as_json:
        emit_json("db-publish", vars(done) | {"contexts": contexts_fields(done.contexts)})
        return
    typer.echo(f"wrote {done.records:,} records of {done.workloads:,} kernels to {out} ({done.size:,} bytes)")
    typer.echo(f"sha256 {done.sha256}")


@db.command(epilog="Example: adt db fetch adreno650.tar.gz -o tuning")
def fetch(
    source: Annotated[str, typer.Argument(help="A published file: its path, or its address.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DB", help="The database to add to.")],
    sha256: Annotated[str, typer.Option(help="Of the file; an address needs it.")] = "",
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Add what others published; nothing of a file that is not what it should be is used."""
    import adt

    done = adt.db_fetch(source, out=out, sha256=sha256)
    if as_json:
        emit_json("db-fetch", {"sha256": done.sha256} | vars(done.merged))
        return
    typer.echo(added(done.merged.records, done.merged.duplicates, out))
    typer.echo(f"sha256 {done.sha256}")
