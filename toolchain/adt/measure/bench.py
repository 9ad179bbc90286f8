"""Measure how fast a package runs at a place, alone or in turns with another, and what to read it with.

Nothing here decides whether a time may be shown: :mod:`adt.verbs.bench` asks for
times only where they are a real machine's.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from adt import __version__
from adt.device.place import DevicePlace, Opened, Place, RtvmOptions, RtvmRun
from adt.device.probe import soc
from adt.host.cache import file_sha256
from adt.measure import conditions
from adt.measure.conditions import Conditions
from adt.measure.record import QUANTILES, BenchRecord, Flag, Machine, Method, Protocol, Speed, Start, Subject
from adt.measure.statistics import Interval, drift, quantiles, ratio_interval, summarise, time_line
from adt.package.files import MANIFEST

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from adt.measure.conditions import Samples
    from adt.measure.statistics import Times

log = logging.getLogger("adt.bench")

SAMPLE_MS = 1000
"""Between two readings of the sensors; they are read between runs, so no run waits for them."""
NOISY_PERCENT = 5.0
"""A robust standard deviation above this, in percent of the median, makes a measurement noisy …"""
LONG_TAIL = 1.5
"""Ratio of a p99 to the median from which a flag is raised, too."""
CLOCK_FELL_PERCENT = 5.0
GREW_WARM = 5.0
"""°C."""
FEWEST_IN_A_TURN = 3
SPARE = 3.0
"""A run may take so many times as long as the pilot let expect, before time is up."""


@dataclass(frozen=True)
class BenchSetup:
    protocol: Protocol
    options: RtvmOptions = field(default_factory=RtvmOptions)
    """Way of each run; the device is the package's, and numbers and times of runs are the protocol's."""
    cold_start: bool = True
    """With OpenCL, load once with nothing from a program cache, too."""
    timeout: float = 600.0
    """Seconds that a run of the program may take, on top of what its runs are expected to."""
    inputs: Mapping[str, ArrayLike] | None = None
    """By name; None lets the runner make them up."""
    label: str = ""


@dataclass(frozen=True)
class Measurement:
    """Result of a benchmark, with all that a record does not keep."""

    speed: Speed
    report: Mapping[str, Any]
    """Document of rtvm about the timed process."""
    times: Times
    """Milliseconds of each run."""
    starts: Times
    """Start of each run, in milliseconds."""


def _run(opened: Opened, setup: BenchSetup, *, expected: float = 0.0, **more: Any) -> RtvmRun:
    """Run the program, with *more* options, for *expected* seconds on top of the setup's time limit."""
    options = replace(setup.options, device=opened.package.manifest.target.device, **more)
    return opened.run(options, setup.inputs, timeout=setup.timeout + expected)


def pilot(opened: Opened, setup: BenchSetup) -> RtvmRun:
    """Run once: fills the program cache, and says what the machine is and about how long a run takes."""
    return _run(opened, setup, run_count=2)


def measure(opened: Opened, setup: BenchSetup, first: RtvmRun, external_power: bool | None) -> Measurement:
    """Measure the package, of which *first* is the pilot run."""
    cold = None
    if setup.cold_start and opened.package.manifest.target.device == "opencl":
        log.info("loading without compiled programs")
        cold = start_of(_run(opened, setup, run_count=1, program_cache=False).report)
    log.info("measuring, %s", setup.protocol.text)
    timed = timed_run(opened, setup, setup.protocol, first)
    times, starts = timed.times["run_ms"], timed.times["start_ms"]
    report = timed.report
    energy = conditions.energy(report["samples"], starts, times, external_power)
    return Measurement(speed_of(times, starts, report, cold, energy), report, times, starts)


def timed_run(opened: Opened, setup: BenchSetup, protocol: Protocol, first: RtvmRun) -> RtvmRun:
    """Run one process that warms up and times runs as *protocol* says."""
    return _run(
        opened,
        setup,
        expected=SPARE * expected_seconds(protocol, first),
        warmup_runs=protocol.warmup_runs,
        warmup_ms=float(protocol.warmup_ms),
        run_count=protocol.runs,
        min_seconds=float(protocol.seconds),
        sample_ms=SAMPLE_MS,
        keep_times=True,
    )


def expected_seconds(protocol: Protocol, first: RtvmRun) -> float:
    """Estimate how long a timed process takes to warm up and run, by the slowest run of the pilot."""
    slowest = max((first.report["first_run_ms"], *(first.report["run_ms"] or ())), default=0.0) / 1000
    warm = max(protocol.warmup_ms / 1000, protocol.warmup_runs * slowest)
    return float(warm + max(protocol.seconds, protocol.runs * slowest))


def start_of(report: Mapping[str, Any]) -> Start:
    return Start(float(report["load_ms"]), float(report["first_run_ms"]))


def speed_of(
    times: Times, starts: Times, report: Mapping[str, Any], cold: Start | None, energy: conditions.Energy
) -> Speed:
    memory = report["memory"]
    return Speed(
        times=summarise(times),
        quantiles_ms=quantiles(times, [percent / 100 for percent in QUANTILES]),
        time_line=time_line(times, starts),
        drift=drift(times, starts),
        start=start_of(report),
        cold_start=cold,
        program_cache=report["program_cache"]["state"],
        before_load_kb=memory["before_load_kb"],
        peak_kb=memory["peak_kb"],
        energy=energy,
        sensors=conditions.courses(report["samples"]),
        workspace_bytes=memory.get("workspace_bytes"),
    )


def machine_of(place: Place, report: Mapping[str, Any] | None, now: Conditions | None) -> Machine:
    """Describe the machine behind *place*; without the *report* of a run there it is open what computed."""
    ran: Mapping[str, Any] = report["device"] if report else {}
    computes, kind, driver = ("cpu", "cpu", "") if ran else ("", "", "")
    if ran.get("kind", "cpu") != "cpu":
        computes, kind = str(ran.get("name") or "a GPU"), str(ran.get("type") or "")
        driver = str(ran.get("driver") or "")
    machine = partial(Machine, computes=computes, computes_type=kind, driver=driver, emulated=place.emulated)
    if isinstance(place, DevicePlace):
        properties = place.device.facts.properties
        model = properties.get("ro.product.model", "") or (now.board if now else "") or place.label
        return machine("device", place.name, model, soc(properties))
    cpu = (now.cpu or now.board if now else "") or os.uname().machine
    return machine("host", place.name, f"{cpu}, {os.cpu_count()} processors", "")


def subject_of(opened: Opened) -> Subject:
    assert opened.bundle is not None  # TVM's wheel has no clock around its runs
    facts, bundle = opened.package.manifest, opened.bundle.manifest
    return Subject(
        package=facts.name,
        package_digest=file_sha256(opened.package.path / MANIFEST),
        source_sha256=facts.source.sha256,
        target=facts.target.name,
        platform=facts.target.platform,
        precision=facts.precision,
        offload=facts.offload,
        entry="main",
        tvm=facts.tvm.version,
        bundle=bundle.preset,
        bundle_digest=opened.bundle.digest,
        bundle_tvm=bundle.tvm.version,
        adt=__version__,
        tuned=facts.tuned,
    )


def method_of(setup: BenchSetup, *, interleaved: bool = False) -> Method:
    protocol, options = setup.protocol, setup.options
    return Method(
        protocol=protocol.key,
        warmup_runs=protocol.warmup_runs,
        warmup_ms=protocol.warmup_ms,
        runs=protocol.runs,
        seconds=protocol.seconds,
        headline=protocol.headline,
        end_to_end=options.end_to_end,
        threads=options.threads,
        affinity=options.affinity,
        seed=options.seed,
        interleaved=interleaved,
        fill_mode=options.fill_mode,
    )


def record_of(
    opened: Opened,
    setup: BenchSetup,
    *,
    correct: bool | None,
    measurement: Measurement | None = None,
    now: Conditions | None = None,
    flags: Sequence[Flag] = (),
    no_speed: str = "",
    interleaved: bool = False,
) -> BenchRecord:
    """Make the record of a benchmark, or of *no_speed*, why none is; *now* was just before its runs."""
    machine = machine_of(opened.place, measurement.report if measurement else None, now)
    if measurement and now:
        samples = measurement.report["samples"]
        flags = (*flag_measurement(machine, now, measurement.speed, samples), *flags)
    return BenchRecord(
        id=secrets.token_hex(8),
        when=datetime.now(UTC).isoformat(timespec="seconds"),
        label=setup.label,
        machine=machine,
        subject=subject_of(opened),
        method=method_of(setup, interleaved=interleaved),
        conditions=now,
        correct=correct,
        speed=measurement.speed if measurement else None,
        no_speed=no_speed,
        flags=tuple(flags),
    )


def flag_measurement(
    machine: Machine, now: Conditions, speed: Speed, samples: Sequence[Mapping[str, Any]]
) -> list[Flag]:
    """Collect what the figures must be read with, the gravest first."""
    flags, times = list[Flag](), speed.times
    if machine.opencl_on_cpu:
        text = f"OpenCL on a CPU ({machine.computes}): says nothing about a GPU"
        flags.append(Flag("opencl-on-cpu", text))
    elif machine.kind == "host":
        text = f"measured on this machine ({machine.model}): says nothing about a phone"
        flags.append(Flag("host", text))
    if speed.drift and speed.drift.drifts:  # a spread that it explains is no noise
        flags.append(_flag_drift(speed.drift.percent, speed, samples))
    elif times.spread_percent > NOISY_PERCENT:
        spread = f"{times.spread_percent:.0f} % of the median (robust standard deviation)"
        flags.append(Flag("noisy", f"the runs differ by {spread}"))
    elif times.p50_ms > 0 and times.p99_ms > LONG_TAIL * times.p50_ms:
        ratio = f"{times.p99_ms / times.p50_ms:.1f} times the median (p99)"
        flags.append(Flag("noisy", f"the slowest runs take {ratio}"))
    if others := [governor for governor in now.governors if governor != "performance"]:
        text = f"the CPU governor is {', '.join(others)}: clocks depend on what ran before"
        flags.append(Flag("governor", text))
    if machine.kind == "device" and now.external_power:
        flags.append(Flag("powered", "the device is powered from outside, which may warm it"))
    if machine.kind == "device" and now.screen_on:
        flags.append(Flag("screen", "the screen is on, and what it shows uses the GPU"))
    return flags


def _flag_drift(percent: float, speed: Speed, samples: Samples) -> Flag:
    """Report throttling, or a drift (*percent*; positive: slower) without a visible cause."""
    if percent < 0:
        text = f"the runs got {-percent:.1f} % faster from first to last tenth: warm up for longer"
        return Flag("drift", text)
    slower = f"the runs got {percent:.1f} % slower from first to last tenth"
    if fell := conditions.fallen_clock(samples, CLOCK_FELL_PERCENT):
        name, before, after = fell
        return Flag("throttled", f"{slower}, while {name} fell from {before:.0f} to {after:.0f} MHz")
    rises = {name: course.highest - course.before for name, course in speed.sensors.temperatures.items()}
    warmest = max(rises, key=lambda name: rises[name], default="")
    if warmest and rises[warmest] >= GREW_WARM:
        return Flag("throttled", f"{slower}, while {warmest} warmed by {rises[warmest]:.0f} °C")
    return Flag("drift", slower)


@dataclass(frozen=True)
class Turns:
    runs: tuple[RtvmRun, ...]
    """Two for each round, in order."""

    @property
    def times(self) -> Times:
        """Milliseconds of every run."""
        return np.concatenate([run.times["run_ms"] for run in self.runs])

    @property
    def round_medians(self) -> Times:
        """Median of the two turns of each round."""
        pairs = zip(self.runs[::2], self.runs[1::2], strict=True)
        both = [np.concatenate([first.times["run_ms"], last.times["run_ms"]]) for first, last in pairs]
        return np.array([np.median(times) for times in both])

    @property
    def measurement(self) -> Measurement:
        """All turns as one measurement, as if they had followed each other."""
        times = self.times
        starts = np.concatenate([[0.0], np.cumsum(times)[:-1]])
        samples = [sample for run in self.runs for sample in run.report["samples"]]
        report = {**self.runs[-1].report, "samples": samples}
        for name in ("load_ms", "first_run_ms"):
            report[name] = float(np.median([float(run.report[name]) for run in self.runs]))
        energy = conditions.not_measured("its runs took turns with another package's")
        return Measurement(speed_of(times, starts, report, None, energy), report, times, starts)


def shorter(protocol: Protocol) -> Protocol:
    """Shorten *protocol* to one turn of an interleaved comparison: a package has two in each round."""
    turns = 2 * protocol.rounds
    runs = max(FEWEST_IN_A_TURN, -(-protocol.runs // turns))
    return replace(protocol, runs=runs, seconds=protocol.seconds / turns)


def take_turns(
    opened: tuple[Opened, Opened], first: tuple[RtvmRun, RtvmRun], setup: BenchSetup
) -> tuple[Turns, Turns]:
    """Run A B B A in each round of the setup's protocol, each turn in a process of its own.

    A drift that is steady over a round is the same for both, for their turns lie
    about the same moment. *first* are the pilot runs of both.
    """
    protocol = shorter(setup.protocol)
    runs: tuple[list[RtvmRun], list[RtvmRun]] = ([], [])
    for number in range(setup.protocol.rounds):
        log.info("round %d of %d", number + 1, setup.protocol.rounds)
        for which in (0, 1, 1, 0):
            runs[which].append(timed_run(opened[which], setup, protocol, first[which]))
    return Turns(tuple(runs[0])), Turns(tuple(runs[1]))


def times_as_fast(a: Turns, b: Turns) -> Interval:
    """Return the speed-up of B over A, with the 95 % interval."""
    return ratio_interval(a.round_medians, b.round_medians)


def sentence(ratio: Interval, names: Sequence[str] = ("A", "B")) -> str:
    a, b = names
    faster = f"{b} is {ratio.low:.3g} to {ratio.high:.3g} × as fast as {a}"
    if ratio.low > 1:
        return faster
    if ratio.high < 1:
        return f"{a} is {1 / ratio.high:.3g} to {1 / ratio.low:.3g} × as fast as {b}"
    return f"no difference can be told: {faster}, which has 1 in it"
