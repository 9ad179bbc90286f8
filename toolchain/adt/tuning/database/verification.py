"""Is every row of a tuning database whole, and may be applied; does it say where it is not?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from adt.host.document import in_document
from adt.tuning.database import sqlite_file
from adt.tuning.database.contents import Contents, load
from adt.tuning.database.interchange import Entry
from adt.tuning.database.store import backup_path, is_written, locked
from adt.tuning.records import Workload


@dataclass(frozen=True)
class Finding:
    """Something of the database that cannot be used."""

    number: int
    """Number of its row, or of its line in an earlier adt's database; 0: the fault is the file's."""
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
        sqlite_file.replace(
            path, (item.row for item in items if isinstance(item, Entry) and item.number not in unusable)
        )
    return replace(_examine(load(directory), False), taken_out=backup)


def _examine(contents: Contents, written_now: bool) -> Verification:
    findings = []
    for damage in contents.damaged:
        where = f"{contents.unit} {damage.number}: " if damage.number else ""
        findings.append(Finding(damage.number, f"{where}{damage.reason}"))
    for number, record in contents.orphans:
        what = f"a record of {record.task}: its workload {record.workload} is missing"
        findings.append(Finding(number, what))
    for workload in contents.workloads.values():
        if Workload.id_of(workload.module) != workload.id:
            number = contents.workload_numbers[workload.id]
            findings.append(Finding(number, f"workload {workload.id}: its text is another one's"))
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
