"""Runs of a benchmark and their figures, at a place that answers as a phone would."""

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from adt.device.place import Opened, RtvmOptions, RtvmRun
from adt.measure.bench import (
    BenchSetup,
    expected_seconds,
    machine_of,
    measure,
    pilot,
    take_turns,
    times_as_fast,
)
from adt.measure.conditions import Conditions
from adt.measure.record import protocol_named

GPU = {"kind": "opencl", "name": "Adreno 740", "type": "gpu", "driver": "v.790", "vendor": "QUALCOMM"}


@dataclass
class Phone:
    """Runs nothing; each run takes *each_ms*, loads and first runs as a driver that compiles slowly."""

    each_ms: float = 10.0
    device: dict[str, Any] = field(default_factory=lambda: dict(GPU))
    asked: list[tuple[RtvmOptions, float | None]] = field(default_factory=list)
    name, label, emulated, host = "R58N", "Phone", False, False
    slower: float = 1.0
    """Grows with each run of the program: the phone gets warm."""

    def run(self, options: RtvmOptions, inputs: Any = None, *, timeout: float | None = None) -> RtvmRun:
        self.asked.append((options, timeout))
        self.slower *= 1.02
        each = self.each_ms * self.slower
        count = max(options.run_count, int(options.min_seconds * 1000 / each) + 1)
        times = np.full(count, each)
        starts = 500 + np.cumsum(times) - each
        first = 40.0 if options.program_cache else 20_000.0
        report = {
            "device": self.device,
            "load_ms": 30.0 if options.program_cache else 900.0,
            "first_run_ms": first,
            "run_ms": None if options.keep_times else times.tolist(),
            "memory": {"before_load_kb": 5000, "peak_kb": None},
            "program_cache": {"state": "hit" if options.program_cache else "off"},
            "samples": [],
        }
        samples = {"run_ms": times, "start_ms": starts} if options.keep_times else {}
        return RtvmRun({}, report, False, samples)


def ready(place: Phone, device: str = "opencl") -> Opened:
    target = SimpleNamespace(device=device)
    package: Any = SimpleNamespace(manifest=SimpleNamespace(target=target), path=Path())
    bundle: Any = None
    return Opened(place, package, bundle)


def test_a_cold_start_then_one_timed_process() -> None:
    phone = Phone()
    options = RtvmOptions(threads=4, affinity="big", end_to_end=True)
    plan = BenchSetup(protocol_named("default"), options, timeout=100)
    measurement = measure(ready(phone), plan, pilot(ready(phone), plan), None)
    (first, _), (cold, _), (timed, limit) = phone.asked
    assert first.program_cache and first.run_count == 2 and not first.keep_times
    assert not cold.program_cache and cold.run_count == 1
    assert (timed.warmup_runs, timed.warmup_ms, timed.run_count, timed.min_seconds) == (3, 500, 50, 3)
    assert timed.program_cache and timed.keep_times and timed.sample_ms > 0
    for options in (first, cold, timed):
        assert (options.threads, options.affinity, options.end_to_end) == (4, "big", True)
    assert limit is not None and 100 < limit < 120
    assert measurement.speed.cold_start is not None and measurement.speed.cold_start.first_run_ms == 20_000
    assert measurement.speed.start.first_run_ms == 40 and measurement.speed.program_cache == "hit"
    assert measurement.speed.times.count == len(measurement.times) > 250 and measurement.speed.peak_kb is None


@pytest.mark.parametrize(("device", "cold"), [("cpu", True), ("opencl", False)])
def test_no_cold_start_where_none_is_wanted_or_there_is_nothing_to_compile(device: str, cold: bool) -> None:
    phone = Phone()
    plan = BenchSetup(protocol_named("quick"), cold_start=cold)
    measurement = measure(ready(phone, device), plan, pilot(ready(phone, device), plan), None)
    assert len(phone.asked) == 2 and measurement.speed.cold_start is None


def test_a_slow_model_gets_the_time_that_it_needs() -> None:
    phone = Phone(each_ms=2000)
    plan = BenchSetup(protocol_named("mlperf"), timeout=600)
    assert expected_seconds(plan.protocol, pilot(ready(phone), plan)) > 1024 * 2
    fast = Phone(each_ms=0.1)
    fast.run = lambda *_, **__: RtvmRun({}, {"first_run_ms": 1.0, "run_ms": [0.1]}, False)  # type: ignore[method-assign]
    assert expected_seconds(plan.protocol, pilot(ready(fast), plan)) == pytest.approx(60.5)


def test_turns_cancel_a_phone_that_gets_warm() -> None:
    phone = Phone()
    plan = BenchSetup(protocol_named("quick"))
    place = ready(phone)
    first = pilot(place, plan)
    a, b = take_turns((place, place), (first, first), plan)
    assert len(a.runs) == len(b.runs) == 12
    assert phone.slower > 1.5, "it did get slower"
    ratio = times_as_fast(a, b)
    assert ratio.value == pytest.approx(1, abs=0.003) and ratio.high - ratio.low < 0.003


def test_the_machine_is_what_ran_it() -> None:
    now = Conditions((), None, None, None, "", "Some CPU of this machine", "")
    place: Any = Phone()
    machine = machine_of(place, {"device": GPU}, now)
    assert (machine.computes, machine.computes_type, machine.driver) == ("Adreno 740", "gpu", "v.790")
    assert not machine.opencl_on_cpu and "Some CPU of this machine" in machine.model
    pocl = machine_of(
        place, {"device": {"kind": "opencl", "name": "pthread", "type": "cpu", "driver": "3.1"}}, now
    )
    assert pocl.opencl_on_cpu and pocl.key != machine.key
    cpu = machine_of(place, {"device": {"kind": "cpu", "name": "x86_64", "type": "cpu", "driver": None}}, now)
    assert (cpu.computes, cpu.driver, cpu.opencl_on_cpu) == ("cpu", "", False)
    assert machine_of(place, None, None).computes == "", "nothing ran"
