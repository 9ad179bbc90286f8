"""Measure how fast a package runs, compare two, and look at what was measured before."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adt.api.place import open_place
from adt.api.requests import AbRequest, BenchOptions, BenchRequest, ProtocolOptions, ReportRequest
from adt.api.verify import VerifyResult, verify_at
from adt.device.place import Opened
from adt.errors import ConfigError, DiskError
from adt.host.cache import write_text
from adt.measure import conditions as looking
from adt.measure import history, trend
from adt.measure.bench import (
    BenchSetup,
    Measurement,
    Side,
    Turns,
    flag_measurement,
    machine_of,
    measure,
    pilot,
    record_of,
    speed_of,
    take_turns,
    times_as_fast,
)
from adt.measure.protocol import Protocol, protocol_named
from adt.measure.record import EMULATED, WRONG, BenchRecord, Flag, Start
from adt.measure.sensors import not_measured
from adt.measure.statistics import Interval
from adt.measure.trend import TrendReport
from adt.model.package import model_store
from adt.model.package.package import load_package
from adt.options.request import takes

if TYPE_CHECKING:
    import numpy as np

    from adt.options.option import AnyPath

log = logging.getLogger("adt.bench")


@dataclass(frozen=True)
class BenchResult:
    """One package, measured."""

    record: BenchRecord
    verification: VerifyResult | None
    """None: the outputs were not compared."""
    file: Path | None
    """The record in the store; None when it was not kept."""
    report: Mapping[str, Any] = field(default_factory=dict)
    """rtvm's own document of the timed process; empty without one."""
    times: Mapping[str, np.ndarray] = field(default_factory=dict)
    """``run_ms`` and ``start_ms`` of each timed run; empty without any."""

    @property
    def passed(self) -> bool:
        """The outputs are not known to be wrong."""
        return self.record.correct is not False


@dataclass(frozen=True)
class AbResult:
    """Two packages that took turns."""

    a: BenchResult
    b: BenchResult
    ratio: Interval | None
    """How many times as fast B is as A, with 95 % confidence; None where times do not count."""
    round_ms: tuple[tuple[float, float], ...]
    """Medians of A and B in each round, milliseconds."""

    @property
    def passed(self) -> bool:
        """No outputs are known to be wrong."""
        return self.a.passed and self.b.passed


@dataclass(frozen=True)
class _BenchTask:
    """What is asked of every measurement, whatever the package."""

    request: BenchOptions
    plan: BenchSetup
    model: Path | None
    cool_down: looking.CoolDown | None


@takes(BenchRequest)
def bench(request: BenchRequest) -> BenchResult:
    """Compare the outputs with the reference, then measure how fast the package runs where it belongs.

    Nothing is timed on an emulated device, or when the outputs are wrong:
    ``result.record.speed`` is None then, and ``result.record.no_speed`` says why.
    A time limit comes on top of what the runs are expected to take.

    Raises:
        ConfigError: the protocol or a number cannot be; or nothing is left to do on an emulated device.
        RunError, ModelError, …: see :mod:`adt.errors`.
    """
    task = _task_of(request, cold_start=request.cold_start, model=request.model)
    return _bench_one(open_place(load_package(request.package), request), task)


@takes(AbRequest)
def bench_ab(request: AbRequest) -> AbResult:
    """Measure two packages in turns (A B B A) on one machine, and tell by how much one is faster.

    The protocol's runs and seconds are spread over the rounds. *inputs* go to both packages.

    Raises:
        ConfigError: as :func:`bench`; or the two do not run on the same machine.
        RunError, ModelError, …: see :mod:`adt.errors`.
    """
    task, (a, b) = _task_of(request, rounds=request.rounds), (request.a, request.b)
    opened = tuple(open_place(load_package(path), request) for path in (a, b))
    if opened[0].place.name != opened[1].place.name:
        raise ConfigError(
            f"{a} runs on {opened[0].place.name}, and {b} on {opened[1].place.name}",
            remedy="Compare packages that were compiled for the same machine.",
        )
    checked = tuple(_checked(one, task) for one in opened)
    untimed = tuple(_untimed(one, task, found) for one, found in zip(opened, checked, strict=True))
    if any(result is not None for result in untimed):
        reasons = [result.record.no_speed for result in untimed if result]
        results = [
            result or _without_speed(one, task, found, f"it was not compared: {reasons[0]}")
            for one, found, result in zip(opened, checked, untimed, strict=True)
        ]
        return AbResult(results[0], results[1], None, ())
    return _take_turns(opened, task, checked)


def _task_of(
    request: BenchOptions, *, rounds: int | None = None, cold_start: bool = True, model: Path | None = None
) -> _BenchTask:
    """What is asked, with its protocol and time limit in the plan."""
    plan = BenchSetup(
        protocol_of(request, rounds=rounds),
        threads=request.threads,
        affinity=request.affinity,
        end_to_end=request.end_to_end,
        cold_start=cold_start,
        seed=request.seed,
        timeout=request.run_seconds,
    )
    cooling = looking.parse_cool_down(request.cool_down) if request.cool_down else None
    return _BenchTask(request, plan, model, cooling)


def protocol_of(request: ProtocolOptions, *, rounds: int | None = None) -> Protocol:
    """The protocol of *request*, with what it changes."""
    return protocol_named(
        request.protocol,
        runs=request.runs,
        seconds=request.seconds,
        warmup_runs=request.warmup_runs,
        warmup_ms=request.warmup_ms,
        rounds=rounds,
    )


def _checked(opened: Opened, task: _BenchTask) -> VerifyResult | None:
    """The outputs against the reference's; None when that is not wanted."""
    if not task.request.verify:
        if opened.place.emulated:
            raise ConfigError(
                f"{opened.place.name} is emulated: only whether outputs are right can be told there",
                remedy="Leave --no-verify away, or measure on a device that is not emulated.",
            )
        return None
    log.info("comparing the outputs with the reference")
    inputs = None if task.request.inputs is None else (task.request.inputs,)
    return verify_at(
        opened, task.request.settings, lambda: model_store.source_model(opened.package, task.model), inputs
    )


def _untimed(opened: Opened, task: _BenchTask, checked: VerifyResult | None) -> BenchResult | None:
    """The result where nothing may be timed; None where it may."""
    if checked is not None and not checked.verification.passed:
        return _without_speed(opened, task, checked, WRONG)
    return _without_speed(opened, task, checked, EMULATED) if opened.place.emulated else None


def _without_speed(
    opened: Opened, task: _BenchTask, checked: VerifyResult | None, reason: str
) -> BenchResult:
    made = record_of(
        opened,
        task.plan,
        machine_of(opened.place, None, None),
        label=task.request.label,
        correct=_correct(checked),
        no_speed=reason,
    )
    return BenchResult(made, checked, _kept(made, task))


def _correct(checked: VerifyResult | None) -> bool | None:
    return checked.verification.passed if checked else None


def _kept(record: BenchRecord, task: _BenchTask) -> Path | None:
    if not task.request.record:
        return None
    try:
        return history.save(record)
    except DiskError as error:  # what was measured is worth more than where it is kept
        log.warning("the result is not kept: %s", error.what)
        return None


def _cooled(opened: Opened, task: _BenchTask) -> list[Flag]:
    if task.cool_down is None or looking.cool_down(opened.place, task.cool_down):
        return []
    return [Flag("warm", f"it did not cool down to {task.cool_down.text} before the runs")]


def _bench_one(opened: Opened, task: _BenchTask) -> BenchResult:
    checked = _checked(opened, task)
    if (untimed := _untimed(opened, task, checked)) is not None:
        return untimed
    first = pilot(opened, task.plan, task.request.inputs)
    flags = _cooled(opened, task)
    now = looking.conditions(opened.place)
    measured = measure(opened, task.plan, first, task.request.inputs, now.external_power)
    return _finished(opened, task, checked, now, measured, flags)


def _finished(
    opened: Opened,
    task: _BenchTask,
    checked: VerifyResult | None,
    now: looking.Conditions,
    measured: Measurement,
    flags: list[Flag],
    *,
    interleaved: bool = False,
) -> BenchResult:
    machine = machine_of(opened.place, measured.report, now)
    found = [*flag_measurement(machine, now, measured.speed, measured.report["samples"]), *flags]
    made = record_of(
        opened,
        task.plan,
        machine,
        label=task.request.label,
        correct=_correct(checked),
        now=now,
        speed=measured.speed,
        flags=found,
        interleaved=interleaved,
    )
    times = {"run_ms": measured.times, "start_ms": measured.starts}
    return BenchResult(made, checked, _kept(made, task), measured.report, times)


def _take_turns(
    opened: tuple[Opened, ...], task: _BenchTask, checked: tuple[VerifyResult | None, ...]
) -> AbResult:
    sides = [Side(one, pilot(one, task.plan, task.request.inputs), task.request.inputs) for one in opened]
    flags = _cooled(opened[0], task)
    now = looking.conditions(opened[0].place)
    turns = take_turns(sides[0], sides[1], task.plan)
    ratio = times_as_fast(*turns)
    results = [
        _finished(one, task, found, now, _pooled(side), flags, interleaved=True)
        for one, found, side in zip(opened, checked, turns, strict=True)
    ]
    medians = zip(turns[0].round_medians, turns[1].round_medians, strict=True)
    rows = tuple((float(a), float(b)) for a, b in medians)
    return AbResult(results[0], results[1], ratio, rows)


def _pooled(turns: Turns) -> Measurement:
    """All turns of one side as one measurement, as if they had followed each other."""
    import numpy as np

    times = turns.times
    starts = np.concatenate([[0.0], np.cumsum(times)[:-1]])
    last = turns.runs[-1].report
    samples = [sample for run in turns.runs for sample in run.report["samples"]]
    loads = [(float(run.report["load_ms"]), float(run.report["first_run_ms"])) for run in turns.runs]
    start = Start(*(float(np.median(values)) for values in zip(*loads, strict=True)))
    report = {**last, "samples": samples, "load_ms": start.load_ms, "first_run_ms": start.first_run_ms}
    speed = speed_of(times, starts, report, None, not_measured("its runs took turns with another package's"))
    return Measurement(speed, report, times, starts)


@takes(ReportRequest)
def report(request: ReportRequest) -> TrendReport:
    """What was measured on this machine over time, and where something got slower.

    Raises:
        ConfigError: a date, threshold or *against* that cannot be.
    """
    records = history.select(
        history.load(),
        device=request.device,
        package=request.package,
        since=request.since,
        label=request.label,
    )
    return trend.report(records, threshold=request.threshold, against=request.against)


def report_html(report: TrendReport, out: AnyPath) -> None:
    """Write one self-contained page with a time line of each series.

    Raises:
        DiskError: it cannot be written.
    """
    from adt.measure.trend import render

    write_text(Path(out), render(report))


def report_export(report: TrendReport, out: AnyPath) -> int:
    """Write the records of *report* to one file, for :func:`report_import`; returns how many.

    Raises:
        DiskError: it cannot be written.
    """
    records = [point.record for series in report.series for point in series.points]
    write_text(Path(out), history.export_text(records))
    return len(records)


def report_import(path: AnyPath) -> int:
    """Take a file that :func:`report_export` or an application of adt's wrote into this machine's store.

    Returns:
        How many records were not there yet.

    Raises:
        InputError: it is no such file.
        RunError: the application could not measure.
        DiskError: the store cannot be written.
    """
    return history.imported(Path(path))
