"""How the devices of a tuning do: what each is busy with, what went wrong, and who may measure."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from adt.tuning.fleet.sources import Lease, Sight
from adt.tuning.results import DeviceStatus

IN_A_ROW = 3
"""After so many failures in a row a device is out of service, if others measure …"""
FIRST_PAUSE, LONGEST_PAUSE = 60.0, 960.0
"""… for so many seconds, twice as long each time."""
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
    asked: float = float("-inf")
    """When *celsius* was."""
    busy: float = 0.0
    note: str = ""
    in_a_row: int = 0
    """Failures since it last succeeded."""
    since: float = 0.0
    """Of the first of them."""
    pause: float = FIRST_PAUSE
    out_until: float = 0.0
    refused: str = ""
    """Why it is not the kind of device that this tuning is for."""


class Roster:
    """Every device that was ever seen; for any thread."""

    def __init__(self, *, pause: float = FIRST_PAUSE, clock: Callable[[], float] = time.monotonic) -> None:
        self._guard = threading.Lock()
        self._devices: dict[str, _Device] = {}
        self._pause, self._clock = pause, clock
        self._success = float("-inf")

    def _of(self, name: str) -> _Device:
        if name not in self._devices:
            self._devices[name] = _Device(name, pause=self._pause)
        return self._devices[name]

    def seen(self, sights: Sequence[Sight], *, gone: str) -> None:
        """Take in who is there.

        Args:
            gone: state of one that was there and is not any more: ``left`` or ``away``.
        """
        with self._guard:
            for sight in sights:
                device = self._of(sight.name)
                device.label = device.label or sight.label
                if sight.there and device.state in ("away", "left"):
                    device.state, device.note = "starting", ""
                elif not sight.there:
                    device.state, device.note = "away", sight.note
            named = {one.name for one in sights}
            for device in self._devices.values():
                if device.name not in named and device.state != "left":
                    device.state = gone

    def leased(self, lease: Lease) -> str:
        """A worker has a server of it; why it may not use it, or nothing."""
        with self._guard:
            device = self._of(lease.name)
            device.label, device.emulated = lease.label or device.label, lease.emulated
            if device.refused:
                return device.refused
            if device.out_until > self._clock():
                return "it is out of service"
            device.state = "starting"
            return ""

    def barred(self, name: str) -> bool:
        """Whether it is no use to try it now."""
        with self._guard:
            device = self._devices.get(name)
            return device is not None and (bool(device.refused) or device.out_until > self._clock())

    def missed(self, name: str, why: str) -> None:
        """Its server could not be had; nothing, when *name* is no device's."""
        with self._guard:
            if (device := self._devices.get(name)) and device.state not in ("away", "left"):
                device.state, device.note = "restarting", why

    def working(self, name: str, *, measuring: bool) -> None:
        """It measures, or waits for something to measure."""
        with self._guard:
            self._of(name).state = "measuring" if measuring else "idle"

    def refuse(self, name: str, why: str) -> None:
        """It is not the kind of device that this tuning is for."""
        with self._guard:
            device = self._of(name)
            device.state, device.note, device.refused = "out", why, why

    def succeeded(self, name: str, took: float) -> None:
        """It measured a candidate, or said what is wrong with it, in *took* seconds."""
        with self._guard:
            device = self._of(name)
            device.measured += 1
            device.busy += took
            device.in_a_row, device.pause = 0, self._pause
            self._success = self._clock()

    def failed(self, name: str, why: str, *, took: float = 0.0, candidate: bool = False) -> float:
        """It hung, its server crashed, or it could not be reached; seconds until it may be tried again.

        Args:
            candidate: a candidate was being measured.
        """
        with self._guard:
            device, now = self._of(name), self._clock()
            device.failed += candidate
            device.restarts += 1
            device.busy += took
            device.note, device.state = why, "restarting"
            device.since = device.since if device.in_a_row else now
            device.in_a_row += 1
            if device.in_a_row < IN_A_ROW or self._success < device.since:
                return 0.0
            wait, device.pause = device.pause, min(2 * device.pause, LONGEST_PAUSE)
            device.state, device.out_until = "out", now + wait
            return wait

    def cleared(self, names: Sequence[str]) -> None:
        """The last failure of each of *names* was the candidate's own."""
        with self._guard:
            for name in names:
                device = self._of(name)
                device.in_a_row = max(0, device.in_a_row - 1)

    def gone(self, name: str, state: str, why: str) -> None:
        """It was lost while it measured, or cannot be had now."""
        with self._guard:
            device = self._of(name)
            device.state, device.note = state, why

    def due(self, name: str, every: float) -> bool:
        """Whether its temperature was not asked for *every* seconds; it is taken to be asked now."""
        with self._guard:
            device = self._of(name)
            if self._clock() - device.asked < every:
                return False
            device.asked = self._clock()
            return True

    def warm(self, name: str, celsius: float | None) -> None:
        """Its hottest thermal zone."""
        with self._guard:
            self._of(name).celsius = celsius

    def celsius(self, name: str) -> float | None:
        """As it was told last."""
        with self._guard:
            return self._of(name).celsius

    def at_work(self) -> frozenset[str]:
        """The devices that measure, or would."""
        return self._in(AT_WORK)

    def in_service(self) -> frozenset[str]:
        """Those, and the ones that soon will."""
        return self._in((*AT_WORK, "starting", "restarting"))

    def _in(self, states: Sequence[str]) -> frozenset[str]:
        with self._guard:
            return frozenset(one.name for one in self._devices.values() if one.state in states)

    def statuses(self) -> tuple[DeviceStatus, ...]:
        """Every device, by name."""
        with self._guard:
            return tuple(
                DeviceStatus(
                    name=one.name,
                    label=one.label,
                    state=one.state,
                    measured=one.measured,
                    failed=one.failed,
                    restarts=one.restarts,
                    celsius=one.celsius,
                    busy_seconds=one.busy,
                    note=one.note,
                    emulated=one.emulated,
                )
                for one in sorted(self._devices.values(), key=lambda one: one.name)
            )
