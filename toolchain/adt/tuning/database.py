"""The tuning database: a directory that keeps each result, whatever happens to the process that writes it.

One process writes, any number read at the same time. A writer repairs what an earlier one
left unfinished when it opens the database; a reader passes it over.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from adt.host.cache import disk_errors, leave_alone
from adt.tuning import journal, ranking
from adt.tuning.journal import BACKUP, Journal
from adt.tuning.loading import JOURNAL, RECORD, WORKLOAD, Loaded, load
from adt.tuning.record_json import record_data, record_of, workload_data
from adt.tuning.records import Context, Record, Workload
from adt.tuning.write_lock import NAME as LOCK
from adt.tuning.write_lock import write_lock

log = logging.getLogger("adt.tune")

LOGS = "logs"
"""Directory in a database of the logs of tunings."""


@contextmanager
def open_database(directory: Path, *, write: bool = False) -> Iterator[Database]:
    """The tuning database in *directory*.

    Args:
        write: be its only writer; it is made when it is not there.

    Raises:
        PackageError: there is none to read, *directory* holds something else, or a later adt wrote it.
        Busy: another process writes it.
        DiskError: there is no room or no access.
    """
    if not write:
        loaded = load(directory)
        _warn(loaded)
        yield Database(directory, loaded, None)
        return
    with writing(directory) as (loaded, file):
        _warn(loaded)
        yield Database(directory, loaded, file)


@contextmanager
def writing(directory: Path) -> Iterator[tuple[Loaded, Journal]]:
    """Be the only writer of the database in *directory*, which is made or repaired.

    Raises:
        See :func:`open_database`.
    """
    with ExitStack() as held:
        with disk_errors(f"making {directory}"):
            leave_alone(directory, _may_be_ours, "a tuning database")
            directory.mkdir(parents=True, exist_ok=True)
            held.enter_context(write_lock(directory))
            for leftover in directory.glob(f".{JOURNAL}.*.tmp"):  # of a process that was killed
                leftover.unlink(missing_ok=True)
        loaded, file = _open_journal(directory)
        held.callback(file.close)
        yield loaded, file


def _may_be_ours(directory: Path) -> bool:
    return (directory / JOURNAL).is_file() or {path.name for path in directory.iterdir()} <= {
        LOCK,
        LOGS,
        BACKUP,
    }


def _open_journal(directory: Path) -> tuple[Loaded, Journal]:
    path = directory / JOURNAL
    if not path.exists():
        file = Journal.create(path)
        journal.sync_directory(directory.absolute().parent)
        return load(directory), file
    loaded = load(directory)
    if loaded.end == 0:  # ended while it was made: nothing was ever in it
        return loaded, Journal.create(path)
    return loaded, Journal(path, loaded.end)


def _warn(loaded: Loaded) -> None:
    if damaged := loaded.damaged:
        log.warning(
            "%s is damaged in line %s; that is passed over (`adt db verify`)",
            loaded.path,
            ", ".join(str(damage.line) for damage in damaged[:5]) + (", …" if len(damaged) > 5 else ""),
        )
    if loaded.orphans:
        log.warning(
            "%s has %d records whose workload is missing; they are passed over",
            loaded.path,
            len(loaded.orphans),
        )


class Database:
    """An open tuning database; :func:`open_database` makes it.

    Its methods may be called from several threads.
    """

    def __init__(self, directory: Path, loaded: Loaded, file: Journal | None) -> None:
        self.directory = directory
        self._file = file
        self._guard = threading.RLock()
        self._workloads = loaded.workloads
        self._records = loaded.records
        self._by_context: dict[Context, list[Record]] = {}
        for record in loaded.records:
            self._by_context.setdefault(record.context, []).append(record)
        self._by_hash: dict[str, list[tuple[str, Any]]] | None = None

    @property
    def workloads(self) -> Mapping[str, Workload]:
        """All of them, by id."""
        with self._guard:
            return dict(self._workloads)

    def contexts(self) -> tuple[Context, ...]:
        """What records hold for, that of the newest record first."""
        with self._guard:
            last = {context: max(r.at for r in records) for context, records in self._by_context.items()}
        return tuple(sorted(last, key=lambda context: -last[context]))

    def records(self, context: Context | None = None, workload: str | None = None) -> tuple[Record, ...]:
        """In the order in which they were added.

        Args:
            context: only of this one.
            workload: only of this workload's id.
        """
        with self._guard:
            found = self._records if context is None else self._by_context.get(context, [])
            return tuple(r for r in found if workload is None or r.workload == workload)

    def best(self, context: Context) -> dict[str, Record]:
        """By workload the fastest candidate that ran; one that ever killed or hung a server is none.

        A candidate that was measured several times counts with its (lower) median measurement.
        """
        with self._guard:
            return ranking.best(self._by_context.get(context, ()))

    def baselines(self, context: Context) -> dict[str, Record]:
        """By workload the untuned schedule's (lower) median measurement."""
        with self._guard:
            return ranking.baselines(self._by_context.get(context, ()))

    def known(self, context: Context) -> dict[tuple[str, str], Record]:
        """What is known of each candidate, by workload and trace.

        That it killed or hung a server counts most, then its newest time, then its newest failure.
        """
        with self._guard:
            return ranking.known(self._by_context.get(context, ()))

    def find(self, module: Any) -> str | None:
        """The id of the workload whose module equals *module*, an IRModule; None when it is not there."""
        from adt.model.tuning.workload import same, structural_hash

        with self._guard:
            wanted = structural_hash(module)
            for identity, other in self._hashes().get(wanted, ()):
                if same(other, module):
                    return identity
            return None

    def workload_id(self, module: Any) -> str:
        """The id of the workload with *module*, an IRModule; it is added, durably, when it is new.

        Raises:
            ValueError: it is new, and the database is only read.
            DiskError: it could not be kept.
        """
        from adt.model.tuning.workload import structural_hash
        from adt.tuning.workloads import described

        with self._guard:
            if found := self.find(module):
                return found
            workload = described(module)
            hashes = self._hashes()
            self._keep_workloads((workload,))
            hashes.setdefault(structural_hash(module), []).append((workload.id, module))
            return workload.id

    def _hashes(self) -> dict[str, list[tuple[str, Any]]]:
        """Id and module of each workload, by the hash that this TVM gives it."""
        from adt.model.tuning.workload import structural_hash
        from adt.tuning.workloads import modules_of

        if self._by_hash is None:
            self._by_hash = {}
            workloads = tuple(self._workloads.values())
            for workload, module in zip(workloads, modules_of(workloads), strict=True):
                if module is not None:
                    self._by_hash.setdefault(structural_hash(module), []).append((workload.id, module))
        return self._by_hash

    def add(self, records: Iterable[Record], workloads: Iterable[Workload] = ()) -> None:
        """Keep *records*, and the *workloads* that they name and that are not here yet.

        When this returns they are on the disk; when it raises none of the records is kept.

        Raises:
            ValueError: the database is only read, a record names no workload, or its times are no numbers.
            DiskError: they could not be written.
        """
        with self._guard:
            new = {w.id: w for w in workloads if w.id not in self._workloads}
            added = tuple(records)
            if strange := {r.workload for r in added} - self._workloads.keys() - new.keys():
                raise ValueError(f"records name workloads that are not there: {sorted(strange)}")
            lines = [_line(record) for record in added]
            if new:  # on the disk before any record names them
                self._keep_workloads(new.values())
                self._by_hash = None
            if lines:
                self._writer().append(lines)
                self._records.extend(added)
                for record in added:
                    self._by_context.setdefault(record.context, []).append(record)

    def _keep_workloads(self, new: Iterable[Workload]) -> None:
        added = tuple(new)
        self._writer().append([journal.line(WORKLOAD, workload_data(workload)) for workload in added])
        self._workloads.update({workload.id: workload for workload in added})

    def _writer(self) -> Journal:
        if self._file is None:
            raise ValueError(f"{self.directory} was opened for reading")
        return self._file


def _line(record: Record) -> bytes:
    """The journal's line for *record*, which can be read again."""
    data = record_data(record)
    record_of(data, {})
    return journal.line(RECORD, data)
