"""What a journal of records holds, read into memory; nothing of TVM is needed for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from adt.errors import PackageError
from adt.host.cache import disk_errors
from adt.model.graphs.check import GraphError, check_graph
from adt.model.tuning.key import tvm_version
from adt.model.tuning.traces import TraceError, check_trace
from adt.tuning.journal import HEADER, START, Damage, scan
from adt.tuning.record_json import record_of, workload_of
from adt.tuning.records import BASELINE, Context, Record, Workload

JOURNAL = "records.jsonl"
WORKLOAD, RECORD = "workload", "record"
"""Kinds of lines; others are of a later adt, and stay as they are."""

Place = tuple[int, int]
"""Of a line: its offset, and its size with the newline, in bytes."""


@dataclass
class Loaded:
    """The contents of a journal."""

    path: Path
    workloads: dict[str, Workload] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)
    """Of each workload's line."""
    records: list[Record] = field(default_factory=list)
    """In the order in which they were added."""
    record_places: list[Place] = field(default_factory=list)
    """Of each record's line."""
    orphans: list[tuple[Place, Record]] = field(default_factory=list)
    """Records, with their lines' places, whose workload is not there: they cannot be used."""
    others: list[int] = field(default_factory=list)
    """Offsets of the lines of other kinds."""
    damages: list[Damage] = field(default_factory=list)
    contexts: dict[Context, Context] = field(default_factory=dict)
    size: int = 0
    """Bytes."""
    end: int = 0
    """Offset after the last whole line."""

    @property
    def damaged(self) -> tuple[Damage, ...]:
        """The damages, without an end that is only not finished."""
        return tuple(damage for damage in self.damages if not damage.unfinished)

    def refused(self) -> list[tuple[Place, str]]:
        """Records that may not be applied and workloads that may not be read, with their lines' places.

        A workload of another version of TVM is not looked at: nothing reads it.
        """
        version = tvm_version(metadata.version("apache-tvm"))
        refused = []
        for workload in self.workloads.values():
            if workload.tvm == version:
                try:
                    check_graph(workload.module)
                except GraphError as error:
                    what = f"workload {workload.id} may not be read: it has {error}"
                    refused.append((self.places[workload.id], what))
        for place, record in zip(self.record_places, self.records, strict=True):
            if record.trace != BASELINE:
                try:
                    check_trace(record.trace)
                except TraceError as error:
                    refused.append((place, f"a record of {record.task} may not be applied: {error}"))
        return refused


def load(directory: Path) -> Loaded:
    """Read the database in *directory*, whatever state it is in.

    Raises:
        PackageError: there is none, or a later adt wrote it.
        DiskError: it may not be read.
    """
    path = journal_of(directory)
    found = Loaded(path)
    with disk_errors(f"reading {path}"):
        _read(found)
        with path.open("rb") as file:
            started = file.read(len(HEADER)).rstrip(b"\0")
    if found.end == 0 and not HEADER.startswith(started):
        raise PackageError(
            f"{path} is no tuning database, or nothing of it is left",
            remedy=f"Check the path; older states of a database are in {directory / 'backup'}.",
        )
    return found


def journal_of(directory: Path) -> Path:
    """The journal of the database in *directory*.

    Raises:
        PackageError: there is none.
    """
    path = directory / JOURNAL
    if not path.is_file():
        raise PackageError(
            f"there is no tuning database in {directory}",
            remedy="Check the path; `adt tune MODEL --db DIR` makes one.",
        )
    return path


def _read(found: Loaded) -> None:
    records: list[tuple[Place, Record]] = []
    for item in scan(found.path):
        found.size = max(found.size, item.offset + item.size)
        if isinstance(item, Damage):
            found.damages.append(item)
            continue
        place = item.offset, item.size
        try:
            if item.kind == WORKLOAD:
                workload = workload_of(item.data)
                found.workloads.setdefault(workload.id, workload)
                found.places.setdefault(workload.id, place)
            elif item.kind == RECORD:
                records.append((place, record_of(item.data, found.contexts)))
            elif item.kind != START:
                found.others.append(item.offset)
        except ValueError as why:
            found.damages.append(Damage(item.line, item.offset, item.size, str(why)))
            continue
        found.end = item.offset + item.size
    for place, record in records:
        if record.workload in found.workloads:
            found.record_places.append(place)
            found.records.append(record)
        else:
            found.orphans.append((place, record))
