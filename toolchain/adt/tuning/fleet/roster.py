"""Devices that were ever seen, which of them may measure, and which candidates are to blame for failures."""

from __future__ import annotations

import dataclasses
import math
import threading
import time
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass

from adt.tuning.candidates import MeasureJob, MeasureOutcome
from adt.tuning.fleet.sources import Lease, Sighting
from adt.tuning.records import Failure
from adt.tuning.results import DeviceStatus

MAX_FAILURES = 3
"""After so many failures in a row a device is out of service, if others measure …"""
FIRST_PAUSE, LONGEST_PAUSE = 60.0, 960.0
"""Seconds of the first pause and of the longest; each is twice as long as the one before."""
CELSIUS_SECONDS = 10.0
"""Seconds for which a temperature counts: it is not asked more often."""
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
    busy_seconds: float = 0.0
    note: str = ""
    failures_in_a_row: int = 0
    since: float = 0.0
    pause: float = 0.0
    """Seconds for which it is out of service next; 0: for the first time."""
    out_until: float = 0.0
    """Time from which it may measure again; infinite for devices of another kind than this tuning's."""


class Roster:
    """Every device that was ever seen; for any thread."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._lock, self._clock = threading.Lock(), clock
        self._devices: dict[str, _Device] = {}
        self._success = float("-inf")

    def _of(self, name: str) -> _Device:
        return self._devices.setdefault(name, _Device(name))

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

    def refuses(self, lease: Lease) -> bool:
        """Return True if a worker that has *lease* may not use it."""
        with self._lock:
            device = self._of(lease.name)
            device.label, device.emulated = lease.hardware.label or device.label, lease.hardware.emulated
            if device.out_until > self._clock():
                return True
            device.state = "starting"
            return False

    def is_barred(self, name: str) -> bool:
        """True if the device may not measure at present."""
        with self._lock:
            device = self._devices.get(name)
            return device is not None and device.out_until > self._clock()

    def missed(self, name: str, reason: str) -> None:
        """Note that the server of *name*, if it is a device's, could not be had."""
        with self._lock:
            if (device := self._devices.get(name)) and device.state not in ("away", "left"):
                device.state, device.note = "restarting", reason

    def refuse(self, name: str, reason: str) -> None:
        """Record that it is not the kind of device that this tuning is for."""
        self.set_state(name, "out", reason)
        with self._lock:
            self._of(name).out_until = math.inf

    def succeed(self, name: str, took: float) -> None:
        """Note that *name* measured a candidate, or said what is wrong with it, in *took* seconds."""
        with self._lock:
            device = self._of(name)
            device.measured += 1
            device.busy_seconds += took
            device.failures_in_a_row, device.pause = 0, 0.0
            device.state = "idle"
            self._success = self._clock()

    def fail(self, name: str, reason: str, *, took: float = 0.0, candidate: bool = False) -> float:
        """Record a failure, of a *candidate* or not; return the seconds until the device is used again."""
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
            wait = device.pause or FIRST_PAUSE
            device.pause = min(2 * wait, LONGEST_PAUSE)
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

    def celsius(self, name: str, ask: Callable[[], float | None]) -> float | None:
        """Return the temperature of the hottest thermal zone of *name*; *ask* reads it now."""
        with self._lock:
            device, now = self._of(name), self._clock()
            due = now - device.celsius_at >= CELSIUS_SECONDS
            device.celsius_at = now if due else device.celsius_at
        if due:
            device.celsius = ask()
        return device.celsius

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
        names = [each.name for each in dataclasses.fields(DeviceStatus)]
        with self._lock:
            devices = [self._devices[name] for name in sorted(self._devices)]
            return tuple(DeviceStatus(*(getattr(device, name) for name in names)) for device in devices)


PATIENCE = 60.0
"""Seconds for which a candidate waits for another device."""


@dataclass(frozen=True)
class _Suspect:
    job: MeasureJob
    outcome: MeasureOutcome
    since: float


class Suspects:
    """Candidates that hung, crashed a server, or took a device away; for any thread.

    They are to blame once a second device fails with them, or if there is no other device.
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
        """Return the outcome to report, and the devices that it clears.

        The outcome is None if *job* waits for one of *others*: the other devices at work, or soon so.
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
