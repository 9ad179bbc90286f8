"""Benchmarks over time: which belong together, where one got slower than it had been, and a page of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adt.errors import ConfigError
from adt.host.document import FLAT, in_document
from adt.host.web_page import web_page
from adt.measure.record import BenchRecord, Speed

THRESHOLD = 5.0
"""Percent that a median must be worse by to be a regression."""

BEST, PREVIOUS = "best", "previous"
REGRESSION, IMPROVEMENT, SAME, UNCLEAR = "regression", "improvement", "same", "within-noise"
FIRST, WRONG, EMULATED = "first", "wrong", "no-speed"


@dataclass(frozen=True)
class SeriesKey:
    """Benchmarks that may be compared have the same."""

    machine: str
    """Model, system on chip, OpenCL device and driver."""
    package: str
    target: str
    platform: str
    method: str
    """Protocol, end to end or not, threads and CPUs."""
    emulated: bool
    host: bool
    """It was this machine, or another that adt ran on: no device."""
    opencl_on_cpu: bool

    @property
    def note(self) -> str:
        """Description of what its figures do not tell; empty when they are a device's."""
        if self.emulated:
            return "emulated: only right or wrong counts, there is no speed"
        if self.opencl_on_cpu:
            return "OpenCL on a CPU: says nothing about a GPU"
        return "the machine that adt runs on: says nothing about a phone" if self.host else ""


@dataclass(frozen=True)
class Point:
    """One benchmark, and how it compares with an earlier one of its series."""

    record: BenchRecord
    verdict: str
    """``first``, ``regression``, ``improvement``, ``same``, ``within-noise`` (changed by the threshold or
    more, and by less than the runs differ among themselves), ``wrong`` (outputs) or ``no-speed``."""
    change_percent: float | None
    """Change of the headline quantile; positive: slower."""
    noise_percent: float | None
    """Difference of the runs of the two among themselves (robust standard deviations, added in squares)."""
    against: str
    """Id of the record that it is compared with; empty for none."""
    changed: tuple[str, ...]
    """Differences from that record: ``package``, ``bundle``, ``precision``, ``tvm``, ``adt``, …"""


@dataclass(frozen=True)
class Series:
    """Benchmarks that may be compared, oldest first."""

    key: SeriesKey = field(metadata=FLAT)
    points: tuple[Point, ...]

    @property
    @in_document()
    def regressed(self) -> bool:
        """True if its newest benchmark is a regression, or its outputs are wrong."""
        return self.points[-1].verdict in (REGRESSION, WRONG)


@dataclass(frozen=True)
class TrendReport:
    """All series, the one with the newest benchmark first."""

    series: tuple[Series, ...]
    threshold_percent: float
    against: str
    """``best`` (the fastest earlier one) or ``previous``."""

    @property
    @in_document("regressions", len)
    def regressed(self) -> tuple[Series, ...]:
        """Series whose newest benchmark is a regression, or wrong."""
        return tuple(series for series in self.series if series.regressed)


def key_of(record: BenchRecord) -> SeriesKey:
    """Return the key of the series that *record* belongs to."""
    subject = record.subject
    return SeriesKey(
        machine=record.machine.key,
        package=subject.package,
        target=subject.target,
        platform=subject.platform,
        method=record.method.key,
        emulated=record.machine.emulated,
        host=record.machine.kind == "host",
        opencl_on_cpu=record.machine.opencl_on_cpu,
    )


def report(
    records: Iterable[BenchRecord], *, threshold: float = THRESHOLD, against: str = BEST
) -> TrendReport:
    """Put *records* (oldest first) into series, and compare each with an earlier one of its series.

    Args:
        threshold: percent; a smaller change is none.
        against: ``best`` finds what gets slower little by little; ``previous`` what the last change did.
    """
    if against not in (BEST, PREVIOUS):
        raise ConfigError(f"cannot compare against {against!r}", remedy=f"Choose {BEST} or {PREVIOUS}.")
    if not 0 < threshold < math.inf:
        raise ConfigError(
            f"a threshold of {threshold:g} % cannot be", remedy="Give a positive number of percent."
        )
    groups: dict[SeriesKey, list[BenchRecord]] = {}
    for record in records:
        groups.setdefault(key_of(record), []).append(record)
    newest_first = sorted(groups.items(), key=lambda group: group[1][-1].when, reverse=True)
    return TrendReport(
        tuple(Series(key, _points(group, threshold, against)) for key, group in newest_first),
        threshold,
        against,
    )


def _points(records: Sequence[BenchRecord], threshold: float, against: str) -> tuple[Point, ...]:
    points = []
    earlier: list[BenchRecord] = []
    for record in records:
        points.append(_point(record, earlier, threshold, against))
        if record.speed is not None and record.correct is not False:
            earlier.append(record)
    return tuple(points)


def _point(record: BenchRecord, earlier: Sequence[BenchRecord], threshold: float, against: str) -> Point:
    if record.correct is False:
        return Point(record, WRONG, None, None, "", ())
    if record.speed is None:
        return Point(record, EMULATED, None, None, "", ())
    if not earlier:
        return Point(record, FIRST, None, None, "", ())
    base = earlier[-1] if against == PREVIOUS else min(earlier, key=_headline)
    assert base.speed is not None
    change = 100 * (_headline(record) / _headline(base) - 1)
    noise = math.hypot(_noise(record.speed), _noise(base.speed))
    if abs(change) < threshold:
        verdict = SAME
    elif abs(change) <= noise:
        verdict = UNCLEAR
    else:
        verdict = REGRESSION if change > 0 else IMPROVEMENT
    return Point(record, verdict, change, noise, base.id, _changed(base, record))


def _headline(record: BenchRecord) -> float:
    value = record.headline_ms
    assert value is not None
    return value


def _noise(speed: Speed) -> float:
    """Compute by how many percent a benchmark's runs differ; a drift while it was measured counts, too."""
    return max(speed.times.spread_percent, abs(speed.drift.percent) if speed.drift else 0.0)


def _changed(before: BenchRecord, after: BenchRecord) -> tuple[str, ...]:
    a, b = before.subject, after.subject
    pairs = {
        "model": (a.source_sha256, b.source_sha256),
        "package": (a.package_digest, b.package_digest),
        "precision": (a.precision, b.precision),
        "offload": (a.offload, b.offload),
        "bundle": (a.bundle_digest, b.bundle_digest),
        "TVM": ((a.tvm, a.bundle_tvm), (b.tvm, b.bundle_tvm)),
        "adt": (a.adt, b.adt),
        "device": (before.machine.name, after.machine.name),
    }
    return tuple(name for name, (old, new) in pairs.items() if old != new)


def render(report: TrendReport) -> str:
    """Render the page as HTML, UTF-8; see :func:`adt.host.web_page.web_page`."""
    here = Path(__file__).parent
    return web_page(
        "benchmarks · adt report",
        style=here / "report.css",
        script=here / "report.js",
        data=page_data(report),
    )


def page_data(report: TrendReport) -> dict[str, Any]:
    return {
        "threshold": report.threshold_percent,
        "against": report.against,
        "regressed": len(report.regressed),
        "series": [_series_fields(series) for series in report.series],
    }


def _series_fields(series: Series) -> dict[str, Any]:
    return {
        **vars(series.key),
        "note": series.key.note,
        "regressed": series.regressed,
        "headline": series.points[-1].record.method.headline,
        "points": [_point_fields(point) for point in series.points],
    }


def _point_fields(point: Point) -> dict[str, Any]:
    record = point.record
    fields: dict[str, Any] = {
        "id": record.id,
        "when": record.when,
        "label": record.label,
        "device": record.machine.name,
        "verdict": point.verdict,
        "change": point.change_percent,
        "against": point.against,
        "changed": point.changed,
        "correct": record.correct,
        "no_speed": record.no_speed,
        "flags": [vars(flag) for flag in record.flags],
        "ms": record.headline_ms,
    }
    if record.speed is not None:
        times = record.speed.times
        fields |= {
            "p50": times.p50_ms,
            "p90": times.p90_ms,
            "p99": times.p99_ms,
            "count": times.count,
            "low": record.speed.quantiles_ms[1],
            "high": record.speed.quantiles_ms[-2],
            "line": record.speed.time_line,
        }
    return fields
