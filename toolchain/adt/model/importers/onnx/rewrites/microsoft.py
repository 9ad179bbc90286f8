"""What onnxruntime's graph optimizer and model tools fuse, written apart again (``com.microsoft``)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from adt.model.importers.onnx.graph import Builder, Graph, attribute, attributes, operand
from adt.model.importers.onnx.rewrites.normalization import normalized, outputs
from adt.model.importers.onnx.rewrites.rewrite import FLOATS, NO_CONVERTER, Rewrite

if TYPE_CHECKING:
    import onnx

    from adt.model.importers.onnx.rewrites.rewrite import Apply

_PARAMETERS = {
    "LeakyRelu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "Elu": ("alpha",),
    "ThresholdedRelu": ("alpha",),
}
"""Activations with parameters, in the order in which FusedConv lists them."""


def _float_type(node: onnx.NodeProto, graph: Graph) -> str | None:
    dtype = graph.dtype(node.input[0]) or graph.dtype(node.output[0])
    return dtype if dtype in FLOATS else None


def _named(build: Builder, value: str, out: str) -> list[onnx.NodeProto]:
    """The nodes, with *value* under the name *out*."""
    build.add("Identity", value, out=out)
    return build.nodes


# Activations


def _activated(build: Builder, node: onnx.NodeProto, value: str, numbers: Sequence[float], dtype: str) -> str:
    """*value* after the node's activation, whose parameters are *numbers*."""
    op = attribute(node, "activation", "")
    if not op:
        return value
    if op == "Clip":
        return build.add(op, value, *(build.constant(number, dtype) for number in numbers[:2]))
    names = _PARAMETERS.get(op, ())
    parameters: dict[str, Any] = dict(zip(names, numbers, strict=False))
    return build.add(op, value, **parameters)


def _gelu(build: Builder, value: str, dtype: str) -> str:
    """x/2 · (1 + erf(x/√2))."""
    inner = build.add("Erf", build.add("Mul", value, build.constant(1 / math.sqrt(2), dtype)))
    gate = build.add("Add", inner, build.constant(1, dtype))
    return build.add("Mul", build.add("Mul", value, build.constant(0.5, dtype)), gate)


def _fast_gelu(build: Builder, value: str, dtype: str) -> str:
    """x/2 · (1 + tanh(√(2/π) · (x + 0.044715·x³)))."""
    square = build.add("Mul", build.add("Mul", value, value), build.constant(0.044715, dtype))
    bracket = build.add("Mul", value, build.add("Add", square, build.constant(1, dtype)))
    inner = build.add("Tanh", build.add("Mul", bracket, build.constant(math.sqrt(2 / math.pi), dtype)))
    gate = build.add("Add", inner, build.constant(1, dtype))
    return build.add("Mul", build.add("Mul", value, build.constant(0.5, dtype)), gate)


def _biased_gelu(fast: bool) -> Apply:
    def apply(node: onnx.NodeProto, graph: Graph) -> list[onnx.NodeProto] | None:
        if (dtype := _float_type(node, graph)) is None:
            return None
        build = Builder(graph, node)
        bias = operand(node, 1)
        value = build.add("Add", node.input[0], bias) if bias else node.input[0]
        return _named(build, (_fast_gelu if fast else _gelu)(build, value, dtype), node.output[0])

    return apply


def _quick_gelu(node: onnx.NodeProto, graph: Graph) -> list[onnx.NodeProto] | None:
    if (dtype := _float_type(node, graph)) is None:
        return None
    build = Builder(graph, node)
    scaled = build.add("Mul", node.input[0], build.constant(attribute(node, "alpha", 1.702), dtype))
    build.add("Mul", node.input[0], build.add("Sigmoid", scaled), out=node.output[0])
    return build.nodes


# Products


def _fused_conv(node: onnx.NodeProto, graph: Graph) -> list[onnx.NodeProto] | None:
    """x, w, bias, a tensor to add before the activation."""
    dtype = _float_type(node, graph)
    if dtype is None:
        return None
    build = Builder(graph, node)
    inputs = [name for name in node.input[:3] if name]
    value = build.add("Conv", *inputs, **attributes(node, without=("activation", "activation_params")))
    if operand(node, 3):
        value = build.add("Add", value, node.input[3])
    value = _activated(build, node, value, attribute(node, "activation_params", []), dtype)
    return _named(build, value, node.output[0])


def _fused_gemm(node: onnx.NodeProto, graph: Graph) -> list[onnx.NodeProto] | None:
    dtype = _float_type(node, graph)
    if dtype is None:
        return None
    build = Builder(graph, node)
    parameters = ("activation_alpha", "activation_beta", "activation_gamma")
    value = build.add("Gemm", *node.input, **attributes(node, without=("activation", *parameters)))
    numbers = [number for name in parameters if (number := attribute(node, name)) is not None]
    return _named(build, _activated(build, node, value, numbers, dtype), node.output[0])


def _fused_matmul(node: onnx.NodeProto, graph: Graph) -> list[onnx.NodeProto] | None:
    """trans swaps an operand's last two axes, transBatch moves its first beyond the other batch axes."""
    dtype = _float_type(node, graph)
    build = Builder(graph, node)
    operands = []
    for name, side in zip(node.input, "AB", strict=True):
        shape = graph.shape(name)
        if shape is None or dtype is None:
            return None
        axes = list(range(len(shape)))
        if attribute(node, f"transBatch{side}", 0):
            axes = [*axes[1:-1], 0, axes[-1]]
        if attribute(node, f"trans{side}", 0) and len(shape) > 1:
            axes[-2:] = axes[:-3:-1]
        operands.append(name if axes == sorted(axes) else build.add("Transpose", name, perm=axes))
    product = build.add("MatMul", *operands)
    alpha = attribute(node, "alpha", 1.0)
    if alpha != 1 and dtype:
        product = build.add("Mul", product, build.constant(alpha, dtype))
    return _named(build, product, node.output[0])


def _nhwc_max_pool(node: onnx.NodeProto, graph: Graph) -> list[onnx.NodeProto] | None:
    build, rank = Builder(graph, node), len(attribute(node, "kernel_shape")) + 2
    value = build.add("MaxPool", build.channels_first(node.input[0], rank), **attributes(node))
    build.channels_last(value, rank, out=node.output[0])
    return build.nodes


# Normalization


def _skip_layer_norm(node: onnx.NodeProto, graph: Graph) -> list[onnx.NodeProto] | None:
    """x, skip, scale, [shift,] bias; the sum x + skip + bias is the fourth output."""
    dtype = _float_type(node, graph)
    if dtype is None:
        return None
    centred = node.op_type == "SkipLayerNormalization"
    shift, bias = (operand(node, 3), operand(node, 4)) if centred else ("", operand(node, 3))
    build = Builder(graph, node)
    total = build.add("Add", node.input[0], node.input[1])
    if bias:
        total = build.add("Add", total, bias)
    if len(node.output) > 3 and node.output[3]:
        total = build.add("Identity", total, out=node.output[3])
    epsilon = attribute(node, "epsilon", 1e-12 if centred else 1e-5)
    return normalized(
        build, total, dtype, epsilon, node.input[2], shift, axes=[-1], centred=centred, outs=outputs(node)
    )


def _embed_layer_norm(node: onnx.NodeProto, graph: Graph) -> list[onnx.NodeProto] | None:
    """ids, segments, table of words, of positions, of segments, scale, shift, mask, positions."""
    names = [operand(node, position) for position in range(9)]
    ids, segments, words, places, kinds, scale, shift, mask, positions = names
    shape, dtype, table = graph.shape(ids), graph.dtype(words), graph.shape(places)
    if shape is None or dtype not in FLOATS or table is None:
        return None
    build = Builder(graph, node)
    if positions:
        placed = build.add("Gather", places, positions)
    else:
        begin, end = (build.constant([value], "int64") for value in (0, shape[1]))
        placed = build.add("Slice", places, begin, end, begin)
    total = build.add("Add", build.add("Gather", words, ids), placed)
    if segments:
        total = build.add("Add", total, build.add("Gather", kinds, segments))
    outs = [*node.output, "", ""]
    if outs[1]:  # positions that the mask leaves
        if mask:
            build.reduced("ReduceSum", mask, [1], since=13, out=outs[1], keepdims=0)
        else:
            _named(build, build.constant([0] * shape[0], "int32"), outs[1])
    if outs[2]:
        total = build.add("Identity", total, out=outs[2])
    return normalized(
        build,
        total,
        dtype,
        attribute(node, "epsilon", 1e-12),
        scale,
        shift,
        axes=[-1],
        outs=(outs[0], "", ""),
    )


_GELU = "Erf, Mul, Add"
REWRITES = tuple(
    Rewrite(f"com.microsoft::{op}", into, NO_CONVERTER, apply)
    for op, (into, apply) in {
        "BiasGelu": ("Add, Erf, Mul", _biased_gelu(False)),
        "EmbedLayerNormalization": ("Gather, Add, ReduceMean, …", _embed_layer_norm),
        "FastGelu": ("Add, Tanh, Mul", _biased_gelu(True)),
        "FusedConv": ("Conv, Add and its activation", _fused_conv),
        "FusedGemm": ("Gemm and its activation", _fused_gemm),
        "FusedMatMul": ("Transpose, MatMul, Mul", _fused_matmul),
        "Gelu": ("Erf, Mul, Add", _biased_gelu(False)),
        "NhwcMaxPool": ("Transpose, MaxPool", _nhwc_max_pool),
        "QuickGelu": ("Sigmoid, Mul", _quick_gelu),
        "SkipLayerNormalization": ("Add, ReduceMean, …", _skip_layer_norm),
        "SkipSimplifiedLayerNormalization": ("Add, ReduceMean, …", _skip_layer_norm),
        "TransposeMatMul": ("Transpose, MatMul, Mul", _fused_matmul),
    }.items()
)
