"""One line that is overwritten while something takes time; only on a terminal."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from adt.cli.wrapping import terminal, visible

QUIET_SECONDS = 2.0
"""What is done by then is not worth a line."""
ERASE = "\r\x1b[K"


@contextmanager
def status_line(prefix: str) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows its argument after *prefix*, in place; nothing when piped."""
    if not sys.stderr.isatty():
        yield lambda _text: None
        return

    try:
        yield lambda text: _show(f"{prefix}: {text}")
    finally:
        erase()


class _Line:
    """The line that stands on the terminal, if one does."""

    shown = False


def _show(line: str) -> None:
    width = shutil.get_terminal_size().columns - 1
    _draw(ERASE + visible(line)[:width])
    _Line.shown = True


def _draw(text: str) -> None:
    terminal().write(text)
    terminal().flush()


def erase() -> None:
    """Take away the line, if one is shown."""
    if _Line.shown:
        _draw(ERASE)
        _Line.shown = False


def transfer_line() -> Callable[[str, int, int], None] | None:
    """Shows how far a transfer is, once it takes long; None when stderr is no terminal."""
    if not sys.stderr.isatty():
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


def silent_text(doing: str, seconds: float) -> str:
    """*doing*, and for how long no byte came when it is not 0 seconds."""
    return f"{doing}: no byte for {seconds:.0f} s" if seconds else doing


def silence_line() -> Callable[[str, float], None]:
    """Says for how long no byte came: in place on a terminal, else in a line of its own now and then."""
    due = 5.0

    def show(doing: str, seconds: float) -> None:
        nonlocal due
        if not seconds:
            erase()
            return
        text = silent_text(doing, seconds)
        if sys.stderr.isatty():
            _show(text)
        elif seconds >= due:  # after 5 s, 10 s, 20 s and so on
            due *= 2
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()

    return show
