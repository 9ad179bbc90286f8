"""``adt bench``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from adt.api.requests import BenchRequest
from adt.cli.app import emit_json
from adt.cli.command import Keywords, command
from adt.options.option import MaybePath, Options, option

if TYPE_CHECKING:
    from adt.api.bench import AbResult, BenchResult
    from adt.measure.record import BenchRecord, Speed
    from adt.measure.sensors import Course

ABOUT_THE_MACHINE = ("opencl-on-cpu", "host")
"""Flags that are shown before the figures."""


class BenchFlags(Options):
    """One package or two, and what is written."""

    package: MaybePath = option("A package that `adt compile` made.", default=None, kw_only=False)
    ab: tuple[Path, Path] | None = option(
        "Two packages instead, in turns: which is faster?", default=None, metavar="A B"
    )
    rounds: int | None = option("Rounds of --ab, each A B B A.", default=None)
    times: MaybePath = option("Write each run's time and start here, .npz.", default=None, metavar="FILE")


@command("adt bench model-pkg --serial 127.0.0.1:5555", BenchRequest, BenchFlags)
def bench(keywords: Keywords, flags: BenchFlags, as_json: bool) -> None:
    """Measure how fast a package runs; on anything emulated, whether it is right."""
    import adt
    from adt.cli.arrays import load_inputs, save_npz
    from adt.errors import ConfigError

    load_inputs(keywords)
    if (flags.package is None) == (flags.ab is None):
        raise ConfigError(
            "one package is measured, or two are compared",
            remedy="Write `adt bench PACKAGE`, or `adt bench --ab PACKAGE PACKAGE`.",
        )
    if flags.ab is not None:
        model, _ = keywords.pop("model"), keywords.pop("cold_start")
        if model or flags.times:
            raise ConfigError(
                "--ab compares two packages, and takes neither --model nor --times",
                remedy="Measure one package alone: adt bench PACKAGE.",
            )
        _finish_ab(adt.bench_ab(*flags.ab, rounds=flags.rounds, **keywords), as_json)
        return
    if flags.rounds is not None:
        raise ConfigError("--rounds is about --ab", remedy="Leave --rounds away.")
    assert flags.package is not None
    result = adt.bench(flags.package, **keywords)
    if flags.times and result.times:
        save_npz(flags.times, result.times)
    if as_json:
        emit_json("bench", fields(result))
    else:
        _show(result)
    _raise_unless_right(result, as_json)


def fields(result: BenchResult) -> dict[str, Any]:
    """A benchmark as JSON fields."""
    from adt.cli.verify import verification_fields
    from adt.measure.record import document

    checked = result.verification
    return {
        **document(result.record),
        "emulated": result.record.machine.emulated,
        "record": result.file,
        "verification": verification_fields(checked) if checked else None,
        "samples": result.report.get("samples", []),
    }


def _finish_ab(result: AbResult, as_json: bool) -> None:
    from adt.measure.bench import sentence

    verdict = sentence(result.ratio) if result.ratio else ""
    if as_json:
        ratio = vars(result.ratio) if result.ratio else None
        emit_json(
            "bench-ab",
            {
                "a": fields(result.a),
                "b": fields(result.b),
                "emulated": result.a.record.machine.emulated,
                "b_times_as_fast": ratio,
                "round_ms": result.round_ms,
                "sentence": verdict or None,
            },
        )
    else:
        _show_ab(result, verdict)
    _raise_unless_right(result.a, as_json)
    _raise_unless_right(result.b, as_json)


def _raise_unless_right(result: BenchResult, as_json: bool) -> None:
    from adt.cli.verify import raise_unless_passed

    if result.verification is not None:
        raise_unless_passed(result.verification, as_json)


def _show(result: BenchResult) -> None:
    for name, text in _head(result):
        typer.echo(f"{name:<11} {text}")
    show_speed(result.record)
    if result.file:
        typer.echo(f"{'kept':<11} {result.file}")


def show_speed(record: BenchRecord) -> None:
    """The figures of *record*, and what they must be read with."""
    if record.speed is None:
        typer.echo(f"{'speed':<11} none: {record.no_speed}")
        return
    for name, text in _speed(record, record.speed):
        typer.echo(f"{name:<11} {text}")
    for flag in record.flags:
        if flag.name not in ABOUT_THE_MACHINE:
            typer.echo(f"{'!':<11} {flag.name}: {flag.text}")


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
    yield "latency", f"p50 {ms(times.p50_ms)}, p90 {ms(times.p90_ms)}, p99 {ms(times.p99_ms)}"
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


def _show_ab(result: AbResult, verdict: str) -> None:
    for name, side in (("A", result.a), ("B", result.b)):
        typer.echo(f"{name}")
        for heading, text in _head(side):
            typer.echo(f"  {heading:<9} {text}")
        record = side.record
        if record.speed is None:
            typer.echo(f"  {'speed':<9} none: {record.no_speed}")
            continue
        times = record.speed.times
        latency = f"p50 {ms(times.p50_ms)}, p90 {ms(times.p90_ms)}, p99 {ms(times.p99_ms)}"
        typer.echo(f"  {'latency':<9} {latency}, of {times.count} runs")
        for flag in record.flags:
            if flag.name not in ABOUT_THE_MACHINE:
                typer.echo(f"  {'!':<9} {flag.name}: {flag.text}")
    if result.ratio:
        rounds = len(result.round_ms)
        typer.echo(f"{verdict} (95 % confidence, {rounds} rounds A B B A)")


def ms(value: float) -> str:
    """Milliseconds with four digits."""
    return f"{value:.4g} ms" if value < 10_000 else f"{value / 1000:.4g} s"


def _mib(kib: int) -> str:
    return f"{kib / 1024:.1f} MiB"
