"""All rewrites of ONNX operators."""

from __future__ import annotations

from collections.abc import Mapping

from adt.model.importers.onnx.rewrites import (
    attention,
    fused_attention,
    integers,
    linear,
    loops,
    microsoft,
    normalization,
    pointwise,
    quantized,
    recurrent,
    shapes,
)
from adt.model.importers.onnx.rewrites.rewrite import Rewrite

REWRITES: Mapping[str, Rewrite] = {
    rewrite.op: rewrite
    for module in (
        attention,
        fused_attention,
        integers,
        linear,
        loops,
        microsoft,
        normalization,
        pointwise,
        quantized,
        recurrent,
        shapes,
    )
    for rewrite in module.REWRITES
}
"""Rewrites by operator."""
