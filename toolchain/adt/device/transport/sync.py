"""Files to and from the device over ADB's sync protocol, many on one connection.

A request is four letters and a length, little endian; a file travels as DATA pieces of at most 64 KiB and
ends with DONE and its modification time. Requests are sent ahead of the daemon's answers, which come in the
same order: many small files cost one round trip, not one each.

Names are what the device has, bytes; as text they are decoded as Python decodes
file names (``os.fsdecode``), so that every name survives the way there and back.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import stat
import struct
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from adt.device.transport import adb
from adt.device.transport.deadline import Deadline
from adt.errors import DeviceError, DiskError
from adt.host.cache import fresh_file
from adt.host.disk import disk_errors
from adt.host.transfers import observer

CHUNK = 64 * 1024
"""Bytes: the largest DATA piece that a device accepts."""
HEADER = struct.Struct("<4sI")
BATCH = 1 << 20
"""Bytes, about, that we hand to the socket at once."""
MAX_PATH = 1024
"""Bytes: the longest remote path that a device accepts."""
MAX_TEXT = 64 * 1024
"""Bytes: a longer refusal is no text."""
Progress = Callable[[str, int, int], None]
"""Called with the remote path, bytes of it done so far, and its size."""


class Refused(Exception):
    """The device's daemon answered FAIL; the text is its own."""

    def __init__(self, path: str, text: str) -> None:
        super().__init__(f"{path}: {text}")
        self.path = path
        self.text = text

    @property
    def full(self) -> bool:
        return any(os.strerror(code) in self.text for code in (errno.ENOSPC, errno.EDQUOT))


def explain(refusal: Refused, serial: str) -> DeviceError:
    """Return the error for a file that the device refused for another reason than room."""
    if re.search("Permission denied|Read-only file system|Operation not permitted", refusal.text):
        return DeviceError(
            f"device {serial} does not let us at {refusal.path}: {refusal.text}",
            remedy="Use a directory that the shell user may write to: /data/local/tmp.",
        )
    return DeviceError(
        f"device {serial} refused {refusal.path}: {refusal.text}",
        remedy="Check the path on the device (`adt adb -- shell ls -l`).",
    )


@dataclass(frozen=True)
class PushItem:
    """One file to be written on the device."""

    source: Path | bytes
    """The local file, or the contents themselves."""
    remote: str
    mode: int | None = None
    """Permission bits; None for the local file's, 0644 for contents."""


class SyncSession(contextlib.AbstractContextManager["SyncSession"]):
    """One sync connection to a device; use it as a context manager.

    Methods raise :class:`Refused` with the daemon's own text, and DeviceError when the connection breaks or
    the deadline is over. After either the session is of no more use.
    """

    def __init__(self, serial: str, *, deadline: Deadline) -> None:
        self.serial = serial
        self._pending: deque[str] = deque()
        """Remote paths of pushes that are not answered yet, oldest first."""
        self._wire = adb.open_device(serial, "sync:", deadline=deadline)
        self._inbox = _Inbox(self._wire)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._wire.send(HEADER.pack(b"QUIT", 0))
        finally:
            self._wire.close()

    def _request(self, name: bytes, remote: str) -> bytes:
        data = os.fsencode(remote)
        if len(data) > MAX_PATH or b"\0" in data:
            raise Refused(remote, "the path is too long or has a NUL in it")
        return HEADER.pack(name, len(data)) + data

    # push --------------------------------------------------------------------------------------

    def push(
        self, source: Path | bytes, remote: str, *, mode: int | None = None, progress: Progress | None = None
    ) -> int:
        """Write one file, making parent directories; see :class:`PushItem`. Returns the bytes sent."""
        return self.push_many([PushItem(source, remote, mode)], progress=progress)

    def push_many(self, items: Iterable[PushItem], *, progress: Progress | None = None) -> int:
        """Write all *items*, without waiting for an answer between them; return the payload bytes sent."""
        progress, total = progress or observer.get(), 0
        batch = bytearray()
        for item in items:
            with _opened(item) as (file, size, mode, mtime):
                batch += self._request(b"SEND", f"{item.remote},{stat.S_IFREG | mode}")
                self._pending.append(item.remote)
                sent = 0
                while data := file.read(CHUNK):
                    batch += HEADER.pack(b"DATA", len(data)) + data
                    sent += len(data)
                    if len(batch) > BATCH:
                        self._flow(batch)
                        batch = bytearray()
                    if progress is not None:
                        progress(item.remote, sent, size)
                batch += HEADER.pack(b"DONE", mtime & 0xFFFFFFFF)
                total += sent
        self._flow(batch)
        while self._pending:
            self._take_answer()
        return total

    def _flow(self, data: bytearray) -> None:
        """Send all of *data* and take answers as they come: a refusal ends the sending at once."""
        left = memoryview(data)
        while left:
            readable, writable = self._wire.wait()
            if readable:
                self._take_answer()
                while self._inbox.waiting:
                    self._take_answer()
            if writable:
                left = left[self._wire.send_some(left) :]

    def _take_answer(self) -> None:
        name, length = HEADER.unpack(self._inbox.exactly(HEADER.size))
        if not self._pending or (name, length > MAX_TEXT) not in ((b"OKAY", False), (b"FAIL", False)):
            raise self._wire.garbled(name)
        if name == b"FAIL":
            raise self._refused(self._pending[0], length)
        self._pending.popleft()

    def _refused(self, remote: str, length: int) -> Refused:
        return Refused(remote, self._inbox.exactly(length).decode(errors="replace").strip())

    # pull --------------------------------------------------------------------------------------

    def pull(self, remote: str, local: Path) -> int:
        """Copy the file *remote* to *local*, complete or not at all; return the bytes received."""
        progress, count = observer.get(), 0
        with fresh_file(local) as temporary, temporary.open("wb", buffering=0) as file:
            self._wire.send(self._request(b"RECV", remote))
            while left := self._piece(remote):
                count += left
                while left:
                    left -= file.write(self._inbox.some(left)) or 0
                if progress is not None:
                    progress(remote, count, 0)
        return count

    def _piece(self, remote: str) -> int:
        """Return the length of the next DATA of the file that is being received; 0 at its end."""
        while True:
            name, length = HEADER.unpack(self._inbox.exactly(HEADER.size))
            if name == b"DONE":
                return 0
            if name == b"FAIL" and length <= MAX_TEXT:
                raise self._refused(remote, length)
            if name != b"DATA" or length > CHUNK:
                raise self._wire.garbled(name)
            if length:
                return int(length)


class _Inbox:
    """Bytes that the daemon sent, read in large pieces."""

    def __init__(self, wire: adb.Wire) -> None:
        self._wire = wire
        self.waiting = memoryview(b"")
        """Bytes that were received and not yet taken."""

    def some(self, limit: int) -> memoryview:
        """Return from 1 to *limit* bytes."""
        if not self.waiting:
            self.waiting = memoryview(self._wire.read_some(BATCH))
            if not self.waiting:
                raise self._wire.lost()
        taken, self.waiting = self.waiting[:limit], self.waiting[limit:]
        return taken

    def exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            data += self.some(count - len(data))
        return bytes(data)


@contextlib.contextmanager
def _opened(item: PushItem) -> Iterator[tuple[io.BufferedIOBase | io.RawIOBase, int, int, int]]:
    """Open *item*: a file to read, its size, mode and modification time."""
    if isinstance(item.source, bytes):
        mode = 0o644 if item.mode is None else item.mode
        yield io.BytesIO(item.source), len(item.source), mode, int(time.time())
        return
    try:
        opened = item.source.open("rb", buffering=0)
    except OSError as error:
        raise DiskError(
            f"cannot read {item.source}: {error.strerror}", remedy="Check the path and its permissions."
        ) from error
    with disk_errors(f"reading {item.source}", item.source, written=False), opened as file:
        facts = os.fstat(file.fileno())
        mode = stat.S_IMODE(facts.st_mode) if item.mode is None else item.mode
        yield file, facts.st_size, mode, int(facts.st_mtime)
