"""What the sync service answers, as bytes: failures, the status of a file, the entries of a directory."""

# Paths stay strings: a slash at the end means "what the link points to", and pathlib drops it.
# ruff: noqa: PTH116, PTH118, PTH208

from __future__ import annotations

import os
import struct

WORD = struct.Struct("<4sI")
STAT_V1 = struct.Struct("<4sIII")
STAT_V2 = struct.Struct("<4sIQQIIIIQqqq")


def fail(text: str) -> bytes:
    """A FAIL answer."""
    raw = text.encode()
    return WORD.pack(b"FAIL", len(raw)) + raw


def stat_v1(identifier: bytes, status: os.stat_result | None) -> bytes:
    """Mode, size (32 bit) and time; all 0 when there is no such file."""
    if status is None:
        return STAT_V1.pack(identifier, 0, 0, 0)
    return STAT_V1.pack(
        identifier, status.st_mode, status.st_size & 0xFFFFFFFF, int(status.st_mtime) & 0xFFFFFFFF
    )


def stat_v2(identifier: bytes, status: os.stat_result | OSError) -> bytes:
    """The whole status, or the error number and zeros."""
    if isinstance(status, OSError):
        return STAT_V2.pack(identifier, status.errno or 0, *[0] * 10)
    return STAT_V2.pack(
        identifier,
        0,
        status.st_dev,
        status.st_ino,
        status.st_mode,
        status.st_nlink,
        status.st_uid,
        status.st_gid,
        status.st_size,
        int(status.st_atime),
        int(status.st_mtime),
        int(status.st_ctime),
    )


def look(path: str, *, follow: bool) -> os.stat_result | OSError:
    """The status of *path*, or why there is none."""
    try:
        return os.stat(path, follow_symlinks=follow)
    except OSError as why:
        return why


def listing(path: str, *, version: int) -> bytes:
    """All entries of a directory, then DONE; just DONE when it cannot be read."""
    try:
        names = [".", "..", *sorted(os.listdir(path))]
    except OSError:
        names = []
    answer = bytearray()
    for name in names:
        status, raw = look(os.path.join(path, name), follow=False), os.fsencode(name)
        if version == 2:
            answer += stat_v2(b"DNT2", status) + struct.pack("<I", len(raw)) + raw
        elif not isinstance(status, OSError):
            answer += stat_v1(b"DENT", status) + struct.pack("<I", len(raw)) + raw
    return bytes(answer) + b"DONE" + bytes(72 if version == 2 else 16)
