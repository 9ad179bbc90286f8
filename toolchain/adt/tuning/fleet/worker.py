"""One device, or one place in a tracker's queue: lease a server, open a session, measure, again and again.

What TVM's client does happens in a process of its own (:mod:`adt.tuning.fleet.measure_child`), so that a
server which does not answer costs the time that it was given, and no more. The roster has
all devices: what each is busy with, what went wrong, and which may measure.
"""

from __future__ import annotations

import enum
import logging
import math
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Protocol

from adt.device.transport.deadline import cancel_on
from adt.errors import AdtError
from adt.host.child import Child, ChildDied, ChildHung
from adt.rpc import wire
from adt.tuning.candidates import MeasureJob, MeasureOutcome
from adt.tuning.fleet.measure_child import (
    SPEECH,
    Answer,
    Broken,
    Compute,
    Computed,
    Connect,
    Connected,
    Disconnect,
    Measure,
    Prepare,
    Refused,
    Request,
    Timed,
)
from adt.tuning.fleet.sources import Identity, Lease, NotNow, Sighting, Source
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
CELSIUS_SECONDS = 10.0
"""The temperature is not asked more often."""
PAUSES = (0.0, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds to wait after so many attempts in a row that came to nothing."""


class _SessionEnd(enum.Enum):
    OVER = "over"
    """Its time was over, or there is nothing to do."""
    RENEW = "renew"
    """The session is spoilt; the server is not."""
    RESTART = "restart"
    """The server is to be given up, and if it is ours, restarted."""


class Dispatcher(Protocol):
    """Source of workers' jobs, which takes their outcomes: see :class:`adt.tuning.fleet.fleet.Fleet`."""

    source: Source
    computes: str
    roster: Roster
    ending: threading.Event
    """Nothing more is to be measured."""
    leaving: threading.Event
    """No device is to be waited for any more."""

    def accept(self, name: str, identity: Identity) -> str:
        """Return why the device *name* may not measure; empty: it may."""

    def has_work(self) -> bool:
        """Return True if a server is to be leased."""

    def next(self, name: str) -> MeasureJob | None:
        """Return a job for the device *name* to measure."""

    def hold(self, job: MeasureJob) -> None:
        """Take back what could not be measured just now."""

    def finish(self, job: MeasureJob, outcome: MeasureOutcome) -> None:
        """Take the outcome of *job*."""


class Worker(threading.Thread):
    """Measures for *fleet*, as long as its *slot* is there."""

    def __init__(self, fleet: Dispatcher, slot: str) -> None:
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
            if lease.seconds is not None:  # let it go back to its tracker at once, for others
                wire.try_server(lease.host, lease.port, key=lease.match_key, seconds=SLACK_SECONDS)
            return
        while not self._over:
            end = self._session(lease)
            if lease.seconds is not None or end is _SessionEnd.RESTART:
                return

    def _session(self, lease: Lease) -> _SessionEnd:
        held = RENEW_SECONDS if lease.seconds is None else lease.seconds
        allowed, self._next_seconds = max(self._last_seconds, self._next_seconds), 0.0
        limit = math.ceil(held + allowed)
        request = Connect(lease.host, lease.port, lease.match_key, limit, self._fleet.computes)
        answer = self._ask(request, CONNECT_SECONDS)
        if not isinstance(answer, Connected):
            if not self._over:
                reason = (
                    answer if isinstance(answer, str) else getattr(answer, "message", "it did not answer")
                )
                self._roster.fail(lease.name, f"no session: {reason}")
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
            if job is not None and _seconds_for(job) > allowed:
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
        known = lease.identity or Identity("", "")
        if self._fleet.computes == "cpu":
            return Identity(known.device or lease.key, "")
        return known.or_else(connected.device or lease.key, connected.driver)

    def _measure(self, lease: Lease, identity: Identity, job: MeasureJob) -> _SessionEnd:
        """Measure *job*, and report the outcome."""
        self.measuring = True
        began, session_end = time.monotonic(), _SessionEnd.RESTART
        seconds: tuple[float, ...] = ()
        outputs: tuple[bytes, ...] = ()
        failure, lost = None, True
        try:
            if self._roster.is_temperature_due(lease.name, CELSIUS_SECONDS):
                self._roster.set_celsius(lease.name, lease.celsius())
            self._roster.set_state(lease.name, "measuring")
            answer = self._time(job)
            if job.outputs and isinstance(answer, Timed):
                compute = Compute(_file_name(job), job.library, job.arguments, job.outputs)
                computed = self._ask(compute, job.timing.timeout + _sending_seconds(job))
                outputs = computed.outputs if isinstance(computed, Computed) else ()
                answer = answer if outputs else computed
            seconds = answer.seconds if isinstance(answer, Timed) else ()
            failure, lost, session_end = self._judge(lease, answer)
        finally:  # also after a fault of ours: the engine waits for the job
            took = time.monotonic() - began
            self._update_roster(lease.name, failure, lost, took)
            on = MeasuredOn(lease.name, lease.label, self._roster.celsius(lease.name), lease.emulated)
            kind = identity.device, identity.driver
            self._fleet.finish(job, MeasureOutcome(job.id, seconds, failure, lost, on, *kind, took, outputs))
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
            self._roster.set_state(name, "idle")

    def _time(self, job: MeasureJob) -> Answer | str:
        """Ask the process for the times of *job*; return the reason as a text where it gave none."""
        ready = self._ask(Prepare(job.arguments), _sending_seconds(job))
        if isinstance(ready, str):
            return Broken(f"its arguments could not be sent: {ready}")
        if isinstance(ready, Refused | Broken):
            return ready
        request = Measure(_file_name(job), job.library, job.arguments, job.timing)
        return self._ask(request, job.timing.timeout + SLACK_SECONDS)

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
    seconds = (_sending_seconds(job) + job.timing.timeout + SLACK_SECONDS) * (
        2 if job.outputs and not once else 1
    )
    return 10.0 * math.ceil(seconds / 10.0)


def _file_name(job: MeasureJob) -> str:
    """Return the name of the job's library on the server: one that was never there before."""
    return f"adt-tune-{job.id}-{secrets.token_hex(4)}.so"


MAX_FAILURES = 3
"""After so many failures in a row a device is out of service, if others measure …"""
FIRST_PAUSE, LONGEST_PAUSE = 60.0, 960.0
"""Seconds of the first pause and of the longest; each is twice as long as the one before."""
AT_WORK = ("idle", "measuring")


@dataclass
class _Device:
    name: str
    label: str = ""
    emulated: bool = False
    state: str = "starting"
    measured: int = 0
    failed: int = 0
    restarts: int = 0
    celsius: float | None = None
    celsius_at: float = float("-inf")
    """Time at which *celsius* was read."""
    busy_seconds: float = 0.0
    note: str = ""
    failures_in_a_row: int = 0
    """Failures since it last succeeded."""
    since: float = 0.0
    """Time of the first failure."""
    pause: float = FIRST_PAUSE
    out_until: float = 0.0
    refused: str = ""
    """Reason why it is not the kind of device that this tuning is for."""


class Roster:
    """Every device that was ever seen; for any thread."""

    def __init__(self, *, pause: float = FIRST_PAUSE, clock: Callable[[], float] = time.monotonic) -> None:
        self._lock = threading.Lock()
        self._devices: dict[str, _Device] = {}
        self._pause, self._clock = pause, clock
        self._success = float("-inf")

    def _of(self, name: str) -> _Device:
        if name not in self._devices:
            self._devices[name] = _Device(name, pause=self._pause)
        return self._devices[name]

    def update(self, sightings: Sequence[Sighting], *, gone: str) -> None:
        """Update the devices from *sightings*; *gone* is the state of missing ones, ``left`` or ``away``."""
        with self._lock:
            for sighting in sightings:
                device = self._of(sighting.name)
                device.label = device.label or sighting.label
                if sighting.there and device.state in ("away", "left"):
                    device.state, device.note = "starting", ""
                elif not sighting.there:
                    device.state, device.note = "away", sighting.note
            named = {sighting.name for sighting in sightings}
            for device in self._devices.values():
                if device.name not in named and device.state != "left":
                    device.state = gone

    def refuses(self, lease: Lease) -> str:
        """Return why a worker that has *lease* may not use it; empty: it may."""
        with self._lock:
            device = self._of(lease.name)
            device.label, device.emulated = lease.label or device.label, lease.emulated
            if device.refused:
                return device.refused
            if device.out_until > self._clock():
                return "it is out of service"
            device.state = "starting"
            return ""

    def is_barred(self, name: str) -> bool:
        """True if the device may not measure at present."""
        with self._lock:
            device = self._devices.get(name)
            return device is not None and (bool(device.refused) or device.out_until > self._clock())

    def missed(self, name: str, reason: str) -> None:
        """Note that the server of *name*, if it is a device's, could not be had."""
        with self._lock:
            if (device := self._devices.get(name)) and device.state not in ("away", "left"):
                device.state, device.note = "restarting", reason

    def refuse(self, name: str, reason: str) -> None:
        """Record that it is not the kind of device that this tuning is for."""
        self.set_state(name, "out", reason)
        with self._lock:
            self._of(name).refused = reason

    def succeed(self, name: str, took: float) -> None:
        """Note that *name* measured a candidate, or said what is wrong with it, in *took* seconds."""
        with self._lock:
            device = self._of(name)
            device.measured += 1
            device.busy_seconds += took
            device.failures_in_a_row, device.pause = 0, self._pause
            self._success = self._clock()

    def fail(self, name: str, reason: str, *, took: float = 0.0, candidate: bool = False) -> float:
        """Record that it hung, its server crashed, or it was out of reach; *candidate*: while measuring one.

        Returns the seconds until it may be tried again.
        """
        with self._lock:
            device, now = self._of(name), self._clock()
            device.failed += candidate
            device.restarts += 1
            device.busy_seconds += took
            device.note, device.state = reason, "restarting"
            device.since = device.since if device.failures_in_a_row else now
            device.failures_in_a_row += 1
            if device.failures_in_a_row < MAX_FAILURES or self._success < device.since:
                return 0.0
            wait, device.pause = device.pause, min(2 * device.pause, LONGEST_PAUSE)
            device.state, device.out_until = "out", now + wait
            return wait

    def clear(self, names: Sequence[str]) -> None:
        """Forget the last failure of each of *names*: it was the candidate's own."""
        with self._lock:
            for name in names:
                device = self._of(name)
                device.failures_in_a_row = max(0, device.failures_in_a_row - 1)

    def set_state(self, name: str, state: str, note: str | None = None) -> None:
        """Set what it does, see :attr:`adt.tuning.results.DeviceStatus.state`; None: its note stays."""
        with self._lock:
            device = self._of(name)
            device.state, device.note = state, device.note if note is None else note

    def is_temperature_due(self, name: str, every: float) -> bool:
        """True if its temperature was not asked for *every* seconds; it is taken to be asked now."""
        with self._lock:
            device = self._of(name)
            if self._clock() - device.celsius_at < every:
                return False
            device.celsius_at = self._clock()
            return True

    def set_celsius(self, name: str, celsius: float | None) -> None:
        """Store the temperature of the hottest thermal zone of *name*."""
        with self._lock:
            self._of(name).celsius = celsius

    def celsius(self, name: str) -> float | None:
        """Return the device's last temperature."""
        with self._lock:
            return self._of(name).celsius

    def at_work(self) -> frozenset[str]:
        """Return the devices that measure, or would."""
        return self._named(AT_WORK)

    def in_service(self) -> frozenset[str]:
        """Return the devices at work, and those that soon will be."""
        return self._named((*AT_WORK, "starting", "restarting"))

    def _named(self, states: Sequence[str]) -> frozenset[str]:
        with self._lock:
            return frozenset(device.name for device in self._devices.values() if device.state in states)

    def statuses(self) -> tuple[DeviceStatus, ...]:
        """List every device, by name."""
        with self._lock:
            return tuple(
                DeviceStatus(**{each.name: getattr(device, each.name) for each in fields(DeviceStatus)})
                for device in sorted(self._devices.values(), key=lambda device: device.name)
            )
