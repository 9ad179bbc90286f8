"""Records of other databases are added, each once; records that nobody will ask for again are removed."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from adt.errors import ConfigError, PackageError
from adt.tuning.database.contents import Contents, Selection, file_of, load, select
from adt.tuning.database.interchange import Row, record_row, workload_row
from adt.tuning.database.sqlite_file import repair_remedy
from adt.tuning.database.store import writing
from adt.tuning.records import (
    BASELINE,
    CandidateKey,
    Context,
    Record,
    Workload,
    fastest_candidates,
    quarantined_candidates,
)


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
    """Do as :func:`merge`, with databases that were read and may be applied."""
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
        """Return the id under which *workload* is, or now comes to be, in the database."""
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
        """Return the rows that the database does not have yet."""
        return [*map(workload_row, self.workloads), *map(record_row, self.records)]


def _is_same(workload: Workload, other: Workload) -> bool:
    """Return True if two workloads of equal hash are the same; only this needs TVM."""
    from adt.compiler.passes.records.workload import same
    from adt.tuning.database.store import modules_of

    modules = modules_of((workload, other))
    return None not in modules and same(*modules)


@dataclass(frozen=True)
class PruneResult:
    """Result of a pruning, or of its rehearsal."""

    path: Path
    applied: bool
    removed: int
    """Records."""
    kept: int
    workloads_removed: int
    """Number of workloads of which no record is left."""
    contexts: tuple[Context, ...]
    """Contexts that were looked at."""
    backup: Path | None
    """The state before; None when nothing was changed."""


def prune(
    directory: Path,
    *,
    keep: int | None = None,
    failures: bool = False,
    drop: bool = False,
    selection: Selection | None = None,
    dry_run: bool = False,
) -> PruneResult:
    """See :func:`adt.verbs.db.db_prune`; it happens in one step.

    The untuned schedule's times stay, and so does all of a candidate that must not run again.
    """
    selection = selection or Selection()
    if not drop and keep is None and not failures:
        raise ConfigError(
            "nothing was named that should go", remedy="Give --keep K, --failures, or --drop with --device."
        )
    if drop and selection.everything:
        raise ConfigError(
            "--drop would take out every record",
            remedy="Say of what: --device, --driver, --target, --tvm. To be rid of all, remove it.",
        )
    if dry_run:
        return _choose(directory, load(directory), keep, failures, drop, selection)[0]
    file_of(directory)  # only what is there is pruned
    with writing(directory) as (contents, writer):
        result, numbers = _choose(directory, contents, keep, failures, drop, selection)
        backup = writer.remove(numbers) if numbers else None
    return replace(result, applied=True, backup=backup)


def _choose(
    directory: Path, contents: Contents, keep: int | None, failures: bool, drop: bool, selection: Selection
) -> tuple[PruneResult, set[int]]:
    """Choose the records that go, and the numbers of their rows."""
    contexts = select(contents.contexts, selection)
    by_context: dict[Context, list[tuple[int, Record]]] = {context: [] for context in contexts}
    for number, record in zip(contents.record_numbers, contents.records, strict=True):
        if record.context in by_context:
            by_context[record.context].append((number, record))
    removed: set[int] = set()
    for records in by_context.values():
        slow = set() if keep is None else _slow_candidates([record for _, record in records], keep)
        for number, record in records:
            failed = failures and record.failure is not None and not record.failure.quarantined
            if drop or failed or (record.workload, record.trace) in slow:
                removed.add(number)
    left = zip(contents.record_numbers, contents.records, strict=True)
    used = {record.workload for number, record in left if number not in removed}
    unused = {number for name, number in contents.workload_numbers.items() if name not in used}
    kept = len(contents.records) - len(removed)
    return PruneResult(directory, False, len(removed), kept, len(unused), contexts, None), removed | unused


def _slow_candidates(records: Sequence[Record], keep: int) -> set[CandidateKey]:
    """Return the candidates of one context that may run, and are none of their workload's *keep* fastest."""
    spared = fastest_candidates(records, keep) | quarantined_candidates(records)
    return {(r.workload, r.trace) for r in records if r.seconds and r.trace != BASELINE} - spared
