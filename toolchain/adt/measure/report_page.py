"""Benchmarks over time as one self-contained HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from adt.host.web_page import web_page
from adt.measure.trend import Point, Report, Series


def render(report: Report) -> str:
    """The page as HTML, UTF-8; see :func:`adt.host.web_page.web_page`."""
    here = Path(__file__).parent
    return web_page(
        "benchmarks · adt report",
        style=here / "report.css",
        script=here / "report.js",
        data=page_data(report),
    )


def page_data(report: Report) -> dict[str, Any]:
    """What the page shows."""
    return {
        "threshold": report.threshold_percent,
        "against": report.against,
        "regressed": len(report.regressed),
        "series": [_series(series) for series in report.series],
    }


def _series(series: Series) -> dict[str, Any]:
    return {
        **vars(series.key),
        "note": series.key.note,
        "regressed": series.regressed,
        "headline": series.points[-1].record.method.headline,
        "points": [_point(point) for point in series.points],
    }


def _point(point: Point) -> dict[str, Any]:
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
