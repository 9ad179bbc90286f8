"""``adt quantize``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from adt.api.requests import QuantizeRequest
from adt.cli.command import Rendering, command
from adt.cli.pictures import PictureFlags, picture_options

if TYPE_CHECKING:
    from adt.api.quantize import QuantizeResult

EXAMPLE = (
    "adt quantize model.onnx --calibrate pictures/ --mean 0.5 --std 0.5 --per-channel -o model-int8.onnx"
)
MOST_SHOWN = 5
"""Layers."""


@command(EXAMPLE)
def quantize(request: QuantizeRequest, flags: PictureFlags) -> Rendering:
    """Quantize an ONNX model to 8 bits on samples, or its weights alone, and say what that costs."""
    from adt.api.quantize import quantize

    result = quantize(request.but(picture=picture_options(flags)))
    return Rendering("quantize", lambda: _fields(result), _lines(result))


def _fields(result: QuantizeResult) -> dict[str, Any]:
    from adt.measure.verify import json_number

    outputs = [{"name": row.name, **asdict(row.metrics)} for row in result.outputs]
    return asdict(result) | {
        "outputs": json_number(outputs),
        "worst": result.outputs[0].name if result.outputs else None,
        "layers": json_number([asdict(row) for row in result.layers]),
    }


def _lines(result: QuantizeResult) -> Iterator[str]:
    from adt.host.disk import size_text

    if result.outputs:
        yield from _accuracy(result)
    else:
        yield "nothing was measured: what it costs is told of samples, --calibrate"
    if result.kept:
        yield f"{len(result.kept)} nodes stay float: {', '.join(result.kept)}"
    yield f"wrote {result.path}: {size_text(result.bytes)} instead of {size_text(result.float_bytes)}"


def _accuracy(result: QuantizeResult) -> Iterator[str]:
    from adt.host.columns import aligned

    made_up = "MADE-UP samples, which tell nothing of real ones"
    samples = made_up if result.made_up else f"samples of {result.source}"
    which = ""
    if not result.weights_only:
        yield f"calibrated on {result.calibrated_on} {samples}"
        which = f": of {result.every} the last, held back"
    yield f"against float on {result.held_back} {samples}{which}"
    for row in result.outputs:
        of = row.metrics
        top1 = "" if of.top1 is None else f" top-1 {of.top1:.1%}"
        yield f"  {row.name}: SNR {_db(of.snr_db)}{top1} max abs {of.max_abs:.3g} of {of.magnitude:.3g}"
    costs = [layer for layer in result.layers if layer.name not in result.kept]
    yield f"{len(costs)} layers are quantized; those that cost most (share of noise, SNR alone):"
    rows = [(f"  {cost.share:.1%}", _db(cost.snr_db), cost.operator, cost.name) for cost in costs]
    yield from aligned(rows[:MOST_SHOWN])


def _db(value: float) -> str:
    return f"{value:.1f} dB"
