"""Samples, energy, the state of a machine, and the flags that follow, on made-up readings."""

from typing import Any

import numpy as np
import pytest

from adt.device.survey import parse
from adt.errors import ConfigError
from adt.measure import conditions as sensors
from adt.measure.bench import flag_measurement, speed_of
from adt.measure.conditions import (
    Conditions,
    CoolDown,
    cool_down,
    courses,
    energy,
    fallen_clock,
    parse_cool_down,
    read,
)
from adt.measure.record import Machine

PHONE = Machine("device", "serial", "Phone", "SoC", "cpu", "cpu", "", False)
HOST = Machine("host", "this machine", "CPU", "", "cpu", "cpu", "", False)
STILL = Conditions(("performance",), False, False, 30.0, "cpu", "", "")


def sample(at_s: float, celsius: float = 30, mhz: float = 2000, **power: int) -> dict[str, Any]:
    return {
        "at_ms": at_s * 1000,
        "temperatures": {"cpu": celsius, "battery": 29.0},
        "frequencies_mhz": {"cpu0": mhz, "gpu": 500.0},
        "power": power,
    }


def runs(seconds: float, slower: float = 0.0, each_ms: float = 10.0) -> tuple[np.ndarray, np.ndarray]:
    """Return times and starts of runs over *seconds*, the last *slower* (a share) than the first."""
    count = int(seconds * 1000 / each_ms)
    random = np.random.default_rng(0).normal(1, 0.005, count)
    times = each_ms * (1 + slower * np.linspace(0, 1, count)) * random
    return times, 1000 + np.concatenate([[0.0], np.cumsum(times)[:-1]])


def report(samples: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "load_ms": 5.0,
        "first_run_ms": 12.0,
        "memory": {"before_load_kb": 4000, "peak_kb": 9000},
        "program_cache": {"state": "off"},
        "samples": samples,
    }


def flags(
    samples: list[dict[str, Any]], slower: float, machine: Machine = PHONE, now: Conditions = STILL
) -> dict[str, str]:
    times, starts = runs(10, slower)
    speed = speed_of(times, starts, report(samples), None, energy(samples, starts, times, None))
    return {flag.name: flag.text for flag in flag_measurement(machine, now, speed, samples)}


def test_each_sensors_course() -> None:
    course = courses([sample(0, 30, 2000), sample(1, 44, 1500), sample(2, 41, 1800)])
    cpu = course.temperatures["cpu"]
    assert (cpu.before, cpu.lowest, cpu.highest, cpu.after) == (30, 30, 44, 41)
    assert course.hottest == ("cpu", cpu) and course.count == 3
    assert courses([]).hottest is None


def test_the_clock_that_fell() -> None:
    rows = [sample(at, mhz=2000 if at < 5 else 1400) for at in range(9)]
    assert fallen_clock(rows, 5) == ("cpu0", 2000, 1400)
    assert fallen_clock(rows, 50) is None and fallen_clock(rows[:2], 5) is None


def test_throttling_needs_slower_runs_and_a_cause() -> None:
    cold = [sample(at) for at in range(12)]
    fell = [sample(at, mhz=2000 - 60 * at) for at in range(12)]
    warm = [sample(at, celsius=30 + at) for at in range(12)]
    assert flags(cold, 0) == {}
    assert set(flags(cold, 0.2)) == {"drift"}
    assert "cpu0 fell from 1910 to 1430 MHz" in flags(fell, 0.2)["throttled"]
    assert "cpu warmed by 11 °C" in flags(warm, 0.2)["throttled"]
    assert flags(fell, 0) == {}, "a clock that fell and cost nothing is no throttling"
    assert "faster" in flags(warm, -0.2)["drift"]


def test_noise_and_a_long_tail_are_flagged() -> None:
    _, starts = runs(10)
    rough = 10 * np.random.default_rng(1).normal(1, 0.1, len(starts))
    tail = np.full(len(starts), 10.0)
    tail[::50] = 40
    for times, message in ((rough, "robust standard deviation"), (tail, "4.0 times the median")):
        speed = speed_of(times, starts, report([]), None, energy([], starts, times, None))
        texts = {flag.name: flag.text for flag in flag_measurement(PHONE, STILL, speed, [])}
        assert message in texts["noisy"]


def test_what_surrounds_the_runs_is_flagged() -> None:
    now = Conditions(("schedutil", "performance"), True, True, 30.0, "cpu", "", "")
    assert set(flags([], 0, now=now)) == {"governor", "powered", "screen"}
    assert "schedutil" in flags([], 0, now=now)["governor"]
    assert set(flags([], 0, machine=HOST)) == {"host"}
    pocl = Machine("device", "s", "Board", "", "pthread-CPU", "cpu", "3.1", False)
    assert "says nothing about a GPU" in flags([], 0, machine=pocl)["opencl-on-cpu"]
    gpu = Machine("device", "s", "Board", "", "Some GPU", "gpu", "3.1", False)
    assert flags([], 0, machine=gpu) == {}


def test_energy_of_a_processors_counter() -> None:
    times, starts = runs(10)
    rows = [sample(at, energy_uj=5_000_000 * at) for at in range(13)]
    consumption = energy(rows, starts, times, True)
    assert consumption.source == "processor" and consumption.watts == pytest.approx(5)
    assert consumption.joules_per_run == pytest.approx(5 * consumption.seconds / consumption.runs)
    assert consumption.joules_per_run is not None
    assert 0.048 < consumption.joules_per_run < 0.07, "5 W for 10 ms, and the second after the last run"
    rows[6]["power"]["energy_uj"] = 1
    assert energy(rows, starts, times, True).joules_per_run is None, "the counter wrapped around"


def test_energy_of_a_battery() -> None:
    times, starts = runs(12)
    rows = [sample(at, current_ua=-500_000, voltage_uv=4_000_000) for at in range(14)]
    consumption = energy(rows, starts, times, False)
    assert consumption.source == "battery" and consumption.watts == pytest.approx(2)
    drained = [sample(at, charge_uah=3_000_000 - 100 * at, voltage_uv=4_000_000) for at in range(14)]
    assert energy(drained, starts, times, False).watts == pytest.approx(100e-6 * 3600 * 4)
    filled = [sample(at, charge_uah=3_000_000 + at, voltage_uv=4_000_000) for at in range(14)]
    assert "went backwards" in energy(filled, starts, times, False).reason


@pytest.mark.parametrize(
    ("power", "external", "seconds", "message"),
    [
        ({"current_ua": 1, "voltage_uv": 1}, True, 13, "powered from outside"),
        ({"current_ua": 1, "voltage_uv": 1}, None, 13, "is not known"),
        ({"current_ua": 1, "voltage_uv": 1}, False, 4, "too short"),
        ({"current_ua": 1}, False, 13, "no voltage"),
        ({}, False, 13, "lets nobody read"),
        ({"energy_uj": 1}, False, 2, "not two samples"),
    ],
)
def test_why_energy_is_not_known(
    power: dict[str, int], external: bool | None, seconds: int, message: str
) -> None:
    times, starts = runs(12)
    rows = [sample(at, **power) for at in range(seconds)]
    consumption = energy(rows, starts, times, external)
    assert consumption.joules_per_run is None and consumption.watts is None and message in consumption.reason


def test_no_runs_have_no_energy() -> None:
    none = np.array([])
    assert sensors.energy([sample(1, energy_uj=1)], none, none, False).joules_per_run is None


SURVEY = """==governors==
schedutil
schedutil
performance
==thermal==
31000 battery
45500 cpu-0-0
- gpu
==processor==
Hardware\t: Qualcomm Technologies, Inc SM8550
==board==

==battery==
status: Discharging
Current Battery Service state:
  AC powered: false
  USB powered: {usb}
  status: {status}
  level: 80
==screen==
  mWakefulness=Asleep
"""


def test_what_a_phone_says_of_its_state() -> None:
    conditions = read(parse(SURVEY.format(usb="false", status=3)))
    assert conditions.governors == ("schedutil", "performance")
    assert (conditions.hottest_zone, conditions.hottest_celsius) == ("cpu-0-0", 45.5)
    assert conditions.external_power is False and conditions.screen_on is False
    assert conditions.cpu == "Qualcomm Technologies, Inc SM8550"
    for usb, status in (("true", 3), ("false", 2), ("false", 4), ("false", 5)):
        assert read(parse(SURVEY.format(usb=usb, status=status))).external_power is True, (usb, status)


def test_what_says_nothing_is_not_known() -> None:
    conditions = read(parse(""))
    assert conditions == Conditions((), None, None, None, "", "", "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("45C", CoolDown(celsius=45)),
        ("45.5°C", CoolDown(celsius=45.5)),
        ("30s", CoolDown(seconds=30)),
        ("0s", CoolDown(seconds=0)),
    ],
)
def test_how_cooling_down_is_written(text: str, expected: CoolDown) -> None:
    assert parse_cool_down(text) == expected


@pytest.mark.parametrize("text", ["45", "", "C", "-3C", "45F", "30 min"])
def test_how_it_is_not_written(text: str) -> None:
    with pytest.raises(ConfigError, match="neither a temperature nor a time"):
        parse_cool_down(text)


class Cooling:
    """A machine that cools by 1 °C in 5 s."""

    name = "phone"

    def __init__(self, celsius: float | None) -> None:
        self.celsius, self.slept = celsius, 0.0

    def sleep(self, seconds: float) -> None:
        self.slept += seconds

    def look(self, _: object) -> Conditions:
        now = None if self.celsius is None else self.celsius - self.slept / 5
        return Conditions((), None, None, now, "cpu", "", "")


@pytest.mark.parametrize(
    ("celsius", "goal", "cool", "slept"),
    [
        pytest.param(50, CoolDown(celsius=45), True, 25, id="no longer than needed"),
        pytest.param(50, CoolDown(celsius=10), False, 60, id="bounded"),
        pytest.param(None, CoolDown(celsius=10), False, 0, id="no thermometer"),
        pytest.param(50, CoolDown(seconds=7), True, 7, id="a time"),
    ],
)
def test_it_waits_until_it_is_cool_and_no_longer(
    monkeypatch: pytest.MonkeyPatch, celsius: float | None, goal: CoolDown, cool: bool, slept: float
) -> None:
    place: Any = Cooling(celsius)
    monkeypatch.setattr("time.sleep", place.sleep)
    monkeypatch.setattr("adt.measure.conditions.conditions", place.look)
    monkeypatch.setattr("adt.measure.conditions.COOL_DOWN_MOST", 60)
    assert (cool_down(place, goal), place.slept) == (cool, slept)
