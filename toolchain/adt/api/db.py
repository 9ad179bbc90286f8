"""Tuning databases: check, count, merge, prune, exchange and publish them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from adt.api.requests import (
    DbExportRequest,
    DbImportRequest,
    DbPruneRequest,
    DbPublishRequest,
)
from adt.options.request import takes
from adt.tuning.database.contents import Selection

if TYPE_CHECKING:
    from adt.options.option import AnyPath
    from adt.tuning.database.counts import Counts
    from adt.tuning.database.merge import MergeResult
    from adt.tuning.database.metaschedule import ExportResult, ImportResult
    from adt.tuning.database.pruning import PruneResult
    from adt.tuning.database.publication import FetchResult, PublishResult
    from adt.tuning.database.verification import Verification


def db_verify(db: AnyPath, *, repair: bool = False) -> Verification:
    """Check every row of a tuning database.

    Args:
        repair: take out what is damaged; the old file goes to backup/.

    Raises:
        PackageError: there is none. Damage does not raise: look at ``result.passed``.
        Busy: with *repair*, another process writes it.
        DiskError: there is no room or no access.
    """
    from adt.tuning.database.verification import verify

    return verify(Path(db), repair=repair)


def db_stats(db: AnyPath) -> Counts:
    """Count what a tuning database holds, for each target, version of TVM, device and driver.

    Raises:
        PackageError: there is none.
    """
    from adt.tuning.database.counts import count

    return count(Path(db))


def db_merge(dbs: AnyPath | Sequence[AnyPath], *, into: AnyPath) -> MergeResult:
    """Add what the databases *dbs* hold to the one in *into*, in one step; nothing is in it twice.

    Raises:
        PackageError: one of *dbs* is no tuning database.
        Busy: another process writes *into*.
        DiskError: there is no room or no access.
    """
    from adt.tuning.database.merge import merge

    sources = (dbs,) if isinstance(dbs, str | os.PathLike) else dbs
    return merge(tuple(map(Path, sources)), Path(into))


@takes(DbPruneRequest)
def db_prune(request: DbPruneRequest) -> PruneResult:
    """Take out slow candidates, failures, or all records of some devices; the state before is kept.

    Raises:
        ConfigError: this asks for nothing, or for everything.
        PackageError: there is no database.
        Busy: another process writes it.
        DiskError: there is no room or no access.
    """
    from adt.tuning.database.pruning import prune

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
        DiskError: there is no room or no access.
    """
    from adt.host.versions import require_tvm
    from adt.tuning.database.metaschedule import export

    require_tvm()
    return export(request.db, request.metaschedule, _selection(request), failures=request.failures)


def _selection(request: DbPruneRequest | DbExportRequest | DbPublishRequest) -> Selection:
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
        DiskError: there is no room or no access.
    """
    from adt.host.versions import require_tvm
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
    """The key of what the records were generated for; empty: each says it itself."""
    from adt.compiler.compilation import package_target
    from adt.compiler.passes.records.key import target_key
    from adt.compiler.targets import settings_and_platform

    if all(request.named(name) is None for name in ("platform", "target", "cpu")):
        return ""
    settings, platform = settings_and_platform(request.resolved)
    return target_key(package_target(platform, settings, None))


@takes(DbPublishRequest)
def db_publish(request: DbPublishRequest) -> PublishResult:
    """Write a tuning database as one file for others: the same bytes for the same records.

    It names no serial number, no tuning, and nothing of what failed programs printed.

    Raises:
        PackageError: there is no database, or it is damaged.
        ConfigError: *out* is named otherwise, or there is nothing to publish.
        DiskError: there is no room or no access.
    """
    from adt.tuning.database.publication import publish

    return publish(request.db, request.out, keep=request.keep, selection=_selection(request))


def db_fetch(source: str, *, out: AnyPath, sha256: str = "") -> FetchResult:
    """Add a published file to the database in *out*, which is made when it is not there.

    Args:
        source: path or address of the file.
        sha256: of the file; an address needs it.

    Raises:
        ConfigError: an address without a sha256.
        DownloadError: it cannot be had, or is another file.
        PackageError: it is no published database; nothing of it was used.
        Busy: another process writes *out*.
        DiskError: there is no room or no access.
    """
    from adt.tuning.database.publication import fetch

    return fetch(source, Path(out), sha256=sha256)
