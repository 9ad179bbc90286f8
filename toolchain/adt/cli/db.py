"""``adt db``: the records of tunings, for oneself and for others."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adt.api.requests import DB, INTO, DbExportRequest, DbImportRequest, DbPruneRequest, DbPublishRequest
from adt.cli.app import Commands, app
from adt.cli.command import Rendering, command
from adt.errors import PackageError
from adt.host.columns import aligned
from adt.options.option import option

if TYPE_CHECKING:
    from adt.tuning.database.counts import ContextCounts, Counts
    from adt.tuning.database.metaschedule import ImportResult
    from adt.tuning.database.pruning import PruneResult
    from adt.tuning.database.publication import PublishResult
    from adt.tuning.database.verification import Verification

db = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    help="Tuning databases: check, count, merge, prune, exchange, publish.",
)
app.add_typer(db, name="db")


@command("adt db verify tuning", group=db)
def verify(
    db: Annotated[Path, DB],
    repair: Annotated[bool, option("Take out what is damaged; the old file goes to backup/.", default=False)],
) -> Rendering:
    """Check every row: checksums, contents, and that each record's kernel is there."""
    from adt.api.db import db_verify

    result = db_verify(db, repair=repair)
    error = None
    if not result.passed:
        error = PackageError(
            f"{db} is damaged in {len(result.findings)} places",
            remedy=f"adt db verify {quote(str(db))} --repair "
            "takes out what is damaged, and keeps the old file.",
        )
    findings = [vars(finding) for finding in result.findings]
    return Rendering(
        "db-verify",
        lambda: vars(result) | {"passed": result.passed, "findings": findings},
        _verification_lines(result),
        error,
    )


def _verification_lines(result: Verification) -> Iterator[str]:
    for finding in result.findings[:20]:
        yield f"✗ {finding.what}"
    if len(result.findings) > 20:
        yield f"✗ and {len(result.findings) - 20} more"
    if result.taken_out:
        yield f"taken out what was damaged; the file as it was is {result.taken_out}"
    if result.written_now:
        yield "a process is writing it"
    if result.passed:
        yield f"✓ {size_text(result)}, {result.bytes:,} bytes: all whole"


@command("adt db stats tuning", group=db)
def stats(db: Annotated[Path, DB]) -> Rendering:
    """Show what it holds for each device, driver, target and version of TVM."""
    from adt.api.db import db_stats

    counts = db_stats(db)
    return Rendering("db-stats", lambda: _stats_fields(counts), _stats_lines(counts, db))


def _stats_lines(counts: Counts, db: Path) -> Iterator[str]:
    from adt.tuning.database.contents import describe

    backups = f"; {counts.backups} files in backup/, {counts.backup_bytes:,} bytes" if counts.backups else ""
    yield f"{size_text(counts)}, {counts.bytes:,} bytes{backups}"
    if counts.damaged:
        yield f"{counts.damaged:,} more rows cannot be used: adt db verify {quote(str(db))}"
    for context in counts.contexts:
        yield f"\n{describe(context.context)}"
        yield from aligned(_stats_rows(context))


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
    rows.append(("  devices", (devices or "not known") + more))
    if counts.first and counts.last:
        rows.append(("  made", f"{_when(counts.first)} to {_when(counts.last)}"))
    return rows


def _when(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))


def _stats_fields(counts: Counts) -> dict[str, Any]:
    contexts = [
        vars(each)
        | {"context": vars(each.context), "devices": [vars(device) for device in each.devices]}
        | {"emulated": each.emulated}
        for each in counts.contexts
    ]
    return vars(counts) | {"contexts": contexts}


@command("adt db merge desk rack --into all", group=db)
def merge(
    into: Annotated[Path, INTO],
    dbs: Annotated[tuple[Path, ...], option("Databases to take from.", kw_only=False, metavar="DB…")],
) -> Rendering:
    """Add the records of other databases; what is there already is not added again."""
    from adt.api.db import db_merge

    result = db_merge(dbs, into=into)
    lines = [added_text(result.records, result.duplicates, into)]
    if result.passed_over:
        lines.append(f"passed over {result.passed_over:,} damaged rows of the sources")
    return Rendering("db-merge", lambda: vars(result), lines)


def size_text(result: Any) -> str:
    """Return the numbers of records and kernels of *result*."""
    return f"{result.records:,} records of {result.workloads:,} kernels"


def added_text(records: int, duplicates: int, into: Path) -> str:
    """Describe what was added to a database."""
    there = f"; {duplicates:,} were there already" if duplicates else ""
    return f"added {records:,} records to {into}{there}"


@command("adt db prune tuning --keep 20 --failures", group=db)
def prune(request: DbPruneRequest) -> Rendering:
    """Take out slow candidates and failures; the state before stays in backup/.

    What hung or crashed a server, or computed wrong numbers, stays, so that it never runs again.
    """
    from adt.api.db import db_prune

    result = db_prune(request)
    verb = "took out" if result.applied else "would take out"
    counts = f"{result.removed:,} records and {result.workloads_removed:,} kernels"
    lines = [f"{verb} {counts}; {result.kept:,} stay"]
    if result.backup:
        lines.append(f"the state before is {result.backup}")
    return Rendering("db-prune", lambda: _fields(result), lines)


def _fields(result: PruneResult | ImportResult | PublishResult) -> dict[str, Any]:
    """The fields of a result that has contexts."""
    return vars(result) | {"contexts": [dict(vars(context)) for context in result.contexts]}


@command("adt db export tuning --metaschedule json --device 'Adreno (TM) 650'", group=db)
def export(request: DbExportRequest) -> Rendering:
    """Write the records of one device and target for other programs that use MetaSchedule."""
    from adt.api.db import db_export

    result = db_export(request)
    return Rendering(
        "db-export",
        lambda: vars(result) | {"context": vars(result.context)},
        [f"wrote {size_text(result)} to {result.out}"],
    )


@command("adt db import json --into tuning --device 'Adreno (TM) 650'", group=db, name="import")
def import_(request: DbImportRequest) -> Rendering:
    """Add the records that other programs made with MetaSchedule."""
    from adt.tuning.database.contents import describe
    from adt.api.db import db_import

    result = db_import(request)
    lines = [added_text(result.records, result.duplicates, request.into)]
    lines += [f"  {describe(context)}" for context in result.contexts]
    if result.refused:
        lines.append(f"passed over {len(result.refused):,} lines; the first: {result.refused[0]}")
    return Rendering("db-import", lambda: _fields(result), lines)


@command("adt db publish tuning -o adreno650.tar.gz --keep 3", group=db)
def publish(request: DbPublishRequest) -> Rendering:
    """Write it as one file for others, without serial numbers; the same bytes for the same records."""
    from adt.api.db import db_publish

    result = db_publish(request)
    lines = [
        f"wrote {size_text(result)} to {request.out} ({result.size:,} bytes)",
        f"sha256 {result.sha256}",
    ]
    return Rendering("db-publish", lambda: _fields(result), lines)


@command("adt db fetch adreno650.tar.gz -o tuning", group=db)
def fetch(
    source: Annotated[str, option("A published file: its path, or its address.", kw_only=False)],
    out: Annotated[Path, option("The database to add to.", "--out", "-o", metavar="DB")],
    sha256: Annotated[str, option("Of the file; an address needs it.", default="")],
) -> Rendering:
    """Add what others published; nothing of a file that is not what it should be is used."""
    from adt.api.db import db_fetch

    result = db_fetch(source, out=out, sha256=sha256)
    added = added_text(result.merged.records, result.merged.duplicates, out)
    fields = {"sha256": result.sha256} | vars(result.merged)
    return Rendering("db-fetch", lambda: fields, [added, f"sha256 {result.sha256}"])
