"""Temporary files and directories, and what a full or read-only disk means to whoever writes them.

What fails seldom names the disk: a compiler says that it cannot write, and which of three directories is full
shows only while they still hold what was written. So each place that is written to is named by a block, and
when something fails within, the places are looked at before anything is removed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from adt.errors import (
    AdtError,
    BuildError,
    CompileError,
    DiskError,
    ProcessFailed,
    RunError,
    SourceError,
    ToolNotFound,
)
from adt.host.directories import variable_of
from adt.host.reaper import reaped_path

FULL = (errno.ENOSPC, errno.EDQUOT)
CLOSED = (
    errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG,
    errno.EFBIG, errno.EIO,
)  # fmt: skip
PROGRAM_ERRORS = (BuildError, CompileError, ProcessFailed, RunError, SourceError, ToolNotFound)
"""Errors whose cause may be that a program could not write."""
_WORDS = {
    errno.ENOSPC: "No space left on device",
    errno.EDQUOT: "Disk quota exceeded",
    errno.EROFS: "Read-only file system",
}
"""Messages of programs about an error of the disk."""


@dataclass(frozen=True)
class _Place:
    """Something that is being written."""

    doing: str
    path: Path
    variable: str = ""
    """Environment variable that chooses its directory; empty: that of one of adt's own places, or none."""
    written: bool = True
    temporary: Path | None = None
    """The name that it has meanwhile."""

    @property
    def directory(self) -> Path:
        """Directory that it is in, or the nearest one that exists."""
        path = self.path.absolute()
        return next(p for p in (path, *path.parents) if p.is_dir())

    def error(self, number: int, named: str = "", details: str = "") -> DiskError:
        """Return the error for a write, of the file *named* if it is known, that ends in error *number*."""
        at = named or str(self.directory)
        if variable := self.variable or variable_of(self.path):
            choice = f"set {variable} to a directory on another disk"
        else:
            choice = f"name another place than {self.path}"
        if number in FULL:
            what = f"no space left in {at} while {self.doing}"
            remedy = f"Free some space there, or {choice}. What was complete is kept."
        else:
            what = f"cannot use {at} while {self.doing}: {os.strerror(number)}"
            remedy = f"See that you may read and write there, or {choice}."
        return DiskError(what, remedy=remedy, details=details)


_places: ContextVar[tuple[_Place, ...]] = ContextVar("places", default=())


@contextlib.contextmanager
def disk_errors(
    doing: str, path: Path, *, variable: str = "", written: bool = True, temporary: Path | None = None
) -> Iterator[None]:
    """Raise DiskError where what fails within the block, while *doing* ("writing DIR"), does so by the disk.

    *variable* is the environment variable that chooses its directory, if it is none of adt's own places;
    *temporary* the name of *path* until it is complete: what is written within belongs to it.
    """
    around = (p for p in _places.get() if p.temporary and path.absolute().is_relative_to(p.temporary))
    place = next(around, None) or _Place(doing, path, variable, written, temporary)
    token = _places.set((*_places.get(), place))
    try:
        yield
    except Exception as error:
        if (disk_error := explain(error)) is not None:
            raise disk_error from error
        raise
    finally:
        _places.reset(token)


def explain(error: Exception) -> DiskError | None:
    """Return *error* as an error of one of the places being written; None where no disk is the cause."""
    if isinstance(error, AdtError) and not isinstance(error, PROGRAM_ERRORS):
        return None
    places = _places.get()[::-1]
    number, details = 0, ""
    if isinstance(error, AdtError):
        details = f"{error.what}\n{error.details}"
        number = next((number for number, words in _WORDS.items() if words in details), 0)
    elif isinstance(error, OSError):
        number = error.errno or 0
        if number not in (*FULL, *CLOSED):
            return None
        name = (error.filename2 if number in FULL else None) or error.filename  # the second one is the copy
        if isinstance(name, str):
            other = _Place(places[0].doing if places else "using it", Path(name))
            place = next((place for place in places if _inside(Path(name), place)), other)
            return place.error(number, "" if number in FULL else name)
    places = tuple(place for place in places if place.written)
    for place in places:
        if refusal := _refusal(place.directory):
            return place.error(refusal, details=details)
    if number and places:  # what was written is gone already: the one with the least room
        return min(places, key=lambda place: _room(place.directory)).error(number, details=details)
    return None


def check_output(place: str | Path, *, directory: bool = False) -> None:
    """Raise DiskError unless a file, or a *directory*, can be written to *place*; for before the work."""
    import tempfile

    path = Path(place).absolute()
    nearest = next(each for each in (path, *path.parents) if each.exists())
    if nearest == path and nearest.is_dir() != directory and path.suffix != ".tar":  # a package is either
        kinds = ("a directory, and a file", "a file, and a directory")
        raise DiskError(f"{place} is {kinds[directory]} is to be written", remedy="Name another place.")
    try:
        if nearest != path or nearest.is_dir():
            tempfile.TemporaryFile(dir=nearest).close()
        elif not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, str(path))
    except OSError as error:
        written = _Place(f"writing {place}", path)
        raise written.error(error.errno or errno.EACCES, str(nearest)) from error


check_directory = partial(check_output, directory=True)


def output_error(error: OSError) -> DiskError | None:
    """Return *error* as one of standard output, which then goes nowhere; None where that is not the cause."""
    if error.errno not in FULL or error.filename is not None:
        return None
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)  # else Python fails with what it still holds when it ends
    os.close(nowhere)
    return DiskError(
        "no space left where standard output goes", remedy="Free some space there, or send it elsewhere."
    )


def _inside(file: Path, place: _Place) -> bool:
    """Return True if *file* is what is written at *place*, below it, on the way to it, or beside it."""
    file, path = file.absolute(), place.path.absolute()
    if place.temporary is not None and file.is_relative_to(place.temporary):
        return True
    return file.is_relative_to(path) or path.is_relative_to(file) or file.parent == path.parent


def _refusal(directory: Path) -> int:
    """Return the number of the error of writing a little to *directory*; 0: it can be written."""
    import tempfile

    try:
        with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
            left = 1 << 16  # a disk with less room counts as full
            while left:
                left -= file.write(bytes(left)) or 0
    except OSError as error:
        return error.errno if error.errno in (*FULL, *CLOSED) else 0
    return 0


def _room(directory: Path) -> int:
    facts = os.statvfs(directory)
    return facts.f_bavail * facts.f_frsize


def temporary_directory() -> Path:
    """Return the directory for files that nobody needs later: TMPDIR if that is one, else the system's.

    It stays the named one when that is full, unlike Python's: programs that adt runs would use it.
    """
    named = os.environ.get("TMPDIR", "")
    if named and Path(named).is_dir():
        return Path(named).absolute()
    import tempfile

    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        raise DiskError(
            f"there is no directory for temporary files: {error.strerror}",
            remedy="Set TMPDIR to a directory that you may write to and that has room.",
        ) from error


@contextlib.contextmanager
def scratch_directory(purpose: str, *, beside: Path | None = None) -> Iterator[Path]:
    """Yield a directory of one's own until the end of the block, or of this process if that comes first.

    It is made *beside* a file, where there is room for what becomes of it, or in :func:`temporary_directory`.
    """
    name = f"adt-{purpose}-{os.urandom(6).hex()}"
    if beside is None:
        path, doing, variable = temporary_directory() / name, "writing temporary files", "TMPDIR"
    else:
        path, doing, variable = temporary_name(beside), f"writing {beside}", ""
    with reaped_path(path):
        try:
            with disk_errors(doing, beside or path.parent, variable=variable, temporary=path):
                path.mkdir(mode=0o700)
                yield path
        finally:  # after the disk was looked at
            shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def memory_file(name: str) -> Iterator[Path]:
    """Give a path, for this process and its children, of an empty file in memory that the block has."""
    descriptor = os.memfd_create(name)
    try:
        yield Path(f"/proc/{os.getpid()}/fd/{descriptor}")
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def library_files(directory: Path) -> Iterator[None]:
    """Let :mod:`tempfile` write to *directory*, a scratch one: its files would stay when we are killed."""
    import tempfile

    before, tempfile.tempdir = tempfile.tempdir, str(directory)
    try:
        yield
    finally:
        tempfile.tempdir = before


def temporary_name(final: Path) -> Path:
    """Return a name beside *final* that nobody else has."""
    return final.absolute().with_name(f".{final.name[:100]}.{os.urandom(6).hex()}.tmp")


def size_text(count: int) -> str:
    for unit, name in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count >= 1 << unit:
            return f"{count / (1 << unit):.1f} {name}"
    return f"{count} B"
