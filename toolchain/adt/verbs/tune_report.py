"""The result of a tuning, for people and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import typer

from adt.cli.terminal import span
from adt.host.document import document_of

if TYPE_CHECKING:
    from adt.tuning.results import Comparison, GpuFit, TunedTask, TuneResult


TIMES = ("baseline_ms", "best_ms", "tuned_ms", "times_as_fast")


def document(result: TuneResult) -> dict[str, Any]:
    """A tuning as JSON fields; times that are no device's speed are null."""
    fields: dict[str, Any] = document_of(result)
    if result.emulated:
        for row in (fields, *fields["tasks"]):
            row |= {name: None for name in TIMES if name in row}
    return fields


def lines(result: TuneResult) -> Iterator[str]:
    """A tuning for people."""
    from adt.host.columns import aligned
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
    """The row of the GPU, and how well the model of costs orders its schedules."""
    gpu, before = fit.gpu, fit.before
    yield (
        f"fitted    to {fit.schedules} schedules of {fit.kernels} kernels: "
        f"{fit.ordered:.0%} of the pairs are in order ({fit.ordered_before:.0%} before)"
    )
    for name in ("wave", "work_group", "items", "sums", "local_bytes"):
        now, was = getattr(gpu, name), getattr(before, name)
        yield f"  {name:<12}{now}" + (f" (was {was})" if now != was else "")


def comparison_lines(comparison: Comparison) -> list[str]:
    """The model's times with records and without, as tables of AutoTVM's guides had them."""
    from adt.host.columns import aligned
    from adt.measure.bench import sentence
    from adt.measure.statistics import Interval

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
