"""Result of :func:`adt.tune`, made of what the engine reports; its document and its lines."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from adt.cli.terminal import span
from adt.errors import NoDevice, TrackerError
from adt.host.document import aligned, document_of
from adt.measure import history
from adt.measure.bench import sentence
from adt.measure.statistics import Interval
from adt.options.resolve import load_settings
from adt.tuning.records import Context, Record
from adt.tuning.results import (
    Comparison,
    Figures,
    GpuFit,
    QuarantinedCandidate,
    TunedTask,
    TuneResult,
    TuningPlan,
)
from adt.verbs.bench import BenchResult, bench_ab
from adt.verbs.compile import tuned_job
from adt.verbs.tune_places import Rack

if TYPE_CHECKING:
    from adt.compiler.compilation import CompileJob
    from adt.tuning.engine import EngineResult
    from adt.tuning.task_progress import TaskProgress


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
    """Raise TrackerError or NoDevice when the tuning ended for want of devices."""
    if result.ended != "no device":
        return
    what = (
        f"no device that measures has been there for {wait:g} s; "
        f"{result.status.kept} records of this session are kept"
    )
    details = "\n".join(f"{device.name}: {device.state}: {device.note}" for device in result.status.devices)
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
    """Make the result, not compared yet; name the context for a compile where several of *contexts* fit."""
    mine = result.context
    if mine and sum((other.target, other.tvm) == (mine.target, mine.tvm) for other in contexts) > 1:
        command = f"{plan.compile_command} {shlex.join(['--tuned-on', mine.place])}"
        plan = replace(plan, compile_command=command)
    return TuneResult(
        plan=plan,
        context=result.context,
        tasks=tuple(map(_task, result.tasks)),
        devices=result.status.devices,
        quarantined=tuple(map(_quarantined, result.quarantined)),
        failures=result.status.failures,
        done=result.status.done,
        total=result.status.total,
        kept=result.status.kept,
        seconds=result.status.elapsed,
        interrupted=result.ended == "stopped",
        comparison=None,
    )


def _task(progress: TaskProgress) -> TunedTask:
    task = progress.task
    untuned = progress.baseline if progress.baseline and progress.baseline.failure is None else None
    return TunedTask(
        name=task.name,
        kernels=task.kernels,
        calls=task.weight,
        flops=task.flops,
        state=progress.state,
        reason=progress.reason,
        trials=progress.trials,
        failed=progress.failed,
        baseline_ms=1e3 * untuned.time if untuned else None,
        best_ms=1e3 * progress.best.time if progress.best else None,
    )


def _quarantined(record: Record) -> QuarantinedCandidate:
    assert record.failure is not None
    name, label = (record.on.name, record.on.label) if record.on else ("", "")
    return QuarantinedCandidate(record.task, record.failure.kind, record.failure.message, name, label)


def compare_packages(
    job: CompileJob, database: Path, tuned: TuneResult, serials: Sequence[str]
) -> Comparison:
    """Compile *job* with the records of *database* and without, to the cache, and run the two in turns.

    It runs on this machine or the first of *serials*; on an emulated device both are verified only. The tuned
    one's benchmark is kept; *tuned* says which device's records are meant.
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


TIMES = ("baseline_ms", "best_ms", "tuned_ms", "times_as_fast")


def document(result: TuneResult) -> dict[str, Any]:
    """Write a tuning as JSON fields; times that are no device's speed are null."""
    fields: dict[str, Any] = document_of(result)
    if result.emulated:
        for row in (fields, *fields["tasks"]):
            row |= {name: None for name in TIMES if name in row}
    return fields


def lines(result: TuneResult) -> Iterator[str]:
    """Yield the lines about a tuning for people."""
    from adt.verbs.tuning_view import device_cells, failures_text

    yield ""
    yield from aligned(_task_rows(result))
    yield from _reasons(result)
    if result.emulated:
        yield "emulated: right or wrong counts here, time does not; the records say so"
    elif result.baseline_ms and result.tuned_ms:
        yield (
            f"kernels   {result.baseline_ms:.4g} ms untuned, {result.tuned_ms:.4g} ms tuned in one run of "
            "the model, as measured one by one (--compare runs the whole model)"
        )
    if result.devices:
        yield "devices"
        yield from aligned([("  ", *device_cells(device)) for device in result.devices])
    if failed := failures_text(result.failures):
        yield f"failed    {failed}"
    for candidate in result.quarantined:
        cause = f"{candidate.kind} on {candidate.device}: {candidate.message}"
        yield f"  never again: a candidate of {candidate.task} ({cause})"
    if result.finished_before:
        yield f"trials    {result.done} of {result.total}: finished before; more with --trials"
    else:
        yield (
            f"trials    {result.done} of {result.total}; {result.kept} records of this session are kept "
            f"({span(result.seconds)})"
        )
    if result.fit:
        yield from fit_lines(result.fit)
    if result.comparison:
        yield from comparison_lines(result.comparison)
    if result.interrupted:
        typer.echo("next      the same command goes on where this one stopped", err=True)
    else:
        yield f"next      {result.plan.compile_command}"


def _task_rows(result: TuneResult) -> list[tuple[str, ...]]:
    headings = ("task", "calls", "untuned ms", "tuned ms", "ratio", "trials", "failed", "")
    rows: list[tuple[str, ...]] = [headings]
    for task in result.tasks:
        times: tuple[str, ...] = ("-", "-", "-")
        if not result.emulated:
            ratio = f"{task.times_as_fast:.2f}x" if task.times_as_fast else "-"
            times = (_ms(task.baseline_ms), _ms(task.best_ms), ratio)
        note = _note(task, emulated=result.emulated)
        rows.append((task.name, str(task.calls), *times, str(task.trials), str(task.failed), note))
    return rows


def _note(task: TunedTask, *, emulated: bool) -> str:
    """Describe a task that ended early, or whose records are not used."""
    parts = [task.state] if task.state != "done" and not task.reason else []
    if not emulated and task.times_as_fast is not None and not task.faster:
        parts.append("keeps its schedule: none was faster")
    return ", ".join(parts)


def _reasons(result: TuneResult) -> Iterator[str]:
    """Yield why tasks ended before their time, each reason once."""
    by_reason: dict[str, list[str]] = {}
    for task in result.tasks:
        if task.reason:
            by_reason.setdefault(task.reason, []).append(task.name)
    for reason, names in by_reason.items():
        yield f"{reason}: {', '.join(names)}"


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def fit_lines(fit: GpuFit) -> Iterator[str]:
    """Yield the row of the GPU, and how well the model of costs orders its schedules."""
    gpu, before = fit.gpu, fit.before
    yield (
        f"fitted    to {fit.schedules} schedules of {fit.kernels} kernels: "
        f"{fit.ordered:.0%} of the pairs are in order ({fit.ordered_before:.0%} before)"
    )
    for name in ("wave", "work_group", "items", "sums", "local_bytes"):
        now, was = getattr(gpu, name), getattr(before, name)
        yield f"  {name:<12}{now}" + (f" (was {was})" if now != was else "")


def comparison_lines(comparison: Comparison) -> list[str]:
    """Format the model's times with records and without, as tables of AutoTVM's guides had them."""
    kernels = f"{comparison.tuned_kernels} of {comparison.total_kernels} kernels are tuned"
    if comparison.optimised is None or comparison.unoptimised is None or comparison.ratio is None:
        correct = {None: "", True: "; both are right", False: "; not both are right"}[comparison.correct]
        return [f"compared  {kernels}{correct}; no times: {comparison.reason}"]
    rows: list[tuple[str, ...]] = [("", "mean ms", "median ms", "std ms", "runs")]
    for name, side in (("optimised", comparison.optimised), ("unoptimised", comparison.unoptimised)):
        figures = (f"{value:.4g}" for value in (side.mean_ms, side.median_ms, side.std_ms))
        rows.append((name, *figures, str(side.runs)))
    verdict = sentence(Interval(*comparison.ratio), ("unoptimised", "optimised"))
    heading = f"compared  on {comparison.place}; {kernels}"
    return [heading, *(f"  {line}" for line in aligned(rows)), f"  {verdict} (95 % confidence)"]
