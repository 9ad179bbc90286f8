"""``adt db``: the records of tunings, for oneself and for others."""

from __future__ import annotations

import time
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import typer

from adt.api.requests import (
    DbExportRequest,
    DbFetchRequest,
    DbImportRequest,
    DbMergeRequest,
    DbPruneRequest,
    DbPublishRequest,
    DbStatsRequest,
    DbVerifyRequest,
)
from adt.cli.app import Commands, app, emit_json
from adt.cli.command import Keywords, command
from adt.errors import PackageError
from adt.host.columns import aligned

if TYPE_CHECKING:
    from adt.tuning.database.counts import ContextCounts, Counts
    from adt.tuning.database.verification import Verification
    from adt.tuning.records import Context

db = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    help="Tuning databases: check, count, merge, prune, exchange, publish.",
)
app.add_typer(db, name="db")


@command("adt db verify tuning", DbVerifyRequest, group=db)
def verify(keywords: Keywords, as_json: bool) -> None:
    """Check every row: checksums, contents, and that each record's kernel is there."""
    import adt

    result = adt.db_verify(**keywords)
    if as_json:
        emit_json("db-verify", _verification_fields(result))
        if not result.passed:
            raise typer.Exit(PackageError.exit_code)
        return
    for finding in result.findings[:20]:
        typer.echo(f"✗ {finding.what}")
    if len(result.findings) > 20:
        typer.echo(f"✗ and {len(result.findings) - 20} more")
    if result.taken_out:
        typer.echo(f"taken out what was damaged; the file as it was is {result.taken_out}")
    if result.written_now:
        typer.echo("a process is writing it")
    if not result.passed:
        raise PackageError(
            f"{keywords['db']} is damaged in {len(result.findings)} places",
            remedy=f"adt db verify {quote(str(keywords['db']))} --repair "
            "takes out what is damaged, and keeps the old file.",
        )
    typer.echo(f"✓ {size_text(result)}, {result.size:,} bytes: all whole")


def _verification_fields(result: Verification) -> dict[str, Any]:
    return {
        "path": result.path,
        "passed": result.passed,
        "bytes": result.size,
        "workloads": result.workloads,
        "records": result.records,
        "contexts": result.contexts,
        "findings": [vars(finding) for finding in result.findings],
        "written_now": result.written_now,
        "taken_out": result.taken_out,
    }


@command("adt db stats tuning", DbStatsRequest, group=db)
def stats(keywords: Keywords, as_json: bool) -> None:
    """Show what it holds for each device, driver, target and version of TVM."""
    import adt
    from adt.tuning.database.selection import describe

    counts = adt.db_stats(**keywords)
    if as_json:
        emit_json("db-stats", _stats_fields(counts))
        return
    typer.echo(
        f"{size_text(counts)}, {counts.size:,} bytes"
        + (f"; {counts.backups} files in backup/, {counts.backup_size:,} bytes" if counts.backups else "")
    )
    if counts.damaged:
        typer.echo(f"{counts.damaged:,} more rows cannot be used: adt db verify {quote(str(keywords['db']))}")
    for context in counts.contexts:
        typer.echo(f"\n{describe(context.context)}")
        typer.echo("\n".join(aligned(_stats_rows(context))))


def _stats_rows(counts: ContextCounts) -> list[tuple[str, ...]]:
    failed = ", ".join(f"{number:,} {kind}" for kind, number in counts.failures.items())
    never = f"; {counts.quarantined:,} never again" if counts.quarantined else ""
    rows: list[tuple[str, ...]] = [
        ("  records", f"{counts.records:,} of {counts.workloads:,} kernels, {counts.measured:,} with times"),
        ("  failed", (failed or "none") + never),
        ("  faster than untuned", f"{counts.tuned:,} of {counts.compared:,} kernels"),
    ]
    if counts.best_ratio is not None and counts.mean_ratio is not None:
        text = f"up to {counts.best_ratio:.2f} times the untuned, {counts.mean_ratio:.2f} on average"
        rows.append(("  speed", text))
    elif counts.emulated:
        rows.append(("  speed", "not known: an emulator's times are no device's"))
    devices = ", ".join(
        f"{device.label or device.name} {device.name} ({device.records:,})" for device in counts.devices[:6]
    )
    more = f" and {len(counts.devices) - 6} more" if len(counts.devices) > 6 else ""
    rows.append(("  devices", (devices or "not told") + more))
    if counts.first and counts.last:
        rows.append(("  made", f"{_when(counts.first)} to {_when(counts.last)}"))
    return rows


def _when(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))


def _stats_fields(counts: Counts) -> dict[str, Any]:
    return {
        "path": counts.path,
        "bytes": counts.size,
        "workloads": counts.workloads,
        "records": counts.records,
        "damaged": counts.damaged,
        "backups": counts.backups,
        "backup_bytes": counts.backup_size,
        "contexts": [
            vars(each)
            | {"context": vars(each.context), "devices": [vars(device) for device in each.devices]}
            | {"emulated": each.emulated}
            for each in counts.contexts
        ],
    }


@command("adt db merge desk rack --into all", DbMergeRequest, group=db)
def merge(keywords: Keywords, as_json: bool) -> None:
    """Add the records of other databases; what is there already is not added again."""
    import adt

    result = adt.db_merge(**keywords)
    if as_json:
        emit_json("db-merge", vars(result))
        return
    typer.echo(added_text(result.records, result.duplicates, keywords["into"]))
    if result.passed_over:
        typer.echo(f"passed over {result.passed_over:,} damaged rows of the sources")


def size_text(result: Any) -> str:
    """How many records and kernels *result* counts."""
    return f"{result.records:,} records of {result.workloads:,} kernels"


def added_text(records: int, duplicates: int, into: Path) -> str:
    """What was added to a database, for people."""
    return f"added {records:,} records to {into}" + (
        f"; {duplicates:,} were there already" if duplicates else ""
    )


@command("adt db prune tuning --keep 20 --failures", DbPruneRequest, group=db)
def prune(keywords: Keywords, as_json: bool) -> None:
    """Take out slow candidates and failures; the state before stays in backup/.

    What hung or crashed a server, or computed wrong numbers, stays, so that it never runs again.
    """
    import adt

    result = adt.db_prune(**keywords)
    if as_json:
        emit_json("db-prune", vars(result) | {"contexts": contexts_fields(result.contexts)})
        return
    verb = "took out" if result.applied else "would take out"
    typer.echo(
        f"{verb} {result.removed:,} records and {result.workloads_removed:,} kernels; {result.kept:,} stay"
    )
    if result.backup:
        typer.echo(f"the state before is {result.backup}")


def contexts_fields(contexts: tuple[Context, ...]) -> list[dict[str, str]]:
    """For JSON."""
    return [dict(vars(context)) for context in contexts]


@command("adt db export tuning --metaschedule json --device 'Adreno (TM) 650'", DbExportRequest, group=db)
def export(keywords: Keywords, as_json: bool) -> None:
    """Write the records of one device and target for other programs that use MetaSchedule."""
    import adt

    result = adt.db_export(**keywords)
    if as_json:
        emit_json("db-export", vars(result) | {"context": vars(result.context)})
        return
    typer.echo(f"wrote {size_text(result)} to {result.out}")


@command(
    "adt db import json --into tuning --device 'Adreno (TM) 650'", DbImportRequest, group=db, name="import"
)
def import_(keywords: Keywords, as_json: bool) -> None:
    """Add the records that other programs made with MetaSchedule."""
    import adt
    from adt.tuning.database.selection import describe

    result = adt.db_import(**keywords)
    if as_json:
        emit_json("db-import", vars(result) | {"contexts": contexts_fields(result.contexts)})
        return
    typer.echo(added_text(result.records, result.duplicates, keywords["into"]))
    for context in result.contexts:
        typer.echo(f"  {describe(context)}")
    if result.refused:
        typer.echo(f"passed over {len(result.refused):,} lines; the first: {result.refused[0]}")


@command("adt db publish tuning -o adreno650.tar.gz --keep 3", DbPublishRequest, group=db)
def publish(keywords: Keywords, as_json: bool) -> None:
    """Write it as one file for others, without serial numbers; the same bytes for the same records."""
    import adt

    result = adt.db_publish(**keywords)
    if as_json:
        emit_json("db-publish", vars(result) | {"contexts": contexts_fields(result.contexts)})
        return
    typer.echo(f"wrote {size_text(result)} to {keywords['out']} ({result.size:,} bytes)")
    typer.echo(f"sha256 {result.sha256}")


@command("adt db fetch adreno650.tar.gz -o tuning", DbFetchRequest, group=db)
def fetch(keywords: Keywords, as_json: bool) -> None:
    """Add what others published; nothing of a file that is not what it should be is used."""
    import adt

    result = adt.db_fetch(**keywords)
    if as_json:
        emit_json("db-fetch", {"sha256": result.sha256} | vars(result.merged))
        return
    typer.echo(added_text(result.merged.records, result.merged.duplicates, keywords["out"]))
    typer.echo(f"sha256 {result.sha256}")
