"""One line that is overwritten while something takes time; only on a terminal."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def status_line(prefix: str) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows its argument after *prefix*, in place; nothing when piped."""
    if not sys.stderr.isatty():
        yield lambda _text: None
        return

    def show(text: str) -> None:
        width = shutil.get_terminal_size().columns - 1
        sys.stderr.write("\r\x1b[K" + f"{prefix}: {text}"[:width])
        sys.stderr.flush()

    try:
        yield show
    finally:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
