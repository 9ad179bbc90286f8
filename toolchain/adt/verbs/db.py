"""Tuning databases: check, count, merge, prune, exchange and publish them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adt.cli.app import Commands, app
from adt.cli.command import Rendering, command
from adt.errors import PackageError
from adt.host.disk import check_directory, check_output
from adt.host.document import aligned
from adt.host.extras import require_tvm
from adt.options.option import AnyPath, PathTo, Text, option
from adt.options.request import Request, takes
from adt.options.sections import BuildSettings, CompileSettings

if TYPE_CHECKING:
    from adt.tuning.database.changes import FetchResult, MergeResult, PruneResult, PublishResult
    from adt.tuning.database.contents import Selection
    from adt.tuning.database.metaschedule import ExportResult, ImportResult
    from adt.tuning.database.overview import ContextCounts, Counts, Verification


DB = option("Directory of the database.", kw_only=False, metavar="DB")
INTO = option("Database to add to; it may be new.", metavar="DB", check=check_directory)
KEEP_FASTEST = option("Number of fastest records to keep of each kernel.", default=None, metavar="K")
OF_DEVICE = option("Part of the name of the devices whose records count; else all.", default="")
OF_DRIVER = option("Part of the name of the drivers whose records count; else all.", default="")
OF_TARGET = option("Part of the key of the targets whose records count; else all.", default="")
OF_TVM = option("Beginning of the version of TVM whose records count; else all.", default="")


class DbPruneRequest(Request):
    """Request of :func:`adt.db_prune`."""

    db: PathTo = option(DB, kw_only=False)
    keep: int | None = KEEP_FASTEST
    device: str = OF_DEVICE
    driver: str = OF_DRIVER
    target: str = OF_TARGET
    tvm: str = OF_TVM
    failures: bool = option("Take out candidates that could not be built or were refused.", default=False)
    drop: bool = option("Take out all records of --device, --driver, --target and --tvm.", default=False)
    dry_run: bool = option("Only say what would be taken out.", default=False)


class DbExportRequest(Request):
    """Request of :func:`adt.db_export`."""

    db: PathTo = option(DB, kw_only=False)
    device: str = OF_DEVICE
    driver: str = OF_DRIVER
    target: str = OF_TARGET
    tvm: str = OF_TVM
    metaschedule: PathTo = option(
        "Where to write MetaSchedule's two JSON files; ``ms.database.JSONDatabase(work_dir=…)`` opens it.",
        help="Directory for MetaSchedule's two JSON files.",
        metavar="DIR",
        check=check_directory,
    )
    failures: bool = option("Write failed candidates, too.", default=False)


class DbPublishRequest(Request):
    """Request of :func:`adt.db_publish`."""

    db: PathTo = option(DB, kw_only=False)
    keep: int | None = KEEP_FASTEST
    device: str = OF_DEVICE
    driver: str = OF_DRIVER
    target: str = OF_TARGET
    tvm: str = OF_TVM
    out: PathTo = option("File to write, NAME.tar.gz.", "--out", "-o", kw_only=False, check=check_output)


class DbImportRequest(Request):
    """Request of :func:`adt.db_import`."""

    into: PathTo = option(INTO)
    platform: Text = BuildSettings.platform
    target: Text = CompileSettings.target
    cpu: Text = CompileSettings.cpu
    files: PathTo = option("Directory of MetaSchedule's two JSON files.", kw_only=False, metavar="DIR")
    device: str = option("GPU or processor that the records, which do not say it, were measured on.")
    driver: str = option("Driver of the GPU.", default="")


def db_verify(db: AnyPath, *, repair: bool = False) -> Verification:
    """Check every row of a tuning database.

    Args:
        repair: take out what is damaged; the old file goes to backup/.

    Raises:
        PackageError: there is none. Damage does not raise: look at ``result.passed``.
        Busy: with *repair*, another process writes it.
    """
    from adt.tuning.database.overview import verify

    return verify(Path(db), repair=repair)


def db_stats(db: AnyPath) -> Counts:
    """Count what a tuning database holds, for each target, version of TVM, device and driver.

    Raises:
        PackageError: there is none.
    """
    from adt.tuning.database.overview import count

    return count(Path(db))


def db_merge(dbs: AnyPath | Sequence[AnyPath], *, into: AnyPath) -> MergeResult:
    """Add what the databases *dbs* hold to the one in *into*, in one step; nothing is in it twice.

    Raises:
        PackageError: one of *dbs* is no tuning database.
        Busy: another process writes *into*.
    """
    from adt.tuning.database.changes import merge

    sources = (dbs,) if isinstance(dbs, str | os.PathLike) else dbs
    return merge(tuple(map(Path, sources)), Path(into))


@takes(DbPruneRequest)
def db_prune(request: DbPruneRequest) -> PruneResult:
    """Take out slow candidates, failures, or all records of some devices; the state before is kept.

    Raises:
        ConfigError: this asks for nothing, or for everything.
        PackageError: there is no database.
        Busy: another process writes it.
    """
    from adt.tuning.database.changes import prune

    return prune(
        request.db,
        keep=request.keep,
        failures=request.failures,
        drop=request.drop,
        selection=_selection(request),
        dry_run=request.dry_run,
    )


@takes(DbExportRequest)
def db_export(request: DbExportRequest) -> ExportResult:
    """Write the records of one context as MetaSchedule's own two JSON files.

    Raises:
        ConfigError: these mean no records, or those of several contexts.
        PackageError: there is no database, or *metaschedule* holds something else.
        ToolNotFound: TVM is not installed.
    """
    from adt.tuning.database.metaschedule import export

    require_tvm()
    return export(request.db, request.metaschedule, _selection(request), failures=request.failures)


def _selection(request: DbPruneRequest | DbExportRequest | DbPublishRequest) -> Selection:
    from adt.tuning.database.contents import Selection

    return Selection(request.device, request.driver, request.target, request.tvm)


@takes(DbImportRequest)
def db_import(request: DbImportRequest) -> ImportResult:
    """Add the records of MetaSchedule's two JSON files to a tuning database.

    Each record's own target tells what it was generated for, unless *platform*, *target* or *cpu* do.

    Raises:
        PackageError: there are no such files.
        ConfigError: there is no such target or processor.
        ToolNotFound: TVM is not installed.
        Busy: another process writes *into*.
    """
    from adt.tuning.database.metaschedule import import_records

    require_tvm()
    return import_records(
        request.files,
        request.into,
        device=request.device,
        driver=request.driver,
        target=_target_key(request),
    )


def _target_key(request: DbImportRequest) -> str:
    """Return the key of what the records were generated for; empty: each says it itself."""
    from adt.compiler.compilation import package_target
    from adt.compiler.passes.records.key import target_key
    from adt.compiler.targets import settings_and_platform
    from adt.verbs.default_platform import with_platform

    if all(request.named(name) is None for name in ("platform", "target", "cpu")):
        return ""
    settings, platform = settings_and_platform(with_platform(request))
    return target_key(package_target(platform, settings, None))


@takes(DbPublishRequest)
def db_publish(request: DbPublishRequest) -> PublishResult:
    """Write a tuning database as one file for others: the same bytes for the same records.

    It names no serial number, no tuning, and nothing of what failed programs printed.

    Raises:
        PackageError: there is no database, or it is damaged.
        ConfigError: *out* is named otherwise, or there is nothing to publish.
    """
    from adt.tuning.database.changes import publish

    return publish(request.db, request.out, keep=request.keep, selection=_selection(request))


def db_fetch(source: str, *, out: AnyPath, sha256: str = "") -> FetchResult:
    """Add a published file to the database in *out*, which is made when it is not there.

    Raises:
        ConfigError: an address without a sha256.
        DownloadError: it cannot be had, or is another file.
        PackageError: it is no published database; nothing of it was used.
        Busy: another process writes *out*.
    """
    from adt.tuning.database.changes import fetch

    return fetch(source, Path(out), sha256=sha256)


db = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    help="Check, count, merge, prune, exchange and publish tuning databases.",
)
app.add_typer(db, name="db")


@command("adt db verify tuning", group=db)
def verify_command(
    db: Annotated[Path, DB],
    repair: Annotated[bool, option("Take out what is damaged; the old file goes to backup/.", default=False)],
) -> Rendering:
    """Check every row: checksums, contents, and that each record's kernel is there."""
    result = db_verify(db, repair=repair)
    error = None
    if not result.passed:
        error = PackageError(
            f"{db} is damaged in {len(result.findings)} places",
            remedy=f"adt db verify {quote(str(db))} --repair "
            "takes out what is damaged, and keeps the old file.",
        )
    return Rendering("db-verify", result, _verification_lines(result), error)


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
def stats_command(db: Annotated[Path, DB]) -> Rendering:
    """Show what a database holds for each device, driver, target and version of TVM."""
    counts = db_stats(db)
    return Rendering("db-stats", counts, _stats_lines(counts, db))


def _stats_lines(counts: Counts, db: Path = Path("DB")) -> Iterator[str]:
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


@command("adt db merge desk rack --into all", group=db)
def merge_command(
    into: Annotated[Path, INTO],
    dbs: Annotated[tuple[Path, ...], option("Databases to take from.", kw_only=False, metavar="DB")],
) -> Rendering:
    """Add the records of other databases, each once."""
    result = db_merge(dbs, into=into)
    lines = [added_text(result.records, result.duplicates, into)]
    if result.passed_over:
        lines.append(f"passed over {result.passed_over:,} damaged rows of the sources")
    return Rendering("db-merge", result, lines)


def size_text(result: Any) -> str:
    """Return the numbers of records and kernels of *result*."""
    return f"{result.records:,} records of {result.workloads:,} kernels"


def added_text(records: int, duplicates: int, into: Path) -> str:
    """Describe what was added to a database."""
    there = f"; {duplicates:,} were there already" if duplicates else ""
    return f"added {records:,} records to {into}{there}"


@command("adt db prune tuning --keep 20 --failures", group=db)
def prune_command(request: DbPruneRequest) -> Rendering:
    """Take out slow candidates and failures; the state before stays in backup/.

    What hung or crashed a server, or computed wrong numbers, stays, so that it never runs again.
    """
    result = db_prune(request)
    verb = "took out" if result.applied else "would take out"
    counts = f"{result.removed:,} records and {result.workloads_removed:,} kernels"
    lines = [f"{verb} {counts}; {result.kept:,} stay"]
    if result.backup:
        lines.append(f"the state before is {result.backup}")
    return Rendering("db-prune", result, lines)


@command("adt db export tuning --metaschedule json --device 'Adreno (TM) 650'", group=db)
def export_command(request: DbExportRequest) -> Rendering:
    """Write the records of one device and target for other programs that use MetaSchedule."""
    result = db_export(request)
    return Rendering("db-export", result, [f"wrote {size_text(result)} to {result.out}"])


@command("adt db import json --into tuning --device 'Adreno (TM) 650'", group=db, name="import")
def import_command(request: DbImportRequest) -> Rendering:
    """Add the records that other programs made with MetaSchedule."""
    from adt.tuning.database.contents import describe

    result = db_import(request)
    lines = [added_text(result.records, result.duplicates, request.into)]
    lines += [f"  {describe(context)}" for context in result.contexts]
    if result.refused:
        lines.append(f"passed over {len(result.refused):,} lines; the first: {result.refused[0]}")
    return Rendering("db-import", result, lines)


@command("adt db publish tuning -o adreno650.tar.gz --keep 3", group=db)
def publish_command(request: DbPublishRequest) -> Rendering:
    """Write a database as one file for others, without serial numbers."""
    result = db_publish(request)
    lines = [
        f"wrote {size_text(result)} to {request.out} ({result.size:,} bytes)",
        f"sha256 {result.sha256}",
    ]
    return Rendering("db-publish", result, lines)


@command("adt db fetch adreno650.tar.gz -o tuning", group=db)
def fetch_command(
    source: Annotated[str, option("Published file: its path or its address.", kw_only=False)],
    out: Annotated[Path, option(INTO, flags=("--out", "-o"))],
    sha256: Annotated[str, option("SHA-256 of the file; an address needs it.", default="")],
) -> Rendering:
    """Add the records of a published file, if it is intact."""
    result = db_fetch(source, out=out, sha256=sha256)
    added = added_text(result.merged.records, result.merged.duplicates, out)
    return Rendering("db-fetch", result, [added, f"sha256 {result.sha256}"])
