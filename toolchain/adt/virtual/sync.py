"""The sync service: what `adb push`, `adb pull` and `adb ls` speak.

Every request is four bytes of identifier and a little-endian uint32, mostly the length of a path that
follows. Version 2 requests (STA2, LST2, LIS2, SND2, RCV2) carry 64-bit sizes and error numbers.
"""

# Paths stay strings: a slash at the end means "what the link points to", and pathlib drops it.
# ruff: noqa: PTH116, PTH118, PTH208
# ruff: noqa: PTH108, PTH211

from __future__ import annotations

import contextlib
import errno
import os
import stat
import struct
from pathlib import Path

from adt.limits import natural
from adt.virtual.wire import Closed, Stream

WORD = struct.Struct("<4sI")
STAT_V1 = struct.Struct("<4sIII")
STAT_V2 = struct.Struct("<4sIQQIIIIQqqq")


def fail(text: str) -> bytes:
    raw = text.encode()
    return WORD.pack(b"FAIL", len(raw)) + raw


def stat_v1(identifier: bytes, status: os.stat_result | OSError) -> bytes:
    """Encode mode, size (32 bit) and time; all 0 when there is no such file."""
    if isinstance(status, OSError):
        return STAT_V1.pack(identifier, 0, 0, 0)
    size, seconds = status.st_size & 0xFFFFFFFF, int(status.st_mtime) & 0xFFFFFFFF
    return STAT_V1.pack(identifier, status.st_mode, size, seconds)


def stat_v2(identifier: bytes, status: os.stat_result | OSError) -> bytes:
    """Encode the whole status, or the error number and zeros."""
    if isinstance(status, OSError):
        return STAT_V2.pack(identifier, status.errno or 0, *[0] * 10)
    file = status.st_dev, status.st_ino, status.st_mode, status.st_nlink, status.st_uid, status.st_gid
    times = int(status.st_atime), int(status.st_mtime), int(status.st_ctime)
    return STAT_V2.pack(identifier, 0, *file, status.st_size, *times)


def status_of(path: str, *, follow: bool) -> os.stat_result | OSError:
    try:
        return os.stat(path, follow_symlinks=follow)
    except OSError as error:
        return error


def listing(path: str, *, version: int) -> bytes:
    """List all entries of a directory, then DONE; just DONE when it cannot be read."""
    try:
        names = [".", "..", *sorted(os.listdir(path))]
    except OSError:
        names = []
    answer = bytearray()
    for name in names:
        status, raw = status_of(os.path.join(path, name), follow=False), os.fsencode(name)
        if version == 2:
            answer += stat_v2(b"DNT2", status) + struct.pack("<I", len(raw)) + raw
        elif not isinstance(status, OSError):
            answer += stat_v1(b"DENT", status) + struct.pack("<I", len(raw)) + raw
    return bytes(answer) + b"DONE" + bytes(72 if version == 2 else 16)


SEND_V2 = struct.Struct("<4sII")
RECEIVE_V2 = struct.Struct("<4sI")

MAX_DATA = 64 * 1024
"""Most bytes in one DATA of either direction."""
MAX_PATH = 1024
"""The longest path adbd takes."""
DRY_RUN = 0x80000000


class Refused(Exception):
    """The request fails with this text; the host shows it after ``remote``."""


def refusal(action: str, error: OSError) -> Refused:
    """Return the text of adbd for a failed system call."""
    return Refused(f"{action}: {os.strerror(error.errno or 0)}")


def received_mode(mode: int) -> int:
    """Return the permission bits of a pushed file: like adbd, group and others get what the owner has."""
    mode &= 0o777
    mode |= (mode >> 3) & 0o070
    return mode | (mode >> 3) & 0o007


def create(path: str) -> int:
    """Open *path* for a push: regular files are replaced, others (devices, pipes) written to."""
    try:
        previous = os.lstat(path)
    except OSError:
        previous = None
    try:
        if previous is None or stat.S_ISREG(previous.st_mode) or stat.S_ISLNK(previous.st_mode):
            Path(path).parent.mkdir(parents=True, exist_ok=True, mode=0o775)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        return os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise refusal("couldn't create file", error) from error


def write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(fd, view) :]
    except OSError as error:
        raise refusal("write failed", error) from error


class Session:
    """One `sync:` stream: requests until QUIT or its end."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    async def run(self) -> None:
        self.stream.accept()
        while True:
            identifier, length = WORD.unpack(await self.stream.exactly(WORD.size))
            if identifier == b"QUIT":
                return
            if length > MAX_PATH:
                await self.stream.write(fail("path too long"))
                return
            path = os.fsdecode(await self.stream.exactly(length))
            try:
                await self._request(identifier, path)
            except Refused as error:
                await self.stream.write(fail(str(error)))

    async def _request(self, identifier: bytes, path: str) -> None:
        if identifier == b"STAT":
            await self.stream.write(stat_v1(b"STAT", status_of(path, follow=False)))
        elif identifier in (b"STA2", b"LST2"):
            await self.stream.write(stat_v2(identifier, status_of(path, follow=identifier == b"STA2")))
        elif identifier in (b"LIST", b"LIS2"):
            await self.stream.write(listing(path, version=2 if identifier == b"LIS2" else 1))
        elif identifier == b"SEND":
            path, _, mode = path.rpartition(",")
            await self._push(path, natural(mode) or 0o644, dry_run=False)
        elif identifier == b"SND2":
            _, mode_v2, flags = SEND_V2.unpack(await self.stream.exactly(SEND_V2.size))
            if flags & ~DRY_RUN:
                await self._discard()
                raise Refused("compression is not offered")
            await self._push(path, mode_v2, dry_run=bool(flags & DRY_RUN))
        elif identifier in (b"RECV", b"RCV2"):
            if identifier == b"RCV2":
                _, flags = RECEIVE_V2.unpack(await self.stream.exactly(RECEIVE_V2.size))
                if flags:
                    raise Refused("compression is not offered")
            await self._pull(path)
        else:
            await self.stream.write(fail(f"unknown request {identifier!r}"))
            raise Closed

    async def _data(self) -> tuple[bytes | None, int]:
        """Receive the bytes of the next DATA (perhaps none), or ``(None, seconds)`` for DONE."""
        identifier, length = WORD.unpack(await self.stream.exactly(WORD.size))
        if identifier == b"DONE":
            return None, length
        if identifier != b"DATA" or length > MAX_DATA:
            await self.stream.write(fail("invalid data message"))
            raise Closed
        return await self.stream.exactly(length), 0

    async def _discard(self) -> None:
        """Read on to DONE: a host that only writes must not block on us."""
        while (await self._data())[0] is not None:
            pass

    async def _push(self, path: str, mode: int, *, dry_run: bool) -> None:
        try:
            if dry_run:
                await self._discard()
            elif stat.S_ISLNK(mode):
                await self._push_link(path)
            else:
                await self._push_file(path, mode)
        except Refused as error:
            # as in adbd: report at once, so that the host can stop early, then drain until DONE
            await self.stream.write(fail(str(error)))
            await self._discard()
            return
        await self.stream.write(WORD.pack(b"OKAY", 0))

    async def _push_file(self, path: str, mode: int) -> None:
        fd = create(path)
        try:
            while True:
                data, seconds = await self._data()
                if data is None:
                    break
                write_all(fd, data)
            with contextlib.suppress(OSError):  # a device node keeps its mode
                os.fchmod(fd, received_mode(mode))
                os.utime(fd, (seconds, seconds))
        except BaseException:  # cut off or refused
            self._remove_half(path)
            raise
        finally:
            os.close(fd)

    def _remove_half(self, path: str) -> None:
        """Leave no half a file behind."""
        with contextlib.suppress(OSError):
            if stat.S_ISREG(os.lstat(path).st_mode):
                os.unlink(path)

    async def _push_link(self, path: str) -> None:
        target, seconds = b"", 0
        while True:
            data, seconds = await self._data()
            if data is None:
                break
            target += data
            if len(target) > MAX_PATH:
                raise Refused(f"symlink failed: {os.strerror(errno.ENAMETOOLONG)}")
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True, mode=0o775)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            os.symlink(target.rstrip(b"\0"), os.fsencode(path))
            os.utime(path, (seconds, seconds), follow_symlinks=False)
        except OSError as error:
            # DONE was read already: nothing is left to drain
            await self.stream.write(fail(str(refusal("symlink failed", error))))
            raise Closed from error

    async def _pull(self, path: str) -> None:
        """Send DATA until the end of the file, then DONE.

        Several DATA go into one WRTE, and DONE goes with the last of them: alone in
        a small WRTE it costs 40 ms per file (Nagle and delayed acknowledgement in the server).
        """
        try:
            # O_NONBLOCK: a pipe or terminal without data must not stop the whole daemon
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise refusal("open failed", error) from error
        try:
            chunks = max(1, (self.stream.maxdata - WORD.size) // (MAX_DATA + WORD.size))
            while True:
                answer, data = bytearray(), b""
                for _ in range(chunks):
                    try:
                        data = os.read(fd, MAX_DATA)
                    except OSError as error:
                        await self.stream.write(answer)
                        raise refusal("read failed", error) from error
                    answer += WORD.pack(b"DATA", len(data)) + data if data else WORD.pack(b"DONE", 0)
                    if not data:
                        break
                await self.stream.write(answer)
                if not data:
                    return
        finally:
            os.close(fd)
