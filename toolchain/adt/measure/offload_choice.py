"""Choice of the libraries with which a model is fastest, by the benchmarks of this machine."""

from __future__ import annotations

from collections.abc import Iterable

from adt.bundle.libraries import NONE
from adt.measure.record import BenchRecord


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
