"""``adt up``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adt.api.requests import UpRequest, quiet
from adt.cli.command import Rendering, command
from adt.cli.terminal import status_line
from adt.cli.verify import failure, verification_fields, verification_lines
from adt.options.option import option

if TYPE_CHECKING:
    from adt.api.up import UpResult
    from adt.api.up_plan import Step, UpPlan


@command("adt up model.onnx --shape input:1,3,224,224")
def up(
    request: UpRequest,
    output: Annotated[Path | None, option("Write the outputs here, .npz.", "--output", "-o", default=None)],
    as_json: bool,
) -> Rendering:
    """Build, compile, deploy, run and verify a model; without a phone, on a virtual device."""
    from adt.api.up import up
    from adt.cli.arrays import save_npz

    on_plan, on_step = (quiet, quiet) if as_json else (_show_plan, _show_step)
    with status_line("adt up") as progress:
        result = up(request.but(on_plan=on_plan, on_step=on_step, progress=progress))
    if output:
        save_npz(output, result.verified.outputs)
    return Rendering(
        "up", lambda: _fields(result), _lines(result), failure(result.verified, result.package.path)
    )


def _fields(result: UpResult) -> dict[str, Any]:
    from adt.cli.arrays import describe

    return {
        "plan": vars(result.plan),
        "steps": [vars(step) for step in result.steps],
        "package": result.package.path,
        "outputs": describe(result.verified.outputs),
        "verification": verification_fields(result.verified),
    }


def _lines(result: UpResult) -> Iterator[str]:
    from adt.cli.arrays import summary

    for name, array in result.verified.outputs.items():
        yield summary(name, array)
    yield from verification_lines(result.verified)
    yield f"package  {result.package.path}"
    if result.verified.emulated:
        yield "the virtual device is left running: adt emulator stop"


def _show_plan(plan: UpPlan) -> None:
    typer.echo(f"model       {plan.model}")
    for name, shape in plan.inputs.items():
        typer.echo(f"input       {name}: {', '.join(map(str, shape))}")
    typer.echo(f"target      {plan.target} on {plan.platform}")
    typer.echo(f"device      {plan.reason}")
    typer.echo(f"TVM source  {plan.tvm_source}")
    typer.echo(f"tolerance   {plan.max_abs:g} absolute, or {plan.max_rel:g} relative, to onnxruntime")
    typer.echo("steps       source → build-target → compile → device → deploy → verify")


def _show_step(step: Step) -> None:
    typer.echo(f"✓ {step.name:<13} {step.seconds:7.2f} s  {step.note}")
