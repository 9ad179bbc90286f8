"""Ctrl-C and TERM, of which Python hears between its instructions only: never within a native call."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import NoReturn

NUMBERS = (signal.SIGINT, signal.SIGTERM)
PATIENCE = 3.0
"""Seconds that a native call has to end after an interrupt."""
Handler = Callable[[int, object], object]


class _Handled:
    """The last interrupt that a handler heard of."""

    at = -PATIENCE
    raised = False
    """It was raised, and has not arrived yet where it ends the command."""
    number = int(signal.SIGINT)


def handle(handler: Handler) -> None:
    """Have *handler* called with the number of each interrupt; one that is ignored stays so."""

    def noted(number: int, frame: object) -> None:
        _Handled.at, _Handled.number = time.monotonic(), number
        handler(number, frame)

    for number in NUMBERS:
        if signal.getsignal(number) not in (signal.SIG_IGN, None):
            signal.signal(number, noted)


@contextlib.contextmanager
def handled(handler: Handler) -> Iterator[None]:
    """Have *handler* called so while the block runs; only the main thread is interrupted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: old for number in NUMBERS if (old := signal.getsignal(number)) is not None}
    try:
        handle(handler)
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def pass_through_tvm() -> None:
    """Let KeyboardInterrupt pass through TVM, if that is loaded: it makes RuntimeErrors of other classes."""
    if tvm_ffi := sys.modules.get("tvm_ffi"):
        with contextlib.suppress(AttributeError):  # half imported
            tvm_ffi.register_error("KeyboardInterrupt", KeyboardInterrupt)


def interrupt(_number: int, _frame: object) -> NoReturn:
    pass_through_tvm()
    _Handled.raised = True
    raise KeyboardInterrupt


def pending() -> bool:
    """Return True if an interrupt was raised that has not ended the command: an error came of it instead."""
    return _Handled.raised


def arrived() -> int:
    """Note that the last interrupt ends the command; return the exit code for it."""
    _Handled.raised = False
    return 128 + _Handled.number


def _swallowed() -> bool:
    """Return True if an interrupt was raised, and the main thread goes on: TVM catches some exceptions."""
    current: object = sys._current_exceptions().get(threading.main_thread().ident or 0)
    error = current[1] if isinstance(current, tuple) else current  # a tuple in Python 3.11
    while isinstance(error, BaseException) and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return _Handled.raised and error is None


def watch(end: Callable[[], NoReturn]) -> None:
    """Call *end*, in a thread, PATIENCE seconds after an interrupt no handler heard; resend a lost one."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def wait() -> None:
        while numbers := os.read(reader, 64):
            if not set(numbers).isdisjoint(NUMBERS):
                came = time.monotonic()
                time.sleep(PATIENCE)
                if _Handled.at < came - PATIENCE:  # it may have been heard before this thread read of it
                    _Handled.number = next(number for number in numbers if number in NUMBERS)
                    end()
                elif _swallowed():
                    os.kill(os.getpid(), _Handled.number)

    threading.Thread(target=wait, daemon=True).start()
