"""The devices of a tuning: what each is busy with, what went wrong, and which may measure."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

from adt.tuning.fleet.sources import Lease, Sighting
from adt.tuning.results import DeviceStatus

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
