"""Figures about a tuning database."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from adt.host.document import in_document
from adt.tuning.database.contents import load
from adt.tuning.records import Context, Record, baseline_records, best_records, quarantined_candidates


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
    best, untuned = best_records(genuine), baseline_records(genuine)
    ratios = [
        untuned[name].time / best[name].time
        for name in best.keys() & untuned.keys()
        if best[name].time > 0 and untuned[name].time > 0
    ]
    times = [record.at for record in records if record.at]  # what was imported has none
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
        devices=_devices(records),
        first=min(times, default=None),
        last=max(times, default=None),
    )


def _devices(records: Sequence[Record]) -> tuple[Device, ...]:
    devices = Counter((r.on.name, r.on.label, r.on.emulated) for r in records if r.on)
    return tuple(
        Device(name, label, number, emulated) for (name, label, emulated), number in devices.most_common()
    )
