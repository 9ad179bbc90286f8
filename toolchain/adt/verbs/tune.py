"""Tune the kernels of a model: search for faster schedules, measured on devices, and keep every record."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from adt.cli.command import Rendering, command
from adt.errors import ConfigError, VerifyFailed
from adt.host.document import aligned
from adt.host.interrupts import arrived, handled, interrupt
from adt.options.request import takes
from adt.options.sections import TuneSettings
from adt.verbs.options import quiet
from adt.verbs.tune_request import TuneRequest

if TYPE_CHECKING:
    from adt.compiler.compilation import CompileJob
    from adt.compiler.targets import ModelTarget
    from adt.tuning.database.store import Database
    from adt.tuning.engine import EngineResult
    from adt.tuning.results import TuneResult, TuningPlan
    from adt.verbs.tune_places import Rack


log = logging.getLogger("adt.tune")

EMULATED_TIMEOUT = 120.0
"""Seconds for a candidate on an emulated device, unless the timeout is set."""

SHARED_PROCESSOR = {"repeat": 50, "min_repeat_ms": 2}
"""Measurement on this machine's processor: something else runs there, too, and of many short repeats some
are not disturbed."""


@takes(TuneRequest)
def tune(request: TuneRequest) -> TuneResult:
    """Tune a model; the same call with the same database goes on where it was stopped.

    Where it measures: on this machine with a target for it, on every device that a tracker has under
    *key*, or on the devices *serials*. As many measurements are under way as there are devices; they may
    come and go. What this starts (tracker, servers) it stops, and nothing else. The platform is that of the
    first of *serials* when not given.

    Raises:
        ConfigError: settings that cannot be, or contradict each other; too few times to fit a GPU to.
        ToolNotFound: a cost model, or a Dask cluster, that is asked for and not installed.
        Busy: another process tunes into the same database.
        NoDevice, TrackerError: no device was there for as long as we wait.
    """
    from adt.compiler.importers.formats import require_model
    from adt.host.extras import require_tvm
    from adt.verbs.compile import job_of, measured_offload
    from adt.verbs.tune_places import open_rack, platform_for, served
    from adt.verbs.tune_result import check_ended, compare_packages, tune_result

    require_tvm()
    from adt.tuning.database.store import open_database
    from adt.tuning.database.tuned_schedules import keep_gpu
    from adt.tuning.fit import fit_gpu

    require_model(request.model)
    request = request.but(platform=platform_for(request))
    settings = request.settings.tune
    directory = _database(request)
    job = measured_offload(job_of(request, server=True, preferred=partial(served, request)))
    target = job.target()
    if request.fit and target.gpu is None:
        raise ConfigError(
            f"--fit is for GPUs, and {target.name} is none", remedy="Leave it away, or give --target opencl."
        )
    with open_rack(request, job, target) as rack, open_database(directory, write=True) as database:
        if rack.emulated and request.resolved.origins["tune.timeout"] == "default":
            settings = settings.but(timeout=EMULATED_TIMEOUT)
        if rack.source.exclusive and request.resolved.origins["tune.repeat"] == "default":
            settings = settings.but(**SHARED_PROCESSOR)
        plan, result = _run(request, settings, job, target, rack, directory, database)
        contexts = database.contexts()
        check_ended(result, rack, settings.wait)
        report = tune_result(plan, result, contexts)
        if request.fit and target.gpu and result.context and not report.interrupted:
            fit = fit_gpu(database, result.context, target.gpu)
            keep_gpu(directory, result.context, fit.gpu)
            report = dataclasses.replace(report, fit=fit)
    if request.compare and not report.interrupted:
        log.info("comparing the model with its records and without")
        report = dataclasses.replace(
            report, comparison=compare_packages(job, directory, report, rack.serials)
        )
    return report


def _run(
    request: TuneRequest,
    settings: TuneSettings,
    job: CompileJob,
    target: ModelTarget,
    rack: Rack,
    directory: Path,
    database: Database,
) -> tuple[TuningPlan, EngineResult]:
    """Take the kernels out of the model, and tune them."""
    from adt.compiler.passes.records.key import target_key, tvm_key
    from adt.tuning.candidates import Timing, TuningOptions, run_id
    from adt.tuning.engine import Engine
    from adt.tuning.fleet.builders import make_builders
    from adt.tuning.fleet.fleet import Fleet
    from adt.tuning.results import TuningPlan
    from adt.tuning.search.strategies import SearchOptions
    from adt.tuning.search.task_search import Searches
    from adt.tuning.task_progress import TaskLogs
    from adt.tuning.tasks import extract, toolchain_of, tuning_target
    from adt.verbs.tune_result import compile_command

    stop = request.stop or threading.Event()
    search_options = SearchOptions(settings.tuner, settings.cost_model, settings.seed)
    searches = Searches(tuning_target(target, rack.cores), search_options)  # its package may be missing
    compilation = job.load(accuracy=False)
    source = compilation.imported.source
    log.info("taking the kernels out of %s", source.file)
    extraction = extract(compilation)
    toolchain = toolchain_of(compilation)
    key = target_key(target)
    run = run_id(source.sha256, dataclasses.replace(job.settings, tune=settings), key, tvm_key())
    logs = TaskLogs(directory, run, [(task.name, task.flops) for task in extraction.tasks])
    plan = TuningPlan(
        model=job.model,
        platform=job.platform.name,
        target=job.settings.compile.target,
        database=directory,
        run=run,
        where=rack.words,
        tasks=tuple((task.name, task.weight, task.flops) for task in extraction.tasks),
        untunable=extraction.untunable,
        trials=settings.trials,
        per_task=settings.per_task,
        logs=logs.directory,
        compile_command=compile_command(job, directory),
    )
    request.on_plan(plan)
    options = TuningOptions(
        run,
        key,
        tvm_key(),
        toolchain,
        Timing(settings.number, settings.repeat, settings.min_repeat_ms, settings.timeout),
        settings.trials,
        per_task=settings.per_task,
        early_stopping=settings.early_stopping,
        exclusive=rack.source.exclusive,
        wait=settings.wait,
    )
    name, _, driver = request.device.partition(", ")  # NAME, or NAME, DRIVER
    fleet = Fleet(rack.source, toolchain.device, kind=(name, driver) if request.device else None)
    with logs, stop_on_interrupt(stop) if request.gentle else nullcontext():
        engine = Engine(
            options,
            extraction.tasks,
            searches=searches,
            builders=make_builders(settings.builders, toolchain),
            database=database,
            on_status=request.on_status,
            on_record=logs.add,
            stop=stop,
        )
        result = engine.run(fleet.start)
    return plan, result


def _database(request: TuneRequest) -> Path:
    """Return the directory of the records."""
    setting = request.settings.compile.db
    if request.db is None and not setting:
        raise ConfigError(
            "no directory for the records is named",
            remedy='Name a directory: --db DIR, or db = "DIR" in [compile] of adt.toml.',
        )
    return request.db or Path(setting)


@contextlib.contextmanager
def stop_on_interrupt(stop: threading.Event) -> Iterator[None]:
    """Let SIGINT or SIGTERM set *stop* while the block runs; one more is KeyboardInterrupt."""

    def interrupted(number: int, frame: object) -> None:
        if stop.is_set():
            interrupt(number, frame)
        stop.set()

    with handled(interrupted):
        yield


@command("adt tune model.onnx --for host --db records", "adt tune model.onnx --target adreno --db records")
def tune_command(request: TuneRequest, as_json: bool) -> Rendering:
    """Find faster schedules for a model's kernels, measured on devices; run again to resume."""
    from adt.verbs.tune_result import document
    from adt.verbs.tuning_view import tuning_view

    with tuning_view(quiet=as_json) as on_status:
        on_plan = quiet if as_json else _show_plan
        result = tune(request.but(on_plan=on_plan, on_status=on_status, gentle=True))
    error = None
    if not result.interrupted and result.comparison and result.comparison.correct is False:
        error = VerifyFailed(
            "the tuned or the untuned package does not compute what the reference does",
            remedy="adt verify PACKAGE --layers names the kernel, of a package with --db and one without.",
        )
    code = arrived() if result.interrupted else 0
    return Rendering("tune", lambda: document(result), _lines(result), error, code)


def _lines(result: TuneResult) -> Iterator[str]:
    from adt.verbs.tune_result import lines

    return lines(result)


def _show_plan(plan: TuningPlan) -> None:
    each = " for each" if plan.per_task else ""
    typer.echo(f"model     {plan.model}")
    typer.echo(f"target    {plan.target} on {plan.platform}")
    typer.echo(f"measured  {plan.where}")
    typer.echo(f"records   {plan.database}")
    typer.echo(f"logs      {plan.logs}")
    typer.echo(f"tasks     {len(plan.tasks)}, {plan.trials} trials{each}")
    rows = [
        (f"  {number}.", name, f"{calls} calls", f"{flops / 1e6:.1f} MFLOP" if flops else "")
        for number, (name, calls, flops) in enumerate(plan.tasks, start=1)
    ]
    for line in aligned(rows) if rows else ():
        typer.echo(line)
    if plan.untunable:
        typer.echo(f"not tuned {len(plan.untunable)} kernels, which keep their schedule:")
        for line in aligned([("  ", kernel.name, kernel.reason) for kernel in plan.untunable]):
            typer.echo(line)
