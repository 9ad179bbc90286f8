"""``adt tune``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from adt.api.requests import TuneRequest, quiet
from adt.cli.command import Rendering, command
from adt.errors import INTERRUPTED, VerifyFailed

if TYPE_CHECKING:
    from adt.tuning.results import TuningPlan

EXAMPLE = "adt tune model.onnx --target adreno --serial R5CT,R5CV --trials 2000 --db records"


@command(EXAMPLE)
def tune(request: TuneRequest, as_json: bool) -> Rendering:
    """Find faster schedules for a model's kernels, measured on devices; the same command goes on."""
    from adt.api.tune import tune
    from adt.cli.tune_report import fields, lines
    from adt.cli.tuning_view import tuning_view

    with tuning_view(quiet=as_json) as on_status:
        on_plan = quiet if as_json else _show_plan
        result = tune(request.but(on_plan=on_plan, on_status=on_status, gentle=True))
    error = None
    if not result.interrupted and result.comparison and result.comparison.correct is False:
        error = VerifyFailed(
            "the tuned or the untuned package does not compute what the reference does",
            remedy="adt verify PACKAGE --layers names the kernel, of a package with --db and one without.",
        )
    code = INTERRUPTED if result.interrupted else 0
    return Rendering("tune", lambda: fields(result), lines(result), error, code)


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
