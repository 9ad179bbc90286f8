"""Candidates that hung, crashed a server, or took a device away: is it the candidate, or the device?

A candidate that hung or crashed one is tried once more, on another device; if that fails, too, or
there is no other, the candidate is to blame. One with which a device vanished is put back by who
gave it; when a second device fails with it, it is to blame as well.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Set

from adt.tuning.candidates import MeasureJob, Outcome
from adt.tuning.records import Failure

PATIENCE = 60.0
"""Seconds for which a candidate waits for another device."""


@dataclasses.dataclass(frozen=True)
class _Suspect:
    job: MeasureJob
    outcome: Outcome
    since: float


class Suspects:
    """Those that are not decided yet; for any thread."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._guard, self._clock = threading.Lock(), clock
        self._waiting: list[_Suspect] = []
        self._failed_with: dict[int, str] = {}

    @property
    def waiting(self) -> bool:
        """Some wait for another device."""
        return bool(self._waiting)

    def judge(
        self, job: MeasureJob, outcome: Outcome, others: Set[str]
    ) -> tuple[Outcome | None, tuple[str, ...]]:
        """What is to be told of *outcome*, and which devices it clears; None: *job* waits for another device.

        Args:
            others: devices besides that of *outcome* that measure, or soon will.
        """
        name = outcome.on.name
        with self._guard:
            before = self._failed_with.get(job.id, name)
            if not outcome.lost and (outcome.failure is None or not outcome.failure.quarantined):
                self._failed_with.pop(job.id, None)
                return outcome, ()
            if before != name:
                seen = outcome.failure or Failure("crash", "the device was lost")
                failure = Failure(seen.kind, f"{seen.message} ({name}, and {before} before)")
                return dataclasses.replace(outcome, lost=False, failure=failure), (before, name)
            self._failed_with[job.id] = name
            if outcome.lost:
                return outcome, ()
            if others:
                self._waiting.append(_Suspect(job, outcome, self._clock()))
                return None, ()
            return outcome, (name,)

    def take(self, name: str) -> MeasureJob | None:
        """One that another device than *name* failed with."""
        with self._guard:
            for number, one in enumerate(self._waiting):
                if one.outcome.on.name != name:
                    return self._waiting.pop(number).job
            return None

    def orphans(self, devices: Set[str]) -> tuple[Outcome, ...]:
        """Those that are to be blamed because none of *devices* is another one, or none came to them."""
        with self._guard:
            late = self._clock() - PATIENCE
            left = [one for one in self._waiting if one.since < late or not devices - {one.outcome.on.name}]
            for one in left:
                self._waiting.remove(one)
            return tuple(one.outcome for one in left)

    def drop(self) -> tuple[Outcome, ...]:
        """All that wait, undecided: nothing is known of them."""
        with self._guard:
            left, self._waiting = self._waiting, []
            return tuple(dataclasses.replace(one.outcome, failure=None, lost=True) for one in left)
