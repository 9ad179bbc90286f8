"""Take out of a tuning database what nobody will ask for again; the old state is kept beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from adt.errors import ConfigError
from adt.tuning.database.contents import Contents, Selection, file_of, load, select
from adt.tuning.database.store import writing
from adt.tuning.records import (
    BASELINE,
    CandidateKey,
    Context,
    Record,
    fastest_candidates,
    quarantined_candidates,
)


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
    """The records that go, and the numbers of their rows."""
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
