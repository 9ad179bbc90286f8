"""Ctrl-C: the first one ends a tuning gently, the second one at once."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def interrupts(stop: threading.Event | None = None) -> Iterator[threading.Event]:
    """While the block runs, SIGINT or SIGTERM set the event that it is given; one more is KeyboardInterrupt.

    Only the main thread is interrupted: elsewhere the event is just one that the caller may set.

    Args:
        stop: the event; None for a new one.
    """
    stop = stop or threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def interrupted(_number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, interrupted) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
