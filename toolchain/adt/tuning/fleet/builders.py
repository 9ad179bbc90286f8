"""Compile candidates, several at once: in processes of this machine, or on a Dask cluster."""

from __future__ import annotations

import os
import queue
import re
import threading
from collections.abc import Callable
from typing import Protocol

from adt.errors import ConfigError
from adt.tuning.candidates import BuildJob, BuildOutcome, Toolchain
from adt.tuning.fleet.build_process import BuildProcess

TIMEOUT = 60.0
"""Seconds for one candidate."""


class Builders(Protocol):
    """Compile candidates, several at once."""

    @property
    def workers(self) -> int:
        """Return the number of builds that can run at once."""
        ...

    def submit(self, job: BuildJob, done: Callable[[BuildOutcome], None]) -> None:
        """Compile *job* some time, then call *done* in some thread: once, unless closed before."""
        ...

    def close(self) -> None:
        """Give up what is being compiled and end every process; idempotent."""
        ...


class LocalBuilders:
    """Processes of this machine that compile candidates; one that crashes or hangs is replaced, its
    candidate failed."""

    def __init__(self, workers: int, *, timeout: float = TIMEOUT) -> None:
        self._queue: queue.SimpleQueue[tuple[BuildJob, Callable[[BuildOutcome], None]] | None]
        self._queue = queue.SimpleQueue()
        self._closed = threading.Event()
        self._processes = [BuildProcess(timeout) for _ in range(workers)]
        self._threads = [
            threading.Thread(target=self._serve, args=(process,), name="adt-builder", daemon=True)
            for process in self._processes
        ]
        for thread in self._threads:
            thread.start()

    @property
    def workers(self) -> int:
        """Processes."""
        return len(self._threads)

    def submit(self, job: BuildJob, done: Callable[[BuildOutcome], None]) -> None:
        """Compile *job* when its turn comes."""
        self._queue.put((job, done))

    def close(self) -> None:
        """End all processes; what was not compiled is given up."""
        self._closed.set()
        for _ in self._threads:
            self._queue.put(None)
        closers = [threading.Thread(target=process.close) for process in self._processes]
        for closer in closers:
            closer.start()
        for thread in (*closers, *self._threads):
            thread.join()

    def _serve(self, process: BuildProcess) -> None:
        while (item := self._queue.get()) is not None and not self._closed.is_set():
            job, done = item
            outcome = process.build(job)
            if not self._closed.is_set():
                done(outcome)


def make_builders(builders: str, toolchain: Toolchain, *, timeout: float = TIMEOUT) -> Builders:
    """Make builders, *timeout* seconds a candidate: a number of processes (empty: of CPUs), or a Dask
    cluster's.

    Its scheduler is ``dask://HOST:PORT`` (also ``tcp://``, ``tls://``).
    """
    if "://" in builders:
        from adt.tuning.fleet.dask_builders import DaskBuilders

        return DaskBuilders(builders, toolchain, timeout=timeout)
    if builders and not re.fullmatch("[1-9][0-9]{0,5}", builders):
        raise ConfigError(
            f"--builders {builders[:80]!r} is neither a number of processes nor an address",
            remedy="Say --builders 4, or --builders dask://127.0.0.1:8786 for a Dask cluster.",
        )
    return LocalBuilders(int(builders) if builders else len(os.sched_getaffinity(0)), timeout=timeout)
