"""Files to and from the device over ADB's sync protocol, several on one connection.

A request is four letters and a length, little endian; a file travels as DATA
pieces of at most 64 KiB and ends with DONE and its modification time.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import select
import stat
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from adt.device import adb
from adt.device.deadline import Deadline
from adt.errors import DeviceError
from adt.host.cache import disk_errors

CHUNK = 64 * 1024
"""Bytes: the largest DATA piece that a device accepts."""
BATCH = 4 * CHUNK
"""Bytes that we hand to the socket at once."""
MAX_PATH = 1024
"""Bytes: the longest remote path that a device accepts."""

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
            f"device {serial} does not let us write {why.path}: {why.text}",
            remedy="Use a directory that the shell user may write to: /data/local/tmp.",
        )
    return DeviceError(
        f"device {serial} refused {why.path}: {why.text}",
        remedy="Check the path on the device (`adb shell ls -l`).",
    )


@dataclass(frozen=True)
class Stat:
    """What the device knows about one path."""

    mode: int
    size: int
    """Bytes, modulo 2**32 (as the protocol gives it)."""
    mtime: int

    @property
    def exists(self) -> bool:
        """Whether there is anything at the path."""
        return self.mode != 0


class SyncSession:
    """One sync connection to a device; use it as a context manager.

    Methods raise :class:`Refused` with the daemon's own text, and DeviceError
    when the connection breaks or the deadline is over. After either the
    session is of no more use.
    """

    def __init__(self, serial: str, *, deadline: Deadline) -> None:
        self.serial = serial
        self._wire = adb.open_device(serial, deadline=deadline)
        try:
            self._wire.request("sync:")
        except BaseException:
            self._wire.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._request(b"QUIT", b"")
        finally:
            self._wire.close()

    def _request(self, name: bytes, argument: bytes) -> None:
        self._wire.send(struct.pack("<4sI", name, len(argument)) + argument)

    def _path(self, remote: str) -> bytes:
        data = os.fsencode(remote)
        if len(data) > MAX_PATH or b"\0" in data:
            raise Refused(remote, "the path is too long or has a NUL in it")
        return data

    def _answer(self, remote: str) -> None:
        name, length = struct.unpack("<4sI", self._wire.read_exactly(8))
        if name == b"FAIL":
            raise Refused(remote, self._wire.read_exactly(length).decode(errors="replace").strip())
        if name != b"OKAY":
            raise self._wire.garbled(name)

    def _failed_early(self) -> bool:
        """Whether the daemon has answered before we were done: it only does so to refuse."""
        return bool(select.select([self._wire.sock], [], [], 0)[0])

    def push_bytes(self, data: bytes, remote: str, *, mode: int = 0o644, mtime: int | None = None) -> int:
        """Write *data* to the file *remote*; returns the number of bytes sent."""
        import io

        return self._push(io.BytesIO(data), len(data), remote, mode, mtime, None)

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
        with disk_errors(f"reading {local}"), local.open("rb") as file:
            facts = os.fstat(file.fileno())
            return self._push(
                file,
                facts.st_size,
                remote,
                stat.S_IMODE(facts.st_mode) if mode is None else mode,
                int(facts.st_mtime) if mtime is None else mtime,
                progress,
            )

    def _push(
        self, file: BinaryIO, size: int, remote: str, mode: int, mtime: int | None, progress: Progress | None
    ) -> int:
        self._request(b"SEND", self._path(remote) + b",%d" % (stat.S_IFREG | mode))
        sent = 0
        while batch := file.read(BATCH):
            message = bytearray()
            for at in range(0, len(batch), CHUNK):
                piece = batch[at : at + CHUNK]
                message += struct.pack("<4sI", b"DATA", len(piece))
                message += piece
            if self._failed_early():
                self._answer(remote)
            self._wire.send(message)
            sent += len(batch)
            if progress is not None:
                progress(remote, sent, size)
        self._wire.send(struct.pack("<4sI", b"DONE", int(time.time()) if mtime is None else mtime))
        self._answer(remote)
        return sent

    def pull(self, remote: str, local: Path, *, progress: Progress | None = None) -> int:
        """Copy the file *remote* to *local*, which appears complete or not at all.

        Returns:
            The number of bytes received.
        """
        temporary = local.with_name(f".{local.name}.{secrets.token_hex(6)}.tmp")
        with disk_errors(f"writing {local}"):
            try:
                with temporary.open("wb") as file:
                    count = self._pull(remote, file, progress)
                temporary.replace(local)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
        return count

    def _pull(self, remote: str, file: BinaryIO, progress: Progress | None) -> int:
        size = self.stat(remote).size if progress is not None else 0
        self._request(b"RECV", self._path(remote))
        count = 0
        while True:
            name, length = struct.unpack("<4sI", self._wire.read_exactly(8))
            if name == b"DONE":
                return count
            if name == b"FAIL":
                raise Refused(remote, self._wire.read_exactly(length).decode(errors="replace").strip())
            if name != b"DATA" or length > CHUNK:
                raise self._wire.garbled(name)
            file.write(self._wire.read_exactly(length))
            count += length
            if progress is not None:
                progress(remote, count, size)

    def stat(self, remote: str) -> Stat:
        """What is at *remote* (a symbolic link is not followed)."""
        self._request(b"STAT", self._path(remote))
        name, mode, size, mtime = struct.unpack("<4sIII", self._wire.read_exactly(16))
        if name != b"STAT":
            raise self._wire.garbled(name)
        return Stat(mode, size, mtime)
