"""``adt deploy`` and ``adt clean``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from adt.api.requests import CleanManyRequest, CleanRequest, DeployManyRequest, DeployRequest
from adt.cli.command import Rendering, command
from adt.cli.fleet import DeviceFlags, live_table, rendering, several
from adt.cli.terminal import status_line

if TYPE_CHECKING:
    from adt.api.deploy import Deployed
    from adt.device.deploy.removal import CleanReport


@command("adt deploy model-pkg --serial 127.0.0.1:5555")
def deploy(request: DeployRequest, flags: DeviceFlags, as_json: bool) -> Rendering:
    """Send packages with their bundle, or a bundle alone and serve RPC; what is there is not sent again."""
    from adt.api import deploy

    if not (serials := several(flags)):
        with status_line("adt deploy") as say:
            result = deploy.deploy(request.but(serial=flags.serial, say=say))
        return Rendering("deploy", lambda: _deploy_fields(result), _deploy_lines(result))
    shared = request.keywords_of(DeployManyRequest)
    with live_table(serials, quiet=as_json) as on_event:
        outcomes = deploy.deploy_many(DeployManyRequest(serials=serials, on_event=on_event, **shared))
    return rendering("deploy", outcomes, _deploy_fields, _deploy_summary)


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


def _deploy_lines(result: Deployed) -> Iterator[str]:
    yield f"device      {result.serial}"
    for deployed in result.results:
        report = deployed.report
        sent, reused = ("sent", "reused") if report.applied else ("would send", "would reuse")
        yield f"{sent:<11} {len(report.sent_files)} files, {report.sent_bytes:,} bytes"
        if not report.applied:
            for name in report.sent_files:
                yield f"              {name}{' (damaged there)' * (name in report.mended_files)}"
        yield f"{reused:<11} {len(report.reused_files)} files"
        if not report.applied and report.free is not None:
            yield f"free        {report.free:,} bytes"
        yield f"deployment  {report.deployment.directory}"
        if copy := deployed.private:
            yield f"in the app  {copy.directory} ({'copied' if copy.copied else 'was there'})"
    if result.rpc:
        yield result.rpc.ready_line


def _deploy_summary(result: Deployed) -> str:
    """One line of a table of devices."""
    reports = [deployed.report for deployed in result.results]
    count, size = sum(len(r.sent_files) for r in reports), sum(r.sent_bytes for r in reports)
    summary = f"{'sent' if reports[-1].applied else 'would send'} {count} files, {size:,} bytes"
    return f"{summary}; {result.rpc.ready_line}" if result.rpc else summary


@command("adt clean --keep 1 --dry-run")
def clean(request: CleanRequest, flags: DeviceFlags, as_json: bool) -> Rendering:
    """Remove your old deployments from a device, never one in use."""
    from adt.api import deploy

    if not (serials := several(flags)):
        report = deploy.clean(request.but(serial=flags.serial))
        return Rendering("clean", lambda: _clean_fields(report), _clean_lines(report))
    shared = request.keywords_of(CleanManyRequest)
    with live_table(serials, quiet=as_json) as on_event:
        outcomes = deploy.clean_many(CleanManyRequest(serials=serials, on_event=on_event, **shared))
    return rendering("clean", outcomes, _clean_fields, _clean_summary)


def _clean_fields(report: CleanReport) -> dict[str, Any]:
    fields = dict(vars(report))
    fields["bytes"], fields["deploys_under_way"] = fields.pop("size"), fields.pop("deploying")
    return fields


def _clean_summary(report: CleanReport) -> str:
    verb = "removed" if report.applied else "would remove"
    return (
        f"{verb} {len(report.removed)} deployments, {report.files} files ({report.size:,} bytes); "
        f"{len(report.kept)} kept"
    )


def _clean_lines(report: CleanReport) -> Iterator[str]:
    yield f"device   {report.serial}"
    verb = "removed" if report.applied else "would go"
    for name in report.removed:
        yield f"{verb:<8} {name}"
    for name in report.kept:
        yield f"kept     {name}{' (in use)' * (name in report.in_use)}"
    yield f"freed    {report.files} files, {report.size:,} bytes" + " (dry run)" * (not report.applied)
    if report.leftovers:
        yield f"left by a restart of the device: {report.leftovers} directories"
    if report.deploying:
        yield f"{report.deploying} deploys are under way: no file was removed; run this again later"
