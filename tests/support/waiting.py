"""Waiting for what another thread, process or device does."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_for(condition: Callable[[], object], what: str = "it", seconds: float = 120) -> None:
    """Poll until *condition* holds; the limit is for what never happens, on a slow machine under load, too.

    Between two polls it waits for as long as one takes: one that asks a device would slow down what it waits for.
    """
    end = time.monotonic() + seconds
    while begun := time.monotonic():
        if condition():
            return
        assert time.monotonic() < end, f"{what} did not happen"
        time.sleep(max(0.02, time.monotonic() - begun))
