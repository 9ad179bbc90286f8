"""One process at a time writes a tuning database, for as long as it has it open; readers need no lock.

SQLite's own lock is for one transaction. This one is the kernel's record lock on ``DB/lock``: it goes with
the process that took it, however that ends, and children which it forked do not inherit it, as they would
an flock.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

from adt.errors import Busy, DiskError
from adt.host.contained import open_contained, open_lock

LOCK = "lock"
_FLOCK = "hhqqi0q"
"""``struct flock``: kind, whence, start, length, pid."""
_ours: set[Path] = set()
"""Directories that this process writes: the kernel's lock is the process's, not the thread's."""
_guard = threading.Lock()


@contextlib.contextmanager
def write_lock(directory: Path) -> Iterator[None]:
    """Hold the write lock of the database in *directory*; Busy if another process or thread has it."""
    place = directory.resolve()
    with _guard:
        if place in _ours:  # opening the file again would give up the lock that is held
            raise _busy(directory, str(os.getpid()))
        _ours.add(place)
    try:
        file = open_lock(place / LOCK, written=True)
        try:
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
        finally:
            os.close(file)  # which gives the lock up
    finally:
        with _guard:
            _ours.discard(place)


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
