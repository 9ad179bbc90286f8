"""Measure how fast a package runs, compare two, and look at what was measured before."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

from adt.cli.command import Rendering, command
from adt.errors import ConfigError, VerifyFailed, dependent, exclusive
from adt.host.document import FLAT, HIDDEN, form, in_document
from adt.options.option import MaybePath, Number, Options, PathTo, Real, Text, option, options_of, values_of
from adt.options.request import Request, takes
from adt.options.sections import DeviceSettings, VerifySettings
from adt.verbs import options as shared
from adt.verbs.arrays import save_npz
from adt.verbs.deploy import open_place
from adt.verbs.verify import VerifyResult, failure, verify_at

if TYPE_CHECKING:
    import numpy as np

    from adt.device.place import Opened
    from adt.measure.bench import BenchSetup, Measurement
    from adt.measure.conditions import Conditions, CoolDown, Course
    from adt.measure.record import BenchRecord, Flag, Protocol, Speed, Start
    from adt.measure.statistics import Interval, TimeSummary


class BenchRequest(Request):
    """Request of :func:`adt.bench`."""

    model: MaybePath = shared.SOURCE_MODEL
    package: PathTo = option(shared.PACKAGE, kw_only=False)
    serial: Text = DeviceSettings.serial
    timeout: Real = DeviceSettings.timeout
    bundle: MaybePath = shared.BUNDLE
    inputs: shared.Arrays | None = shared.INPUTS
    seed: Number = VerifySettings.seed
    threads: int | None = shared.THREADS
    affinity: str = shared.AFFINITY
    protocol: str = shared.PROTOCOL
    runs: int | None = shared.RUNS
    seconds: float | None = shared.SECONDS
    warmup_runs: int | None = shared.WARMUP_RUNS
    warmup_ms: float | None = shared.WARMUP_MS
    end_to_end: bool = shared.END_TO_END
    fill_mode: Text = VerifySettings.fill_mode
    cool_down: str | None = shared.COOL_DOWN
    record: bool = shared.RECORD
    label: str = shared.LABEL
    verify: bool = shared.VERIFY
    cold_start: bool = option("Also load OpenCL packages once without compiled programs.", default=True)
    trust: bool = shared.TRUST
    insecure_no_digest: bool = shared.INSECURE_NO_DIGEST


class AbRequest(Request):
    """Request of :func:`adt.bench_ab`."""

    serial: Text = DeviceSettings.serial
    timeout: Real = DeviceSettings.timeout
    bundle: MaybePath = shared.BUNDLE
    inputs: shared.Arrays | None = shared.INPUTS
    seed: Number = VerifySettings.seed
    threads: int | None = shared.THREADS
    affinity: str = shared.AFFINITY
    protocol: str = shared.PROTOCOL
    runs: int | None = shared.RUNS
    seconds: float | None = shared.SECONDS
    warmup_runs: int | None = shared.WARMUP_RUNS
    warmup_ms: float | None = shared.WARMUP_MS
    end_to_end: bool = shared.END_TO_END
    fill_mode: Text = VerifySettings.fill_mode
    cool_down: str | None = shared.COOL_DOWN
    record: bool = shared.RECORD
    label: str = shared.LABEL
    verify: bool = shared.VERIFY
    rounds: int | None = shared.ROUNDS
    a: PathTo = option("A package.", kw_only=False)
    b: PathTo = option("Another one.", kw_only=False)
    trust: bool = shared.TRUST


log = logging.getLogger("adt.bench")


@dataclass(frozen=True)
class BenchResult:
    """One package, measured."""

    record: BenchRecord = field(metadata=FLAT)
    verification: VerifyResult | None
    """None: the outputs were not compared."""
    file: Path | None = field(metadata=form("record"))
    """The record in the store; None when it was not kept."""
    report: Mapping[str, Any] = field(
        default_factory=dict, metadata=form("samples", lambda report: report.get("samples", []))
    )
    """Document of rtvm about the timed process; empty without one."""
    times: Mapping[str, np.ndarray] = field(default_factory=dict, metadata=HIDDEN)
    """``run_ms`` and ``start_ms`` of each timed run; empty without any."""

    @property
    @in_document()
    def emulated(self) -> bool:
        """True if no time counts as a device's speed."""
        return self.record.machine.emulated

    @property
    def passed(self) -> bool:
        """True if the outputs are not known to be wrong."""
        return self.record.correct is not False


@dataclass(frozen=True)
class AbResult:
    """Two packages that took turns."""

    a: BenchResult
    b: BenchResult
    ratio: Interval | None = field(metadata=form("b_times_as_fast"))
    """Speed-up of B over A, with 95 % confidence; None where times do not count."""
    round_ms: tuple[tuple[float, float], ...]
    """Medians of A and B in each round, milliseconds."""

    @property
    @in_document()
    def emulated(self) -> bool:
        """True if no time counts as a device's speed."""
        return self.a.emulated

    @property
    @in_document()
    def sentence(self) -> str | None:
        """Verdict for people; None where times do not count."""
        from adt.measure.bench import sentence

        return sentence(self.ratio) if self.ratio else None

    @property
    def passed(self) -> bool:
        """True if no outputs are known to be wrong."""
        return self.a.passed and self.b.passed


@takes(BenchRequest)
def bench(request: BenchRequest) -> BenchResult:
    """Compare the outputs with the reference, then measure how fast the package runs where it belongs.

    Nothing is timed on an emulated device, or when the outputs are wrong:
    ``result.record.speed`` is None then, and ``result.record.no_speed`` says why.
    A time limit comes on top of what the runs are expected to take.

    Raises:
        ConfigError: the protocol or a number cannot be; or nothing is left to do on an emulated device.
    """
    from adt.measure.bench import measure, pilot
    from adt.measure.conditions import conditions
    from adt.package.package import load_package

    setup, cooling = _setup(request, cold_start=request.cold_start), _cooling(request)
    opened = open_place(load_package(request.package), request, request.bundle)
    with opened.place.awake():
        verification = _verify(opened, request, request.model)
        if reason := _no_speed(opened, verification):
            return _result(request, opened, setup, verification, no_speed=reason)
        first = pilot(opened, setup)
        flags = _cool_down(opened, cooling)
        now = conditions(opened.place)
        measurement = measure(opened, setup, first, now.external_power)
    return _result(request, opened, setup, verification, measurement=measurement, now=now, flags=flags)


@takes(AbRequest)
def bench_ab(request: AbRequest) -> AbResult:
    """Measure two packages in turns (A B B A) on one machine, and tell by how much one is faster.

    The protocol's runs and seconds are spread over the rounds. *inputs* go to both packages.

    Raises:
        ConfigError: as :func:`bench`; or the two do not run on the same machine.
    """
    from adt.measure.bench import pilot, take_turns, times_as_fast
    from adt.measure.conditions import conditions
    from adt.package.package import load_package

    setup, cooling = _setup(request, rounds=request.rounds), _cooling(request)
    a, b = (open_place(load_package(path), request, request.bundle) for path in (request.a, request.b))
    if a.place.name != b.place.name:
        raise ConfigError(
            f"{request.a} runs on {a.place.name}, and {request.b} on {b.place.name}",
            remedy="Compare packages that were compiled for the same machine.",
        )
    with a.place.awake():
        verified = _verify(a, request), _verify(b, request)
        reasons = _no_speed(a, verified[0]), _no_speed(b, verified[1])
        if cause := reasons[0] or reasons[1]:
            other = f"it was not compared: {cause}"
            results = [
                _result(request, opened, setup, verification, no_speed=reason or other)
                for opened, verification, reason in zip((a, b), verified, reasons, strict=True)
            ]
            return AbResult(results[0], results[1], None, ())
        first = pilot(a, setup), pilot(b, setup)
        flags = _cool_down(a, cooling)
        now = conditions(a.place)
        turns = take_turns((a, b), first, setup)
    ratio = times_as_fast(*turns)
    results = [
        _result(
            request,
            opened,
            setup,
            verification,
            measurement=side.measurement,
            now=now,
            flags=flags,
            interleaved=True,
        )
        for opened, verification, side in zip((a, b), verified, turns, strict=True)
    ]
    medians = zip(turns[0].round_medians, turns[1].round_medians, strict=True)
    return AbResult(results[0], results[1], ratio, tuple((float(x), float(y)) for x, y in medians))


def _setup(
    request: BenchRequest | AbRequest, *, rounds: int | None = None, cold_start: bool = True
) -> BenchSetup:
    from adt.device.place import RtvmOptions
    from adt.measure.bench import BenchSetup

    options = RtvmOptions(
        threads=request.threads,
        affinity=request.affinity,
        end_to_end=request.end_to_end,
        fill_mode=request.fill_mode,
        seed=request.seed,
    )
    return BenchSetup(
        protocol_of(request, rounds=rounds),
        options,
        cold_start=cold_start,
        timeout=request.settings.device.run_seconds,
        inputs=request.inputs,
        label=request.label,
    )


def _cooling(request: BenchRequest | AbRequest) -> CoolDown | None:
    from adt.measure.conditions import parse_cool_down

    return parse_cool_down(request.cool_down) if request.cool_down else None


def protocol_of(request: Options, *, rounds: int | None = None) -> Protocol:
    """Return the protocol of *request*, with what it changes."""
    from adt.measure.record import protocol_named

    options = values_of(request)
    changes = {name: options[name] for name in ("runs", "seconds", "warmup_runs", "warmup_ms")}
    return protocol_named(options["protocol"], rounds=rounds, **changes)


def _verify(
    opened: Opened, request: BenchRequest | AbRequest, model: Path | None = None
) -> VerifyResult | None:
    """Compare the outputs with the reference's; None with ``--no-verify``."""
    from adt.compiler.importers import model_store

    if not request.verify:
        if opened.place.emulated:
            raise ConfigError(
                f"{opened.place.name} is emulated: only the outputs can be judged there, not the speed",
                remedy="Leave --no-verify away, or measure on a device that is not emulated.",
            )
        return None
    log.info("comparing the outputs with the reference")
    inputs = None if request.inputs is None else (request.inputs,)
    find_model = partial(model_store.source_model, opened.package, model)
    return verify_at(opened, request.settings, find_model, inputs, trust=request.trust)


def _no_speed(opened: Opened, verification: VerifyResult | None) -> str:
    """Say why nothing may be timed; empty where it may."""
    from adt.measure.record import EMULATED, WRONG

    if verification is not None and not verification.verification.passed:
        return WRONG
    return EMULATED if opened.place.emulated else ""


def _cool_down(opened: Opened, goal: CoolDown | None) -> list[Flag]:
    from adt.measure.conditions import cool_down
    from adt.measure.record import Flag

    if goal is None or cool_down(opened.place, goal):
        return []
    return [Flag("warm", f"it did not cool down to {goal.text} before the runs")]


def _result(
    request: BenchRequest | AbRequest,
    opened: Opened,
    setup: BenchSetup,
    verification: VerifyResult | None,
    *,
    measurement: Measurement | None = None,
    now: Conditions | None = None,
    flags: Sequence[Flag] = (),
    no_speed: str = "",
    interleaved: bool = False,
) -> BenchResult:
    """Make the record, in the store unless *request* forbids that, and what the record does not keep."""
    from adt.measure import history
    from adt.measure.bench import record_of

    record = record_of(
        opened,
        setup,
        correct=verification.verification.passed if verification else None,
        measurement=measurement,
        now=now,
        flags=flags,
        no_speed=no_speed,
        interleaved=interleaved,
    )
    file = history.save_if_possible(record) if request.record else None
    if measurement is None:
        return BenchResult(record, verification, file)
    times = {"run_ms": measurement.times, "start_ms": measurement.starts}
    return BenchResult(record, verification, file, measurement.report, times)


ABOUT_THE_MACHINE = ("opencl-on-cpu", "host")
"""Flags that are shown before the figures."""


@command("adt bench model-pkg --protocol quick", phone=True)
def bench_command(
    parsed: partial[BenchRequest],
    package: Annotated[Path | None, option(shared.PACKAGE, default=None, kw_only=False)],
    ab: Annotated[
        tuple[Path, Path] | None,
        option("Compare the speed of two packages, in turns.", default=None, metavar="A B"),
    ],
    rounds: Annotated[int | None, option(shared.ROUNDS, help="Rounds of --ab, each A B B A.")],
    times: Annotated[Path | None, shared.output("Write the time and start of each run to this .npz file.")],
) -> Rendering:
    """Measure how fast a package runs; on an emulated device only check its outputs."""
    alone = quote(str(package or (ab or ["PACKAGE"])[0]))
    if (package is None) == (ab is None):
        pair = " ".join(quote(str(path)) for path in ab or ("PACKAGE", "PACKAGE"))
        raise ConfigError(
            "one package is measured, or two are compared",
            remedy=f"Write `adt bench {alone}`, or `adt bench --ab {pair}`.",
        )
    if ab is not None:
        if parsed.keywords["model"] or parsed.keywords["insecure_no_digest"] or times:
            raise exclusive("--model and --times", "--ab")
        both = options_of(AbRequest)
        common = {name: value for name, value in parsed.keywords.items() if name in both}
        turns = bench_ab(AbRequest(*ab, rounds=rounds, **common))
        error = _failure(turns.a, ab[0]) or _failure(turns.b, ab[1])
        return Rendering("bench-ab", turns, _ab_lines(turns), error)
    if rounds is not None:
        raise dependent("--rounds", "--ab")
    result = bench(request := parsed(package=package))
    if times and result.times:
        save_npz(times, result.times)
    return Rendering("bench", result, _lines(result), _failure(result, request.package))


def _failure(result: BenchResult, package: Path) -> VerifyFailed | None:
    return failure(result.verification, package) if result.verification else None


def _lines(result: BenchResult) -> Iterator[str]:
    yield from (f"{name:<11} {text}" for name, text in _head(result))
    yield from speed_lines(result.record)
    if result.file:
        yield f"{'kept':<11} {result.file}"


def speed_lines(record: BenchRecord) -> Iterator[str]:
    """Yield the figures of *record*, and what they must be read with."""
    return (f"{name:<11} {text}" for name, text in _figures(record))


def _figures(record: BenchRecord, *, brief: bool = False) -> Iterator[tuple[str, str]]:
    """Yield the figures of *record*, or its latency alone, and what they must be read with."""
    if record.speed is None:
        yield "speed", f"none: {record.no_speed}"
        return
    times = record.speed.times
    if brief:
        yield "latency", f"{latency(times)}, of {times.count} runs"
    else:
        yield from _speed(record, record.speed)
    for flag in record.flags:
        if flag.name not in ABOUT_THE_MACHINE:
            yield "!", f"{flag.name}: {flag.text}"


def _head(result: BenchResult) -> Iterator[tuple[str, str]]:
    record = result.record
    subject, machine = record.subject, record.machine
    yield "package", f"{subject.package} ({subject.target}, {subject.precision}, {subject.platform})"
    where = machine.name if machine.model in ("", machine.name) else f"{machine.name}: {machine.model}"
    if machine.computes and machine.computes != "cpu":
        where += f", {machine.computes} {machine.driver}".rstrip()
    yield "machine", where
    for flag in record.flags:
        if flag.name in ABOUT_THE_MACHINE:
            yield "!", flag.text
    yield "outputs", _outputs(result)


def _outputs(result: BenchResult) -> str:
    if result.verification is None:
        return "not compared with the reference (--no-verify)"
    rows = result.verification.verification.outputs
    right = sum(row.passed for row in rows)
    if right == len(rows):
        worst = max(row.max_abs for row in rows)
        notes = "".join(f"; {row.name}: {row.note}" for row in rows if row.note)
        return f"right: {right} of {len(rows)}, largest difference to the reference {worst:.2e}{notes}"
    wrong = ", ".join(f"{row.name} ({row.reason})" for row in rows if not row.passed)
    return f"WRONG: {wrong} (`adt verify` shows how)"


def _speed(record: BenchRecord, speed: Speed) -> Iterator[tuple[str, str]]:
    times, method = speed.times, record.method
    seconds = times.count * times.mean_ms / 1000
    what = "copying in, running, copying out" if method.end_to_end else "running"
    yield "method", f"{method.key}; {what}"
    yield "runs", f"{times.count} in {seconds:.2f} s of running"
    yield "latency", latency(times)
    spread = f"std {ms(times.std_ms)}, from {ms(times.min_ms)} to {ms(times.max_ms)}"
    yield "", f"mean {ms(times.mean_ms)}, {spread}; outliers: {times.outliers}"
    yield "throughput", f"{times.throughput_per_s:.4g} runs per second"
    if drift := speed.drift:
        noise = f"(noise {drift.noise_percent:.1f} %)"
        yield "drift", f"{drift.percent:+.1f} % from first to last tenth {noise}"
    cache = f" (program cache: {speed.program_cache})" if record.machine.driver else ""
    yield "start", f"{_start(speed.start)}{cache}"
    if speed.cold_start:
        yield "cold start", f"{_start(speed.cold_start)}, without a program cache"
    if speed.peak_kb is not None:
        before = f", {_mib(speed.before_load_kb)} before loading" if speed.before_load_kb else ""
        yield "memory", f"{_mib(speed.peak_kb)} at most{before}"
    energy = speed.energy
    if energy.joules_per_run is None:
        yield "energy", f"not measured: {energy.reason}"
    else:
        source = f"{energy.source}, {energy.runs} runs in {energy.seconds:.1f} s"
        yield "energy", f"{energy.joules_per_run:.4g} J per run, {energy.watts:.3g} W ({source})"
    if hottest := speed.sensors.hottest:
        yield "heat", f"{hottest[0]} {_course(hottest[1], '.1f')} °C"
    clocks = speed.sensors.frequencies_mhz
    cpus = sorted(clocks.keys() - {"gpu"}, key=lambda name: (-clocks[name].highest, name))
    for name in [name for name in ("gpu", *cpus[:1]) if name in clocks]:
        yield "clock", f"{name} {_course(clocks[name], '.0f')} MHz"


def _start(start: Start) -> str:
    return f"load {ms(start.load_ms)}, first run {ms(start.first_run_ms)}"


def _course(course: Course, form: str) -> str:
    return (
        f"{course.before:{form}} before, {course.lowest:{form}} to {course.highest:{form}} while it ran, "
        f"{course.after:{form}} after"
    )


def _ab_lines(result: AbResult) -> Iterator[str]:
    for name, side in (("A", result.a), ("B", result.b)):
        yield name
        rows = (*_head(side), *_figures(side.record, brief=True))
        yield from (f"  {heading:<9} {text}" for heading, text in rows)
    if result.ratio:
        yield f"{result.sentence} (95 % confidence, {len(result.round_ms)} rounds A B B A)"


def latency(times: TimeSummary) -> str:
    """Format quantiles of *times*."""
    return f"p50 {ms(times.p50_ms)}, p90 {ms(times.p90_ms)}, p99 {ms(times.p99_ms)}"


def ms(value: float) -> str:
    """Format milliseconds with four digits."""
    return f"{value:.4g} ms" if value < 10_000 else f"{value / 1000:.4g} s"


def _mib(kib: int) -> str:
    return f"{kib / 1024:.1f} MiB"
