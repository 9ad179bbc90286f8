"""``adt bench``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

from adt.api.requests import AbRequest, BenchRequest
from adt.cli.command import Rendering, command
from adt.options.option import option, options_of

if TYPE_CHECKING:
    from adt.api.bench import AbResult, BenchResult
    from adt.errors import VerifyFailed
    from adt.measure.record import BenchRecord, Speed
    from adt.measure.sensors import Course
    from adt.measure.statistics import TimeSummary

ABOUT_THE_MACHINE = ("opencl-on-cpu", "host")
"""Flags that are shown before the figures."""


@command("adt bench model-pkg --serial 127.0.0.1:5555")
def bench(
    parsed: partial[BenchRequest],
    package: Annotated[
        Path | None, option("A package that `adt compile` made.", default=None, kw_only=False)
    ],
    ab: Annotated[
        tuple[Path, Path] | None,
        option("Two packages instead, in turns: which is faster?", default=None, metavar="A B"),
    ],
    rounds: Annotated[int | None, option("Rounds of --ab, each A B B A.", default=None)],
    times: Annotated[
        Path | None, option("Write each run's time and start here, .npz.", default=None, metavar="FILE")
    ],
) -> Rendering:
    """Measure how fast a package runs; on anything emulated, whether it is right."""
    from adt.api.bench import bench, bench_ab
    from adt.cli.arrays import save_npz
    from adt.errors import ConfigError

    alone = quote(str(package or (ab or ["PACKAGE"])[0]))
    if (package is None) == (ab is None):
        pair = " ".join(quote(str(path)) for path in ab or ("PACKAGE", "PACKAGE"))
        raise ConfigError(
            "one package is measured, or two are compared",
            remedy=f"Write `adt bench {alone}`, or `adt bench --ab {pair}`.",
        )
    if ab is not None:
        if parsed.keywords["model"] or parsed.keywords["insecure_no_digest"] or times:
            raise ConfigError(
                "--ab compares two packages, and takes neither --model nor --times",
                remedy=f"Measure one package alone: adt bench {alone}.",
            )
        both = options_of(AbRequest)
        shared = {name: value for name, value in parsed.keywords.items() if name in both}
        return _compared(*ab, bench_ab(AbRequest(*ab, rounds=rounds, **shared)))
    if rounds is not None:
        raise ConfigError("--rounds is about --ab", remedy="Leave --rounds away.")
    result = bench(request := parsed(package=package))
    if times and result.times:
        save_npz(times, result.times)
    return Rendering("bench", lambda: bench_fields(result), _lines(result), _failure(result, request.package))


def bench_fields(result: BenchResult) -> dict[str, Any]:
    """The document of one benchmark."""
    from adt.cli.verify import verification_fields
    from adt.host.manifest import bare_fields

    verification = result.verification
    return {
        **bare_fields(result.record),
        "emulated": result.record.machine.emulated,
        "record": result.file,
        "verification": verification_fields(verification) if verification else None,
        "samples": result.report.get("samples", []),
    }


def _compared(a: Path, b: Path, result: AbResult) -> Rendering:
    from adt.measure.bench import sentence

    verdict = sentence(result.ratio) if result.ratio else ""
    return Rendering(
        "bench-ab",
        lambda: {
            "a": bench_fields(result.a),
            "b": bench_fields(result.b),
            "emulated": result.a.record.machine.emulated,
            "b_times_as_fast": vars(result.ratio) if result.ratio else None,
            "round_ms": result.round_ms,
            "sentence": verdict or None,
        },
        _ab_lines(result, verdict),
        _failure(result.a, a) or _failure(result.b, b),
    )


def _failure(result: BenchResult, package: Path) -> VerifyFailed | None:
    from adt.cli.verify import failure

    return failure(result.verification, package) if result.verification else None


def _lines(result: BenchResult) -> Iterator[str]:
    for name, text in _head(result):
        yield f"{name:<11} {text}"
    yield from speed_lines(result.record)
    if result.file:
        yield f"{'kept':<11} {result.file}"


def speed_lines(record: BenchRecord) -> Iterator[str]:
    """The figures of *record*, and what they must be read with."""
    if record.speed is None:
        yield f"{'speed':<11} none: {record.no_speed}"
        return
    for name, text in _speed(record, record.speed):
        yield f"{name:<11} {text}"
    for flag in record.flags:
        if flag.name not in ABOUT_THE_MACHINE:
            yield f"{'!':<11} {flag.name}: {flag.text}"


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
    yield (
        "",
        f"mean {ms(times.mean_ms)}, std {ms(times.std_ms)}, from {ms(times.min_ms)} to {ms(times.max_ms)}; "
        f"outliers: {times.outliers}",
    )
    yield "throughput", f"{times.throughput_per_s:.4g} runs per second"
    if speed.drift:
        drift = speed.drift
        yield (
            "drift",
            f"{drift.percent:+.1f} % from first to last tenth (noise {drift.noise_percent:.1f} %)",
        )
    yield (
        "start",
        f"load {ms(speed.start.load_ms)}, first run {ms(speed.start.first_run_ms)}"
        + (f" (program cache: {speed.program_cache})" if record.machine.driver else ""),
    )
    if speed.cold_start:
        cold = speed.cold_start
        yield (
            "cold start",
            f"load {ms(cold.load_ms)}, first run {ms(cold.first_run_ms)}, without a program cache",
        )
    if speed.peak_kb is not None:
        before = f", {_mib(speed.before_load_kb)} before loading" if speed.before_load_kb else ""
        yield "memory", f"{_mib(speed.peak_kb)} at most{before}"
    energy = speed.energy
    if energy.joules_per_run is None:
        yield "energy", f"not measured: {energy.reason}"
    else:
        yield (
            "energy",
            f"{energy.joules_per_run:.4g} J per run, {energy.watts:.3g} W ({energy.source}, "
            f"{energy.runs} runs in {energy.seconds:.1f} s)",
        )
    if hottest := speed.sensors.hottest:
        yield "heat", f"{hottest[0]} {_course(hottest[1], '.1f')} °C"
    clocks = speed.sensors.frequencies_mhz
    for name, course in _fastest(clocks):
        yield "clock", f"{name} {_course(course, '.0f')} MHz"


def _fastest(clocks: Mapping[str, Course]) -> Iterator[tuple[str, Course]]:
    """The GPU's clock, and that of the CPU that ran fastest."""
    if "gpu" in clocks:
        yield "gpu", clocks["gpu"]
    cpus = {name: course for name, course in clocks.items() if name != "gpu"}
    if cpus:
        name = max(cpus, key=lambda cpu: cpus[cpu].highest)
        yield name, cpus[name]


def _course(course: Course, form: str) -> str:
    return (
        f"{course.before:{form}} before, {course.lowest:{form}} to {course.highest:{form}} while it ran, "
        f"{course.after:{form}} after"
    )


def _ab_lines(result: AbResult, verdict: str) -> Iterator[str]:
    for name, side in (("A", result.a), ("B", result.b)):
        yield name
        for heading, text in _head(side):
            yield f"  {heading:<9} {text}"
        record = side.record
        if record.speed is None:
            yield f"  {'speed':<9} none: {record.no_speed}"
            continue
        times = record.speed.times
        yield f"  {'latency':<9} {latency(times)}, of {times.count} runs"
        for flag in record.flags:
            if flag.name not in ABOUT_THE_MACHINE:
                yield f"  {'!':<9} {flag.name}: {flag.text}"
    if result.ratio:
        yield f"{verdict} (95 % confidence, {len(result.round_ms)} rounds A B B A)"


def latency(times: TimeSummary) -> str:
    """Quantiles of *times*."""
    return f"p50 {ms(times.p50_ms)}, p90 {ms(times.p90_ms)}, p99 {ms(times.p99_ms)}"


def ms(value: float) -> str:
    """Milliseconds with four digits."""
    return f"{value:.4g} ms" if value < 10_000 else f"{value / 1000:.4g} s"


def _mib(kib: int) -> str:
    return f"{kib / 1024:.1f} MiB"
