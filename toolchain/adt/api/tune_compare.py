"""A model with its records and without: compiled both ways, verified, and run in turns."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from adt.api.bench import BenchResult, bench_ab
from adt.api.model import tuned_job
from adt.api.tune_result import place_words
from adt.tuning.report import Comparison, Figures, TuneResult

if TYPE_CHECKING:
    from adt.model.compiled import Job


def compared(job: Job, database: Path, tuned: TuneResult, serials: Sequence[str]) -> Comparison:
    """Compile *job* with the records of *database* and without, to the cache, and run the two in turns.

    It runs where the package belongs: on this machine, or on the first of *serials*. On an emulated device
    both are verified, and nothing is timed.

    Args:
        tuned: which device's records are meant.

    Raises:
        RunError, MismatchError, …: as :func:`adt.bench_ab`.
    """
    from adt.model.compiled import cached_package

    context = tuned.context
    on = place_words(context) if context else ""
    chosen = dataclasses.replace(job.settings.compile, db=str(database), tuned_on=on)
    with_records = tuned_job(
        dataclasses.replace(job, settings=dataclasses.replace(job.settings, compile=chosen))
    )
    untuned_package, package = cached_package(job), cached_package(with_records)
    facts = package.manifest
    counts = {"tuned_kernels": facts.tuned, "total_kernels": facts.total}
    here = facts.target.for_this_machine
    if not here and not serials:
        return Comparison(
            place="",
            **counts,
            optimised=None,
            unoptimised=None,
            ratio=None,
            correct=None,
            reason="no device behind adb is known on which whole models can run (adt bench --ab)",
        )
    result = bench_ab(
        untuned_package.path,
        package.path,
        serial=serials[0] if serials else None,
        bundle=job.bundle.path if job.bundle else None,
        record=False,
    )
    ratio = result.ratio
    return Comparison(
        place=result.b.record.machine.name,
        **counts,
        optimised=_figures(result.b),
        unoptimised=_figures(result.a),
        ratio=(ratio.value, ratio.low, ratio.high) if ratio else None,
        correct=result.passed,
        reason="" if ratio else result.b.record.no_speed or "",
    )


def _figures(result: BenchResult) -> Figures | None:
    speed = result.record.speed
    if speed is None:
        return None
    return Figures(speed.times.mean_ms, speed.times.p50_ms, speed.times.std_ms, speed.times.count)
