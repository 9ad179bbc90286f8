"""State of a machine before it is measured (governors, screen, heat), a wait till it is cool, and sensors."""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

from adt.device import survey
from adt.device.place import DevicePlace, Place
from adt.device.survey import Survey
from adt.errors import ConfigError

if TYPE_CHECKING:
    from adt.measure.statistics import Times

    Samples = Sequence[Mapping[str, Any]]
    """Samples of rtvm, in order."""

log = logging.getLogger("adt.bench")

SCRIPT_SECONDS = 60.0

ON_BATTERY = ("3", "discharging")
"""Names that Android's battery service and the kernel have for a battery that all power is drawn from."""
COOL_DOWN_MOST = 900.0
"""Seconds after which cooling down is given up."""
COOL_DOWN_POLL = 5.0


@dataclass(frozen=True)
class Conditions:
    governors: tuple[str, ...]
    """Governors of the CPUs, each once; empty where the machine does not say."""
    external_power: bool | None
    """It does not run from its battery alone; None: it has no battery, or does not say."""
    screen_on: bool | None
    hottest_celsius: float | None
    hottest_zone: str
    cpu: str
    """The processor's name, where the kernel gives one."""
    board: str
    """The machine's name, where a device tree gives one."""


@dataclass(frozen=True)
class CoolDown:
    celsius: float | None = None
    """Until the hottest zone is at most so warm …"""
    seconds: float | None = None

    @property
    def text(self) -> str:
        return f"{self.celsius:g}C" if self.celsius is not None else f"{self.seconds:g}s"


def parse_cool_down(text: str) -> CoolDown:
    """Parse ``45C`` (or ``45°C``) or ``30s``."""
    if match := re.fullmatch(r"\s*(\d{1,6}(?:\.\d+)?)\s*(°?[cC]|s)\s*", text):
        number = float(match[1])
        return CoolDown(seconds=number) if match[2] == "s" else CoolDown(celsius=number)
    raise ConfigError(f"--cool-down {text!r} is neither a temperature nor a time", remedy="Write 45C or 30s.")


def conditions(place: Place) -> Conditions:
    if isinstance(place, DevicePlace):
        doing = f"asking {place.name} how it stands"
        return read(place.device.survey(*survey.CONDITIONS, timeout=SCRIPT_SECONDS, check=False, doing=doing))
    return read(survey.survey_host(*survey.CONDITIONS, seconds=SCRIPT_SECONDS))


def read(answer: Survey) -> Conditions:
    """Take from a survey what counts for a measurement."""
    states = re.findall(r"^\s*status: (.+?)\s*$", answer["battery"], re.MULTILINE)
    powered = re.search(r"^\s*\w+ powered: true\s*$", answer["battery"], re.MULTILINE) is not None
    powered = powered or any(state.lower() not in ON_BATTERY for state in states)
    awake = re.search(r"mWakefulness=(\w+)", answer["screen"])
    return Conditions(
        governors=tuple(dict.fromkeys(answer["governors"].split())),
        external_power=powered if states else None,
        screen_on=awake[1] == "Awake" if awake else None,
        hottest_celsius=answer.hottest.celsius if answer.hottest else None,
        hottest_zone=answer.hottest.kind if answer.hottest else "",
        cpu=answer.processor,
        board=answer.board,
    )


def cool_down(place: Place, goal: CoolDown) -> bool:
    """Wait until the machine is as cool as *goal*; False if it is not after COOL_DOWN_MOST seconds."""
    if goal.seconds is not None:
        log.info("cooling down for %g s", goal.seconds)
        time.sleep(goal.seconds)
        return True
    assert goal.celsius is not None
    waited = 0.0
    while (celsius := (now := conditions(place)).hottest_celsius) is not None:
        if celsius <= goal.celsius:
            return True
        state = f"at {celsius:.1f} °C ({now.hottest_zone})"
        if waited >= COOL_DOWN_MOST:
            log.warning("%s is still %s after %g s; it is measured as it is", place.name, state, waited)
            return False
        if waited == 0:
            log.info("%s is %s: waiting until that is at most %g °C", place.name, state, goal.celsius)
        time.sleep(COOL_DOWN_POLL)
        waited += COOL_DOWN_POLL
    log.warning("%s gives no temperature that could be waited for", place.name)
    return False


BATTERY_SECONDS = 10.0
"""Fuel gauges are read a few times a second at best; less than this of them says nothing."""
COUNTER_SECONDS = 0.5
UNKNOWN_POWER = "whether the device runs from its battery is not known"
POWERED = "the device is powered from outside: its battery's current is not what it draws"


@dataclass(frozen=True)
class Course:
    """One sensor: its value at the start, the extremes while the model ran, and at the end."""

    before: float
    lowest: float
    highest: float
    after: float


@dataclass(frozen=True)
class Energy:
    """Energy of the timed runs; what is None could not be measured, and *reason* says why."""

    joules_per_run: float | None
    watts: float | None
    """Mean power while the runs were timed."""
    source: str
    """``processor`` (its counter: what its packages drew) or ``battery`` (what the whole device drew)."""
    runs: int
    seconds: float
    """Number and duration of the runs that the energy was taken over."""
    reason: str


@dataclass(frozen=True)
class Sensors:
    temperatures: dict[str, Course]
    """°C by thermal zone."""
    frequencies_mhz: dict[str, Course]
    """MHz by CPU (``cpu0``) and ``gpu``."""
    count: int

    @property
    def hottest(self) -> tuple[str, Course] | None:
        """The zone that got hottest."""
        rows = self.temperatures.items()
        return max(rows, key=lambda row: row[1].highest, default=None)


def courses(samples: Samples) -> Sensors:
    """Follow each sensor over *samples* (rtvm's, in order)."""
    temperatures, clocks = (_courses(samples, kind) for kind in ("temperatures", "frequencies_mhz"))
    return Sensors(temperatures, clocks, count=len(samples))


def _courses(samples: Samples, kind: str) -> dict[str, Course]:
    names = dict.fromkeys(name for sample in samples for name in sample[kind])
    values = {name: _values(samples, kind, name) for name in names}
    return {name: Course(row[0], min(row), max(row), row[-1]) for name, row in values.items()}


def fallen_clock(samples: Samples, percent: float) -> tuple[str, float, float] | None:
    """Find the clock that fell most from the first third of the samples to the last, by *percent* or more.

    With the median MHz of either third; None when none fell so far, or there are too few samples.
    """
    third, kind = len(samples) // 3, "frequencies_mhz"
    fallen = []
    for name in _courses(samples, kind) if third else ():
        early, late = (_values(part, kind, name) for part in (samples[:third], samples[-third:]))
        before, after = median(early or [0.0]), median(late or [math.inf])
        if before > 0 and after <= before * (1 - percent / 100):
            fallen.append((name, before, after))
    return min(fallen, key=lambda clock: clock[2] / clock[1], default=None)


def _values(samples: Samples, kind: str, name: str) -> list[float]:
    return [float(sample[kind][name]) for sample in samples if name in sample[kind]]


def energy(samples: Samples, starts: Times, times: Times, external_power: bool | None) -> Energy:
    """Compute the energy per run from the counters of the samples; *starts* and *times* are milliseconds.

    Processors' own counters come first, then current times voltage of the battery, then its charge counter.
    Those of the battery count only if *external_power* is False.
    """
    # from the first timed run on; the sample after the last run is among them
    inside = [sample for sample in samples if starts.size and sample["at_ms"] >= float(starts[0])]
    has = {key for sample in inside for key in sample["power"]}
    if len(inside) < 2:
        return not_measured("there are not two samples within the timed runs: measure for longer")
    if "energy_uj" in has:
        return _over(inside, "energy_uj", "processor", COUNTER_SECONDS, starts, _counted)
    if not has & {"current_ua", "charge_uah"}:
        return not_measured("the device lets nobody read a current, a charge or an energy counter")
    if external_power is not False:
        return not_measured(POWERED if external_power else UNKNOWN_POWER)
    if {"current_ua", "voltage_uv"} <= has:
        return _over(inside, "current_ua", "battery", BATTERY_SECONDS, starts, _integrated)
    if {"charge_uah", "voltage_uv"} <= has:
        return _over(inside, "charge_uah", "battery", BATTERY_SECONDS, starts, _charged)
    return not_measured("the battery gives no voltage")


def not_measured(reason: str) -> Energy:
    return Energy(None, None, "", 0, 0.0, reason)


def _over(
    samples: Samples,
    key: str,
    source: str,
    fewest_seconds: float,
    starts: Times,
    joules: Callable[[Samples], float | None],
) -> Energy:
    used = [sample for sample in samples if key in sample["power"]]
    first, last = used[0]["at_ms"], used[-1]["at_ms"]
    seconds = (last - first) / 1000
    if seconds < fewest_seconds:
        short = f"{seconds:.1f} s of samples are too short for the {source}'s counter"
        return not_measured(f"{short}: measure for longer")
    runs = int(((starts >= first) & (starts < last)).sum())
    spent = joules(used)
    if spent is None or spent <= 0 or runs == 0:
        return not_measured(f"the {source}'s counter did not move, or went backwards")
    return Energy(spent / runs, spent / seconds, source, runs, seconds, "")


def _counted(samples: Samples) -> float | None:
    """Compute the energy by a counter of microjoules; None when it wrapped around, at a limit unknown."""
    values = [int(sample["power"]["energy_uj"]) for sample in samples]
    wrapped = any(after < before for before, after in pairwise(values))
    return None if wrapped else (values[-1] - values[0]) * 1e-6


def _integrated(samples: Samples) -> float | None:
    """Integrate current times voltage by the trapezoidal rule; drivers disagree about the current's sign."""
    points = []
    for sample in samples:
        if "voltage_uv" in (power := sample["power"]):
            watts = abs(float(power["current_ua"])) * float(power["voltage_uv"]) * 1e-12
            points.append((float(sample["at_ms"]) / 1000, watts))
    return sum((t1 - t0) * (p0 + p1) / 2 for (t0, p0), (t1, p1) in pairwise(points)) or None


def _charged(samples: Samples) -> float | None:
    """Compute the energy of the charge that left the battery (µAh), at its mean voltage."""
    microvolts = _values(samples, "power", "voltage_uv")
    charge = _values(samples, "power", "charge_uah")
    coulombs = (charge[0] - charge[-1]) * 1e-6 * 3600
    return coulombs * sum(microvolts) / len(microvolts) * 1e-6
