"""A file of checked lines that is only ever appended to: what was acknowledged survives kill -9 at any byte.

The first line names format and version. Each other line is one JSON object,
``{"kind":K,"crc":"8 hex digits","data":D}``, where D is written canonically (sorted keys,
no spaces, ASCII) and the crc is CRC-32 of K's bytes, then D's. :meth:`Journal.append` returns once its
lines are on the disk. Whatever follows the last whole line is no line that was acknowledged.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import secrets
import time
import zlib
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from adt.errors import DiskError, PackageError
from adt.host.cache import disk_errors

log = logging.getLogger("adt.tune")

FORMAT, VERSION = "adt.tuning-records", 1
HEADER = b'{"format":"adt.tuning-records","version":1}\n'
START = ""
"""Kind of the first line."""
BACKUP = "backup"
"""Directory beside the journal of what was cut off or taken out."""


@dataclass(frozen=True)
class Entry:
    """A line that is whole."""

    kind: str
    data: Mapping[str, Any]
    line: int
    """From 1."""
    offset: int
    size: int
    """Bytes, with the newline."""


@dataclass(frozen=True)
class Damage:
    """Bytes that are no whole line."""

    line: int
    """From 1."""
    offset: int
    size: int
    why: str
    unfinished: bool = False
    """The file ends in it: the process that wrote it was ended, or is still writing."""


def line(kind: str, data: Mapping[str, Any]) -> bytes:
    """One line of the journal.

    Raises:
        ValueError: *data* holds what JSON cannot: NaN, infinity, an object.
    """
    body = json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    return b'{"kind":"%s","crc":"%08x","data":%s}\n' % (kind.encode(), _checksum(kind.encode(), body), body)


def _checksum(kind: bytes, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(kind))


def scan(path: Path) -> Iterator[Entry | Damage]:
    """Everything in the journal *path*, in order; that the first line is missing is a damage, too.

    Raises:
        PackageError: a later adt wrote it.
        OSError: it cannot be read.
    """
    offset = 0
    number = 0
    with path.open("rb") as file:
        for number, text in enumerate(file, 1):
            if not text.endswith(b"\n"):
                yield Damage(number, offset, len(text), "it is not finished", unfinished=True)
            elif number == 1 and _is_header(text, path):
                yield Entry(START, {}, 1, 0, len(text))
            elif (entry := _entry(text, number, offset)) is not None:
                if number == 1:
                    yield Damage(1, 0, 0, "the line that names the format is missing")
                yield entry
            else:
                yield Damage(number, offset, len(text), "it is no entry, or its checksum is wrong")
            offset += len(text)
    if number == 0:
        yield Damage(1, 0, 0, "it is empty", unfinished=True)


def _is_header(text: bytes, path: Path) -> bool:
    if text == HEADER:
        return True
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return False
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        return False
    if found.get("version") != VERSION:
        raise PackageError(
            f"{path} has version {found.get('version')} of its format; this adt reads {VERSION}",
            remedy="Use the adt that wrote it, or a newer one.",
        )
    return True


_KIND = b'{"kind":"'
_LAYOUT = len(b'","crc":"00000000","data":')


def _entry(text: bytes, number: int, offset: int) -> Entry | None:
    """The entry in the line *text*; None when it is damaged."""
    # Lines are as `line` wrote them: the checksum is taken of the bytes as they are, before they are parsed.
    start = text.find(b'","crc":"', len(_KIND), 40)
    body = text[start + _LAYOUT : -2]
    kind = text[len(_KIND) : start]
    head = b'","crc":"%08x","data":' % _checksum(kind, body)
    whole = text.startswith(_KIND) and text.endswith(b"}\n")
    if start < 0 or not whole or text[start : start + _LAYOUT] != head:
        return None
    try:
        data = json.loads(body)
        name = kind.decode("ascii")
    except (ValueError, RecursionError):
        return None
    return Entry(name, data, number, offset, len(text)) if isinstance(data, dict) else None


class Journal:
    """The journal, open for appending; whoever holds it has the database's write lock."""

    def __init__(self, path: Path, end: int) -> None:
        """
        Args:
            path: it is there, with a header.
            end: offset after the last whole line; what follows goes to the backup, and is cut off.

        Raises:
            DiskError: there is no room for the backup, or no access.
        """
        self.path = path
        self._broken = False
        with disk_errors(f"opening {path}"):
            self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
            try:
                self._cut_tail(end)
            except BaseException:
                os.close(self._file)
                raise

    @classmethod
    def create(cls, path: Path) -> Self:
        """A new journal with nothing in it; it appears with its header or not at all."""
        with disk_errors(f"making {path}"):
            rewrite(path, (HEADER,))
        return cls(path, len(HEADER))

    def _cut_tail(self, end: int) -> None:
        size = os.fstat(self._file).st_size
        if size <= end:
            return
        tail = os.pread(self._file, size - end, end)
        if tail.strip(b"\0"):
            kept = keep_aside(self.path, "tail", (tail,))
            log.warning("cut %d bytes off the end of %s that are no whole record; they are in %s",
                        len(tail), self.path, kept)  # fmt: skip
        os.ftruncate(self._file, end)
        os.fsync(self._file)

    def append(self, lines: Sequence[bytes]) -> None:
        """Write *lines*; when this returns they are on the disk, when it raises none of them is in the file.

        Raises:
            DiskError: they could not be written.
        """
        if self._broken:
            raise DiskError(
                f"{self.path} could not be written before, and is not written any more",
                remedy="Look after the disk, then run the same command again. What was kept before is there.",
            )
        before = os.fstat(self._file).st_size
        data = memoryview(b"".join(lines))
        self._broken = True  # until it is known to end in a whole line again, whatever interrupts
        try:
            while data:
                data = data[os.write(self._file, data) :]
            os.fsync(self._file)
        except BaseException as why:
            with contextlib.suppress(OSError):  # else the next one who opens it cuts the tail off
                os.ftruncate(self._file, before)
                os.fsync(self._file)
                self._broken = False
            if not isinstance(why, OSError):
                raise
            raise DiskError(
                f"{self.path} could not be written: {os.strerror(why.errno or errno.EIO)}",
                remedy="Free some space, or see that the file may be written; then run the same command "
                "again. What was kept before is there.",
            ) from why
        self._broken = False

    def close(self) -> None:
        """Stop writing."""
        os.close(self._file)


def rewrite(path: Path, lines: Iterable[bytes], *, backup: str = "") -> Path | None:
    """Replace the journal *path* by *lines* in one step; on the disk when this returns.

    Args:
        backup: what the old one is kept as (``pruned``); empty: it is not kept.

    Returns:
        Where the old one is, or None.

    Raises:
        OSError: it could not be written; the old one is untouched.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        with temporary.open("wb") as file:
            file.writelines(lines)
            file.flush()
            os.fsync(file.fileno())
        kept = _second_name(path, backup) if backup else None
        temporary.replace(path)
        sync_directory(path.parent)
    finally:
        temporary.unlink(missing_ok=True)
    return kept


def _second_name(path: Path, what: str) -> Path:
    kept = _backup_path(path, what)
    try:
        os.link(path, kept)
    except OSError:  # not every file system has links
        with path.open("rb") as file:
            return keep_aside(path, what, iter(lambda: file.read(1 << 20), b""))
    sync_directory(kept.parent)
    return kept


def keep_aside(path: Path, what: str, chunks: Iterable[bytes]) -> Path:
    """Write *chunks* to a new file in the backup directory of the journal *path*.

    Returns:
        The file, which is on the disk.
    """
    kept = _backup_path(path, what)
    with kept.open("xb") as file:
        file.writelines(chunks)
        file.flush()
        os.fsync(file.fileno())
    sync_directory(kept.parent)
    return kept


def _backup_path(path: Path, what: str) -> Path:
    directory = path.parent / BACKUP
    directory.mkdir(exist_ok=True)
    sync_directory(path.parent)
    return directory / f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{what}-{secrets.token_hex(3)}.jsonl"


def raw_lines(path: Path, without: Container[int] = ()) -> Iterator[bytes]:
    """The header, then the lines of the journal *path* as they are, but those at the offsets *without*."""
    yield HEADER
    offset = 0
    with path.open("rb") as file:
        for text in file:
            if offset not in without and not (offset == 0 and _is_header(text, path)):
                yield text
            offset += len(text)


def sync_directory(directory: Path) -> None:
    """Make names in *directory* durable."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
