"""The benchmarks of this machine: the store, the libraries with which a model is fastest, and trends.

There is one file each, so that no later one can damage an earlier one:
``<data>/bench/20260131T120000Z-<id>.json``, written beside its place, synced and
renamed. Files are never changed; removing one removes that benchmark.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from operator import itemgetter
from pathlib import Path
from typing import Any

from adt.bundle.libraries import NONE
from adt.errors import ConfigError, DiskError, InputError, PackageError
from adt.host import manifest
from adt.host.cache import fresh_file
from adt.host.directories import data_dir
from adt.host.document import FLAT, in_document, web_page
from adt.measure import app_bench
from adt.measure.record import SCHEMA, SCHEMA_VERSION, BenchRecord, is_moment

log = logging.getLogger("adt.bench")

EXPORT, EXPORT_VERSION = "adt.bench-records", 1
_REMEDY = "Remove the file: it is no benchmark of this adt."
_LEFTOVER_SECONDS = 24 * 3600
_NAME = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]+\.json")


def directory() -> Path:
    return data_dir() / "bench"


def save(record: BenchRecord, into: Path | None = None) -> Path:
    """Keep *record* in *into*, else this machine's store; return its file, complete or never there."""
    into = into or directory()
    when = datetime.fromisoformat(record.when).astimezone(UTC)
    final = into / f"{when:%Y%m%dT%H%M%SZ}-{record.id}.json"
    with fresh_file(final, durable=True) as temporary:
        for leftover in into.glob(".*.tmp"):  # of a process that nothing could clean up after
            with contextlib.suppress(OSError):
                if time.time() - leftover.stat().st_mtime > _LEFTOVER_SECONDS:
                    leftover.unlink()
        temporary.write_text(manifest.dumps(record), encoding="utf-8")
    return final


def save_if_possible(record: BenchRecord) -> Path | None:
    """Keep *record*; None where the disk refuses: what was measured is worth more than where it is kept."""
    try:
        return save(record)
    except DiskError as error:
        log.warning("the result is not kept: %s", error.what)
        return None


def load(store: Path | None = None) -> tuple[BenchRecord, ...]:
    """Load every record, oldest first; pass over a file that is damaged or of another adt, with a warning."""
    store = store or directory()
    records = []
    for path in sorted(store.glob("*.json")) if store.is_dir() else ():
        if not _NAME.fullmatch(path.name):
            continue
        try:
            records.append(
                manifest.load(BenchRecord, path, schema=SCHEMA, version=SCHEMA_VERSION, remedy=_REMEDY)
            )
        except PackageError as error:
            log.warning("%s; it is passed over", error.what)
    return tuple(sorted(records, key=lambda record: datetime.fromisoformat(record.when)))


def select(
    records: Iterable[BenchRecord], *, device: str = "", package: str = "", since: str = "", label: str = ""
) -> tuple[BenchRecord, ...]:
    """Select the records that fit all that is given.

    *device* is a part of the serial, model, system on chip or OpenCL device, in any case; in names ``*`` and
    ``?`` stand for others; *since* is a date (2026-01-31, or with a time), or an age (``7d``, ``12h``).
    """
    earliest = moment(since) if since else None
    return tuple(
        record
        for record in records
        if device.lower() in f"{record.machine.name} {record.machine.key}".lower()
        and fnmatchcase(record.subject.package, package or "*")
        and fnmatchcase(record.label, label or "*")
        and (earliest is None or datetime.fromisoformat(record.when) >= earliest)
    )


def moment(text: str) -> datetime:
    """Parse a date, a date with a time, or an age in days (``7d``) or hours (``12h``); UTC without a zone."""
    if match := re.fullmatch(r"(\d{1,5})([dh])", text):
        age = timedelta(**{{"d": "days", "h": "hours"}[match[2]]: int(match[1])})
        return datetime.now(UTC) - age
    try:
        date = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(
            f"--since {text!r} is neither a date nor an age", remedy="Write 2026-01-31, or 7d, or 12h."
        ) from error
    return date if date.tzinfo else date.replace(tzinfo=UTC)


def export_text(records: Iterable[BenchRecord]) -> str:
    """Write *records* as one JSON document, for :func:`imported`."""
    fields: dict[str, Any] = {"schema": EXPORT, "schema_version": EXPORT_VERSION}
    rows = [manifest.fields_of(record) for record in records]
    return json.dumps(fields | {"records": rows}, indent=1, ensure_ascii=False) + "\n"


def imported(path: Path, store: Path | None = None) -> int:
    """Store the new records of an exported file, or of an application, all or none; return their number."""
    records = _in_file(path)
    known = {record.id for record in load(store)}
    new = [record for record in records if record.id not in known]
    for record in new:
        save(record, store)
    return len(new)


def _in_file(path: Path) -> list[BenchRecord]:
    remedy = "Name a file that `adt report --export` or an application of adt's wrote."
    raw = app_bench.read_object(path, remedy)
    if app_bench.is_from_app(raw):
        return [app_bench.record_of(raw, path)]
    if (raw.get("schema"), raw.get("schema_version")) != (EXPORT, EXPORT_VERSION):
        raise InputError(f"{path} holds no exported benchmarks", remedy=remedy)
    records = manifest.structure(raw.get("records"), list[BenchRecord], path, error=InputError, remedy=remedy)
    for record in records:
        if not re.fullmatch(r"[0-9a-f]{1,64}", record.id) or not is_moment(record.when):
            raise InputError(
                f"{path} has a record with the id {record.id!r} of {record.when!r}", remedy=remedy
            )
    return records


def fastest_offload(
    records: Iterable[BenchRecord],
    source_sha256: str,
    target: str,
    platform: str,
    precision: str,
    soc: str,
    *,
    tuned: bool = False,
) -> BenchRecord | None:
    """Return the fastest of one model's newest benchmarks, of which one is without libraries; None: no such.

    *records* are oldest first. *soc* is the device's; empty: that of the device measured last. Benchmarks of
    kernels with records count if *tuned*.
    """
    model = (source_sha256, target, platform, precision)
    latest: dict[tuple[str, str], dict[tuple[str, bool], tuple[float, BenchRecord]]] = {}
    for record in records:
        subject = record.subject
        fits = (subject.source_sha256, subject.target, subject.platform, subject.precision) == model
        fits = fits and (tuned or not subject.tuned)
        if fits and record.speed and record.correct is not False and soc in ("", record.machine.soc):
            series = (record.machine.key, record.method.key)
            timed = (record.speed.times.p50_ms, record)
            latest[series] = latest.pop(series, {}) | {(subject.offload, subject.tuned > 0): timed}
    for measured in reversed(latest.values()):
        offloads = {offload for offload, _ in measured}
        if NONE in offloads and len(offloads) > 1:
            return min(measured.values(), key=itemgetter(0))[1]
    return None


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

    A change of less than *threshold* percent is none. Comparing *against* the ``best`` finds what gets slower
    little by little, against the ``previous`` one what the last change did.
    """
    groups: dict[SeriesKey, list[BenchRecord]] = {}
    for record in records:
        groups.setdefault(key_of(record), []).append(record)
    newest_first = sorted(groups.items(), key=lambda group: group[1][-1].when, reverse=True)
    series = (Series(key, tuple(_points(group, threshold, against))) for key, group in newest_first)
    return TrendReport(tuple(series), threshold, against)


def _points(records: Sequence[BenchRecord], threshold: float, against: str) -> Iterator[Point]:
    earlier: list[BenchRecord] = []
    for record in records:
        yield _point(record, earlier, threshold, against)
        if record.speed is not None and record.correct is not False:
            earlier.append(record)


def _point(record: BenchRecord, earlier: Sequence[BenchRecord], threshold: float, against: str) -> Point:
    if record.correct is False or record.speed is None or not earlier:
        verdict = WRONG if record.correct is False else FIRST if record.speed else EMULATED
        return Point(record, verdict, None, None, "", ())
    base = earlier[-1] if against == PREVIOUS else min(earlier, key=_headline)
    change = 100 * (_headline(record) / _headline(base) - 1)
    noise = math.hypot(_noise(record), _noise(base))
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


def _noise(record: BenchRecord) -> float:
    """Compute by how many percent a benchmark's runs differ; a drift while it was measured counts, too."""
    speed = record.speed
    assert speed is not None
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
    """Render the page as HTML, UTF-8; see :func:`adt.host.document.web_page`."""
    style, script = (Path(__file__).with_name(f"report.{kind}") for kind in ("css", "js"))
    return web_page("benchmarks · adt report", style=style, script=script, data=page_data(report))


def page_data(report: TrendReport) -> dict[str, Any]:
    rows = []
    for series in report.series:
        headline = series.points[-1].record.method.headline
        facts = {"note": series.key.note, "regressed": series.regressed, "headline": headline}
        rows.append({**vars(series.key), **facts, "points": list(map(_point_fields, series.points))})
    head = {"threshold": report.threshold_percent, "against": report.against}
    return {**head, "regressed": len(report.regressed), "series": rows}


def _point_fields(point: Point) -> dict[str, Any]:
    record = point.record
    fields = {name: getattr(record, name) for name in ("id", "when", "label", "correct", "no_speed")}
    fields |= {name: getattr(point, name) for name in ("verdict", "against", "changed")}
    fields |= {
        "device": record.machine.name,
        "change": point.change_percent,
        "flags": [vars(flag) for flag in record.flags],
        "ms": record.headline_ms,
    }
    if (speed := record.speed) is not None:
        fields |= {name: getattr(speed.times, f"{name}_ms") for name in ("p50", "p90", "p99")}
        fields |= {"count": speed.times.count, "line": speed.time_line}
        fields |= {"low": speed.quantiles_ms[1], "high": speed.quantiles_ms[-2]}
    return fields
