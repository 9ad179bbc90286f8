"""Text as a terminal shows it: names do not move its cursor, words are not broken; and one line is
overwritten while something takes time."""

from __future__ import annotations

import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from adt.host import reaper

COLOUR = r"\x1b\[(?:[012]|3[0-7]|9[0-7])m"
"""Styles that adt itself writes; they change nothing but how a text looks."""
_CONTROL = rf"({COLOUR})|[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
"""Characters that move a cursor, set a title, turn the direction of writing or cannot be encoded."""
COMMAND = "adt "
"""Start of a line that is to be pasted, and stays whole."""


def visible(text: str) -> str:
    """Show control characters of *text* as Python spells them, but newlines, tabs and adt's own styles."""
    if text.replace("\n", "").isprintable():  # most texts; the expression takes long to compile
        return text
    return re.sub(_CONTROL, lambda match: match[1] or match[0].encode("unicode_escape").decode(), text)


def span(seconds: float) -> str:
    """Format a duration for people: ``42 s``, ``3 min 20 s``, ``2 h 05 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


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
        plain = re.sub(COLOUR, "", line).rstrip("\n")
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
            length = len(re.sub(COLOUR, "", word).rstrip("\n"))
            if column > self._indent and column + len(space) + length > width:
                pieces.append("\n" + " " * self._indent + word)
                column = self._indent + length
            else:
                pieces.append(space + word)
                column += len(space) + length
        self._column = column
        return "".join(pieces)


def terminal() -> TextIO:
    """Return stderr for what moves the cursor: its texts must be :func:`visible` ones."""
    stream: TextIO = getattr(sys.stderr, "plain", sys.stderr)
    return stream


def protect_output(*, wraps: bool, verbose: bool = False) -> None:
    """Put an :class:`Output` in the place of stdout and of stderr; *wraps*: break lines on terminals.

    What libraries print on the descriptor of stderr does not reach it unless *verbose*, or they end adt.
    """
    if not verbose:
        sys.stderr = os.fdopen(own := os.dup(2), "w", buffering=1, errors="backslashreplace")
        os.dup2(printed := os.memfd_create("printed"), 2)
        reaper.explain_end(printed, own)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        setattr(sys, name, Output(stream, wraps=wraps and stream.isatty()))


def colours() -> bool | None:
    """Return True or False where the environment asks for colours or for none; None: terminals show them."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("CLICOLOR_FORCE", "0") not in ("", "0"):
        return True
    return False if os.environ.get("CLICOLOR") == "0" or os.environ.get("TERM") == "dumb" else None


def moves() -> bool:
    """Return True if stderr is a terminal whose lines can be written over."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


QUIET_SECONDS = 2.0
"""Seconds of a step that is not worth a line."""
LINE_SECONDS = 10.0
"""Seconds from one line to the next where none can be overwritten."""
ERASE = "\r\x1b[K"


@contextmanager
def status_line(prefix: str) -> Iterator[Callable[[str], None]]:
    """Yield what shows a text after *prefix*, in place or each :data:`LINE_SECONDS`; none if it is empty."""
    ended, line = threading.Event(), ""

    def show(text: str) -> None:
        nonlocal line
        line = f"{prefix}: {text}" if text else ""
        if moves():
            _show(line) if line else erase()

    def repeat() -> None:
        while not ended.wait(LINE_SECONDS):
            if text := line:
                sys.stderr.write(f"{text}\n")
                sys.stderr.flush()

    if not moves():
        threading.Thread(target=repeat, daemon=True).start()
    try:
        yield show
    finally:
        ended.set()
        erase()


class _Line:
    """The line that stands on the terminal, if one does."""

    shown = False


def _show(line: str) -> None:
    terminal().write(ERASE + visible(line)[: shutil.get_terminal_size().columns - 1])
    terminal().flush()
    _Line.shown = bool(line)


def erase() -> None:
    """Clear the line, if one is shown."""
    if _Line.shown:
        _show("")


def transfer_line() -> Callable[[str, int, int], None] | None:
    """Return a function that shows how far a long transfer is; None if stderr is no terminal."""
    if not moves():
        return None
    began = 0.0

    def show(name: str, done: int, total: int) -> None:
        nonlocal began
        began = began or time.monotonic()
        if done >= total:
            began = 0.0
            erase()
        elif time.monotonic() - began >= QUIET_SECONDS:
            _show(f"{100 * done // total:3d} % of {total / 1e6:.1f} MB: {name}")

    return show


def silence_line() -> Callable[[str, float], None]:
    """Return a function that shows a wait and how long it lasts: in place, or piped now and then."""
    due = 5.0

    def show(text: str, seconds: float) -> None:
        nonlocal due
        if not seconds:
            erase()
            return
        if moves():
            _show(text)
        elif seconds >= due:  # after 5 s, 10 s, 20 s and so on
            due *= 2
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()

    return show
