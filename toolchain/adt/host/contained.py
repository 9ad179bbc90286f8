"""Files whose names come from a stranger's file: only regular ones inside a directory, reached by no link.

Every name that adt reads out of a model, package, archive or database goes through this module before it
becomes a path. A link on the way could lead to any file of the user's, a FIFO or device never ends.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import shutil
import stat
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from shlex import quote

from adt.errors import PackageError, SourceError
from adt.limits import MOST_TEXT, is_long

_ITSELF = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | _ITSELF
_LOCK = os.O_RDWR | os.O_CREAT | _ITSELF
_MOST_NAMES = 100_000


class UnsafeFile(PackageError, ValueError):
    """A name that leads out of its directory, or something that is no regular file of a permitted size."""

    def __init__(
        self, what: str, *, remedy: str = "Do not use what has it; get it again from those who made it."
    ) -> None:
        super().__init__(what, remedy=remedy)


def contained_name(name: str) -> PurePosixPath:
    """Parse the relative POSIX path *name*; UnsafeFile if it leads out, is too long or not printable."""
    path = PurePosixPath(name)
    if not path.parts or path.is_absolute() or ".." in path.parts:
        raise UnsafeFile(f"the name {name[:80]!r} leads out of its directory")
    if any(ord(character) < 32 or ord(character) == 127 for character in name) or is_long(name):
        raise UnsafeFile(f"the name {name[:80]!r} is too long or has control characters")
    return path


def plain_name(name: str) -> str:
    """Return *name* if it is one of :func:`contained_name` in its only spelling, on every system."""
    if str(contained_name(name)) != name or "\\" in name:
        raise UnsafeFile(f"the name {name[:80]!r} is not a plain relative path")
    return name


def file_name(name: str) -> str:
    """Return *name* if it is that of a file directly in a directory, for files that adt is to write."""
    if len(contained_name(name).parts) > 1 or "/" in name:
        raise UnsafeFile(f"the name {name[:80]!r} is not one of a file")
    return name


@contextlib.contextmanager
def open_contained(directory: Path, name: str, most: int = MOST_TEXT) -> Iterator[io.BufferedReader]:
    """Open the regular file *name* below *directory*, which is the user's and may be a link, for reading.

    UnsafeFile if a link is on the way, or if it is no regular file or has more than *most* bytes.
    """
    *parents, last = contained_name(name).parts
    with contextlib.ExitStack() as stack:
        at = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        stack.callback(os.close, at)
        for parent in parents:
            at = _open(parent, _DIRECTORY, at, directory / name)
            stack.callback(os.close, at)
        handle = _open(last, _FILE, at, directory / name)
        stack.callback(os.close, handle)
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise UnsafeFile(f"{directory / name} is no regular file")
        if status.st_size > most:
            raise UnsafeFile(f"{directory / name} has more than {most:,} bytes")
        yield stack.enter_context(open(handle, "rb", closefd=False))


def contained_file(directory: Path, name: str, most: int = MOST_TEXT) -> Path:
    """Return the path of the regular file *name* below *directory*, for readers that open it themselves."""
    with open_contained(directory, name, most):
        return directory / name


def read_contained(directory: Path, name: str, most: int = MOST_TEXT) -> bytes:
    """Read the bytes of the regular file *name* below *directory*."""
    with open_contained(directory, name, most) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise UnsafeFile(f"{name} grew beyond {most:,} bytes while it was read")
    return data


def regular_files(directory: Path) -> list[str]:
    """Return the name of each file below *directory*, sorted; none where it is missing.

    UnsafeFile for too many, or what is neither a regular file nor a directory (*directory* may be a link).
    """
    names: list[str] = []
    pending = [directory] if directory.is_dir() else []
    while pending:
        with os.scandir(pending.pop()) as items:
            for item in items:
                path = Path(item.path)
                if item.is_dir(follow_symlinks=False):
                    pending.append(path)
                elif item.is_file(follow_symlinks=False):
                    names.append(path.relative_to(directory).as_posix())
                else:
                    raise _link(path) if item.is_symlink() else UnsafeFile(f"{path} is no regular file")
        if len(names) + len(pending) > _MOST_NAMES:
            raise UnsafeFile(f"{directory} has more than {_MOST_NAMES:,} files")
    return sorted(names)


def open_lock(path: Path, *, written: bool = False) -> int:
    """Open the file *path*, made when it is missing, for a lock; returns a descriptor for both directions.

    UnsafeFile if it is a link, no regular file or, where it is to be *written*, has another name.
    """
    try:
        handle = os.open(path, _LOCK, 0o644)
        status = os.fstat(handle)
        if stat.S_ISREG(status.st_mode) and (status.st_nlink < 2 or not written):
            return handle
        os.close(handle)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            raise
    raise UnsafeFile(
        f"{path} is no file of its own, but a link or something else",
        remedy=f"Remove it, and adt makes one: rm {quote(str(path))}",
    )


def _open(name: str, flags: int, at: int, whole: Path) -> int:
    """Open *name* in the directory *at*; a link, or a file where a directory must be, is unsafe."""
    if stat.S_ISLNK(os.lstat(name, dir_fd=at).st_mode):
        raise _link(whole)
    return os.open(name, flags, dir_fd=at)


def copy_command(directory: Path) -> str:
    """Return the command that copies *directory*, links as what they lead to, to a new one beside it."""
    whole = directory.absolute()
    return f"cp -rL {quote(str(whole))} {quote(f'{whole}-copy')}"


def _link(path: Path) -> UnsafeFile:
    return UnsafeFile(
        f"{path} is a link, or lies behind one",
        remedy="It could lead to any file. If you trust who made it, use a copy with the files that links "
        f"lead to: {copy_command(path.parent)}",
    )


MOST_FILES, MOST_BYTES = 20_000, 200 << 20
"""Bounds on what adt takes of a source archive."""
MOST_AT_ONCE = 16 << 20
"""Bytes that are read at once: an archive's header cannot ask for more memory than this."""
DAMAGED = (
    tarfile.TarError, ValueError, OverflowError, RecursionError, EOFError, IndexError, KeyError, TypeError,
    AttributeError,
)  # fmt: skip
"""Exceptions of Python's reader for a damaged archive."""


class Bounded(io.BufferedReader):
    """A file of which only so much is read at once."""

    def read(self, size: int | None = -1) -> bytes:
        """Read at most :data:`MOST_AT_ONCE` bytes, which is more than any entry's header has."""
        if size is None or not 0 <= size <= MOST_AT_ONCE:
            raise tarfile.ReadError(f"an entry's header has {size} bytes")
        return super().read(size)


def unpack_source(archive: Path, directory: Path, wanted: Callable[[tarfile.TarInfo], str]) -> None:
    """Write members of a source *archive* below *directory* by the names that *wanted* gives; empty: none."""
    files = size = 0
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                if not (name := wanted(member)):
                    continue
                files, size = files + 1, size + member.size
                if files > MOST_FILES or size > MOST_BYTES:
                    raise tarfile.ReadError(f"more than {MOST_FILES:,} files or {MOST_BYTES >> 20} MB")
                write_file(tar, member, directory, name)
    except DAMAGED as error:
        raise damaged(archive, error) from error


def damaged(archive: Path, error: Exception) -> SourceError:
    """Describe why a downloaded *archive* cannot be unpacked."""
    return SourceError(
        f"{archive} cannot be unpacked: {error}", remedy=f"Delete {archive} and run the same command again."
    )


def write_file(tar: tarfile.TarFile, member: tarfile.TarInfo, directory: Path, name: str) -> None:
    """Write *member* as *name* below *directory*: its contents, its time and whether it can be run.

    As only plain files and directories are ever written (else TarError), no name leads out through a link.
    """
    try:
        path = directory / contained_name(name)
    except UnsafeFile as error:
        raise tarfile.ExtractError(f"an entry would be written outside: {error.what}") from error
    if not member.isreg() or member.issparse():
        raise tarfile.ExtractError(f"the entry {member.name!r} is no plain file")
    contents = tar.extractfile(member)
    assert contents is not None, "only links and directories have none"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with contents, path.open("xb") as file:
            shutil.copyfileobj(contents, file)
    except (FileExistsError, NotADirectoryError) as error:
        raise tarfile.ExtractError(f"the entry {member.name!r} is there twice") from error
    path.chmod(0o755 if member.mode & 0o100 else 0o644)
    os.utime(path, (member.mtime, member.mtime))
