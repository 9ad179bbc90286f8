"""Content of a tuning database or a published file, read into memory without TVM, and selections of it."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from adt.compiler.passes.records.key import key_words, tvm_version
from adt.compiler.passes.records.traces import TraceError, check_trace
from adt.errors import ConfigError, PackageError
from adt.host.artefact import DATABASE, not_a
from adt.host.contained import contained_file
from adt.host.disk import disk_errors
from adt.package.graphs import GraphError, check_graph
from adt.tuning.database import sqlite_file
from adt.tuning.database.sqlite_file import FILE
from adt.tuning.records import (
    BASELINE,
    HEADER,
    RECORD,
    WORKLOAD,
    Context,
    Damage,
    Entry,
    Record,
    Workload,
    record_of,
    scan,
    workload_of,
)

MOST_BYTES = 8 << 30
"""Bytes of a database, and of what a published file unpacks to."""


@dataclass
class Contents:
    """The entries of one file."""

    path: Path
    size: int
    """Bytes."""
    workloads: dict[str, Workload] = field(default_factory=dict)
    workload_numbers: dict[str, int] = field(default_factory=dict)
    rows: list[tuple[int, Record]] = field(default_factory=list)
    """Records, with the number of the row or line of each."""
    orphans: list[tuple[int, Record]] = field(default_factory=list)
    """Records whose workload is not there: they cannot be used."""
    others: list[Entry] = field(default_factory=list)
    damages: list[Damage] = field(default_factory=list)
    contexts: dict[Context, Context] = field(default_factory=dict)

    @property
    def records(self) -> list[Record]:
        """All that can be used, in their order."""
        return [record for _, record in self.rows]

    @property
    def damaged(self) -> tuple[Damage, ...]:
        """The damages, without an end that is only not finished."""
        return tuple(damage for damage in self.damages if not damage.unfinished)

    @property
    def is_empty(self) -> bool:
        """Nothing that is whole is in it."""
        return not (self.workloads or self.orphans or self.others)

    @property
    def torn(self) -> bool:
        """SQLite's own structure is damaged: nothing can be written."""
        return any(damage.number == 0 for damage in self.damages)

    def refused(self) -> list[tuple[int, str]]:
        """List, by number, records that may not be applied and workloads that may not be read.

        A workload of another version of TVM is not looked at: nothing reads it.
        """
        version = tvm_version(metadata.version("apache-tvm"))
        refused = []
        for workload in self.workloads.values():
            if workload.tvm == version:
                try:
                    check_graph(workload.module)
                except GraphError as error:
                    reason = f"workload {workload.id} may not be read: it has {error}"
                    refused.append((self.workload_numbers[workload.id], reason))
        for number, record in self.rows:
            if record.trace != BASELINE:
                try:
                    check_trace(record.trace)
                except TraceError as error:
                    refused.append((number, f"a record of {record.task} may not be applied: {error}"))
        return refused


def load(directory: Path) -> Contents:
    """Read the database in *directory*."""
    path = file_of(directory)
    size = sqlite_file.size_of(path)
    contents = _collect(path, size, sqlite_file.entries(path))
    if contents.is_empty and contents.torn:
        raise _no_database(path)
    return contents


def load_lines(path: Path) -> Contents:
    """Read a published file."""
    with disk_errors(f"reading {path}", path, written=False):
        contents = _collect(path, path.stat().st_size, scan(path))
        with path.open("rb") as file:
            start = file.read(len(HEADER)).rstrip(b"\0")
    if contents.is_empty and not HEADER.startswith(start):
        raise _no_database(path)
    return contents


def _no_database(path: Path) -> PackageError:
    return PackageError(
        f"{path} is no tuning database, or nothing of it is left",
        remedy=f"Check the path; older states of a database are in {path.parent / 'backup'}.",
    )


def file_of(directory: Path) -> Path:
    """Return the database's file in *directory*; it and SQLite's beside it must be regular files."""
    with suppress(FileNotFoundError, NotADirectoryError):
        path = contained_file(directory, FILE, MOST_BYTES)
        for end in sqlite_file.ENDS:
            with suppress(FileNotFoundError):
                contained_file(directory, FILE + end, MOST_BYTES)
        return path
    raise not_a(DATABASE, directory)


def _collect(path: Path, size: int, entries: Iterable[Entry | Damage]) -> Contents:
    contents = Contents(path, size)
    records: list[tuple[int, Record]] = []
    for item in entries:
        if isinstance(item, Damage):
            contents.damages.append(item)
            continue
        try:
            if item.kind == WORKLOAD:
                workload = workload_of(item.data)
                contents.workloads.setdefault(workload.id, workload)
                contents.workload_numbers.setdefault(workload.id, item.number)
            elif item.kind == RECORD:
                records.append((item.number, record_of(item.data, contents.contexts)))
            else:
                contents.others.append(item)
        except ValueError as error:
            contents.damages.append(Damage(item.number, str(error)))
    for number, record in records:
        usable = record.workload in contents.workloads
        (contents.rows if usable else contents.orphans).append((number, record))
    return contents


@dataclass(frozen=True)
class Selection:
    """Parts of texts that a context must have, in any case; empty: any."""

    device: str = ""
    driver: str = ""
    target: str = ""
    """Part of the target's key, or of the words that people read for it."""
    tvm: str = ""
    """Start of the version."""


def select(contexts: Iterable[Context], selection: Selection) -> tuple[Context, ...]:
    """Return those of *contexts* that *selection* means."""
    return tuple(
        context
        for context in contexts
        if selection.device.lower() in context.device.lower()
        and selection.driver.lower() in context.driver.lower()
        and selection.target.lower() in f"{context.target} {key_words(context.target)}".lower()
        and context.tvm.startswith(selection.tvm)
    )


def select_one(contexts: Iterable[Context], selection: Selection) -> Context:
    """Return the one context that *selection* means, or refuse with a list."""
    available = tuple(contexts)
    matches = select(available, selection)
    if len(matches) == 1:
        return matches[0]
    if not matches:
        raise ConfigError(
            "the tuning database has no records of what was asked for"
            if available
            else "the tuning database has no records",
            remedy="Look at what is there: adt db stats DB",
            details="\n".join(map(describe, available)),
        )
    raise ConfigError(
        f"the tuning database has records of {len(matches)} devices, drivers, targets or versions of TVM",
        remedy="Choose with --device, --driver, --target and --tvm (parts of them are enough).",
        details="\n".join(map(describe, matches)),
    )


def describe(context: Context) -> str:
    """Describe the context in one line, for people."""
    driver = f", driver {context.driver}" if context.driver else ""
    return f"{context.device}{driver}, {key_words(context.target)}, TVM {context.tvm}"
