"""Operators that onnxruntime's optimizer and model tools fuse, written apart again (``com.microsoft``)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from adt.compiler.importers.onnx.graph import NO_CONVERTER, Builder, Rewrite
from adt.compiler.importers.onnx.rewrites.normalization import normalized

_PARAMETERS = {
    "LeakyRelu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "Elu": ("alpha",),
    "ThresholdedRelu": ("alpha",),
}
"""Activations with parameters, in the order in which FusedConv lists them."""


def _activated(build: Builder, value: str, numbers: Sequence[float]) -> str:
    """Apply the node's activation, whose parameters are *numbers*, to *value*."""
    op = build.attribute("activation", "")
    if not op:
        return value
    if op == "Clip":
        return build.add(op, value, *numbers[:2])
    parameters: dict[str, Any] = dict(zip(_PARAMETERS.get(op, ()), numbers, strict=False))
    return build.add(op, value, **parameters)


def _gelu(build: Builder) -> str | None:
    """Write x/2 · (1 + erf(x/√2)); before that a bias, if there is one."""
    build.require_floats()
    value = build.plus(*build.operands(2))
    gate = build.add("Add", build.add("Erf", build.add("Mul", value, 1 / math.sqrt(2))), 1)
    return build.add("Mul", build.add("Mul", value, 0.5), gate)


def _fast_gelu(build: Builder) -> str | None:
    """Write x/2 · (1 + tanh(√(2/π) · (x + 0.044715·x³))); before that a bias, if there is one."""
    build.require_floats()
    value = build.plus(*build.operands(2))
    square = build.add("Mul", build.add("Mul", value, value), 0.044715)
    bracket = build.add("Mul", value, build.add("Add", square, 1))
    gate = build.add("Add", build.add("Tanh", build.add("Mul", bracket, math.sqrt(2 / math.pi))), 1)
    return build.add("Mul", build.add("Mul", value, 0.5), gate)


def _quick_gelu(build: Builder) -> str | None:
    build.require_floats()
    scaled = build.add("Mul", build.operand(0), build.attribute("alpha", 1.702))
    return build.add("Mul", build.operand(0), build.add("Sigmoid", scaled))


def _fused_conv(build: Builder) -> str | None:
    """Write out x, w, bias, a tensor to add before the activation."""
    build.require_floats()
    *inputs, added = build.operands(4)
    value = build.add("Conv", *inputs, **build.attributes(without=("activation", "activation_params")))
    return _activated(build, build.plus(value, added), build.attribute("activation_params", []))


def _fused_gemm(build: Builder) -> str | None:
    build.require_floats()
    parameters = ("activation_alpha", "activation_beta", "activation_gamma")
    value = build.add("Gemm", *build.node.input, **build.attributes(without=("activation", *parameters)))
    numbers = [number for name in parameters if (number := build.attribute(name)) is not None]
    return _activated(build, value, numbers)


def _fused_matmul(build: Builder) -> str | None:
    """Write out trans (swaps the last two axes) and transBatch (moves the first behind the batch axes)."""
    operands = []
    build.require_floats()
    for name, side in zip(build.node.input, "AB", strict=True):
        axes = list(range(len(build.shape(name))))
        if build.attribute(f"transBatch{side}", 0):
            axes = [*axes[1:-1], 0, axes[-1]]
        if build.attribute(f"trans{side}", 0) and len(axes) > 1:
            axes[-2:] = axes[:-3:-1]
        operands.append(name if axes == sorted(axes) else build.add("Transpose", name, perm=axes))
    product = build.add("MatMul", *operands)
    alpha = build.attribute("alpha", 1.0)
    return product if alpha == 1 else build.add("Mul", product, alpha)


def _nhwc_max_pool(build: Builder) -> str:
    rank = len(build.attribute("kernel_shape")) + 2
    value = build.add("MaxPool", build.channels_first(build.operand(0), rank), **build.attributes())
    return build.channels_last(value, rank)


def _skip_layer_norm(build: Builder) -> list[str] | None:
    """Write out x, skip, scale, [shift,] bias; the sum x + skip + bias is the fourth output."""
    build.require_floats()
    centred = build.node.op_type == "SkipLayerNormalization"
    value, skip, scale, *rest = build.operands(5)
    shift, bias = rest if centred else ("", rest[0])
    total = build.plus(build.add("Add", value, skip), bias)
    epsilon = build.attribute("epsilon", 1e-12)
    return [*normalized(build, total, epsilon, scale, shift, axes=[-1], centred=centred), total]


def _embed_layer_norm(build: Builder) -> list[str] | None:
    """Write out ids, segments, tables of words, positions, segments, scale, shift, mask, positions.

    The second output counts the positions that the mask leaves, the third is the sum before normalizing.
    """
    ids, segments, words, places, kinds, scale, shift, mask, positions = build.operands(9)
    shape, dtype = build.shape(ids), build.graph.dtype(words) or ""
    build.require_floats(dtype)
    if positions:
        placed = build.add("Gather", places, positions)
    else:
        begin, end = build.integers([0]), build.integers([shape[1]])
        placed = build.add("Slice", places, begin, end, begin)
    total = build.add("Add", build.add("Gather", words, ids), placed)
    if segments:
        total = build.add("Add", total, build.add("Gather", kinds, segments))
    counts = ""
    if build.has_output(1):
        if mask:
            counts = build.reduced("ReduceSum", mask, [1], since=13, keepdims=0)
        else:
            counts = build.constant([0] * shape[0], "int32")
    epsilon = build.attribute("epsilon", 1e-12)
    result, *_ = normalized(build, total, epsilon, scale, shift, axes=[-1], dtype=dtype)
    return [result, counts, total]


REWRITES = tuple(
    Rewrite(f"com.microsoft::{op}", into, NO_CONVERTER, apply)
    for op, into, apply in (
        ("BiasGelu", "Add, Erf, Mul", _gelu),
        ("EmbedLayerNormalization", "Gather, Add, ReduceMean, …", _embed_layer_norm),
        ("FastGelu", "Add, Tanh, Mul", _fast_gelu),
        ("FusedConv", "Conv, Add and its activation", _fused_conv),
        ("FusedGemm", "Gemm and its activation", _fused_gemm),
        ("FusedMatMul", "Transpose, MatMul, Mul", _fused_matmul),
        ("Gelu", "Erf, Mul, Add", _gelu),
        ("NhwcMaxPool", "Transpose, MaxPool", _nhwc_max_pool),
        ("QuickGelu", "Sigmoid, Mul", _quick_gelu),
        ("SkipLayerNormalization", "Add, ReduceMean, …", _skip_layer_norm),
        ("SkipSimplifiedLayerNormalization", "Add, ReduceMean, …", _skip_layer_norm),
        ("TransposeMatMul", "Transpose, MatMul, Mul", _fused_matmul),
    )
)
