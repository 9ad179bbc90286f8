"""Tuning databases: check, count, merge, prune, exchange and publish them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from adt.tuning.database.selection import Selection

if TYPE_CHECKING:
    from adt.tuning.database.counts import Counts
    from adt.tuning.database.merge import MergeResult
    from adt.tuning.database.metaschedule import ExportResult, ImportResult
    from adt.tuning.database.pruning import PruneResult
    from adt.tuning.database.publication import FetchResult, PublishResult
    from adt.tuning.database.verification import Verification


def db_verify(db: Path, *, repair: bool = False) -> Verification:
    """Check every row of a tuning database.

    Args:
        db: its directory.
        repair: take out what is damaged; the file as it was is kept in ``backup/``.

    Raises:
        PackageError: there is none. Damage does not raise: look at ``result.passed``.
        Busy: with *repair*, another process writes it.
        DiskError: there is no room or no access.
    """
    from adt.tuning.database.verification import verify

    return verify(db, repair=repair)


def db_stats(db: Path) -> Counts:
    """Count what a tuning database holds, for each target, version of TVM, device and driver.

    Raises:
        PackageError: there is none.
    """
    from adt.tuning.database.counts import count

    return count(db)


def db_merge(dbs: Sequence[Path], *, into: Path) -> MergeResult:
    """Add what the databases *dbs* hold to the one in *into*, in one step; nothing is in it twice.

    Raises:
        PackageError: one of *dbs* is no tuning database.
        Busy: another process writes *into*.
        DiskError: there is no room or no access.
    """
    from adt.tuning.database.merge import merge

    return merge(dbs, into)


def db_prune(
    db: Path,
    *,
    keep: int | None = None,
    failures: bool = False,
    drop: bool = False,
    device: str = "",
    driver: str = "",
    target: str = "",
    tvm: str = "",
    dry_run: bool = False,
) -> PruneResult:
    """Take out slow candidates, failures, or all records of some devices; the state before is kept.

    Args:
        keep: how many candidates of each workload and context stay: the fastest.
        failures: take out those that could not be built or that a device refused.
        drop: take out everything of what *device*, *driver*, *target* and *tvm* mean.
        device, driver, target, tvm: parts of their names; only of these anything goes.
        dry_run: only say what would go.

    Raises:
        ConfigError: this asks for nothing, or for everything.
        PackageError: there is no database.
        Busy: another process writes it.
        DiskError: there is no room or no access.
    """
    from adt.tuning.database.pruning import prune

    selection = Selection(device, driver, target, tvm)
    return prune(db, keep=keep, failures=failures, drop=drop, selection=selection, dry_run=dry_run)


def db_export(
    db: Path,
    *,
    metaschedule: Path,
    device: str = "",
    driver: str = "",
    target: str = "",
    tvm: str = "",
    failures: bool = False,
) -> ExportResult:
    """Write the records of one context as MetaSchedule's own two JSON files.

    Args:
        metaschedule: the directory to write; ``ms.database.JSONDatabase(work_dir=…)`` opens it.
        device, driver, target, tvm: parts of their names; needed where the database has several.
        failures: failed candidates, too.

    Raises:
        ConfigError: these mean no records, or those of several contexts.
        PackageError: there is no database, or *metaschedule* holds something else.
        ToolNotFound: TVM is not installed.
        DiskError: there is no room or no access.
    """
    from adt.model.versions import require_tvm
    from adt.tuning.database.metaschedule import export

    require_tvm()
    return export(db, metaschedule, Selection(device, driver, target, tvm), failures=failures)


def db_import(
    files: Path,
    *,
    into: Path,
    device: str,
    driver: str = "",
    platform: str | None = None,
    target: str | None = None,
    cpu: str | None = None,
) -> ImportResult:
    """Add the records of MetaSchedule's two JSON files to a tuning database.

    Args:
        files: the directory of ``database_workload.json`` and ``database_tuning_record.json``.
        device: what they were measured on: the files do not say it. `adt probe` shows a device's name.
        driver: of the GPU.
        platform, target, cpu: what they were generated for, as for :func:`adt.compile`; by default each
            record's own target tells.

    Raises:
        PackageError: there are no such files.
        ConfigError: there is no such target or processor.
        ToolNotFound: TVM is not installed.
        Busy: another process writes *into*.
        DiskError: there is no room or no access.
    """
    from adt.model.versions import require_tvm
    from adt.tuning.database.metaschedule import import_records

    require_tvm()
    named = any(value is not None for value in (platform, target, cpu))
    key = _target_key(platform, target, cpu) if named else ""
    return import_records(files, into, device=device, driver=driver, target=key)


def _target_key(platform: str | None, target: str | None, cpu: str | None) -> str:
    """The key of what a package with these settings is generated for."""
    from adt.model.compilation import package_target
    from adt.model.targets import settings_and_platform
    from adt.model.tuning.key import target_key
    from adt.options.resolve import load_settings

    flags = {"build.platform": platform, "compile.target": target, "compile.cpu": cpu}
    settings, on = settings_and_platform(load_settings(flags))
    return target_key(package_target(on, settings, None))


def db_publish(
    db: Path,
    out: Path,
    *,
    keep: int | None = None,
    device: str = "",
    driver: str = "",
    target: str = "",
    tvm: str = "",
) -> PublishResult:
    """Write a tuning database as one file for others: the same bytes for the same records.

    It names no serial number, no tuning, and nothing of what failed programs printed.

    Args:
        out: ``NAME.tar.gz``.
        keep: only the so many fastest candidates of each workload, and the untuned schedule.
        device, driver, target, tvm: parts of their names; only of these.

    Raises:
        PackageError: there is no database, or it is damaged.
        ConfigError: *out* is named otherwise, or there is nothing to publish.
        DiskError: there is no room or no access.
    """
    from adt.tuning.database.publication import publish

    return publish(db, out, keep=keep, selection=Selection(device, driver, target, tvm))


def db_fetch(source: str, *, out: Path, sha256: str = "") -> FetchResult:
    """Add a published file to the database in *out*, which is made when it is not there.

    Args:
        source: its path, or an https or http address.
        sha256: of the file; an address needs one.

    Raises:
        ConfigError: an address without a sha256.
        DownloadError: it cannot be had, or is another file.
        PackageError: it is no published database; nothing of it was used.
        Busy: another process writes *out*.
        DiskError: there is no room or no access.
    """
    from adt.tuning.database.publication import fetch

    return fetch(source, out, sha256=sha256)
