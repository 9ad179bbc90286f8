"""Measuring on devices that come and go: one worker for each, as many candidates in flight as devices.

A worker (:mod:`adt.tuning.fleet.worker`) takes a candidate, measures it and tells what came of it; none waits
for another. A watcher looks every second who is there, and starts a worker for who came. All devices
of one tuning are of one kind: the first decides which, unless that is asked for.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Self

from adt.device.transport.deadline import allowed, cancelling
from adt.errors import AdtError, ConfigError, MismatchError, NoDevice, PackageError, ToolNotFound
from adt.tuning.candidates import MeasureJob, Outcome
from adt.tuning.fleet.device_facts import Identity
from adt.tuning.fleet.roster import FIRST_PAUSE, Roster
from adt.tuning.fleet.sources import Source
from adt.tuning.fleet.suspects import Suspects
from adt.tuning.fleet.worker import Worker
from adt.tuning.records import MeasuredOn
from adt.tuning.results import DeviceStatus

log = logging.getLogger("adt.tune")

LOOK_SECONDS = 1.0
"""How often the source is asked who is there."""
IDLE_SECONDS = 0.05
"""Between questions for a candidate, when the answer comes at once."""
HOPELESS = (ToolNotFound, ConfigError, PackageError, MismatchError)
"""What does not get better by waiting."""
JOIN_SECONDS = 120.0
"""In which servers that were started must have ended."""

Take = Callable[[], MeasureJob | None]
Done = Callable[[Outcome], None]


class Fleet:
    """The devices of *source*, measuring what it is given."""

    def __init__(
        self,
        source: Source,
        computes: str,
        *,
        wanted: tuple[str, str] | None = None,
        pause: float = FIRST_PAUSE,
    ) -> None:
        """
        Args:
            computes: ``cpu`` or ``opencl``.
            wanted: device and driver, as in :class:`adt.tuning.records.Context`; with an empty driver the
                first such device decides. None: the first device does.
            pause: seconds for which a device is first out of service.
        """
        self.source, self.computes = source, computes
        self.roster = Roster(pause=pause)
        self._suspects = Suspects()
        self._identity = Identity(*wanted) if wanted else None
        self._answered = threading.Event()
        self._guard = threading.Lock()
        self._held: deque[MeasureJob] = deque()
        self._take: Take | None = None
        self._done: Done | None = None
        self._started = threading.Event()
        self._ending = threading.Event()
        self.leaving = threading.Event()
        """No device is to be waited for any more."""
        self._workers: dict[str, Worker] = {}
        self._watcher: threading.Thread | None = None
        self._trouble: AdtError | None = None  # of the source
        self._refusal: AdtError | None = None  # what a device said last that could not be had

    # for the engine -----------------------------------------------------------------------------

    def open(self) -> Self:
        """Make the devices ready, from now on; nothing is measured before :meth:`start`."""
        with self._guard:
            if self._watcher is None and not self._ending.is_set():
                self._watcher = threading.Thread(target=self._watch, name="fleet")
                self._watcher.start()
        return self

    def start(self, take: Take, done: Done) -> Self:
        """Measure what *take* gives, from now on; every job comes back through *done*, once.

        Args:
            take: called from many threads; may wait up to half a second for a job.
            done: called from many threads.
        """
        self._take, self._done = take, done
        self._started.set()
        return self.open()

    def first(self, seconds: float, stop: threading.Event | None = None) -> tuple[str, str]:
        """Device and driver of what is measured on, once a device has answered.

        Raises:
            AdtError: the only one, or what would find them, said why it will not be had; sooner than in
                *seconds* where time does not help.
            NoDevice: none answered, or *stop* was set.
        """
        self.open()
        end = time.monotonic() + seconds
        while not self._answered.wait(0.1):
            why = self._nobody(seconds)
            late = time.monotonic() > end or (stop is not None and stop.is_set())
            if late or isinstance(why, HOPELESS):
                raise why
        assert self._identity is not None
        return self._identity.device, self._identity.driver

    def identity(self) -> tuple[str, str] | None:
        """Device and driver of what is measured on; None until a device has answered."""
        found = self._identity if self._answered.is_set() else None
        return (found.device, found.driver) if found else None

    def live(self) -> int:
        """How many devices measure, or would."""
        return 0 if self._ending.is_set() else len(self.roster.at_work())

    def devices(self) -> tuple[DeviceStatus, ...]:
        """Every device that was ever seen, by name."""
        return self.roster.statuses()

    def close(self, grace: float = 0.0, *, leaving: bool = False) -> None:
        """Take no more; what is measured now may end within *grace* seconds. Then nothing of it is left.

        Args:
            leaving: what is on a device that does not answer is left to the watchdog of its server.
        """
        self._ending.set()
        with self._guard:
            workers, watcher = list(self._workers.values()), self._watcher
        end = time.monotonic() + grace
        try:
            while time.monotonic() < end and any(one.measuring for one in workers):
                time.sleep(0.05)
        finally:
            if leaving or allowed(JOIN_SECONDS) < JOIN_SECONDS:
                self.leaving.set()
            # At once: one whose device has stalled takes seconds to end.
            killers = [threading.Thread(target=worker.kill) for worker in workers]
            for thread in killers:
                thread.start()
            for thread in killers:
                thread.join()
        for thread in (*workers, *filter(None, (watcher,))):
            thread.join(JOIN_SECONDS)
        for outcome in self._suspects.drop():
            self._tell(outcome)
        while self._held:
            self._tell(_unmeasured(self._held.popleft()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # for the workers ----------------------------------------------------------------------------

    @property
    def ending(self) -> threading.Event:
        """Nothing more is to be measured."""
        return self._ending

    def accept(self, name: str, found: Identity) -> str:
        """Whether the device *name* may measure: nothing, or why not. The first that answers decides."""
        with self._guard:
            if self._identity is None or (
                self._identity == Identity(found.device, "") and not self._answered.is_set()
            ):
                self._identity = found
            same = found == self._identity
            if same:
                self._answered.set()
                return ""
            why = f"it is {found.text}; this tuning is for {self._identity.text}"
        log.warning("%s is not measured on: %s", name, why)
        self.roster.refuse(name, why)
        return why

    def missed(self, slot: str, why: AdtError) -> None:
        """The worker of *slot* could not get a server."""
        self._refusal = why
        self.roster.missed(slot, why.what)

    def next(self, name: str) -> MeasureJob | None:
        """Something for the device *name* to measure; None after a short while without."""
        if job := self._suspects.take(name):
            return job
        with self._guard:
            if self._held:
                return self._held.popleft()
        return self._asked()

    def work(self) -> bool:
        """Whether a server is to be leased; waits a short while for something to measure, which is kept.

        Servers that are for us alone are made ready before there is something.
        """
        if self.source.keeps or self._suspects.waiting or self._held or not self._answered.is_set():
            return True
        job = self._asked()
        if job is not None:
            self.hold(job)
        return job is not None

    def hold(self, job: MeasureJob) -> None:
        """Take back what could not be measured just now, for whoever can."""
        with self._guard:
            self._held.append(job)

    def _asked(self) -> MeasureJob | None:
        if not self._started.wait(IDLE_SECONDS) or self._ending.is_set():
            return None
        assert self._take is not None
        began = time.monotonic()
        job = self._take()
        if job is None and time.monotonic() - began < IDLE_SECONDS:
            time.sleep(IDLE_SECONDS)
        return job

    def finished(self, job: MeasureJob, outcome: Outcome) -> None:
        """What came of *job*; it may be kept for a second device."""
        others = self.roster.in_service() - {outcome.on.name}
        if self._ending.is_set():
            others = frozenset()
        told, cleared = self._suspects.judge(job, outcome, others)
        self.roster.cleared(cleared)
        if told is None:
            log.debug("%s is tried on another device: %s", job.task, outcome.failure)
        else:
            self._tell(told)

    def _tell(self, outcome: Outcome) -> None:
        if self._done is not None:
            self._done(outcome)

    # who is there -------------------------------------------------------------------------------

    def _watch(self) -> None:
        with cancelling(self.leaving):
            while not self._ending.is_set():
                try:
                    self._look()
                    for outcome in self._suspects.orphans(self.roster.in_service()):
                        self.roster.cleared((outcome.on.name,))
                        self._tell(outcome)
                except Exception:  # a fault of ours must not end the looking
                    log.debug("looking who is there", exc_info=True)
                self._ending.wait(LOOK_SECONDS)

    def _look(self) -> None:
        """Take in who is there, and have a worker for each."""
        try:
            presence = self.source.presence()
            self._trouble = None
        except AdtError as why:
            log.debug("who is there: %s", why.what)
            self._trouble = why
            self.roster.seen((), gone="away")
            return
        self.roster.seen(presence.sights, gone="left")
        with self._guard:
            if self._ending.is_set():
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

    def _nobody(self, seconds: float) -> AdtError:
        if self._trouble is not None:
            return self._trouble
        devices = self.devices()
        if self._refusal is not None and len(devices) == 1:
            return self._refusal
        said = [f"{one.name}: {one.state}: {one.note}" for one in devices]
        what = (
            f"no device to tune on answered within {seconds:g} s" if said else "there is no device to tune on"
        )
        return NoDevice(
            what,
            remedy="Connect it (`adt devices`), or start its server: adt rpc start --serial S --key KEY; "
            "`adt rpc status` shows who is registered.",
            details="\n".join(said),
        )


def _unmeasured(job: MeasureJob) -> Outcome:
    nowhere = MeasuredOn(name="", label="", celsius=None)
    return Outcome(job.id, (), None, lost=True, on=nowhere, device="", driver="", took=0.0)
