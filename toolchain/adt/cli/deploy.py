"""``adt deploy`` and ``adt clean``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from adt.api.requests import CleanOptions, DeployOptions
from adt.cli.app import emit_json
from adt.cli.command import Keywords, command
from adt.cli.fleet import DeviceFlags, finish, live_table, several
from adt.cli.terminal import status_line

if TYPE_CHECKING:
    from adt.api.deploy import Deployed
    from adt.device.deploy.removal import CleanReport


@command("adt deploy model-pkg --serial 127.0.0.1:5555", DeployOptions, DeviceFlags)
def deploy(keywords: Keywords, flags: DeviceFlags, as_json: bool) -> None:
    """Send packages with their bundle, or a bundle alone and serve RPC; what is there is not sent again."""
    import adt

    if not (serials := several(flags)):
        with status_line("adt deploy") as say:
            result = adt.deploy(**keywords, serial=flags.serial, say=say)
        if as_json:
            emit_json("deploy", _deploy_fields(result))
        else:
            _show_deploy(result)
        return
    with live_table(serials, quiet=as_json) as on_event:
        outcomes = adt.deploy_many(**keywords, serials=serials, on_event=on_event)
    finish("deploy", outcomes, _deploy_fields, _deploy_summary, as_json)


def _deploy_fields(result: Deployed) -> dict[str, Any]:
    reports = [each.report for each in result.results]
    server = result.rpc
    return {
        "serial": result.serial,
        "applied": reports[-1].applied,
        "sent_files": [name for report in reports for name in report.sent_files],
        "sent_bytes": sum(report.sent_bytes for report in reports),
        "reused_files": [name for report in reports for name in report.reused_files],
        "mended_files": [name for report in reports for name in report.mended_files],
        "free_bytes": next((report.free for report in reports if report.free is not None), None),
        "deployment": reports[-1].deployment.directory,
        "deployments": [
            {
                "name": each.report.deployment.name,
                "package": each.package.path if each.package else None,
                "bundle": each.bundle.path,
                "directory": each.report.deployment.directory,
                "private_directory": each.private.directory if each.private else None,
                "sent_bytes": each.report.sent_bytes,
                "sent_files": each.report.sent_files,
            }
            for each in result.results
        ],
        "rpc": None
        if server is None
        else {"key": server.key, "address": server.address, "tracker": server.tracker or None},
    }


def _show_deploy(result: Deployed) -> None:
    typer.echo(f"device      {result.serial}")
    for deployed in result.results:
        report = deployed.report
        sent, reused = ("sent", "reused") if report.applied else ("would send", "would reuse")
        typer.echo(f"{sent:<11} {len(report.sent_files)} files, {report.sent_bytes:,} bytes")
        if not report.applied:
            for name in report.sent_files:
                typer.echo(f"              {name}{' (damaged there)' * (name in report.mended_files)}")
        typer.echo(f"{reused:<11} {len(report.reused_files)} files")
        if not report.applied and report.free is not None:
            typer.echo(f"free        {report.free:,} bytes")
        typer.echo(f"deployment  {report.deployment.directory}")
        if copy := deployed.private:
            typer.echo(f"in the app  {copy.directory} ({'copied' if copy.copied else 'was there'})")
    if result.rpc:
        typer.echo(result.rpc.ready_line)


def _deploy_summary(result: Deployed) -> str:
    """One line of a table of devices."""
    reports = [deployed.report for deployed in result.results]
    count, size = sum(len(r.sent_files) for r in reports), sum(r.sent_bytes for r in reports)
    summary = f"{'sent' if reports[-1].applied else 'would send'} {count} files, {size:,} bytes"
    return f"{summary}; {result.rpc.ready_line}" if result.rpc else summary


@command("adt clean --keep 1 --dry-run", CleanOptions, DeviceFlags)
def clean(keywords: Keywords, flags: DeviceFlags, as_json: bool) -> None:
    """Remove your old deployments from a device, never one in use."""
    import adt

    if not (serials := several(flags)):
        report = adt.clean(**keywords, serial=flags.serial)
        if as_json:
            emit_json("clean", _clean_fields(report))
        else:
            _show_clean(report)
        return
    with live_table(serials, quiet=as_json) as on_event:
        outcomes = adt.clean_many(**keywords, serials=serials, on_event=on_event)
    finish("clean", outcomes, _clean_fields, _clean_summary, as_json)


def _clean_fields(report: CleanReport) -> dict[str, Any]:
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


def _clean_summary(report: CleanReport) -> str:
    verb = "removed" if report.applied else "would remove"
    return (
        f"{verb} {len(report.removed)} deployments, {report.files} files ({report.size:,} bytes); "
        f"{len(report.kept)} kept"
    )


def _show_clean(report: CleanReport) -> None:
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
