"""Limits of length, depth and size of what is read from files, and readers that raise ValueError beyond them.

Files come from strangers, and what they say of themselves is no reason to take memory.
"""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path
from typing import Any, BinaryIO

MOST_TEXT = 64 << 20
"""Bytes of a JSON or TOML file, as for ``rtvm``."""
MOST_DEPTH = 64
"""Lists and dictionaries of a document in one another, as for ``rtvm``."""
MOST_ARRAY_BYTES = 1 << 36
"""Bytes of all arrays of a file; a larger one was mistaken."""
MOST_ELEMENTS = 1 << 32
"""Elements of an input or output of a model: 16 GiB as float32."""
MOST_CONSTANT = 1 << 30
"""Elements of a tensor that a model's constants decide alone."""
MOST_MODEL_BYTES = 1 << 34
"""Bytes of a model, with its data files, or of what an address names."""
MOST_PROTOBUF = (1 << 31) - (1 << 20)
"""Bytes of a message that protobuf writes: of an ONNX file without external data."""
MOST_NAME = 255
"""Bytes of a file's name, as Linux has it."""
MOST_PORT = 65535
"""The last TCP port."""
MOST_PATH = 1024
"""Bytes of a path below a package's directory."""


def open_regular(path: Path, most: int = MOST_TEXT) -> BinaryIO:
    """Open the file *path* of the user's; ValueError if it is not regular, or has more than *most* bytes."""
    # A FIFO would hang, a device never end.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    file = os.fdopen(handle, "rb")
    status = os.fstat(file.fileno())
    if stat.S_ISREG(status.st_mode) and status.st_size <= most:
        return file
    file.close()
    raise ValueError(
        f"it has more than {most:,} bytes" if stat.S_ISREG(status.st_mode) else "it is no regular file"
    )


def read_text(path: Path, most: int = MOST_TEXT) -> str:
    """Read the text in *path*, UTF-8; OSError or ValueError if it cannot be, as :func:`open_regular`."""
    with open_regular(path, most) as file:
        return file.read(most).decode()


def parse_json(text: str | bytes) -> Any:
    """Parse *text* as JSON; ValueError if it is none, too deep (:data:`MOST_DEPTH`), or no Unicode."""
    try:
        document = json.loads(text)
    except RecursionError:
        raise ValueError(f"it is nested more than {MOST_DEPTH} deep") from None
    level, depth = [document], 0
    while level:
        if depth > MOST_DEPTH:
            raise ValueError(f"it is nested more than {MOST_DEPTH} deep")
        below: list[Any] = []
        for value in level:
            if isinstance(value, str):
                value.encode()  # half of a surrogate pair cannot be written anywhere
            elif isinstance(value, dict):
                below += value
                below += value.values()
            elif isinstance(value, list):
                below += value
        level, depth = below, depth + 1
    return document


def read_json(path: Path) -> Any:
    """Read the document in *path*; OSError or ValueError if it cannot be."""
    return parse_json(read_text(path))


def natural(text: str, most: int = 10**18 - 1) -> int | None:
    """Return the number that the ASCII digits *text* are; None if they are none, or one above *most*."""
    number = int(text) if re.fullmatch("[0-9]{1,18}", text) else None
    return number if number is not None and number <= most else None


def is_long(path: str) -> bool:
    """Return True if *path*, relative, has a name or more names than file systems have room for."""
    data = os.fsencode(path)
    return len(data) > MOST_PATH or any(len(name) > MOST_NAME for name in data.split(b"/"))
