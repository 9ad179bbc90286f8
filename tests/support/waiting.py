"""Waiting for what another thread, process or device does."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_for(condition: Callable[[], object], what: str = "it", seconds: float = 120) -> None:
    """Poll until *condition* holds; the limit is for what never happens, on a slow machine under load, too."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what} did not happen"
        time.sleep(0.02)
