"""Result of :func:`adt.tune`, made of what the engine reports."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from adt.errors import NoDevice, TrackerError
from adt.measure import history
from adt.options.resolve import load_settings
from adt.tuning.records import Context
from adt.tuning.results import Comparison, Figures, TunedTask, TuneResult, TuningPlan, quarantined_candidates
from adt.verbs.bench import BenchResult, bench_ab
from adt.verbs.compile import tuned_job
from adt.verbs.tune_places import Rack

if TYPE_CHECKING:
    from adt.compiler.compilation import CompileJob
    from adt.tuning.engine import EngineResult
    from adt.tuning.task_progress import TaskResult


def compile_command(job: CompileJob, database: Path) -> str:
    """Return the command that compiles the model with the records, with all that decides its kernels."""
    settings = job.settings
    words = ["adt", "compile", str(job.model), "--for", job.platform.name]
    words += ["--target", settings.compile.target]
    words += [word for shape in settings.compile.shapes for word in ("--shape", shape)]
    usual = load_settings({}, environ={}, start=Path("/")).settings.compile
    for name in ("cpu", "opt_level", "precision", "offload"):
        if getattr(settings.compile, name) != getattr(usual, name):
            words += [f"--{name.replace('_', '-')}", str(getattr(settings.compile, name))]
    for option, names in (
        ("--keep-float32", settings.compile.keep_float32),
        ("--half-only", settings.compile.half_only),
    ):
        words += [option, ",".join(names)] if names else []
    return shlex.join([*words, "--db", str(database)])


def check_ended(result: EngineResult, rack: Rack, wait: float) -> None:
    """Raise when the tuning ended for want of devices.

    Raises:
        TrackerError, NoDevice: no device was there for as long as we wait.
    """
    if result.ended != "no device":
        return
    what = (
        f"no device that measures has been there for {wait:g} s; "
        f"{result.status.kept} records of this session are kept"
    )
    details = "\n".join(f"{device.name}: {device.state}: {device.note}" for device in result.devices)
    if rack.tracked:
        raise TrackerError(
            what,
            remedy="`adt rpc status` shows who is registered, `adt rpc start --serial S --key KEY` registers "
            "a device; then the same command goes on.",
            details=details,
        )
    raise NoDevice(
        what, remedy="`adt devices` shows who is there; then the same command goes on.", details=details
    )


def tune_result(plan: TuningPlan, result: EngineResult, contexts: Sequence[Context]) -> TuneResult:
    """The whole of it, not compared yet.

    Args:
        contexts: those of the database: a compile must name one when several fit.
    """
    mine = result.context
    if mine and sum((other.target, other.tvm) == (mine.target, mine.tvm) for other in contexts) > 1:
        command = f"{plan.compile_command} {shlex.join(['--tuned-on', mine.place])}"
        plan = replace(plan, compile_command=command)
    return TuneResult(
        plan=plan,
        context=result.context,
        tasks=tuple(map(_task, result.tasks)),
        devices=result.devices,
        quarantined=quarantined_candidates(result.quarantined),
        failures=result.failures,
        done=result.status.done,
        total=result.status.total,
        kept=result.status.kept,
        seconds=result.status.elapsed,
        interrupted=result.ended == "stopped",
        comparison=None,
    )


def _task(result: TaskResult) -> TunedTask:
    task = result.task
    untuned = result.baseline if result.baseline and result.baseline.failure is None else None
    return TunedTask(
        name=task.name,
        kernels=task.kernels,
        calls=task.weight,
        flops=task.flops,
        state=result.state,
        reason=result.reason,
        trials=result.trials,
        failed=result.failed,
        baseline_ms=1e3 * untuned.time if untuned else None,
        best_ms=1e3 * result.best.time if result.best else None,
    )


def compare_packages(
    job: CompileJob, database: Path, tuned: TuneResult, serials: Sequence[str]
) -> Comparison:
    """Compile *job* with the records of *database* and without, to the cache, and run the two in turns.

    It runs where the package belongs: on this machine, or on the first of *serials*. On an emulated device
    both are verified, and nothing is timed. The tuned one's benchmark is kept.

    Args:
        tuned: which device's records are meant.

    Raises:
        RunError, MismatchError, …: as :func:`adt.bench_ab`.
    """
    from adt.compiler.compile import cached_package

    context = tuned.context
    tuned_on = context.place if context else ""
    settings = job.settings.compile.but(db=str(database), tuned_on=tuned_on)
    with_records = tuned_job(
        dataclasses.replace(job, settings=dataclasses.replace(job.settings, compile=settings))
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
    if result.b.record.speed:
        history.save_if_possible(result.b.record)  # what --offload auto of a tuned compile compares
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
