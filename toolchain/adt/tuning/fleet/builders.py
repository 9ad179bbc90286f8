"""Compile candidates in processes of this machine, or where a Dask cluster has workers."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable

from adt.errors import ConfigError
from adt.tuning.candidates import BuildJob, Built, Toolchain
from adt.tuning.fleet.build_process import Guarded
from adt.tuning.plan import Builders

TIMEOUT = 60.0
"""Seconds for one candidate."""


class LocalBuilders:
    """Processes of this machine, each of which compiles one candidate after another.

    What crashes or hangs a compiler costs that candidate, and its process is replaced.
    """

    def __init__(self, workers: int, *, timeout: float = TIMEOUT) -> None:
        self._queue: queue.SimpleQueue[tuple[BuildJob, Callable[[Built], None]] | None] = queue.SimpleQueue()
        self._closed = threading.Event()
        self._guarded = [Guarded(timeout) for _ in range(workers)]
        self._threads = [
            threading.Thread(target=self._serve, args=(guarded,), name="adt-builder", daemon=True)
            for guarded in self._guarded
        ]
        for thread in self._threads:
            thread.start()

    @property
    def workers(self) -> int:
        """Processes."""
        return len(self._threads)

    def submit(self, job: BuildJob, done: Callable[[Built], None]) -> None:
        """Compile *job* when its turn comes."""
        self._queue.put((job, done))

    def close(self) -> None:
        """End all processes; what was not compiled is given up."""
        self._closed.set()
        for _ in self._threads:
            self._queue.put(None)
        endings = [threading.Thread(target=guarded.close) for guarded in self._guarded]
        for ending in endings:
            ending.start()
        for thread in (*endings, *self._threads):
            thread.join()

    def _serve(self, guarded: Guarded) -> None:
        while (item := self._queue.get()) is not None and not self._closed.is_set():
            job, done = item
            built = guarded.build(job)
            if not self._closed.is_set():
                done(built)


def make_builders(asked: str, toolchain: Toolchain, *, timeout: float = TIMEOUT) -> Builders:
    """The builders that *asked* stands for.

    Args:
        asked: a number of processes on this machine; ``dask://HOST:PORT`` (also ``tcp://``, ``tls://``),
            the scheduler of a Dask cluster; empty: as many processes as this machine has CPUs.
        timeout: seconds for one candidate.

    Raises:
        ConfigError: it stands for nothing, or no scheduler answers there.
        ToolNotFound: Dask is not installed, or a worker lacks the compiler.
        MismatchError: a worker has another adt or TVM.
    """
    if "://" in asked:
        from adt.tuning.fleet.dask_builders import DaskBuilders

        return DaskBuilders(asked, toolchain, timeout=timeout)
    if asked and (not asked.isdecimal() or int(asked) < 1):
        raise ConfigError(
            f"--builders {asked} is neither a number of processes nor an address",
            remedy="Say --builders 4, or --builders dask://127.0.0.1:8786 for a Dask cluster.",
        )
    return LocalBuilders(int(asked) if asked else len(os.sched_getaffinity(0)), timeout=timeout)
