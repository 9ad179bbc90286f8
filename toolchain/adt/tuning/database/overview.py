"""Figures about a tuning database, and a check of every row."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from adt.host.document import in_document
from adt.tuning.database import sqlite_file
from adt.tuning.database.contents import Contents, load
from adt.tuning.database.store import backup_path, is_written, locked
from adt.tuning.records import Context, Entry, Record, Workload, best_records, quarantined_candidates, row


@dataclass(frozen=True)
class Device:
    name: str
    label: str
    records: int
    emulated: bool


@dataclass(frozen=True)
class ContextCounts:
    context: Context
    workloads: int
    records: int
    measured: int
    """Number of records with times."""
    failures: dict[str, int]
    """By kind."""
    quarantined: int
    """Candidates that are never measured again."""
    tuned: int
    """Workloads with a candidate that is faster than the untuned schedule; emulated times do not count."""
    compared: int
    """Workloads with times of both, that are a device's."""
    best_ratio: float | None
    """Untuned by tuned time of the workload that gained most; None: no workload has both."""
    mean_ratio: float | None
    """The geometric mean of the compared workloads' ratios, a slower candidate as 1: it is not applied."""
    devices: tuple[Device, ...]
    first: float | None
    """Seconds since the epoch: when the oldest record was made, None where that is not known …"""
    last: float | None
    """Time of the newest record."""

    @property
    @in_document()
    def emulated(self) -> bool:
        """Some times are no device's speed."""
        return any(device.emulated for device in self.devices)


@dataclass(frozen=True)
class Counts:
    """A database in figures."""

    path: Path
    bytes: int
    workloads: int
    records: int
    contexts: tuple[ContextCounts, ...]
    """Counts of each context, that with the newest record first."""
    damaged: int
    """Rows that cannot be used, and are in none of the other figures."""
    backups: int
    """Files in ``backup/`` …"""
    backup_bytes: int


def count(directory: Path) -> Counts:
    """See :func:`adt.verbs.db.db_stats`."""
    contents = load(directory)
    by_context: dict[Context, list[Record]] = {}
    for record in contents.records:
        by_context.setdefault(record.context, []).append(record)
    contexts = [_count_context(context, records) for context, records in by_context.items()]
    backups = [path.stat().st_size for path in directory.glob("backup/*")]
    return Counts(
        directory,
        contents.size,
        len(contents.workloads),
        len(contents.records),
        tuple(sorted(contexts, key=lambda counts: -(counts.last or 0))),
        len(contents.damaged) + len(contents.orphans),
        len(backups),
        sum(backups),
    )


def _count_context(context: Context, records: Sequence[Record]) -> ContextCounts:
    genuine = [record for record in records if not (record.on and record.on.emulated)]
    best, untuned = best_records(genuine), best_records(genuine, untuned=True)
    ratios = [
        untuned[name].time / best[name].time
        for name in best.keys() & untuned.keys()
        if best[name].time > 0 and untuned[name].time > 0
    ]
    times = [record.at for record in records if record.at]  # what was imported has none
    devices = Counter((r.on.name, r.on.label, r.on.emulated) for r in records if r.on)
    return ContextCounts(
        context=context,
        workloads=len({record.workload for record in records}),
        records=len(records),
        measured=sum(bool(record.seconds) for record in records),
        failures=dict(sorted(Counter(r.failure.kind for r in records if r.failure).items())),
        quarantined=len(quarantined_candidates(records)),
        tuned=sum(ratio > 1 for ratio in ratios),
        compared=len(ratios),
        best_ratio=max(ratios, default=None),
        mean_ratio=math.exp(sum(math.log(max(1.0, r)) for r in ratios) / len(ratios)) if ratios else None,
        devices=tuple(
            Device(name, label, number, emulated) for (name, label, emulated), number in devices.most_common()
        ),
        first=min(times, default=None),
        last=max(times, default=None),
    )


@dataclass(frozen=True)
class Finding:
    """Something of the database that cannot be used."""

    number: int
    """Number of its row; 0: the fault is the file's."""
    what: str


@dataclass(frozen=True)
class Verification:
    """The result of :func:`verify`."""

    path: Path
    bytes: int
    workloads: int
    records: int
    contexts: int
    findings: tuple[Finding, ...]
    written_now: bool
    """A process writes it."""
    taken_out: Path | None = None
    """The file as it was before a repair; None: nothing was taken out."""

    @property
    @in_document()
    def passed(self) -> bool:
        """Nothing is damaged."""
        return not self.findings


def verify(directory: Path, *, repair: bool = False) -> Verification:
    """See :func:`adt.verbs.db.db_verify`."""
    written_now = is_written(directory)
    result = _examine(load(directory), written_now)
    if result.passed or not repair:
        return result
    with locked(directory) as path:
        before = _examine(load(directory), False)
        if before.passed:
            return before
        unusable = {finding.number for finding in before.findings}
        backup = backup_path(directory, "damaged", path.suffix)
        sqlite_file.copy_damaged(path, backup)
        items = sqlite_file.entries(path)
        whole = (item for item in items if isinstance(item, Entry) and item.number not in unusable)
        sqlite_file.replace(path, (row(item.kind, item.data) for item in whole))
    return replace(_examine(load(directory), False), taken_out=backup)


def _examine(contents: Contents, written_now: bool) -> Verification:
    findings = [
        Finding(each.number, f"row {each.number}: {each.reason}" if each.number else each.reason)
        for each in contents.damaged
    ]
    for number, record in contents.orphans:
        what = f"a record of {record.task}: its workload {record.workload} is missing"
        findings.append(Finding(number, what))
    for name, workload in contents.workloads.items():
        if Workload.id_of(workload.module) != name:
            what = f"workload {name}: its text is another one's"
            findings.append(Finding(contents.workload_numbers[name], what))
    findings += [Finding(number, what) for number, what in contents.refused()]
    return Verification(
        contents.path,
        contents.size,
        len(contents.workloads),
        len(contents.records),
        len(contents.contexts),
        tuple(sorted(findings, key=lambda finding: finding.number)),
        written_now,
    )
