"""What :func:`adt.tune` gives back, of what the engine says."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from adt.api.tune_places import Rack
from adt.errors import NoDevice, TrackerError
from adt.options.resolve import load_settings
from adt.tuning.records import Context
from adt.tuning.report import TunedTask, TuneResult, TuningPlan, quarantined

if TYPE_CHECKING:
    from adt.model.compiled import Job
    from adt.tuning.plan import Result, TaskResult


def compile_command(job: Job, database: Path) -> str:
    """What compiles the model with the records, with all that decides its kernels."""
    settings = job.settings
    words = ["adt", "compile", str(job.model), "--for", job.platform.name]
    words += ["--target", settings.compile.target]
    words += [word for shape in settings.compile.shapes for word in ("--shape", shape)]
    usual = load_settings({}, environ={}, start=Path("/")).settings.compile
    for name in ("cpu", "opt_level", "precision", "offload"):
        if getattr(settings.compile, name) != getattr(usual, name):
            words += [f"--{name.replace('_', '-')}", str(getattr(settings.compile, name))]
    if settings.compile.keep_float32:
        words += ["--keep-float32", ",".join(settings.compile.keep_float32)]
    return shlex.join([*words, "--db", str(database)])


def check_ended(result: Result, rack: Rack, wait: float) -> None:
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
    details = "\n".join(f"{one.name}: {one.state}: {one.note}" for one in result.devices)
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


def told(plan: TuningPlan, result: Result, contexts: Sequence[Context]) -> TuneResult:
    """The whole of it, not compared yet.

    Args:
        contexts: those of the database: a compile must be told which one when several fit.
    """
    mine = result.context
    if mine and sum((other.target, other.tvm) == (mine.target, mine.tvm) for other in contexts) > 1:
        command = f"{plan.compile_command} {shlex.join(['--tuned-on', place_words(mine)])}"
        plan = replace(plan, compile_command=command)
    return TuneResult(
        plan=plan,
        context=result.context,
        tasks=tuple(map(_task, result.tasks)),
        devices=result.devices,
        quarantined=quarantined(result.quarantined),
        failures=result.failures,
        done=result.status.done,
        total=result.status.total,
        kept=result.status.kept,
        seconds=result.status.elapsed,
        interrupted=result.ended == "stopped",
        comparison=None,
    )


def place_words(context: Context) -> str:
    """The device and driver of *context*, as ``--tuned-on`` takes them."""
    return f"{context.device}, {context.driver}" if context.driver else context.device


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
