"""Messages between a process and one that it started: JSON, with bytes and arrays beside it.

What comes in cannot be code, whoever wrote it: there are no pickles, :func:`adt.host.npz.read_npy` reads the
arrays, and lengths are bounded. A message is its length, the length of its JSON, the JSON, then the
parts that it refers to.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import select
import struct
import time
from typing import Any

from adt.host.npz import npy_bytes, read_npy
from adt.limits import MOST_ARRAY_BYTES

HEAD = struct.Struct("<QQ")
"""Bytes of the message after this head, and of those its JSON."""
BYTES, ARRAY = "\0bytes", "\0array"
"""Keys of the objects that stand for a part: its first byte and its size."""
COMMIT = "commit"
"""Message to a process that is to outlive the one which started it."""


class BadMessage(ValueError):
    """Fault of a message."""


def encode(message: Any) -> bytes:
    """Encode *message* of JSON's kinds, bytes and numpy arrays, or raise TypeError; tuples become lists."""
    parts: list[bytes] = []

    def part(value: Any) -> dict[str, list[int]]:
        if isinstance(value, bytes):
            key, data = BYTES, value
        elif hasattr(value, "__array_interface__"):
            key, data = ARRAY, npy_bytes(value)
        else:
            raise TypeError(f"a {type(value).__name__} is in a message")
        start = sum(map(len, parts))
        parts.append(data)
        return {key: [start, len(data)]}

    text = json.dumps(message, default=part).encode()
    return b"".join([HEAD.pack(len(text) + sum(map(len, parts)), len(text)), text, *parts])


def decode(data: bytes, text_size: int) -> Any:
    """Decode the message of *data*, which follows a head; BadMessage if it is none."""
    parts = memoryview(data)[text_size:]

    def whole(fields: dict[str, Any]) -> Any:
        if fields.keys() not in ({BYTES}, {ARRAY}):
            return fields
        ((key, (start, size)),) = fields.items()
        piece = parts[start : start + size]
        if len(piece) != size:
            raise BadMessage("a part of it is missing")
        return bytes(piece) if key == BYTES else read_npy(io.BytesIO(piece), size)

    try:
        return json.loads(data[:text_size], object_hook=whole)
    except Exception as error:  # of JSON's parser, of read_npy, or of a place that is no pair of numbers
        raise BadMessage(f"it cannot be read: {error}") from error


def send(to: int, message: bytes, deadline: float | None = None) -> None:
    """Write *message*, of :func:`encode`, to *to*; TimeoutError after *deadline*, OSError if that is gone."""
    view = memoryview(message)
    while view:
        _wait(to, select.POLLOUT, deadline)
        view = view[os.write(to, view[: 1 << 16]) :]


def receive(source: int, deadline: float | None = None) -> Any:
    """Receive the next message on *source*: BadMessage, EOFError at its end, or OSError.

    TimeoutError if it was not there before *deadline* (of the monotonic clock).
    """
    size, text_size = HEAD.unpack(_read(source, HEAD.size, deadline))
    if size > MOST_ARRAY_BYTES or text_size > size:
        raise BadMessage(f"it says that it has {size} bytes, {text_size} of them text")
    return decode(_read(source, size, deadline), text_size)


def committed(source: int) -> bool:
    """Wait for the starter's COMMIT on *source*; False if it is gone."""
    with contextlib.suppress(OSError, EOFError, BadMessage):
        return bool(receive(source) == COMMIT)
    return False


def _read(source: int, size: int, deadline: float | None) -> bytes:
    data = bytearray()
    while len(data) < size:
        _wait(source, select.POLLIN, deadline)
        part = os.read(source, min(size - len(data), 1 << 20))
        if not part:
            raise EOFError
        data += part
    return bytes(data)


def _wait(fd: int, event: int, deadline: float | None) -> None:
    """Wait until *fd* is ready, or its other end is closed."""
    poll = select.poll()  # select() takes no descriptor above 1023
    poll.register(fd, event)
    left = None if deadline is None else max(deadline - time.monotonic(), 0) * 1000
    if not poll.poll(left):
        raise TimeoutError
