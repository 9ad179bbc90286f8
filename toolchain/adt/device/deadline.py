"""A total time budget for one operation, however many reads and writes it takes."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Iterator
from contextvars import ContextVar

from adt.errors import DeviceError

SHORT = 30.0
"""Seconds: budget for a short command."""
CANCEL_POLL = 0.1
"""Seconds after which a wait looks whether it was cancelled."""


_cancel: ContextVar[threading.Event | None] = ContextVar("adt_cancel", default=None)


@contextlib.contextmanager
def cancelling(event: threading.Event) -> Iterator[None]:
    """While the block runs, *event* ends every operation of this thread that had begun when it was set.

    What is begun afterwards runs on: it is what cleans up.
    """
    token = _cancel.set(event)
    try:
        yield
    finally:
        _cancel.reset(token)


class Cancelled(DeviceError):
    """Somebody set the event that ends the operation; what was complete on the device is still there."""


class Deadline:
    """Seconds that an operation may take in total.

    Args:
        seconds: the budget; None for "as long as it takes".
        doing: what is being done, for the error ("pushing mod.so").
        cancel: an event that ends the operation within moments when it is set; None for the one of
            :func:`cancelling`, if any.
    """

    def __init__(self, seconds: float | None, doing: str, *, cancel: threading.Event | None = None) -> None:
        self.seconds = seconds
        self.doing = doing
        around = _cancel.get()
        self.cancel = cancel or (None if around is not None and around.is_set() else around)
        self._end = math.inf if seconds is None else time.monotonic() + seconds

    def remaining(self) -> float | None:
        """Seconds left; None for "no limit".

        Raises:
            DeviceError: none are left.
            Cancelled: the event is set.
        """
        if self.cancel is not None and self.cancel.is_set():
            raise Cancelled(f"{self.doing} was cancelled", remedy="Run the same command again to do it.")
        if self.seconds is None:
            return None
        left = self._end - time.monotonic()
        if left <= 0:
            raise self.expired()
        return left

    def patience(self) -> float | None:
        """Seconds that one wait may take before it has to ask again; raises as :meth:`remaining` does."""
        left = self.remaining()
        if self.cancel is None:
            return left
        return CANCEL_POLL if left is None else min(left, CANCEL_POLL)

    def expired(self) -> DeviceError:
        """The error that says the budget is spent."""
        return DeviceError(
            f"{self.doing} took longer than {self.seconds:g} s",
            remedy="Look whether the device still answers (`adt adb -- shell true`); reconnect it, or "
            "allow more time (--timeout, ADT_DEVICE_TIMEOUT).",
        )
