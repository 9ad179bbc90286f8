"""The tuning database: a directory that keeps each result, whatever happens to the process that writes it.

One process writes, any number read at the same time: all records are read when it is opened.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import secrets
import sqlite3
import struct
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from adt.errors import Busy, DiskError, PackageError
from adt.host.cache import leave_alone
from adt.host.contained import open_contained, open_lock, regular_files
from adt.host.disk import disk_errors
from adt.tuning.database import sqlite_file
from adt.tuning.database.contents import Contents, load
from adt.tuning.database.sqlite_file import FILE
from adt.tuning.records import Context, Record, Row, Workload, best_records, record_row, workload_row

log = logging.getLogger("adt.tune")

LOGS, BACKUP = "logs", "backup"
"""Directories in a database: the logs of tunings, and what it was before it was repaired or pruned."""


@contextmanager
def open_database(directory: Path, *, write: bool = False) -> Iterator[Database]:
    """Open the tuning database in *directory*; with *write* as its only writer, who makes it if missing."""
    with writing(directory) if write else nullcontext((load(directory), None)) as (contents, writer):
        _warn(contents)
        yield Database(directory, contents, writer)


class Writer:
    """The file of a database, for the one who has its write lock."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.wrote = False
        self._path = path
        self._connection = connection

    def add(self, rows: Sequence[Row]) -> None:
        """Add *rows*; when this returns they are on the disk, when it raises none of them is in the file."""
        with sqlite_file.transaction(self._connection, self._path):
            self._connection.executemany(sqlite_file.INSERT, rows)
        self.wrote = True

    def remove(self, numbers: Iterable[int]) -> Path:
        """Remove the rows *numbers*, make the file small, and return a copy of the file as it was before."""
        copy = backup_path(self._path.parent, "pruned", ".sqlite")
        sqlite_file.copy_open(self._connection, copy)
        with sqlite_file.transaction(self._connection, self._path):
            self._connection.executemany(
                "DELETE FROM entries WHERE number = ?", ((number,) for number in numbers)
            )
        with sqlite_file.sqlite_errors(self._path):
            self._connection.execute("VACUUM")
        return copy


@contextmanager
def writing(directory: Path) -> Iterator[tuple[Contents, Writer]]:
    """Lock the database in *directory*, made when it is not there, as its only writer."""
    with locked(directory) as path, ExitStack() as litter:
        if not path.exists():
            litter.callback(path.unlink, missing_ok=True)
            sqlite_file.create(path)
        contents = load(directory)
        if contents.torn:
            raise PackageError(
                f"{path} is damaged, and is not written so: {contents.damages[0].reason}",
                remedy=sqlite_file.repair_remedy(directory),
            )
        with sqlite_file.writing(path) as connection:
            writer = Writer(path, connection)
            try:
                yield contents, writer
            except BaseException:
                if writer.wrote:
                    litter.pop_all()
                raise
        litter.pop_all()


@contextmanager
def locked(directory: Path) -> Iterator[Path]:
    """Hold the write lock of the database in *directory*, made if absent; yield its file, if it has one."""
    with ExitStack() as stack:
        with disk_errors(f"making {directory}", directory):
            leave_alone(directory, _is_database, "a tuning database")
            if not directory.exists():
                stack.callback(_remove_empty, directory)
            directory.mkdir(parents=True, exist_ok=True)
            regular_files(directory)  # nothing is written through a link, whoever made it
            stack.enter_context(write_lock(directory))
            for leftover in directory.glob(".records.*.tmp*"):  # of a process that was killed
                leftover.unlink(missing_ok=True)
        yield directory / FILE


def _remove_empty(directory: Path) -> None:
    """Remove the database in *directory* that came to nothing, if nothing but a lock is in it."""
    with suppress(OSError):
        if {path.name for path in directory.iterdir()} <= {LOCK}:
            (directory / LOCK).unlink(missing_ok=True)
            directory.rmdir()


def _is_database(directory: Path) -> bool:
    names = {path.name for path in directory.iterdir()}
    return FILE in names or names <= {LOCK, LOGS, BACKUP}


def backup_path(directory: Path, reason: str, suffix: str) -> Path:
    """Make a new name in the backups of the database in *directory*."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    return directory / BACKUP / f"{stamp}-{reason}-{secrets.token_hex(3)}{suffix}"


def _warn(contents: Contents) -> None:
    if damaged := contents.damaged:
        places = [f"row {each.number}" if each.number else each.reason for each in damaged[:5]]
        log.warning(
            "%s is damaged: %s; that is passed over (`adt db verify`)",
            contents.path,
            ", ".join(places) + (", …" if len(damaged) > 5 else ""),
        )
    if contents.orphans:
        count = len(contents.orphans)
        log.warning("%s has %d records whose workload is missing; they are passed over", contents.path, count)


class Database:
    """An open tuning database, for several threads; :func:`open_database` makes it."""

    def __init__(self, directory: Path, contents: Contents, writer: Writer | None) -> None:
        self.directory = directory
        self.workloads: Mapping[str, Workload] = contents.workloads
        """All of them, by id."""
        self._contents = contents
        self._open_writer = writer
        self._lock = threading.RLock()
        self._records = contents.records
        self._by_context: dict[Context, list[Record]] = {}
        for record in self._records:
            self._by_context.setdefault(record.context, []).append(record)
        self._by_hash: defaultdict[str, list[tuple[str, Any]]] | None = None

    def contexts(self) -> tuple[Context, ...]:
        """Return the contexts of the records, that of the newest record first."""
        with self._lock:
            last = {context: max(r.at for r in records) for context, records in self._by_context.items()}
        return tuple(sorted(last, key=lambda context: -last[context]))

    def records(self, context: Context | None = None, workload: str | None = None) -> tuple[Record, ...]:
        """Return the records, oldest first; only of *context* and of the *workload* id, where given."""
        with self._lock:
            records = self._records if context is None else self._by_context.get(context, [])
            return tuple(r for r in records if workload is None or r.workload == workload)

    def best(self, context: Context, *, untuned: bool = False) -> dict[str, Record]:
        """Map each workload to its fastest candidate that may run, or to its untuned schedule."""
        return best_records(self.records(context), untuned=untuned)

    def find(self, module: Any) -> str | None:
        """Find the id of the workload whose module equals *module*, an IRModule; None: it is not there."""
        from adt.compiler.passes.records.workload import same

        with self._lock:
            return next((workload for workload, each in self._alike(module) if same(each, module)), None)

    def workload_id(self, module: Any) -> str:
        """Return the id of the IRModule *module*; add a new one, durably (ValueError if we only read)."""
        with self._lock:
            if known := self.find(module):
                return known
            workload = describe_workload(module)
            self._writer.add([workload_row(workload)])
            self._contents.workloads[workload.id] = workload
            self._alike(module).append((workload.id, module))
            return workload.id

    def _alike(self, module: Any) -> list[tuple[str, Any]]:
        """Return id and module of the workloads that have, for this TVM, the hash of *module*."""
        from adt.compiler.passes.records.workload import structural_hash

        if self._by_hash is None:
            self._by_hash = defaultdict(list)
            workloads = tuple(self.workloads.values())
            for workload, each in zip(workloads, modules_of(workloads), strict=True):
                if each is not None:
                    self._by_hash[structural_hash(each)].append((workload.id, each))
        return self._by_hash[structural_hash(module)]

    def add(self, records: Sequence[Record], workloads: Sequence[Workload] = ()) -> None:
        """Keep *records*, and their new *workloads*: on the disk when this returns, or nothing of them."""
        with self._lock:
            new = {each.id: each for each in workloads if each.id not in self.workloads}
            if unknown := {record.workload for record in records} - self.workloads.keys() - new.keys():
                raise ValueError(f"records name workloads that are not there: {sorted(unknown)}")
            if rows := [*map(workload_row, new.values()), *map(record_row, records)]:
                self._writer.add(rows)
            if new:
                self._contents.workloads.update(new)
                self._by_hash = None
            self._records += records
            for record in records:
                self._by_context.setdefault(record.context, []).append(record)

    @property
    def _writer(self) -> Writer:
        if self._open_writer is None:
            raise ValueError(f"{self.directory} was opened for reading")
        return self._open_writer


def describe_workload(module: Any) -> Workload:
    """Describe *module*, an IRModule with one function ``main``, as a workload."""
    from tvm import ir

    from adt.compiler.passes.records.key import tvm_key
    from adt.compiler.passes.records.workload import structural_hash

    text = ir.save_json(module)
    return Workload(Workload.id_of(text), structural_hash(module), tvm_key(), text)


def modules_of(workloads: Sequence[Workload]) -> list[Any | None]:
    """Load the IRModule of each of *workloads*; None, with a warning, for what may not or cannot be read."""
    from adt.package.graphs import GraphError, read_graphs

    modules: list[Any | None] = []
    for workload, module in zip(workloads, read_graphs([each.module for each in workloads]), strict=True):
        reason = str(module) if isinstance(module, GraphError) else _workload_fault(module)
        if reason:
            log.warning(
                "workload %s, written by TVM %s, is not read: it has %s", workload.id, workload.tvm, reason
            )
        modules.append(None if reason else module)
    return modules


def _workload_fault(module: Any) -> str:
    """Return what of *module*, which TVM could read, is not as in a workload; empty if nothing is."""
    import tvm

    if not isinstance(module, tvm.IRModule):
        return f"a {type(module).__name__}, which is no module"
    if [(v.name_hint, type(f)) for v, f in module.functions.items()] != [("main", tvm.tirx.PrimFunc)]:
        return "other functions than one PrimFunc main"
    return ""


LOCK = "lock"
_FLOCK = "hhqqi0q"
"""``struct flock``: kind, whence, start, length, pid."""
_ours: set[Path] = set()
"""Directories that this process writes: the kernel's lock is the process's, not the thread's."""
_guard = threading.Lock()


@contextlib.contextmanager
def write_lock(directory: Path) -> Iterator[None]:
    """Hold the write lock of the database in *directory*; Busy if another process or thread has it.

    It is the kernel's record lock: it goes with its process, and forked children do not inherit it.
    """
    place = directory.resolve()
    with ExitStack() as stack:
        with _guard:
            if place in _ours:  # opening the file again would give up the lock that is held
                raise _busy(directory, str(os.getpid()))
            _ours.add(place)
        stack.callback(_ours.discard, place)
        file = open_lock(place / LOCK, written=True)
        stack.callback(os.close, file)  # which gives the lock up
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise DiskError(
                    f"{directory} cannot be locked: {os.strerror(error.errno or errno.ENOLCK)}",
                    remedy="Put the tuning database on a file system that has locks: a local disk.",
                ) from error
            raise _busy(directory, os.read(file, 32).decode(errors="replace").strip()) from None
        os.ftruncate(file, 0)
        os.write(file, f"{os.getpid()}\n".encode())
        yield


def is_written(directory: Path) -> bool:
    """True if a process writes the database in *directory* now; the lock is looked at, and not taken."""
    asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    with _guard:  # closing the file would give up a lock that a thread takes meanwhile
        if directory.resolve() in _ours:
            return True
        try:
            with open_contained(directory, LOCK) as file:
                kind, *_ = struct.unpack(_FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, asked))
        except OSError:  # there is none, it is not ours to read, or the file system has no locks
            return False
    return bool(kind != fcntl.F_UNLCK)


def _busy(directory: Path, pid: str) -> Busy:
    return Busy(
        f"process {pid or '(unknown)'} writes the tuning database {directory}",
        remedy="Wait for it to end, or end it: everything that it kept stays. Or take another directory: "
        "`adt db merge` brings two together.",
    )
