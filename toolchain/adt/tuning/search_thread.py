"""One thread in which all searches run: they share a cost model, and TVM's are not thread-safe."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import Any

log = logging.getLogger("adt.tune")


class SearchThread:
    """Runs what it is given, one after another."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._given_up = threading.Event()
        # A daemon: the second ctrl-C does not wait for TVM to come back from a search.
        self._thread = threading.Thread(target=self._run, name="adt-search", daemon=True)
        self._thread.start()

    def do(self, action: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Call *action* some time, then *done* with its result or the exception that it raised."""

        def work() -> None:
            try:
                result = action()
            except Exception as why:
                log.debug("a search failed", exc_info=True)
                result = why
            done(result)

        self._work.put(work)

    def close(self, timeout: float | None) -> None:
        """Give up what did not begin; wait until what runs is done, at most *timeout* seconds."""
        self._given_up.set()
        self._work.put(None)
        self._thread.join(timeout)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            if not self._given_up.is_set():
                work()
