"""What is built and waits for a device; and when this machine itself is one, when it may measure."""

from __future__ import annotations

import threading
from collections import deque

from adt.tuning.jobs import MeasureJob

PATIENCE = 0.5
"""Seconds that a device waits for a candidate at once."""


class Ready:
    """Candidates for the devices, in the order in which they were built. For any thread.

    Where measuring is exclusive, one of two phases is on: the machine works (searches, builds), and
    devices get nothing; or it measures what is ready, and nobody else works until all of that is done.
    """

    def __init__(self, *, exclusive: bool) -> None:
        self._exclusive = exclusive
        self._changed = threading.Condition()
        self._waiting: deque[MeasureJob] = deque()
        self._taken: set[int] = set()
        self._measure = not exclusive
        self._closed = False

    def put(self, job: MeasureJob, *, first: bool = False) -> None:
        """Add *job*; at the front if it is one that a device gave back."""
        with self._changed:
            (self._waiting.appendleft if first else self._waiting.append)(job)
            self._changed.notify()

    def take(self) -> MeasureJob | None:
        """The next job, or None after half a second without one."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or (self._measure and self._waiting), PATIENCE)
            if not self._measure or not self._waiting or self._closed:
                return None
            job = self._waiting.popleft()
            self._taken.add(job.id)
            return job

    def back(self, job: int) -> None:
        """A job that was taken is done, or given back."""
        with self._changed:
            self._taken.discard(job)

    def close(self) -> None:
        """Give out nothing more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @property
    def waiting(self) -> int:
        """Jobs that no device took yet."""
        return len(self._waiting)

    @property
    def taken(self) -> frozenset[int]:
        """Jobs that are being measured."""
        with self._changed:
            return frozenset(self._taken)

    def may_work(self) -> bool:
        """Whether searching and building may begin something; ends a phase in which all is measured."""
        with self._changed:
            if self._exclusive and not self._waiting and not self._taken:
                self._measure = False
            return not self._exclusive or not self._measure

    def measure(self) -> None:
        """Nobody works: let devices measure what is ready."""
        with self._changed:
            self._measure = True
            self._changed.notify_all()
