"""Measuring on devices that come and go: one worker for each, as many candidates in flight as devices.

A worker leases a server, opens a session, measures a candidate and reports the outcome, again and again;
none waits for another. A watcher looks every second which devices are there, and starts a worker for each
new one. All devices of one tuning are of one kind: the first decides which, unless that is asked for.

What TVM's client does happens in a process of its own (:mod:`adt.tuning.fleet.measure_child`), so that a
server which does not answer costs the time that it was given, and no more.
"""

from __future__ import annotations

import enum
import logging
import math
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Self

from adt.device.transport.deadline import allowed, cancel_on
from adt.errors import AdtError
from adt.host.child import Child, ChildDied, ChildHung
from adt.rpc import wire
from adt.tuning.candidates import MeasureJob, MeasureOutcome
from adt.tuning.fleet.measure_child import (
    SPEECH,
    Answer,
    Broken,
    Connect,
    Connected,
    Disconnect,
    Measure,
    Prepare,
    Refused,
    Request,
    Timed,
)
from adt.tuning.fleet.roster import Roster, Suspects
from adt.tuning.fleet.sources import Identity, Lease, NotNow, Source
from adt.tuning.records import Failure, MeasuredOn
from adt.tuning.results import DeviceStatus

log = logging.getLogger("adt.tune")

CONNECT_SECONDS = 30.0
"""In which a server must open a session; the start of our process counts."""
PREPARE_SECONDS = 20.0
"""In which the arguments of a kernel must be on the device, when they are small …"""
SLOWEST = 4e6
"""Least rate of other transfers, in bytes per second."""
SLACK_SECONDS = 5.0
"""For the way to and fro, on top of what a measurement may take."""
KILL_SECONDS = 0.5
"""Seconds that a process has to end once its measurements do not count any more."""
LAST_SECONDS = 50.0
"""Seconds that a session has for its last candidate, unless one needs more."""
RENEW_SECONDS = 600.0
"""After which a session with a server that is ours is opened anew: what leaked is gone then."""
PAUSES = (0.0, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds to wait after so many attempts in a row that came to nothing."""


class _SessionEnd(enum.Enum):
    OVER = "over"
    """Its time was over, or there is nothing to do."""
    RENEW = "renew"
    """The session is spoilt; the server is not."""
    RESTART = "restart"
    """The server is to be given up, and if it is ours, restarted."""


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

    _take: Take
    _done: Done

    def __init__(self, source: Source, computes: str, *, kind: tuple[str, str] | None = None) -> None:
        """Measure on the devices of *source*, which compute on ``cpu``, ``opencl`` or ``cuda``.

        *kind* is their device and driver, any if that is empty; None: the first device decides.
        """
        self.source, self.computes = source, computes
        self.roster = Roster()
        self._suspects = Suspects()
        self._identity = Identity(*kind) if kind else None
        self._answered = threading.Event()
        self._lock = threading.Lock()
        self._held: deque[MeasureJob] = deque()
        self.ending = threading.Event()
        self.leaving = threading.Event()
        """No device is to be waited for any more."""
        self._workers: dict[str, Worker] = {}
        self._watcher: threading.Thread | None = None

    def start(self, take: Take, done: Done) -> Self:
        """Measure the jobs of *take* from now on; each comes back through *done*, once, from any thread."""
        self._take, self._done = take, done
        self._watcher = threading.Thread(target=self._watch, name="fleet")
        self._watcher.start()
        return self

    def identity(self) -> Identity | None:
        """Return device and driver of what is measured on; None until a device has answered."""
        return self._identity if self._answered.is_set() else None

    def live(self) -> int:
        """Return the number of devices that measure, or would."""
        return 0 if self.ending.is_set() else len(self.roster.at_work())

    def devices(self) -> tuple[DeviceStatus, ...]:
        """List every device that was ever seen, by name."""
        return self.roster.statuses()

    def close(self, grace: float = 0.0, *, leaving: bool = False) -> None:
        """Take no more; measurements may end within *grace* seconds. *leaving*: wait for no device."""
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
            with ThreadPoolExecutor(max(1, len(workers))) as pool:
                list(pool.map(Worker.kill, workers))  # what one raises
        for thread in (*workers, *filter(None, (watcher,))):
            thread.join(JOIN_SECONDS)
        for outcome in self._suspects.drop():
            self._done(outcome)
        nowhere = MeasuredOn(name="", label="", celsius=None)
        while self._held:
            job = self._held.popleft()
            self._done(MeasureOutcome(job.id, (), None, True, nowhere, device="", driver=""))

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
        """True if a server is to be leased: one that is for us alone, or one for a job, which is kept."""
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
            self._done(verdict)

    def _watch(self) -> None:
        with cancel_on(self.leaving):
            while not self.ending.is_set():
                try:
                    self._look()
                    for outcome in self._suspects.orphans(self.roster.in_service()):
                        self.roster.clear((outcome.on.name,))
                        self._done(outcome)
                except Exception:  # a fault of ours must not end the watching
                    log.debug("looking which devices are there", exc_info=True)
                self.ending.wait(LOOK_SECONDS)

    def _look(self) -> None:
        """See which devices are there, and have a worker for each."""
        try:
            slots, sightings = self.source.presence()
        except AdtError as error:
            log.debug("which devices are there: %s", error.what)
            self.roster.update((), gone="away")
            return
        self.roster.update(sightings, gone="left")
        with self._lock:
            if self.ending.is_set():
                return
            for slot, worker in list(self._workers.items()):
                if slot not in slots:
                    worker.leave()
                if not worker.is_alive():
                    del self._workers[slot]
            for slot in slots:
                if slot not in self._workers:
                    self._workers[slot] = Worker(self, slot)
                    self._workers[slot].start()


class Worker(threading.Thread):
    """Measures for *fleet*, as long as its *slot* is there."""

    def __init__(self, fleet: Fleet, slot: str) -> None:
        super().__init__(name=f"measuring on {slot}")
        self._fleet, self.slot = fleet, slot
        self._roster = fleet.roster
        self._child = Child("adt.tuning.fleet.measure_child", speech=SPEECH)
        self._leaving = threading.Event()
        self._failed_attempts = 0  # in a row
        self._last_seconds = LAST_SECONDS  # that a session has for its last candidate …
        self._next_seconds = 0.0  # … and the next session, where that needs more
        self.measuring = False

    def leave(self) -> None:
        """End when the candidate that is measured is done."""
        self._leaving.set()

    def kill(self) -> None:
        """End now: a process that waits for a device that has stalled ends by no grace."""
        self._leaving.set()
        self._child.close(KILL_SECONDS)

    @property
    def _over(self) -> bool:
        return self._leaving.is_set() or self._fleet.ending.is_set()

    def run(self) -> None:
        """Run until the slot is gone, or the fleet ends."""
        try:
            with cancel_on(self._fleet.leaving):
                while not self._over:
                    pause = PAUSES[min(self._failed_attempts, len(PAUSES) - 1)]
                    if pause and self._fleet.ending.wait(pause):
                        break
                    self._failed_attempts += 1
                    self._use_lease()
        finally:
            self._child.close()

    def _use_lease(self) -> None:
        if self._roster.is_barred(self.slot):
            return
        if not self._fleet.has_work():
            self._failed_attempts = 0
            return
        try:
            with self._fleet.source.lease(self.slot, self._fleet.computes) as lease:
                self._measure_on(lease)
        except NotNow as error:
            self._failed_attempts = min(self._failed_attempts, 1)
            log.debug("%s: %s", self.slot, error)
        except AdtError as error:
            if not self._over:
                log.debug("%s: %s", self.slot, error.what)
                self._roster.missed(self.slot, error.what)
        except Exception as error:  # a fault of ours must not take the other devices along
            log.debug("%s", self.slot, exc_info=True)
            self._roster.missed(self.slot, f"{type(error).__name__}: {error}")

    def _measure_on(self, lease: Lease) -> None:
        """Measure in session after session, as long as the lease lasts."""
        if self._roster.refuses(lease):
            server = lease.server
            if lease.seconds is not None:  # let it go back to its tracker at once, for others
                wire.try_server(server.host, server.port, key=server.match_key, seconds=SLACK_SECONDS)
            return
        while not self._over:
            end = self._session(lease)
            if lease.seconds is not None or end is _SessionEnd.RESTART:
                return

    def _session(self, lease: Lease) -> _SessionEnd:
        held = RENEW_SECONDS if lease.seconds is None else lease.seconds
        last, self._next_seconds = max(self._last_seconds, self._next_seconds), 0.0
        limit = math.ceil(held + last)
        request = Connect(lease.server, limit, self._fleet.computes)
        answer = self._ask(request, CONNECT_SECONDS)
        if not isinstance(answer, Connected):
            if not self._over:
                message = answer if isinstance(answer, str) else getattr(answer, "message", "no answer")
                self._roster.fail(lease.name, f"no session: {message}")
            return _SessionEnd.RESTART
        end = time.monotonic() + held
        identity = self._identity(lease, answer)
        if self._fleet.accept(lease.name, identity):
            self._ask(Disconnect(), SLACK_SECONDS)
            return _SessionEnd.RESTART
        self._roster.set_state(lease.name, "idle")
        self._failed_attempts = 0
        session_end = _SessionEnd.OVER
        while session_end is _SessionEnd.OVER and time.monotonic() < end and not self._over:
            job = self._fleet.next(lease.name)
            if job is not None and _seconds_for(job) > last:
                self._last_seconds = max(self._last_seconds, _seconds_for(job, once=True))
                self._next_seconds = _seconds_for(job)
                self._fleet.hold(job)
                break
            if job is not None:
                session_end = self._measure(lease, identity, job)
            elif lease.seconds is not None:
                break
        if session_end is not _SessionEnd.RESTART:
            self._ask(Disconnect(), SLACK_SECONDS)
        return session_end

    def _identity(self, lease: Lease, connected: Connected) -> Identity:
        known = lease.hardware.identity
        if self._fleet.computes == "cpu":
            return Identity(known.device or lease.key, "")
        return Identity(known.device or connected.device or lease.key, known.driver or connected.driver)

    def _measure(self, lease: Lease, identity: Identity, job: MeasureJob) -> _SessionEnd:
        """Measure *job*, and report the outcome."""
        self.measuring = True
        began, session_end = time.monotonic(), _SessionEnd.RESTART
        timed = Timed(())
        failure, lost, celsius = None, True, None
        try:
            celsius = self._roster.celsius(lease.name, lease.celsius)
            self._roster.set_state(lease.name, "measuring")
            answer = self._time(job)
            timed = answer if isinstance(answer, Timed) else timed
            failure, lost, session_end = self._judge(lease, answer)
        finally:  # also after a fault of ours: the engine waits for the job
            took = time.monotonic() - began
            self._update_roster(lease.name, failure, lost, took)
            on = MeasuredOn(lease.name, lease.hardware.label, celsius, lease.hardware.emulated)
            outcome = MeasureOutcome(job.id, timed.seconds, failure, lost, on, *identity, timed.outputs)
            self._fleet.finish(job, outcome)
            self.measuring = False
        return session_end

    def _update_roster(self, name: str, failure: Failure | None, lost: bool, took: float) -> None:
        """Record how the device did."""
        if lost:
            self._roster.set_state(name, "away", "it was lost while it measured")
        elif failure is not None and failure.quarantined:
            self._roster.fail(name, f"{failure.kind}: {failure.message}", took=took, candidate=True)
        else:
            self._roster.succeed(name, took)

    def _time(self, job: MeasureJob) -> Answer | str:
        """Ask the process for times and outputs of *job*; return the reason as a text where it gave none."""
        ready = self._ask(Prepare(job.arguments), _sending_seconds(job))
        if isinstance(ready, str):
            return Broken(f"its arguments could not be sent: {ready}")
        if isinstance(ready, Refused | Broken):
            return ready
        name = f"adt-tune-{job.id}-{secrets.token_hex(4)}.so"
        request = Measure(name, job.library, job.arguments, job.timing, job.outputs)
        computing = job.timing.timeout + _sending_seconds(job) if job.outputs else 0.0
        return self._ask(request, job.timing.timeout + SLACK_SECONDS + computing)

    def _judge(self, lease: Lease, answer: Answer | str) -> tuple[Failure | None, bool, _SessionEnd]:
        """Return the failure, whether the device was lost, and what becomes of the session."""
        if isinstance(answer, Timed):
            return None, False, _SessionEnd.OVER
        if isinstance(answer, Refused):  # a GPU's context may be spoilt for those that follow
            return Failure("run", answer.message), False, _SessionEnd.RENEW
        if self._over or not lease.alive():
            return None, True, _SessionEnd.RESTART
        if isinstance(answer, str):
            return Failure("hang", answer), False, _SessionEnd.RESTART
        message = getattr(answer, "message", "the server died")
        return Failure("crash", message), False, _SessionEnd.RENEW

    def _ask(self, request: Request, seconds: float) -> Answer | str:
        """Return the answer; a text when the process did not give one in time, or died."""
        try:
            answer: Answer = self._child.ask(request, seconds)
            return answer
        except ChildHung as error:
            return str(error)
        except ChildDied as error:
            return Broken(f"the measuring process {error}")


def _sending_seconds(job: MeasureJob) -> float:
    """Return the seconds in which the arguments of *job* must be on the device."""
    return PREPARE_SECONDS + sum(argument.size for argument in job.arguments) / SLOWEST


def _seconds_for(job: MeasureJob, *, once: bool = False) -> float:
    """Return the seconds that *job* may take (*once*: without its last call), in steps for few sessions."""
    calls = 2 if job.outputs and not once else 1
    seconds = (_sending_seconds(job) + job.timing.timeout + SLACK_SECONDS) * calls
    return 10.0 * math.ceil(seconds / 10.0)
