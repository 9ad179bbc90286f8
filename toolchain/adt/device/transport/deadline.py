"""Deadlines of one operation: in all, without a byte, and once it is to be left.

Everything that waits for a device asks its deadline how long it may wait now, so this is the place
where silence is noticed, and where ctrl-C makes an end of waiting.
"""

from __future__ import annotations

import contextlib
import math
import sys
import threading
import time
from collections.abc import Iterator
from contextvars import ContextVar

from adt.errors import DeviceError
from adt.host.transfers import silence

SHORT = 30.0
"""Seconds: budget for a short command."""
STALL = 60.0
"""Seconds without a byte after which a transfer is given up. adb may hold 1 MiB back until the device has
taken the MiB before: at 20 kB/s that is 52 s."""
SLOWEST = 20e3
"""Bytes per second of the slowest connection that is worth waiting for."""
QUIET = 5.0
"""Seconds without a byte after which that is shown."""
LEAVING = 1.0
"""Seconds in which all that is cleaned up after ctrl-C must be done. What is not, the device does by itself:
each shell of ours there cleans up when its connection ends."""
GIVING_UP = 5.0
"""Seconds for that after a device that did not answer in time."""
POLL = 1.0
"""Seconds after which a wait looks how long it has been silent."""
CANCEL_POLL = 0.1
"""Seconds after which a wait that may be cancelled looks whether it was."""


_cancel: ContextVar[threading.Event | None] = ContextVar("adt_cancel", default=None)


@contextlib.contextmanager
def cancel_on(event: threading.Event) -> Iterator[None]:
    """Let *event* end, while the block runs, the operations of this thread that had begun when it was set.

    Operations that begin afterwards clean up: together they may run on for LEAVING seconds.
    """
    token = _cancel.set(event)
    try:
        yield
    finally:
        _cancel.reset(token)


class Cancelled(DeviceError):
    """Somebody set the event that ends the operation; what was complete on the device is still there."""


class DeviceTimeout(DeviceError):
    """The device took longer than it may, or nothing came from it for too long."""


def transfer_seconds(size: int) -> float:
    """Estimate the seconds that a transfer of *size* bytes may take: at SLOWEST, and a minute or two."""
    return 120.0 + size / SLOWEST


def allowed(seconds: float) -> float:
    """Limit the *seconds* that an operation may take: fewer while we leave.

    We leave while KeyboardInterrupt, Cancelled or DeviceTimeout is being handled, and once the event of
    :func:`cancel_on` is set. The seconds for that count from the first question after it came.
    """
    now = time.monotonic()

    def left(cause: object, budget: float) -> float:
        end: float = vars(cause).setdefault("adt_end", now + budget)
        return max(0.0, end - now)

    around = _cancel.get()
    if around is not None and around.is_set():
        seconds = min(seconds, left(around, LEAVING))
    error = sys.exc_info()[1]
    while error is not None:
        if isinstance(error, KeyboardInterrupt | Cancelled):
            seconds = min(seconds, left(error, LEAVING))
        elif isinstance(error, DeviceTimeout):
            seconds = min(seconds, left(error, GIVING_UP))
        error = error.__context__
    return seconds


class Deadline:
    """Seconds that an operation may take in total, and with a *stall* without a byte; None: no limit.

    Only a transfer has a *stall*, perhaps an infinite one: a program on the device may work in silence.
    *doing* is for errors, with the device: "pushing mod.so to 0123456789AB".
    """

    def __init__(self, seconds: float | None, doing: str, *, stall: float | None = None) -> None:
        total = allowed(math.inf if seconds is None else seconds)
        self.seconds = total if total < math.inf else None
        self.doing = doing
        self.stall = stall
        around = _cancel.get()
        self.cancel = None if around is not None and around.is_set() else around
        self._moved = time.monotonic()
        self._end = self._moved + total
        self._shown = False

    @property
    def silent(self) -> float:
        """Seconds since the last byte, or since the beginning."""
        return time.monotonic() - self._moved

    def moved(self) -> None:
        self._moved = time.monotonic()
        if self._shown:
            self._shown = False
            if tell := silence.get():
                tell(self.doing, 0.0)

    def remaining(self) -> float | None:
        """Return the seconds left in total, None for "no limit"; DeviceTimeout or Cancelled if it is over."""
        if self.cancel is not None and self.cancel.is_set():
            raise Cancelled(f"{self.doing} was cancelled", remedy="Run the same command again to do it.")
        if self.stall is not None and self.silent >= self.stall:
            raise self._overdue(f"{self.doing} stalled: no byte for {self.stall:g} s")
        if self.seconds is None:
            return None
        left = self._end - time.monotonic()
        if left <= 0:
            raise self.expired()
        return left

    def patience(self) -> float:
        """Return the seconds that one wait may take before it asks again; raise as :meth:`remaining` does.

        Silence of QUIET seconds is shown here, and again with each question, to :data:`silence`'s observer.
        """
        left = self.remaining()
        silent = self.silent
        if silent >= QUIET and (tell := silence.get()):
            self._shown = True
            lasts = f"{silent:.0f} s so far" if self.stall is None else f"no byte for {silent:.0f} s"
            tell(f"{self.doing}: {lasts}", silent)
        waits = [POLL, CANCEL_POLL if self.cancel is not None else POLL]
        waits.append(math.inf if left is None else left)
        waits.append(math.inf if self.stall is None else self.stall - silent)
        waits.append(QUIET - silent if silent < QUIET else POLL)
        return max(0.001, min(waits))

    def expired(self) -> DeviceTimeout:
        quiet = f"; no byte came for the last {self.silent:.0f} s" if self.silent >= QUIET else ""
        return self._overdue(f"{self.doing} took longer than {self.seconds:g} s{quiet}")

    def _overdue(self, what: str) -> DeviceTimeout:
        return DeviceTimeout(
            what,
            remedy="Look whether the device still answers (`adt adb -- shell true`); reconnect it, or "
            "allow more time (--timeout, ADT_DEVICE_TIMEOUT).",
        )
