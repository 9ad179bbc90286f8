"""The benchmarks of this machine, and the libraries with which a model is fastest by them.

There is one file each, so that no later one can damage an earlier one:
``<data>/bench/20260131T120000Z-<id>.json``, written beside its place, synced and
renamed. Files are never changed; removing one removes that benchmark.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from adt.bundle.libraries import NONE
from adt.errors import ConfigError, DiskError, InputError, PackageError
from adt.host import manifest
from adt.host.cache import fresh_file
from adt.host.directories import data_dir
from adt.limits import read_json
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
        for leftover in into.glob(".*.tmp"):
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

    Args:
        device: part of the serial, model, system on chip or OpenCL device, in any case.
        package: name; ``*`` and ``?`` stand for any letters or one.
        since: a date (2026-01-31, or with a time), or an age (``7d``, ``12h``).
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
    try:
        raw = read_json(path)
    except FileNotFoundError as error:
        raise InputError(f"there is no file {path}", remedy=remedy) from error
    except (ValueError, OSError) as error:
        raise InputError(f"{path} cannot be read: {error}", remedy=remedy) from error
    if isinstance(raw, dict) and app_bench.is_from_app(raw):
        return [app_bench.record_of(raw, path)]
    if not isinstance(raw, dict) or (raw.get("schema"), raw.get("schema_version")) != (
        EXPORT,
        EXPORT_VERSION,
    ):
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
    """Return the fastest of the newest benchmarks of one model, one of which is without libraries.

    Args:
        records: oldest first; those of ``adt tune --compare`` among them, with tuned kernels.
        soc: system on chip of the device; empty: the device that was measured last.
        tuned: kernels are compiled with records, so that benchmarks of tuned ones count.

    Returns:
        None where nothing is to be compared: no benchmarks with libraries, or none without.
    """
    wanted = (source_sha256, target, platform, precision)
    latest: dict[tuple[str, str], dict[tuple[str, bool], BenchRecord]] = {}
    for record in records:
        subject = record.subject
        fits = (subject.source_sha256, subject.target, subject.platform, subject.precision) == wanted
        fits = fits and (tuned or not subject.tuned)
        if fits and record.speed and record.correct is not False and soc in ("", record.machine.soc):
            series = (record.machine.key, record.method.key)
            latest[series] = latest.pop(series, {}) | {(subject.offload, subject.tuned > 0): record}
    for measured in reversed(latest.values()):
        offloads = {offload for offload, _ in measured}
        if NONE in offloads and len(offloads) > 1:
            return min(measured.values(), key=_milliseconds)
    return None


def _milliseconds(record: BenchRecord) -> float:
    assert record.speed is not None
    return record.speed.times.p50_ms
