"""A total time budget for one operation, however many reads and writes it takes."""

from __future__ import annotations

import math
import time

from adt.errors import DeviceError


class Deadline:
    """Seconds that an operation may take in total.

    Args:
        seconds: the budget; None for "as long as it takes".
        doing: what is being done, for the error ("pushing mod.so").
    """

    def __init__(self, seconds: float | None, doing: str) -> None:
        self.seconds = seconds
        self.doing = doing
        self._end = math.inf if seconds is None else time.monotonic() + seconds

    def remaining(self) -> float | None:
        """Seconds left; None for "no limit".

        Raises:
            DeviceError: none are left.
        """
        if self.seconds is None:
            return None
        left = self._end - time.monotonic()
        if left <= 0:
            raise self.expired()
        return left

    def expired(self) -> DeviceError:
        """The error that says the budget is spent."""
        return DeviceError(
            f"{self.doing} took longer than {self.seconds:g} s",
            remedy="Look whether the device still answers (`adb shell true`); reconnect it, or allow more "
            "time (--timeout, ADT_DEVICE_TIMEOUT).",
        )
