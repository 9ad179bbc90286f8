"""``adt tune``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adt.cli import completions
from adt.cli.app import Json, Verbose, app, emit_json
from adt.cli.build import ApiLevel, Ndk, Platform
from adt.cli.completions import one_of
from adt.cli.deploy import Bundle
from adt.cli.model import (
    Cpu,
    KeepFloat32,
    Like,
    Model,
    Offload,
    OptLevel,
    Precision,
    Shapes,
    Target,
    TextureChoice,
    each_name,
)
from adt.errors import INTERRUPTED, VerifyFailed

if TYPE_CHECKING:
    from adt.tuning.report import TuneResult, TuningPlan

EXAMPLE = "adt tune model.onnx --target adreno --serial R5CT,R5CV --trials 2000 --db records"


@app.command(epilog=f"Example: {EXAMPLE}")
def tune(
    model: Model,
    db: Annotated[
        Path | None, typer.Option("--db", help="Directory of the records; made when absent.", metavar="DIR")
    ] = None,
    platform: Platform = None,
    target: Target = None,
    cpu: Cpu = None,
    shape: Shapes = None,
    serial: Annotated[
        str | None,
        typer.Option(
            "--serial",
            "-s",
            help="Devices that measure: a,b,c. Else ANDROID_SERIAL, else the only one.",
            metavar="A,B,…",
            autocompletion=completions.serials,
        ),
    ] = None,
    key: Annotated[
        str, typer.Option("--key", "-k", help="Instead: every device that the tracker has under it.")
    ] = "",
    tracker: Annotated[
        str, typer.Option(help="The tracker for --key; else adt's own.", metavar="HOST:PORT")
    ] = "",
    device: Annotated[
        str, typer.Option(help="Of a key with different ones: the one that counts.", metavar="NAME[, DRIVER]")
    ] = "",
    trials: Annotated[int | None, typer.Option("--trials", "-n", help="Candidates to measure.")] = None,
    per_task: Annotated[
        bool | None, typer.Option("--per-task/--in-all", help="… for each kernel, or of all together.")
    ] = None,
    early_stopping: Annotated[
        int | None, typer.Option(help="End a kernel after so many without progress.", metavar="K")
    ] = None,
    tuner: Annotated[
        str | None,
        typer.Option(
            help="What proposes candidates.",
            **one_of("evolutionary", "random", "replay"),
        ),
    ] = None,
    cost_model: Annotated[
        str | None, typer.Option(help="What foretells their speed.", **one_of("auto", "xgb", "none"))
    ] = None,
    number: Annotated[int | None, typer.Option(help="Calls of a kernel in one repeat, at least.")] = None,
    repeat: Annotated[int | None, typer.Option(help="Repeats; their median counts.")] = None,
    min_repeat_ms: Annotated[int | None, typer.Option(help="A repeat takes at least so long.")] = None,
    timeout: Annotated[
        float | None, typer.Option(help="Seconds after which a candidate on a device counts as hung.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the search.")] = None,
    builders: Annotated[
        str | None,
        typer.Option(help="Processes that compile, or a Dask scheduler.", metavar="N|dask://HOST:PORT"),
    ] = None,
    wait: Annotated[
        float | None, typer.Option(help="Seconds to wait for a device when none is there.")
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Then run the model tuned and untuned in turns.")
    ] = False,
    bundle: Bundle = None,
    ndk: Ndk = None,
    api_level: ApiLevel = None,
    like: Like = None,
    opt_level: OptLevel = None,
    precision: Precision = None,
    keep_float32: KeepFloat32 = None,
    offload: Offload = None,
    texture_choice: TextureChoice = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Find faster schedules for a model's kernels, measured on devices; the same command goes on."""
    import adt
    from adt.cli.tune_report import fields, show
    from adt.cli.tuning_view import tuning_view

    with tuning_view(quiet=as_json) as on_status:
        result: TuneResult = adt.tune(
            model,
            db=db,
            platform=platform,
            target=target,
            cpu=cpu,
            shapes=shape,
            serials=each_name([serial or ""]),
            key=key,
            tracker=tracker,
            device=device,
            trials=trials,
            per_task=per_task,
            early_stopping=early_stopping,
            tuner=tuner,
            cost_model=cost_model,
            number=number,
            repeat=repeat,
            min_repeat_ms=min_repeat_ms,
            timeout=timeout,
            seed=seed,
            builders=builders,
            wait=wait,
            compare=compare,
            bundle=bundle,
            ndk=ndk,
            api_level=api_level,
            like=like,
            opt_level=opt_level,
            precision=precision,
            keep_float32=each_name(keep_float32),
            offload=offload,
            texture_choice=texture_choice,
            on_plan=_ignore if as_json else _show_plan,
            on_status=on_status,
            gentle=True,
        )
    if as_json:
        emit_json("tune", fields(result))
    else:
        show(result)
    _end(result, as_json)


def _ignore(_event: object) -> None:
    """With --json nothing else is printed."""


def _show_plan(plan: TuningPlan) -> None:
    from adt.host.columns import aligned

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


def _end(result: TuneResult, as_json: bool) -> None:
    if result.interrupted:
        raise typer.Exit(INTERRUPTED)
    if result.comparison and result.comparison.correct is False:
        if as_json:  # the document has said it
            raise typer.Exit(VerifyFailed.exit_code)
        raise VerifyFailed(
            "the tuned or the untuned package does not compute what the reference does",
            remedy="adt verify PACKAGE --layers names the kernel, of a package with --db and one without.",
        )
