"""The SQLite file of a tuning database: one table, whose rows are the lines of :mod:`adt.tuning.records`.

SQLite keeps transactions whole and readers apart from the one writer. It checks how pages hang together, not
what is in them: that is what each row's checksum is for. A file may come from a stranger, so nothing in it
is executed, its schema must be exactly ours, and what it says of itself decides no amount of work or memory.
"""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from shlex import quote
from typing import Any

from adt.errors import Busy, DiskError, PackageError
from adt.host.cache import fresh_file, sync
from adt.host.disk import disk_errors, explain, scratch_directory
from adt.limits import MOST_TEXT
from adt.tuning.records import Damage, Entry, Row, entry

FILE = "records.sqlite"
WAL = "-wal"
"""End of the name of SQLite's write-ahead log, with what is not in the file yet."""
ENDS = (WAL, "-shm", "-journal")
"""Ends of the names of the files that SQLite opens beside the file."""
VERSION = 1
"""``PRAGMA user_version``."""
TABLE = (
    "CREATE TABLE entries (number INTEGER PRIMARY KEY, kind TEXT NOT NULL, crc INTEGER NOT NULL,"
    " data TEXT NOT NULL)"
)
INSERT = "INSERT INTO entries (kind, crc, data) VALUES (?, ?, ?)"
SELECT = "SELECT number, kind, crc, data FROM entries"
PAGE = 4096
LEAF = b"\x0d"
"""First byte of a page with rows."""
WAIT = 30.0
"""Seconds for another process that recovers the file, or writes a transaction."""
LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: MOST_TEXT,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 10_000,
    sqlite3.SQLITE_LIMIT_COLUMN: 16,
    sqlite3.SQLITE_LIMIT_ATTACHED: 1,  # VACUUM takes one
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 0,
}
ERRORS = sqlite3.Error, UnicodeDecodeError
"""Exceptions of SQLite, whose messages may have the bytes of a damaged name in them."""
NO_ACCESS = {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_IOERR}
DISK = NO_ACCESS | {sqlite3.SQLITE_FULL, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_AUTH}
"""Codes of errors that are not the file's."""


class DamagedFile(PackageError):
    """SQLite cannot read the file, or a part of it."""


def repair_remedy(directory: Path) -> str:
    """Return the remedy for a damaged database."""
    return f"Take out what is damaged; the old file is kept: adt db verify {quote(str(directory))} --repair"


def size_of(path: Path) -> int:
    """Return the bytes of the file *path* and of what is not yet in it."""
    size = path.stat().st_size
    with suppress(FileNotFoundError):
        size += path.with_name(path.name + WAL).stat().st_size
    return size


def create(path: Path, rows: Iterable[Row] = ()) -> None:
    """Write a database of *rows* to *path*; it appears complete, and on the disk, or not at all."""
    with fresh_file(path, durable=True) as temporary, sqlite_errors(path):
        temporary.touch(exist_ok=False)
        with closing(_connect(temporary, "rw")) as connection:
            connection.execute(f"PRAGMA page_size = {PAGE}")
            connection.execute("PRAGMA journal_mode = OFF")
            connection.execute("BEGIN")
            connection.execute(TABLE)
            connection.execute(f"PRAGMA user_version = {VERSION}")
            connection.executemany(INSERT, rows)
            connection.execute("COMMIT")
            connection.execute("PRAGMA journal_mode = WAL")


@contextmanager
def writing(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the existing *path* for the holder of the write lock: a commit returns when it is on the disk."""
    _refuse_rollback_journal(path)
    with sqlite_errors(path), closing(_connect(path, "rw")) as connection:
        connection.execute("PRAGMA synchronous = FULL")
        _check(connection, path)
        yield connection


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Open one state of *path*, which need not be writable, nor the directory that it is in.

    DamagedFile, PackageError (no database, or a later adt's), Busy or DiskError if it cannot be read.
    """
    _refuse_rollback_journal(path)
    with ExitStack() as stack, sqlite_errors(path):
        connection = _snapshot(path, stack)
        _check(connection, path)
        yield connection


def _snapshot(path: Path, stack: ExitStack) -> sqlite3.Connection:
    for mode in ("rw", "ro"):  # as the last reader, the first one takes SQLite's other files away again
        try:
            return _begin(path, mode, stack)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF not in NO_ACCESS:
                raise
    # SQLite wants to make files beside it, and may not: nobody writes it here.
    with disk_errors(f"reading {path}", path, written=False):
        copy = Path(stack.enter_context(scratch_directory("database"))) / FILE
        _copy(path, copy)
    return _begin(copy, "rw", stack)


def _begin(path: Path, mode: str, stack: ExitStack) -> sqlite3.Connection:
    connection = stack.enter_context(closing(_connect(path, mode)))
    connection.execute("PRAGMA query_only = ON")
    connection.execute("BEGIN")
    connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    return connection


def _copy(path: Path, to: Path) -> None:
    for end in ("", WAL):
        source = path.with_name(path.name + end)
        if source.exists():
            shutil.copyfile(source, to.with_name(to.name + end))


def entries(path: Path) -> Iterator[Entry | Damage]:
    """Yield all rows of *path*, in order; of a damaged file its damage, then the rows that can be read."""
    last = 0
    try:
        with reading(path) as connection:
            lines = b"\n".join(row for (row,) in connection.execute("PRAGMA quick_check")).splitlines()
            texts = [line.decode(errors="replace") for line in lines]
            faults = [text for text in texts if text != "ok" and not text.startswith("***")]
            if not faults:  # else rows may go round in a circle
                for number, *parts in connection.execute(f"{SELECT} ORDER BY number"):
                    yield entry(number, *parts)
                    last = number
                return
    except DamagedFile as error:
        faults = [str(error.__cause__ or "its first page is damaged")]
    yield from (Damage(0, fault) for fault in faults)
    yield from _salvage(path, last)


def _salvage(path: Path, after: int) -> Iterator[Entry | Damage]:
    """Read the rows of the damaged *path* after the row *after*.

    No index is trusted: in a copy, the table is made to begin in each page with rows, one after the other.
    """
    with scratch_directory("database") as scratch, disk_errors(f"reading {path}", path, written=False):
        copy = scratch / FILE
        _copy(path, copy)
        for _ in range(2):  # where the first page is damaged, SQLite takes the log over only the second time
            with suppress(*ERRORS), closing(_connect(copy, "rw")) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            _replace_first_page(copy)
        items: dict[int, Entry | Damage] = {}
        room = copy.stat().st_size
        for number, *parts in _rows_of_pages(copy):
            room -= sum(len(part) for part in parts if isinstance(part, bytes))
            if room >= 0 and number > after:  # a page that is used twice adds nothing
                items.setdefault(number, entry(number, *parts))
    yield from (items[number] for number in sorted(items))


def _rows_of_pages(path: Path) -> Iterator[tuple[Any, ...]]:
    with path.open("rb") as file:
        starts = enumerate(iter(lambda: file.read(PAGE)[:1], b""), 1)
        pages = [page for page, start in starts if start == LEAF]
    with closing(_connect(path, "rw")) as connection:
        for page in pages:
            with suppress(*ERRORS):
                connection.execute("PRAGMA synchronous = OFF")
                connection.execute("PRAGMA writable_schema = ON")
                connection.execute("UPDATE sqlite_master SET rootpage = ?", (page,))
                connection.execute("PRAGMA writable_schema = RESET")
                for (number,) in connection.execute("SELECT number FROM entries").fetchall():
                    with suppress(*ERRORS):  # of one row
                        yield from connection.execute(f"{SELECT} WHERE number = ?", (number,)).fetchmany(1)


def _replace_first_page(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(_first_page())


@cache
def _first_page() -> bytes:
    """Return the first page of a new database, with the schema; it does not tell the number of pages."""
    with scratch_directory("database") as scratch:
        create(scratch / FILE)
        page = bytearray((scratch / FILE).read_bytes()[:PAGE])
    page[92:96] = b"\xff" * 4  # for which state of the file its number of pages is valid
    return bytes(page)


def replace(path: Path, rows: Iterable[Row]) -> None:
    """Put *rows* in the place of all that is in *path*, in one step, whatever state it is in."""
    with scratch_directory("database") as scratch:
        create(scratch / FILE, rows)
        for attempt in (1, 2):
            try:
                with writing(path) as old, closing(_connect(scratch / FILE, "rw")) as new:
                    new.backup(old)  # in place: a reader may have the file open
                return
            except DamagedFile:
                if attempt == 2:
                    raise
                with disk_errors(f"repairing {path}", path):
                    _replace_first_page(path)
                    sync(path)


def copy_damaged(path: Path, to: Path) -> None:
    """Copy *path*, which nothing in this process has open, with what is not yet in it, to *to*."""
    with disk_errors(f"writing {to}", to):
        to.parent.mkdir(exist_ok=True)
        _copy(path, to)
        for part in (to, to.with_name(to.name + WAL), to.parent):
            if part.exists():
                sync(part)


def copy_open(connection: sqlite3.Connection, to: Path) -> None:
    """Copy the database that *connection* has open to the new file *to*."""
    with disk_errors(f"writing {to}", to):
        to.parent.mkdir(exist_ok=True)
        with sqlite_errors(to), closing(sqlite3.connect(to)) as copy:
            connection.backup(copy)
        sync(to.parent)


@contextmanager
def transaction(connection: sqlite3.Connection, path: Path) -> Iterator[None]:
    """Write the block's changes to the file and the disk as this ends, or nothing of them."""
    with sqlite_errors(path):
        try:
            connection.execute("BEGIN IMMEDIATE")
            yield
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


@contextmanager
def sqlite_errors(path: Path) -> Iterator[None]:
    """Turn SQLite's errors about *path* into DamagedFile, Busy or DiskError, with a remedy."""
    try:
        yield
    except ERRORS as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise Busy(
                f"another program has locked {path}",
                remedy="End the program that has it open, or wait until it is done.",
            ) from error
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        if code == sqlite3.SQLITE_FULL and (explained := explain(full)) is not None:
            raise explained from error
        if code in DISK and not (code == sqlite3.SQLITE_READONLY and os.access(path, os.W_OK)):
            raise DiskError(
                f"{path} could not be read or written: {error}",
                remedy="Free some space, or see that the file and its directory may be written, on a local "
                "disk; then run the same command again. What was kept before is there.",
            ) from error
        raise DamagedFile(f"{path} is damaged: {error}", remedy=repair_remedy(path.parent)) from error


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=WAIT,
        isolation_level=None,
        check_same_thread=False,
    )
    for name, value in LIMITS.items():
        connection.setlimit(name, value)
    connection.text_factory = bytes
    for setting in ("trusted_schema = OFF", "cell_size_check = ON", "mmap_size = 0"):
        connection.execute(f"PRAGMA {setting}")
    return connection


def _check(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse what is no database of ours."""
    ((version,),) = connection.execute("PRAGMA user_version")
    schema = [(kind, sql) for kind, sql in connection.execute("SELECT type, sql FROM sqlite_master LIMIT 2")]
    ((page,),) = connection.execute("PRAGMA page_size")
    ((mode,),) = connection.execute("PRAGMA journal_mode")
    if version > VERSION:
        raise PackageError(
            f"{path} has version {version} of its format; this adt reads {VERSION}",
            remedy="Use the adt that wrote it, or a newer one.",
        )
    if len(schema) > 1:
        raise _foreign(path, "it has other tables, views or triggers")
    if (version, schema, page, mode) != (VERSION, [(b"table", TABLE.encode())], PAGE, b"wal"):
        raise DamagedFile(f"the first page of {path} is damaged", remedy=repair_remedy(path.parent))


def _refuse_rollback_journal(path: Path) -> None:
    """Refuse a journal, which ours never have: SQLite would apply it and remove files that it names."""
    journal = path.with_name(f"{path.name}-journal")
    if os.path.lexists(journal):
        raise _foreign(path, f"there is a {journal.name} beside it")


def _foreign(path: Path, reason: str) -> PackageError:
    return PackageError(
        f"{path} was not made by adt: {reason}",
        remedy="Ask who made it for a published file, and add that with `adt db fetch`.",
    )
