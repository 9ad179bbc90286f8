"""A terminal's stream that breaks long lines between words, where terminals break them anywhere."""

from __future__ import annotations

import re
import shutil
import sys
from typing import Any, TextIO

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
COMMAND = "adt "
"""How a line begins that is to be pasted, and stays whole."""


class WrappingStream:
    """Writes to a terminal; a continued line is indented by two more than its beginning."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._column = self._indent = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write *text*; what moves the cursor passes as it is."""
        if "\r" in text or "\x1b" in COLOUR.sub("", text):
            self._column = 0
            return self._stream.write(text)
        self._stream.write("".join(self._wrapped(line) for line in text.splitlines(keepends=True)))
        return len(text)

    def _wrapped(self, line: str) -> str:
        width = shutil.get_terminal_size().columns
        plain = COLOUR.sub("", line).rstrip("\n")
        if self._column == 0:
            self._indent = min(len(plain) - len(plain.lstrip()) + 2, width // 2)
        fits = self._column + len(plain) <= width or plain.lstrip().startswith(COMMAND)
        self._column += len(plain)
        if not fits:
            line = self._broken(line, self._column - len(plain), width)
        if line.endswith("\n"):
            self._column = 0
        return line

    def _broken(self, line: str, column: int, width: int) -> str:
        pieces: list[str] = []
        for space, word in re.findall(r"( *)([^ ]+)", line):
            length = len(COLOUR.sub("", word).rstrip("\n"))
            if column > self._indent and column + len(space) + length > width:
                pieces.append("\n" + " " * self._indent + word)
                column = self._indent + length
            else:
                pieces.append(space + word)
                column += len(space) + length
        self._column = column
        return "".join(pieces)


def wrap_terminals() -> None:
    """Put such streams in place of stdout and stderr, where they are terminals."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name).isatty():
            setattr(sys, name, WrappingStream(getattr(sys, name)))
