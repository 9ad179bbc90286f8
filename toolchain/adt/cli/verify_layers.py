"""``adt verify --layers``: show what came of each kernel, and end with an error when one is wrong."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import typer

from adt.cli.app import emit_json

if TYPE_CHECKING:
    from adt.api.verify import LayersResult
    from adt.measure.layers import CallComparison, LayerScan

MOST_SHOWN = 12
"""Calls that are shown where something is wrong, without ``--all``."""
MARKS = {"right": "✓", "passes on": "~", "wrong": "✗", "not compared": "?"}


def finish(package: Path, result: LayersResult, as_json: bool, *, everything: bool) -> None:
    """Print the result.

    Raises:
        VerifyFailed: a kernel is wrong, or none could be compared.
    """
    from adt.errors import VerifyFailed

    if as_json:
        emit_json("verify-layers", layers_fields(package, result))
    else:
        _show(result, everything)
    found = result.layers
    if found.passed:
        return
    if as_json:
        raise typer.Exit(VerifyFailed.exit_code)
    if not found.wrong and found.first_nan is not None:
        call = found.first_nan
        raise VerifyFailed(
            f"the kernel {call.name} (call {call.index}) gives nothing finite, on this machine, too: that is "
            "not compared, nor is what follows from it",
            remedy="Give inputs for which the model gives numbers: --input FILE.npz.",
        )
    if not found.wrong:
        raise VerifyFailed(
            f"none of the {len(found.calls)} calls could be compared",
            remedy="Compile without --offload, and with fixed shapes (--shape NAME:1,3,224,224).",
        )
    first = found.wrong[0]
    names = list(dict.fromkeys(call.name for call in found.wrong))
    raise VerifyFailed(
        f"the kernel {first.name} computes wrong numbers (call {first.index})"
        + (f", and so do {', '.join(names[1:4])}" if len(names) > 1 else ""),
        remedy=" ".join(next_steps(package, found, first)),
    )


def next_steps(package: Path, found: LayerScan, call: CallComparison) -> list[str]:
    """What to do about a wrong kernel, each step a sentence."""
    steps = []
    if any(argument.scope != "global" for argument in call.arguments):
        steps.append("Keep tensors in buffers: adt compile MODEL --target adreno-buffer.")
    if call.half:
        steps.append("Keep its operators in float32: adt compile MODEL --keep-float32 NAME.")
    source = f"--opencl --kernel {call.name}_kernel" if found.device == "opencl" else "--tir"
    steps.append(f"Look at it: adt inspect {quote(str(package))} {source}.")
    steps.append("Report it with the package; --reference host and --opt-level 0 narrow it down.")
    return steps


def layers_fields(package: Path, result: LayersResult) -> dict[str, Any]:
    """The result as JSON fields."""
    from adt.measure.verify import json_number

    found = result.layers
    first, diverging = (found.wrong or (None,))[0], found.first_diverging
    return {
        "serial": result.serial,
        "virtual_device": result.emulated,
        "passed": found.passed,
        "calls_total": found.total,
        "calls_compared": found.compared,
        "first_wrong": first.index if first else None,
        "first_diverging": diverging.index if diverging else None,
        "next_steps": next_steps(package, found, first) if first else [],
        "calls": [json_number(asdict(call)) for call in found.calls],
    }


def _show(result: LayersResult, everything: bool) -> None:
    found = result.layers
    wrong = found.wrong
    odd = [call for call in found.calls if call.verdict != "right"]
    shown = list(found.calls) if everything else odd[:MOST_SHOWN]
    if shown:
        typer.echo("  call   alone     along the run  kernel")
    for call in shown:
        _show_call(call)
    if len(odd) > MOST_SHOWN and not everything:
        typer.echo(f"  … and {len(odd) - MOST_SHOWN} more (--all shows every call)")
    if wrong:
        _explain(wrong[0])
    elif found.compared:
        left = len(found.calls) - found.compared
        last = next(call for call in reversed(found.calls) if call.verdict != "not compared")
        typer.echo(
            f"no kernel diverges: {found.compared} of {found.total} calls computed what they should"
            + (f", {left} could not be compared" if left else "")
            + f"; at the last one the run is off by {last.along:.1e} of its magnitude"
        )
    note = ", emulated: right or wrong counts here, time does not" if result.emulated else ""
    typer.echo(
        f"ran on {result.serial}{note}; reference: the same kernels, unscheduled, on this machine's CPU"
    )


def _show_call(call: CallComparison) -> None:
    head = f"{MARKS[call.verdict]} {call.index:<5}"
    if call.reason:
        typer.echo(f"{head}  –         –              {call.name}: not compared, {call.reason}")
        return
    note = " (right on the numbers it got)" if call.verdict == "passes on" else ""
    typer.echo(f"{head}  {call.alone:<8.1e}  {call.along:<13.1e}  {call.name}{note}")


def _explain(call: CallComparison) -> None:
    """The first wrong call in full."""
    typer.echo(f"first wrong kernel: {call.name} (call {call.index})")
    typer.echo(f"    computes  {', '.join(call.operators)}")
    for number, argument in enumerate(call.arguments):
        shape = ", ".join(map(str, argument.shape))
        role = "writes" if argument.written else "reads"
        where = "texture" if "texture" in argument.scope else "buffer"
        typer.echo(f"    {role:<6} {number:<2} {argument.dtype}[{shape}], {where} ({argument.scope})")
    found = call.metrics
    if found is None:
        return
    typer.echo(
        f"    alone     max abs {found.max_abs:.3g}, {call.alone:.3g} of the largest, limit {call.limit:g}, "
        f"cosine {found.cosine:.6f}, {found.differing} of {found.elements} elements differ"
    )
    if found.worst is not None:
        place = ", ".join(map(str, found.worst.index))
        typer.echo(f"    worst     [{place}]: {found.worst.got:.9g} for {found.worst.reference:.9g}")
