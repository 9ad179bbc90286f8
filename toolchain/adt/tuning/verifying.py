"""Is every line of a tuning database whole, and may be applied; does it say where it is not?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from adt.host.cache import disk_errors
from adt.tuning import journal
from adt.tuning.database import writing
from adt.tuning.loading import Loaded, load
from adt.tuning.workloads import identity
from adt.tuning.write_lock import held


@dataclass(frozen=True)
class Finding:
    """Something of the journal that cannot be used."""

    offset: int
    """Byte where it begins."""
    size: int
    """Bytes."""
    what: str


@dataclass(frozen=True)
class Verification:
    """What :func:`verify` found."""

    path: Path
    """The journal."""
    size: int
    """Bytes."""
    workloads: int
    records: int
    contexts: int
    findings: tuple[Finding, ...]
    unfinished: int
    """Bytes at the end that a process left when it was ended, or that are just being written: no record that
    was acknowledged is in them, and the next one who writes cuts them off."""
    written_now: bool
    """A process writes it."""
    taken_out: Path | None = None
    """Where a repair put what could not be used; None: nothing was taken out."""

    @property
    def passed(self) -> bool:
        """Nothing is damaged."""
        return not self.findings


def verify(directory: Path, *, repair: bool = False) -> Verification:
    """Look at every byte of the database in *directory*.

    Args:
        repair: take out what cannot be used; it is kept in a file of ``backup/``.

    Raises:
        PackageError: there is none, or a later adt wrote it.
        Busy: it is to be repaired, and another process writes it.
        DiskError: there is no room or no access.
    """
    written_now = held(directory)
    loaded = load(directory)
    if not repair:
        return _examined(loaded, written_now)
    with writing(directory) as (loaded, _):
        before = _examined(loaded, False)
        if before.passed:
            return before
        damaged = {finding.offset: finding.size for finding in before.findings if finding.size}
        with disk_errors(f"repairing {loaded.path}"):
            kept = journal.keep_aside(loaded.path, "damaged", _pieces(loaded.path, damaged))
            journal.rewrite(loaded.path, journal.raw_lines(loaded.path, damaged))
    return replace(_examined(load(directory), False), taken_out=kept)


def _pieces(path: Path, places: dict[int, int]) -> tuple[bytes, ...]:
    with path.open("rb") as file:
        pieces = []
        for offset, size in sorted(places.items()):
            file.seek(offset)
            pieces.append(file.read(size))
    return tuple(pieces)


def _examined(loaded: Loaded, written_now: bool) -> Verification:
    findings = [
        Finding(damage.offset, damage.size, f"line {damage.line}: {damage.why}") for damage in loaded.damaged
    ]
    for place, record in loaded.orphans:
        what = f"a record of {record.task}: its workload {record.workload} is missing"
        findings.append(Finding(*place, what))
    for workload in loaded.workloads.values():
        if identity(workload.module) != workload.id:
            place = loaded.places[workload.id]
            findings.append(Finding(*place, f"workload {workload.id}: its text is another one's"))
    findings += [Finding(*place, what) for place, what in loaded.refused()]
    return Verification(
        loaded.path,
        loaded.size,
        len(loaded.workloads),
        len(loaded.records),
        len(loaded.contexts),
        tuple(sorted(findings, key=lambda finding: finding.offset)),
        sum(damage.size for damage in loaded.damages if damage.unfinished),
        written_now,
    )
