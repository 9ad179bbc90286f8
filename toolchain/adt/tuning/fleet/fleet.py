"""Measuring on devices that come and go: one worker for each, as many candidates in flight as devices.

A worker (:mod:`adt.tuning.fleet.worker`) takes a candidate, measures it and reports the outcome; none
waits for another. A watcher looks every second which devices are there, and starts a worker for each new
one. All devices of one tuning are of one kind: the first decides which, unless that is asked for.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Set
from typing import Self

from adt.device.transport.deadline import allowed, cancel_on
from adt.errors import AdtError
from adt.tuning.candidates import MeasureJob, MeasureOutcome
from adt.tuning.fleet.sources import Identity, Source
from adt.tuning.fleet.worker import FIRST_PAUSE, Roster, Worker
from adt.tuning.records import Failure, MeasuredOn
from adt.tuning.results import DeviceStatus

PATIENCE = 60.0
"""Seconds for which a candidate waits for another device."""


@dataclasses.dataclass(frozen=True)
class _Suspect:
    job: MeasureJob
    outcome: MeasureOutcome
    since: float


class Suspects:
    """Candidates that hung, crashed a server, or took a device away; for any thread.

    A candidate that hung or crashed a device is tried once more, on another device; if that fails, too, or
    there is no other, the candidate is to blame. One with which a device vanished is put back by
    the fleet; when a second device fails with it, it is to blame as well.
    """

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
        """Take a job that another device than *name* failed with."""
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
        """Drop all jobs that wait, undecided: nothing is known of them."""
        with self._lock:
            suspects, self._waiting = self._waiting, []
            return tuple(dataclasses.replace(each.outcome, failure=None, lost=True) for each in suspects)


log = logging.getLogger("adt.tune")

LOOK_SECONDS = 1.0
"""Interval at which the source is asked for devices, in seconds."""
IDLE_SECONDS = 0.05
"""Between questions for a candidate, when the answer comes at once."""
JOIN_SECONDS = 120.0
"""In which servers that were started must have ended."""

Take = Callable[[], MeasureJob | None]
"""The next candidate to measure, or None after half a second without one."""
Done = Callable[[MeasureOutcome], None]
"""For each candidate that was taken, once."""


class Fleet:
    """The devices of *source*, measuring what it is given."""

    def __init__(
        self,
        source: Source,
        computes: str,
        *,
        kind: tuple[str, str] | None = None,
        pause: float = FIRST_PAUSE,
    ) -> None:
        """Measure on the devices of *source*, which compute on ``cpu``, ``opencl`` or ``cuda``.

        Args:
            kind: device and driver, as in :class:`adt.tuning.records.Context`; with an empty driver the
                first such device decides. None: the first device does.
            pause: seconds for which a device is first out of service.
        """
        self.source, self.computes = source, computes
        self.roster = Roster(pause=pause)
        self._suspects = Suspects()
        self._identity = Identity(*kind) if kind else None
        self._answered = threading.Event()
        self._lock = threading.Lock()
        self._held: deque[MeasureJob] = deque()
        self._take: Take | None = None
        self._done: Done | None = None
        self.ending = threading.Event()
        """Nothing more is to be measured."""
        self.leaving = threading.Event()
        """No device is to be waited for any more."""
        self._workers: dict[str, Worker] = {}
        self._watcher: threading.Thread | None = None

    def start(self, take: Take, done: Done) -> Self:
        """Measure the jobs of *take* from now on; every one comes back through *done*, once. Call it once.

        Many threads call both; *take* may wait up to half a second for a job.
        """
        self._take, self._done = take, done
        self._watcher = threading.Thread(target=self._watch, name="fleet")
        self._watcher.start()
        return self

    def identity(self) -> tuple[str, str] | None:
        """Return device and driver of what is measured on; None until a device has answered."""
        identity = self._identity if self._answered.is_set() else None
        return (identity.device, identity.driver) if identity else None

    def live(self) -> int:
        """Return the number of devices that measure, or would."""
        return 0 if self.ending.is_set() else len(self.roster.at_work())

    def devices(self) -> tuple[DeviceStatus, ...]:
        """List every device that was ever seen, by name."""
        return self.roster.statuses()

    def close(self, grace: float = 0.0, *, leaving: bool = False) -> None:
        """Take no more; running measurements may end within *grace* seconds. Then nothing of them is left.

        With *leaving*, the watchdog of its server cleans up a device that does not answer.
        """
        self.ending.set()
        with self._lock:
            workers, watcher = list(self._workers.values()), self._watcher
        end = time.monotonic() + grace
        try:
            while time.monotonic() < end and any(worker.measuring for worker in workers):
                time.sleep(0.05)
        finally:
            if leaving or allowed(JOIN_SECONDS) < JOIN_SECONDS:
                self.leaving.set()
            # In parallel: a worker whose device has stalled takes seconds to end.
            killers = [threading.Thread(target=worker.kill) for worker in workers]
            for thread in killers:
                thread.start()
            for thread in killers:
                thread.join()
        for thread in (*workers, *filter(None, (watcher,))):
            thread.join(JOIN_SECONDS)
        for outcome in self._suspects.drop():
            self._report(outcome)
        while self._held:
            self._report(_unmeasured(self._held.popleft()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def accept(self, name: str, identity: Identity) -> str:
        """Return why the device *name* may not measure, or nothing; the first device decides the kind."""
        with self._lock:
            if self._identity is None or (
                self._identity == Identity(identity.device, "") and not self._answered.is_set()
            ):
                self._identity = identity
            if identity == self._identity:
                self._answered.set()
                return ""
            reason = f"it is {identity.text}; this tuning is for {self._identity.text}"
        log.warning("%s is not measured on: %s", name, reason)
        self.roster.refuse(name, reason)
        return reason

    def next(self, name: str) -> MeasureJob | None:
        """Wait a short while for a job that the device *name* can measure."""
        if job := self._suspects.take(name):
            return job
        with self._lock:
            if self._held:
                return self._held.popleft()
        return self._take_job()

    def has_work(self) -> bool:
        """True if a server is to be leased; waits a short while for something to measure, which is kept.

        Servers that are for us alone are made ready before there is something.
        """
        if self.source.dedicated or self._suspects.waiting or self._held or not self._answered.is_set():
            return True
        job = self._take_job()
        if job is not None:
            self.hold(job)
        return job is not None

    def hold(self, job: MeasureJob) -> None:
        """Take back what could not be measured just now, for whoever can."""
        with self._lock:
            self._held.append(job)

    def _take_job(self) -> MeasureJob | None:
        if self.ending.is_set():
            return None
        assert self._take is not None
        began = time.monotonic()
        job = self._take()
        if job is None and time.monotonic() - began < IDLE_SECONDS:
            time.sleep(IDLE_SECONDS)
        return job

    def finish(self, job: MeasureJob, outcome: MeasureOutcome) -> None:
        """Take the outcome of *job*; it may be kept for a second device."""
        others = self.roster.in_service() - {outcome.on.name}
        if self.ending.is_set():
            others = frozenset()
        verdict, cleared = self._suspects.judge(job, outcome, others)
        self.roster.clear(cleared)
        if verdict is None:
            log.debug("%s is tried on another device: %s", job.task, outcome.failure)
        else:
            self._report(verdict)

    def _report(self, outcome: MeasureOutcome) -> None:
        if self._done is not None:
            self._done(outcome)

    def _watch(self) -> None:
        with cancel_on(self.leaving):
            while not self.ending.is_set():
                try:
                    self._look()
                    for outcome in self._suspects.orphans(self.roster.in_service()):
                        self.roster.clear((outcome.on.name,))
                        self._report(outcome)
                except Exception:  # a fault of ours must not end the watching
                    log.debug("looking which devices are there", exc_info=True)
                self.ending.wait(LOOK_SECONDS)

    def _look(self) -> None:
        """See which devices are there, and have a worker for each."""
        try:
            presence = self.source.presence()
        except AdtError as error:
            log.debug("which devices are there: %s", error.what)
            self.roster.update((), gone="away")
            return
        self.roster.update(presence.sightings, gone="left")
        with self._lock:
            if self.ending.is_set():
                return
            for slot, worker in list(self._workers.items()):
                if slot not in presence.slots:
                    worker.leave()
                if not worker.is_alive():
                    del self._workers[slot]
            for slot in presence.slots:
                if slot not in self._workers:
                    self._workers[slot] = Worker(self, slot)
                    self._workers[slot].start()


def _unmeasured(job: MeasureJob) -> MeasureOutcome:
    nowhere = MeasuredOn(name="", label="", celsius=None)
    return MeasureOutcome(job.id, (), None, lost=True, on=nowhere, device="", driver="", took=0.0)
