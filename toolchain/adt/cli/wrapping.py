"""What adt writes becomes what a terminal shows: names do not move its cursor, words are not broken."""

from __future__ import annotations

import re
import shutil
import sys
from typing import Any, TextIO

COLOUR = re.compile(r"\x1b\[(?:[012]|3[0-7]|9[0-7])m")
"""Styles that adt itself writes; they change nothing but how a text looks."""
_CONTROL = re.compile(
    rf"({COLOUR.pattern})|[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""What moves a cursor, sets a title, turns the direction of writing or cannot be encoded."""
COMMAND = "adt "
"""How a line begins that is to be pasted, and stays whole."""


def visible(text: str) -> str:
    """*text* with each control character as Python spells it; newlines, tabs and adt's own styles stay."""
    return _CONTROL.sub(lambda found: found[1] or found[0].encode("unicode_escape").decode(), text)


class Output:
    """A stream that shows control characters instead of sending them.

    On a terminal, long lines are broken between words, where a terminal would break them anywhere, and
    continued with an indent of two more.
    """

    def __init__(self, stream: TextIO, *, wraps: bool) -> None:
        self.plain = stream
        """For what draws by itself and escapes what it draws."""
        self._wraps = wraps
        self._column = self._indent = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.plain, name)

    def write(self, text: str) -> int:
        """Write *text*."""
        shown = visible(text)
        if self._wraps:
            shown = "".join(self._wrapped(line) for line in re.findall(r"[^\n]*\n|[^\n]+", shown))
        self.plain.write(shown)
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


def terminal() -> TextIO:
    """stderr for what moves the cursor: its texts must be :func:`visible` ones."""
    stream: TextIO = getattr(sys.stderr, "plain", sys.stderr)
    return stream


def protect_output(*, wraps: bool) -> None:
    """Put such streams in the place of stdout and stderr; *wraps*: break lines where they are terminals."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        setattr(sys, name, Output(stream, wraps=wraps and stream.isatty()))
