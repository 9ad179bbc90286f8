"""``adt clean``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from adt.api.requests import CleanOptions
from adt.cli.app import emit_json
from adt.cli.command import Given, command
from adt.cli.fleet import DeviceFlags, finish, live_table, several

if TYPE_CHECKING:
    from adt.device.deploy.removal import CleanReport


@command("adt clean --keep 1 --dry-run", CleanOptions, DeviceFlags)
def clean(given: Given, flags: DeviceFlags, as_json: bool) -> None:
    """Remove your old deployments from a device, never one in use."""
    import adt

    if not (serials := several(flags)):
        report = adt.clean(**given, serial=flags.serial)
        if as_json:
            emit_json("clean", _fields(report))
        else:
            _show(report)
        return
    with live_table(serials, quiet=as_json) as on_event:
        outcomes = adt.clean_many(**given, serials=serials, on_event=on_event)
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
