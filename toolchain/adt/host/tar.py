"""Read ``.tar`` archives without trust: only plain files, only below one directory, only so much memory.

Python's own extraction filters came with 3.11.4; this needs nothing newer than 3.11.0.
"""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from pathlib import Path

from adt.host.contained import UnsafeFile, contained_name

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
        """At most :data:`MOST_AT_ONCE` bytes, which is more than any entry's header has."""
        if size is None or not 0 <= size <= MOST_AT_ONCE:
            raise tarfile.ReadError(f"an entry's header has {size} bytes")
        return super().read(size)


def write_file(tar: tarfile.TarFile, member: tarfile.TarInfo, directory: Path, name: str) -> None:
    """Write *member* as *name* below *directory*: its contents, its time and whether it can be run.

    As nothing but plain files and their directories is ever written, no name can lead out through a link.

    Raises:
        tarfile.TarError: *member* is no plain file, or damaged; *name* leads out of *directory*, or is there.
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
