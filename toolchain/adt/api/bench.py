"""Measure how fast a package runs, compare two, and look at what was measured before."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adt.api.place import open_place
from adt.api.requests import AbRequest, ApkRequest, BenchRequest, ReportRequest
from adt.api.verify import VerifyResult, verify_at
from adt.compiler.importers import model_store
from adt.device.place import Opened
from adt.errors import ConfigError
from adt.host.cache import write_text
from adt.measure import history, trend
from adt.measure.bench import (
    BenchSetup,
    Measurement,
    measure,
    pilot,
    record_of,
    take_turns,
    times_as_fast,
)
from adt.measure.conditions import Conditions, CoolDown, conditions, cool_down, parse_cool_down
from adt.measure.protocol import Protocol, protocol_named
from adt.measure.record import EMULATED, WRONG, BenchRecord, Flag
from adt.measure.statistics import Interval
from adt.measure.trend import TrendReport
from adt.options.request import takes
from adt.package.package import load_package

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
    """Document of rtvm about the timed process; empty without one."""
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
    """Speed-up of B over A, with 95 % confidence; None where times do not count."""
    round_ms: tuple[tuple[float, float], ...]
    """Medians of A and B in each round, milliseconds."""

    @property
    def passed(self) -> bool:
        """No outputs are known to be wrong."""
        return self.a.passed and self.b.passed


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
    setup, cooling = _setup(request, cold_start=request.cold_start), _cooling(request)
    opened = open_place(load_package(request.package), request)
    with opened.place.awake():
        verification = _verify(opened, request, request.model)
        if reason := _no_speed(opened, verification):
            return _result(opened, setup, request, verification, no_speed=reason)
        first = pilot(opened, setup)
        flags = _cool_down(opened, cooling)
        now = conditions(opened.place)
        measurement = measure(opened, setup, first, now.external_power)
    return _result(opened, setup, request, verification, measurement=measurement, now=now, flags=flags)


@takes(AbRequest)
def bench_ab(request: AbRequest) -> AbResult:
    """Measure two packages in turns (A B B A) on one machine, and tell by how much one is faster.

    The protocol's runs and seconds are spread over the rounds. *inputs* go to both packages.

    Raises:
        ConfigError: as :func:`bench`; or the two do not run on the same machine.
        RunError, ModelError, …: see :mod:`adt.errors`.
    """
    setup, cooling = _setup(request, rounds=request.rounds), _cooling(request)
    a, b = (open_place(load_package(path), request) for path in (request.a, request.b))
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
                _result(opened, setup, request, verification, no_speed=reason or other)
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
            opened,
            setup,
            request,
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
    return BenchSetup(
        protocol_of(request, rounds=rounds),
        threads=request.threads,
        affinity=request.affinity,
        end_to_end=request.end_to_end,
        cold_start=cold_start,
        fill_mode=request.fill_mode,
        seed=request.seed,
        timeout=request.settings.device.run_seconds,
        inputs=request.inputs,
        label=request.label,
    )


def _cooling(request: BenchRequest | AbRequest) -> CoolDown | None:
    return parse_cool_down(request.cool_down) if request.cool_down else None


def protocol_of(request: BenchRequest | AbRequest | ApkRequest, *, rounds: int | None = None) -> Protocol:
    """The protocol of *request*, with what it changes."""
    return protocol_named(
        request.protocol,
        runs=request.runs,
        seconds=request.seconds,
        warmup_runs=request.warmup_runs,
        warmup_ms=request.warmup_ms,
        rounds=rounds,
    )


def _verify(
    opened: Opened, request: BenchRequest | AbRequest, model: Path | None = None
) -> VerifyResult | None:
    """The outputs against the reference's; None with ``--no-verify``."""
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
    """Return why nothing may be timed; empty where it may."""
    if verification is not None and not verification.verification.passed:
        return WRONG
    return EMULATED if opened.place.emulated else ""


def _cool_down(opened: Opened, goal: CoolDown | None) -> list[Flag]:
    if goal is None or cool_down(opened.place, goal):
        return []
    return [Flag("warm", f"it did not cool down to {goal.text} before the runs")]


def _result(
    opened: Opened,
    setup: BenchSetup,
    request: BenchRequest | AbRequest,
    verification: VerifyResult | None,
    *,
    measurement: Measurement | None = None,
    now: Conditions | None = None,
    flags: Sequence[Flag] = (),
    no_speed: str = "",
    interleaved: bool = False,
) -> BenchResult:
    """The record, in the store unless *request* forbids that, and what the record does not keep."""
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


@takes(ReportRequest)
def report(request: ReportRequest) -> TrendReport:
    """Return what was measured on this machine over time, and where something got slower.

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
