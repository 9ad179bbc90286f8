"""Files to and from the device over ADB's sync protocol, many on one connection.

A request is four letters and a length, little endian; a file travels as DATA
pieces of at most 64 KiB and ends with DONE and its modification time. Requests
are sent ahead of the daemon's answers, which come in the same order: many
small files cost one round trip, not one each.

Names are what the device has, bytes; as text they are decoded as Python decodes
file names (``os.fsdecode``), so that every name survives the way there and back.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import secrets
import stat
import struct
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from adt.device import adb
from adt.device.deadline import Deadline
from adt.errors import DeviceError, DiskError
from adt.host.cache import disk_errors
from adt.host.transfers import observer

CHUNK = 64 * 1024
"""Bytes: the largest DATA piece that a device accepts."""
HEADER = struct.Struct("<4sI")
PIECE = HEADER.size + CHUNK
BATCH = 16 * PIECE
"""Bytes that we hand to the socket at once: framed in place, never copied."""
MAX_PATH = 1024
"""Bytes: the longest remote path that a device accepts."""
MAX_NAME = 64 * 1024
"""Bytes: a longer name in a listing is no name."""
AHEAD = 64
"""Requests that may wait for their answer: they and their paths fit into the sockets' buffers."""

_ENTRY_V1 = struct.Struct("<4sIIII")
_ENTRY_V2 = struct.Struct("<4sIQQIIIIQqqqI")
_STAT_V2 = struct.Struct("<4sIQQIIIIQqqq")

T = TypeVar("T")
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
        """Whether there was no room."""
        return any(os.strerror(code) in self.text for code in (errno.ENOSPC, errno.EDQUOT))


def explain(why: Refused, serial: str) -> DeviceError:
    """The error for a file that the device refused for another reason than room."""
    if re.search("Permission denied|Read-only file system|Operation not permitted", why.text):
        return DeviceError(
            f"device {serial} does not let us at {why.path}: {why.text}",
            remedy="Use a directory that the shell user may write to: /data/local/tmp.",
        )
    return DeviceError(
        f"device {serial} refused {why.path}: {why.text}",
        remedy="Check the path on the device (`adt adb -- shell ls -l`).",
    )


@dataclass(frozen=True)
class Stat:
    """What the device knows about one path."""

    mode: int
    size: int
    """Bytes; modulo 2**32 from a daemon without ``stat_v2`` or ``ls_v2``."""
    mtime: int

    @property
    def exists(self) -> bool:
        """Whether there is anything at the path."""
        return self.mode != 0


@dataclass(frozen=True)
class PushItem:
    """One file to be written on the device."""

    source: Path | bytes
    """The local file, or the contents themselves."""
    remote: str
    mode: int | None = None
    """Permission bits; None for the local file's, 0644 for contents."""
    mtime: int | None = None
    """Seconds; None for the local file's, now for contents."""


class SyncSession:
    """One sync connection to a device; use it as a context manager.

    Methods raise :class:`Refused` with the daemon's own text, and DeviceError
    when the connection breaks or the deadline is over. After either the
    session is of no more use.
    """

    def __init__(
        self, serial: str, *, deadline: Deadline, features: Callable[[], frozenset[str]] = frozenset
    ) -> None:
        """Connect.

        Args:
            features: asks what the daemon can do, if it matters; ``ls_v2`` and ``stat_v2`` are used.
        """
        self.serial = serial
        self._features = features
        self._pending: deque[str] = deque()
        """Remote paths of pushes that are not answered yet, oldest first."""
        self._wire = adb.open_device(serial, deadline=deadline)
        try:
            self._wire.request("sync:")
        except BaseException:
            self._wire.close()
            raise
        self._inbox = _Inbox(self._wire)

    def __enter__(self) -> Self:
        return self

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

    def push_bytes(self, data: bytes, remote: str, *, mode: int = 0o644, mtime: int | None = None) -> int:
        """Write *data* to the file *remote*; returns the number of bytes sent."""
        return self.push_many([PushItem(data, remote, mode, mtime)])

    def push(
        self,
        local: Path,
        remote: str,
        *,
        mode: int | None = None,
        mtime: int | None = None,
        progress: Progress | None = None,
    ) -> int:
        """Copy the file *local* to *remote*, making parent directories.

        Args:
            mode: permission bits; None for the local file's.
            mtime: seconds; None for the local file's.

        Returns:
            The number of payload bytes sent.
        """
        return self.push_many([PushItem(local, remote, mode, mtime)], progress=progress)

    def push_many(
        self,
        items: Iterable[PushItem],
        *,
        progress: Progress | None = None,
        before: Callable[[], None] = lambda: None,
    ) -> int:
        """Write every one of *items*, without waiting for an answer between them.

        Args:
            progress: None: the observer of :mod:`adt.host.transfers`; so for everything here.
            before: called once, before the first byte is sent; what is read and framed until then is
                done while something else gets ready.

        Returns:
            The number of payload bytes sent.

        Raises:
            Refused: the device did not take one of them; those before it are complete.
        """
        progress = progress or observer.get()
        batch, total = _Batch(self._flow, before), 0
        for item in items:
            total += self._push(item, batch, progress)
        batch.flush()
        while self._pending:
            self._take_answer()
        return total

    def _push(self, item: PushItem, batch: _Batch, progress: Progress | None) -> int:
        with _opened(item) as (file, size, mode, mtime):
            batch.add(self._request(b"SEND", f"{item.remote},{stat.S_IFREG | mode}"))
            self._pending.append(item.remote)
            sent = 0
            while True:
                count = file.readinto(batch.room())
                if not count:
                    break
                batch.took(count)
                sent += count
                if progress is not None:
                    progress(item.remote, sent, size)
            batch.add(HEADER.pack(b"DONE", mtime & 0xFFFFFFFF))
        return sent

    def _flow(self, data: memoryview) -> None:
        """Send all of *data* and take answers as they come: a refusal ends the sending at once."""
        while data:
            readable, writable = self._wire.wait(write=True)
            if readable:
                self._take_answer()
                while self._inbox.waiting:
                    self._take_answer()
            if writable:
                data = data[self._wire.send_some(data) :]

    def _take_answer(self) -> None:
        """Read the answer to the oldest push."""
        name, length = HEADER.unpack(self._inbox.exactly(HEADER.size))
        if not self._pending or (name, length > MAX_NAME) not in ((b"OKAY", False), (b"FAIL", False)):
            raise self._wire.garbled(name)
        if name == b"FAIL":
            raise self._refused(self._pending[0], length)
        self._pending.popleft()

    def _refused(self, remote: str, length: int) -> Refused:
        return Refused(remote, self._inbox.exactly(length).decode(errors="replace").strip())

    # pull --------------------------------------------------------------------------------------

    def pull(self, remote: str, local: Path, *, progress: Progress | None = None) -> int:
        """Copy the file *remote* to *local*, which appears complete or not at all.

        Returns:
            The number of bytes received.
        """
        temporary = local.with_name(f".{local.name}.{secrets.token_hex(6)}.tmp")
        size = self.stat(remote).size if progress is not None else 0
        with disk_errors(f"writing {local}"):
            try:
                count = self.pull_many([(remote, temporary, size)], progress=progress)
                temporary.replace(local)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
        return count

    def pull_many(self, items: Sequence[tuple[str, Path, int]], *, progress: Progress | None = None) -> int:
        """Copy each remote file to a local one, asking ahead; what exists there is overwritten in place.

        Args:
            items: remote path, local path, and the size to report as the whole.

        Returns:
            The number of bytes received.

        Raises:
            Refused: one of them cannot be read.
        """
        progress = progress or observer.get()
        total = 0
        for remote, local, size in self._ahead(items, b"RECV", lambda item: item[0]):
            with disk_errors(f"writing {local}"), local.open("wb", buffering=0) as file:
                count = 0
                while left := self._piece(remote):
                    count += left
                    while left:
                        left -= file.write(self._inbox.some(left))
                    if progress is not None:
                        progress(remote, count, size)
            total += count
        return total

    def _ahead(self, items: Sequence[T], name: bytes, remote: Callable[[T], str]) -> Iterator[T]:
        """Yield each of *items* when its answer is due; up to AHEAD of them have been asked for."""
        asked = 0
        for at, item in enumerate(items):
            if asked - at <= AHEAD // 2:
                upto = min(len(items), at + AHEAD)
                self._wire.send(b"".join(self._request(name, remote(one)) for one in items[asked:upto]))
                asked = max(asked, upto)
            yield item

    def _piece(self, remote: str) -> int:
        """Length of the next DATA of the file that is being received; 0 at its end."""
        while True:
            name, length = HEADER.unpack(self._inbox.exactly(HEADER.size))
            if name == b"DONE":
                return 0
            if name == b"FAIL" and length <= MAX_NAME:
                raise self._refused(remote, length)
            if name != b"DATA" or length > CHUNK:
                raise self._wire.garbled(name)
            if length:
                return int(length)

    # what is there -----------------------------------------------------------------------------

    def stat(self, remote: str) -> Stat:
        """What is at *remote* (a symbolic link is not followed)."""
        self._wire.send(self._request(b"STAT", remote))
        name, mode, size, mtime = struct.unpack("<4sIII", self._inbox.exactly(16))
        if name != b"STAT":
            raise self._wire.garbled(name)
        return Stat(mode, size, mtime)

    def stat_followed(self, remote: str) -> Stat | None:
        """What the symbolic link *remote* leads to; None when this daemon cannot say (no ``stat_v2``)."""
        if "stat_v2" not in self._features():
            return None
        self._wire.send(self._request(b"STA2", remote))
        name, error, _, _, mode, _, _, _, size, _, mtime, _ = _STAT_V2.unpack(
            self._inbox.exactly(_STAT_V2.size)
        )
        if name != b"STA2":
            raise self._wire.garbled(name)
        return Stat(0, 0, 0) if error else Stat(mode, size, mtime)

    def list_many(self, remotes: Sequence[str]) -> list[dict[str, Stat]]:
        """What each of the directories *remotes* holds, by name; ``.`` and ``..`` are left out.

        The daemon says nothing about a directory that it cannot read: it looks empty.

        Raises:
            DeviceError: a name in the answer cannot be one (empty, or with a slash in it).
        """
        name = b"LIS2" if "ls_v2" in self._features() else b"LIST"
        read = self._entry_v2 if name == b"LIS2" else self._entry_v1
        return [dict(iter(read, None)) for _ in self._ahead(remotes, name, lambda remote: remote)]

    def _entry_v1(self) -> tuple[str, Stat] | None:
        while True:
            name, mode, size, mtime, length = _ENTRY_V1.unpack(self._inbox.exactly(_ENTRY_V1.size))
            if name == b"DONE":
                return None
            if name != b"DENT":
                raise self._wire.garbled(name)
            if called := self._name(length):
                return called, Stat(mode, size, mtime)

    def _entry_v2(self) -> tuple[str, Stat] | None:
        while True:
            name, error, _, _, mode, _, _, _, size, _, mtime, _, length = _ENTRY_V2.unpack(
                self._inbox.exactly(_ENTRY_V2.size)
            )
            if name == b"DONE":
                return None
            if name != b"DNT2":
                raise self._wire.garbled(name)
            called = self._name(length)
            if called and not error:
                return called, Stat(mode, size, mtime)

    def _name(self, length: int) -> str:
        """A name of a listing; empty for ``.`` and ``..``."""
        if length > MAX_NAME:
            raise self._wire.garbled(b"a name of %d bytes" % length)
        raw = self._inbox.exactly(length)
        if raw in (b".", b".."):
            return ""
        if not raw or b"/" in raw or b"\0" in raw:
            raise DeviceError(
                f"device {self.serial} lists a file called {os.fsdecode(raw)!r}, which no file can be called",
                remedy="Do not copy from this device: its daemon is broken, or means harm.",
            )
        return os.fsdecode(raw)


class _Inbox:
    """What the daemon sent, read in large pieces into one buffer that is used again and again."""

    def __init__(self, wire: adb.Wire) -> None:
        self._wire = wire
        self._view = memoryview(bytearray(BATCH))
        self._start = self._end = 0

    @property
    def waiting(self) -> bool:
        """Something was received and not yet taken."""
        return self._start < self._end

    def some(self, limit: int) -> memoryview:
        """From 1 to *limit* bytes, good until the next call.

        Raises:
            ConnectionLost: there are no more.
        """
        if not self.waiting:
            self._start, self._end = 0, self._wire.read_into(self._view)
            if not self._end:
                raise self._wire.lost()
        taken = self._view[self._start : min(self._end, self._start + limit)]
        self._start += len(taken)
        return taken

    def exactly(self, count: int) -> bytes:
        """*count* bytes."""
        data = bytearray()
        while len(data) < count:
            data += self.some(count - len(data))
        return bytes(data)


class _Batch:
    """Requests and framed data on their way out, in one buffer that is used again and again."""

    def __init__(self, flow: Callable[[memoryview], None], before: Callable[[], None]) -> None:
        self._flow = flow
        self._before: Callable[[], None] | None = before
        self._view = memoryview(bytearray(BATCH))
        self._used = 0

    def flush(self) -> None:
        """Send what is in the buffer."""
        if self._before is not None:
            self._before()
            self._before = None
        self._flow(self._view[: self._used])
        self._used = 0

    def add(self, data: bytes) -> None:
        """Append *data*."""
        if self._used + len(data) > BATCH:
            self.flush()
        self._view[self._used : self._used + len(data)] = data
        self._used += len(data)

    def room(self) -> memoryview:
        """Where the next piece of a file's contents goes."""
        if self._used + PIECE > BATCH:
            self.flush()
        start = self._used + HEADER.size
        return self._view[start : start + CHUNK]

    def took(self, count: int) -> None:
        """The first *count* bytes of :meth:`room` are a piece."""
        HEADER.pack_into(self._view, self._used, b"DATA", count)
        self._used += HEADER.size + count


@contextlib.contextmanager
def _opened(item: PushItem) -> Iterator[tuple[io.BufferedIOBase | io.RawIOBase, int, int, int]]:
    """The contents of *item*: a file to read, its size, mode and modification time.

    Raises:
        DiskError: the local file cannot be read.
    """
    if isinstance(item.source, bytes):
        mode = 0o644 if item.mode is None else item.mode
        mtime = int(time.time()) if item.mtime is None else item.mtime
        yield io.BytesIO(item.source), len(item.source), mode, mtime
        return
    try:
        opened = item.source.open("rb", buffering=0)
    except OSError as why:
        raise DiskError(
            f"cannot read {item.source}: {why.strerror}", remedy="Check the path and its permissions."
        ) from why
    with disk_errors(f"reading {item.source}"), opened as file:
        facts = os.fstat(file.fileno())
        mode = stat.S_IMODE(facts.st_mode) if item.mode is None else item.mode
        mtime = int(facts.st_mtime) if item.mtime is None else item.mtime
        yield file, facts.st_size, mode, mtime
