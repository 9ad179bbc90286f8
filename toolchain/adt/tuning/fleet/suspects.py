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

from adt.tuning.candidates import MeasureJob, MeasureOutcome
from adt.tuning.records import Failure

PATIENCE = 60.0
"""Seconds for which a candidate waits for another device."""


@dataclasses.dataclass(frozen=True)
class _Suspect:
    job: MeasureJob
    outcome: MeasureOutcome
    since: float


class Suspects:
    """Candidates that are not decided yet; for any thread."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._lock, self._clock = threading.Lock(), clock
        self._waiting: list[_Suspect] = []
        self._failed_with: dict[int, str] = {}

    @property
    def waiting(self) -> bool:
        """Some wait for another device."""
        return bool(self._waiting)

    def judge(
        self, job: MeasureJob, outcome: MeasureOutcome, others: Set[str]
    ) -> tuple[MeasureOutcome | None, tuple[str, ...]]:
        """Return the reported outcome and the devices that it clears; None: *job* waits for another device.

        *others* are the devices besides that of *outcome* that measure, or soon will.
        """
        name = outcome.on.name
        with self._lock:
            earlier = self._failed_with.get(job.id, name)
            if not outcome.lost and (outcome.failure is None or not outcome.failure.quarantined):
                self._failed_with.pop(job.id, None)
                return outcome, ()
            if earlier != name:
                failure = outcome.failure or Failure("crash", "the device was lost")
                message = f"{failure.message} ({name}, and {earlier} before)"
                failure = Failure(failure.kind, message)
                return dataclasses.replace(outcome, lost=False, failure=failure), (earlier, name)
            self._failed_with[job.id] = name
            if outcome.lost:
                return outcome, ()
            if others:
                self._waiting.append(_Suspect(job, outcome, self._clock()))
                return None, ()
            return outcome, (name,)

    def take(self, name: str) -> MeasureJob | None:
        """One that another device than *name* failed with."""
        with self._lock:
            for number, suspect in enumerate(self._waiting):
                if suspect.outcome.on.name != name:
                    return self._waiting.pop(number).job
            return None

    def orphans(self, devices: Set[str]) -> tuple[MeasureOutcome, ...]:
        """Remove and return the outcomes that no other of *devices* can judge, or judged in time."""
        with self._lock:
            late = self._clock() - PATIENCE
            orphans = [
                suspect
                for suspect in self._waiting
                if suspect.since < late or not devices - {suspect.outcome.on.name}
            ]
            for suspect in orphans:
                self._waiting.remove(suspect)
            return tuple(suspect.outcome for suspect in orphans)

    def drop(self) -> tuple[MeasureOutcome, ...]:
        """All that wait, undecided: nothing is known of them."""
        with self._lock:
            suspects, self._waiting = self._waiting, []
            return tuple(dataclasses.replace(each.outcome, failure=None, lost=True) for each in suspects)
