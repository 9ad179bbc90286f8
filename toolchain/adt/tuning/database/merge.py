"""Several tuning databases into one: what is there already is not added again."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from adt.errors import ConfigError, PackageError
from adt.tuning.database.contents import Contents, load
from adt.tuning.database.interchange import Row, record_row, workload_row
from adt.tuning.database.sqlite_file import repair_remedy
from adt.tuning.database.store import writing
from adt.tuning.records import Record, Workload


@dataclass(frozen=True)
class MergeResult:
    """Result of a merge: numbers of what was added."""

    into: Path
    workloads: int
    records: int
    duplicates: int
    """Records that were there already."""
    passed_over: int
    """Rows of the sources that are damaged, and records whose workload is missing."""


def merge(sources: Sequence[Path], into: Path) -> MergeResult:
    """See :func:`adt.verbs.db.db_merge`; an interruption leaves *into* as it was.

    The same kernel of two models is one workload, whatever its variables are called.
    """
    contents = []
    for source in sources:
        if source.resolve() == into.resolve():
            raise ConfigError(f"{into} cannot be merged into itself", remedy="Name others before --into.")
        contents.append(load(source))
        if refused := contents[-1].refused():
            raise PackageError(f"{source} is not merged: {refused[0][1]}", remedy=repair_remedy(source))
    return merge_contents(contents, into)


def merge_contents(sources: Sequence[Contents], into: Path) -> MergeResult:
    """:func:`merge` of databases that were read and may be applied."""
    with writing(into) as (target, writer):
        addition = _Addition(target)
        for source in sources:
            addition.take(source)
        if rows := addition.rows():
            writer.add(rows)
    passed_over = sum(len(source.damaged) + len(source.orphans) for source in sources)
    return MergeResult(into, len(addition.workloads), len(addition.records), addition.duplicates, passed_over)


def identity(record: Record) -> Hashable:
    """Return the key of a measurement; its database and tuning are no part of it."""
    return record.workload, record.context, record.trace, record.at, record.seconds, record.failure is None


class _Addition:
    """Records and workloads that are new to a database."""

    def __init__(self, target: Contents) -> None:
        self.workloads: list[Workload] = []
        self.records: list[Record] = []
        self.duplicates = 0
        self._seen = {identity(record) for record in target.records}
        self._known = dict(target.workloads)
        self._alike: dict[tuple[str, str], list[Workload]] = {}
        for workload in target.workloads.values():
            self._alike.setdefault((workload.tvm, workload.structural_hash), []).append(workload)

    def take(self, source: Contents) -> None:
        """Add what is new of *source*."""
        ids = {workload.id: self._id(workload) for workload in source.workloads.values()}
        for record in source.records:
            renamed = replace(record, workload=ids[record.workload])
            if (key := identity(renamed)) in self._seen:
                self.duplicates += 1
            else:
                self._seen.add(key)
                self.records.append(renamed)

    def _id(self, workload: Workload) -> str:
        """The id under which *workload* is, or now comes to be, in the database."""
        if workload.id in self._known:
            return workload.id
        alike = self._alike.setdefault((workload.tvm, workload.structural_hash), [])
        for other in alike:
            if _is_same(workload, other):
                return other.id
        alike.append(workload)
        self._known[workload.id] = workload
        self.workloads.append(workload)
        return workload.id

    def rows(self) -> list[Row]:
        """For the database."""
        return [*map(workload_row, self.workloads), *map(record_row, self.records)]


def _is_same(workload: Workload, other: Workload) -> bool:
    """Return True if two workloads of equal hash are the same; only this needs TVM."""
    from adt.compiler.passes.records.workload import same
    from adt.tuning.database.store import modules_of

    modules = modules_of((workload, other))
    return None not in modules and same(*modules)
