"""Several tuning databases into one: what is there already is not added again."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from adt.errors import ConfigError, PackageError
from adt.host.cache import disk_errors
from adt.tuning import journal
from adt.tuning.database import writing
from adt.tuning.loading import RECORD, WORKLOAD, Loaded, load
from adt.tuning.record_json import record_data, workload_data
from adt.tuning.records import Record, Workload


@dataclass(frozen=True)
class Merged:
    """What was added."""

    into: Path
    workloads: int
    records: int
    duplicates: int
    """Records that were there already."""
    passed_over: int
    """Lines of the sources that are damaged, and records whose workload is missing."""


def merge(sources: Sequence[Path], into: Path) -> Merged:
    """Add what the databases *sources* hold to the one in *into*, which is made when it is not there.

    It happens in one step; an interruption leaves *into* as it was. The same kernel of two
    models is one workload, whatever its variables are called.

    Raises:
        PackageError: a source is no tuning database, or has what may not be applied.
        ConfigError: *into* is one of the sources.
        Busy: another process writes *into*.
        DiskError: there is no room or no access.
    """
    loaded = []
    for source in sources:
        if source.resolve() == into.resolve():
            raise ConfigError(f"{into} cannot be merged into itself", remedy="Name it only with --into.")
        found = load(source)
        if refused := found.refused():
            raise PackageError(
                f"{source} is not merged: {refused[0][1]}",
                remedy=f"See what it is, and take it out: adt db verify {source} --repair",
            )
        loaded.append(found)
    with writing(into) as (target, _):
        adding = _Adding(target)
        for one in loaded:
            adding.take(one)
        if adding.workloads or adding.records:
            with disk_errors(f"writing {target.path}"):
                journal.rewrite(target.path, chain(journal.raw_lines(target.path), adding.lines()))
    passed_over = sum(len(one.damaged) + len(one.orphans) for one in loaded)
    return Merged(into, len(adding.workloads), len(adding.records), adding.duplicates, passed_over)


def identity(record: Record) -> Hashable:
    """What tells a measurement from every other; where it is kept, and by whose tuning, do not."""
    return record.workload, record.context, record.trace, record.at, record.seconds, record.failure is None


class _Adding:
    """What is new to a database."""

    def __init__(self, target: Loaded) -> None:
        self.workloads: list[Workload] = []
        self.records: list[Record] = []
        self.duplicates = 0
        self._seen = {identity(record) for record in target.records}
        self._known = dict(target.workloads)
        self._alike: dict[tuple[str, str], list[Workload]] = {}
        for workload in target.workloads.values():
            self._alike.setdefault((workload.tvm, workload.structural_hash), []).append(workload)

    def take(self, source: Loaded) -> None:
        """Add what is new of *source*."""
        names = {workload.id: self._id(workload) for workload in source.workloads.values()}
        for record in source.records:
            renamed = replace(record, workload=names[record.workload])
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
            if _same(workload, other):
                return other.id
        alike.append(workload)
        self._known[workload.id] = workload
        self.workloads.append(workload)
        return workload.id

    def lines(self) -> Iterator[bytes]:
        """As the journal has them."""
        yield from (journal.line(WORKLOAD, workload_data(workload)) for workload in self.workloads)
        yield from (journal.line(RECORD, record_data(record)) for record in self.records)


def _same(one: Workload, other: Workload) -> bool:
    """Whether two workloads of equal hash are; only then is TVM needed."""
    from adt.model.tuning.workload import same
    from adt.tuning.workloads import modules_of

    modules = modules_of((one, other))
    return None not in modules and same(*modules)
