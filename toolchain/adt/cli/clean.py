"""``adt clean``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from adt.cli.app import Json, Verbose, app, emit_json
from adt.cli.deploy import All, DryRun, Serials
from adt.cli.options import Timeout

if TYPE_CHECKING:
    from adt.device.deploy.collect import CleanReport


@app.command(epilog="Example: adt clean --keep 1 --dry-run")
def clean(
    keep: Annotated[
        int, typer.Option(min=0, help="How many deployments of each name stay: those used last.")
    ] = 2,
    serial: Serials = None,
    everyone: All = False,
    dry_run: DryRun = False,
    timeout: Timeout = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Remove your old deployments from a device, never one in use."""
    import adt
    from adt.cli.fleet import finish, live_table
    from adt.device.parallel import named_serials

    serials = named_serials(serial, everyone=everyone)
    if len(serials) < 2 and not everyone:
        report = adt.clean(serial=serial, keep=keep, dry_run=dry_run, timeout=timeout)
        if as_json:
            emit_json("clean", _fields(report))
        else:
            _show(report)
        return
    with live_table(serials, quiet=as_json) as on_event:
        outcomes = adt.clean_many(
            serials=serials, keep=keep, dry_run=dry_run, timeout=timeout, on_event=on_event
        )
    finish("clean", outcomes, _fields, _summary, as_json)


def _fields(report: CleanReport) -> dict[str, Any]:
    return {
        "serial": report.serial,
        "applied": report.applied,
        "removed": report.removed,
        "kept": report.kept,
        "in_use": report.in_use,
        "files": report.files,
        "bytes": report.size,
        "leftovers": report.leftovers,
        "deploys_under_way": report.deploying,
    }


def _summary(report: CleanReport) -> str:
    verb = "removed" if report.applied else "would remove"
    return (
        f"{verb} {len(report.removed)} deployments, {report.files} files ({report.size:,} bytes); "
        f"{len(report.kept)} kept"
    )


def _show(report: CleanReport) -> None:
    typer.echo(f"device   {report.serial}")
    verb = "removed" if report.applied else "would go"
    for name in report.removed:
        typer.echo(f"{verb:<8} {name}")
    for name in report.kept:
        typer.echo(f"kept     {name}{' (in use)' * (name in report.in_use)}")
    typer.echo(f"freed    {report.files} files, {report.size:,} bytes" + " (dry run)" * (not report.applied))
    if report.leftovers:
        typer.echo(f"left by a restart of the device: {report.leftovers} directories")
    if report.deploying:
        typer.echo(f"{report.deploying} deploys are under way: no file was removed; run this again later")
