"""Quantized operators, with floating point between: dequantize, compute, quantize.

What onnxruntime fuses from such a graph is written apart again; TVM has converters for the
parts. Results may differ by one quantum where a value lies on the edge of two.

A quantized tensor is three inputs in a row: values, scale, zero point (which may be missing).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from adt.model.importers.onnx.graph import Builder, Graph, attribute, attributes, operand, type_number
from adt.model.importers.onnx.rewrites.layout import channels_first, channels_last
from adt.model.importers.onnx.rewrites.rewrite import NO_CONVERTER, Rewrite

if TYPE_CHECKING:
    import onnx

    from adt.model.importers.onnx.rewrites.rewrite import Apply


def scalar(build: Builder, name: str) -> str:
    """*name* as a scalar when it has one element: ONNX writes those as ``[1]``, too."""
    shape = build.graph.shape(name) if name else None
    if not shape or any(extent != 1 for extent in shape):
        return name
    value = build.graph.constant(name)
    if value is not None:
        return build.constant(value.item(), str(value.dtype))
    return build.reshaped(name, [])


def dequantized(build: Builder, values: str, scale: str, zero: str = "", axis: int = 0) -> str:
    """The numbers that quantized *values* stand for; *axis* is that of a scale with several elements."""
    half = build.graph.dtype(scale) == "float16"
    scale, zero = scalar(build, scale), scalar(build, zero)
    per_axis = build.graph.shape(scale) != ()
    scale = _single(build, scale, half)
    attributes: dict[str, Any] = {"axis": axis} if per_axis else {}
    return build.add("DequantizeLinear", values, scale, zero, **attributes)


def _single(build: Builder, scale: str, half: bool) -> str:
    """*scale* in single precision: what lies between is computed in it, or would be off by a quantum."""
    return build.add("Cast", scale, to=1) if half else scale


def _tensor(build: Builder, node: onnx.NodeProto, position: int, axis: int = 0) -> str:
    values, scale, zero = (operand(node, position + i) for i in range(3))
    return dequantized(build, values, scale, zero, axis)


def _quantize(build: Builder, node: onnx.NodeProto, position: int, value: str) -> list[onnx.NodeProto]:
    """Quantize *value* as the scale and zero point at *position* say: the node's output."""
    scale, zero = operand(node, position), scalar(build, operand(node, position + 1))
    scale = _single(build, scalar(build, scale), build.graph.dtype(scale) == "float16")
    build.add("QuantizeLinear", value, scale, zero, out=node.output[0])
    return build.nodes


def _as_float(
    plain: str, tensors: Sequence[int], out: int, *leading: int, without: Sequence[str] = ()
) -> Apply:
    """A rewrite to *plain* on floats.

    Args:
        tensors: positions of the quantized tensors.
        out: position of the output's scale.
        leading: positions of inputs that are no quantized tensors and come first.
        without: attributes that *plain* does not have.
    """

    def apply(node: onnx.NodeProto, graph: Graph) -> list[onnx.NodeProto] | None:
        build = Builder(graph, node)
        last = bool(attribute(node, "channels_last", 0))
        rank = len(attribute(node, "kernel_shape", [])) + 2  # of a pool
        if last and rank == 2:
            shape = graph.shape(node.input[tensors[0]])
            if shape is None:
                return None
            rank = len(shape)
        positions = tensors if plain != "Concat" else range(tensors[0], len(node.input), 3)
        values = [_tensor(build, node, position) for position in positions]
        if last:
            values = [channels_first(build, value, rank) for value in values]
        kept = attributes(node, without=("channels_last", *without))
        result = build.add(plain, *(node.input[position] for position in leading), *values, **kept)
        return _quantize(build, node, out, channels_last(build, result, rank) if last else result)

    return apply


def _softmax(node: onnx.NodeProto, graph: Graph) -> list[onnx.NodeProto] | None:
    flattens = attribute(node, "opset", 13) < 13  # all axes from this one on are one
    if flattens != (graph.opset < 13) and (axis := attribute(node, "axis", -1)) != -1:
        shape = graph.shape(node.input[0])
        if shape is None or axis != len(shape) - 1:
            return None
    return _as_float("Softmax", (0,), 3, without=("opset",))(node, graph)


def _qlinear_conv(node: onnx.NodeProto, graph: Graph) -> list[onnx.NodeProto] | None:
    """x, w, y's scale and zero point, bias in units of x_scale·w_scale."""
    import numpy as np

    x_scale, w_scale, bias = (graph.constant(operand(node, i)) for i in (1, 4, 8))
    weights = graph.constant(node.input[3])
    if x_scale is None or w_scale is None or weights is None or (operand(node, 8) and bias is None):
        return None
    build = Builder(graph, node)
    data = _tensor(build, node, 0)
    last, rank = bool(attribute(node, "channels_last", 0)), weights.ndim
    inputs = [channels_first(build, data, rank) if last else data, _tensor(build, node, 3)]
    if bias is not None:
        scale = x_scale.astype(np.float64).ravel() * w_scale.astype(np.float64).ravel()
        inputs.append(build.constant(bias.astype(np.float64) * scale, "float32"))
    result = build.add("Conv", *inputs, **attributes(node, without=("channels_last",)))
    return _quantize(build, node, 6, channels_last(build, result, rank) if last else result)


def _columns(build: Builder, node: onnx.NodeProto, position: int, axis: int) -> str | None:
    """A quantized operand of a product, whose scale may have one element for each place of *axis*."""
    scale, shape = (build.graph.shape(operand(node, position + i)) for i in (1, 0))
    if scale is not None and math.prod(scale) == 1:
        return _tensor(build, node, position)
    if scale is None or len(scale) != 1 or shape is None:
        return None
    return _tensor(build, node, position, len(shape) + axis)


def _qlinear_matmul(node: onnx.NodeProto, graph: Graph) -> list[onnx.NodeProto] | None:
    """a, b, y's scale and zero point."""
    build = Builder(graph, node)
    left, right = _columns(build, node, 0, -2), _columns(build, node, 3, -1)
    if left is None or right is None:
        return None
    return _quantize(build, node, 6, build.add("MatMul", left, right))


def _qgemm(node: onnx.NodeProto, graph: Graph) -> list[onnx.NodeProto] | None:
    """a, b, bias in units of alpha·a_scale·b_scale, y's scale and zero point; without those y is float32."""
    build = Builder(graph, node)
    left = _columns(build, node, 0, -2)
    right = _columns(build, node, 3, -2 if attribute(node, "transB", 0) else -1)
    if left is None or right is None:
        return None
    alpha = attribute(node, "alpha", 1.0)
    inputs = [left, right]
    if operand(node, 6):
        unit = build.add("Mul", node.input[1], node.input[4])
        whole = build.add("Cast", node.input[6], to=type_number("float32"))
        inputs.append(build.add("Mul", whole, build.add("Mul", unit, build.constant(alpha, "float32"))))
    result = build.add("Gemm", *inputs, **attributes(node))
    if operand(node, 7):
        return _quantize(build, node, 7, result)
    build.add("Identity", result, out=node.output[0])
    return build.nodes


_BETWEEN = "DequantizeLinear, {}, QuantizeLinear"
_MICROSOFT: dict[str, tuple[str, Apply]] = {
    "QLinearAdd": ("Add", _as_float("Add", (0, 3), 6)),
    "QLinearMul": ("Mul", _as_float("Mul", (0, 3), 6)),
    "QLinearLeakyRelu": ("LeakyRelu", _as_float("LeakyRelu", (0,), 3)),
    "QLinearSigmoid": ("Sigmoid", _as_float("Sigmoid", (0,), 3)),
    "QLinearSoftmax": ("Softmax", _softmax),
    "QLinearGlobalAveragePool": ("GlobalAveragePool", _as_float("GlobalAveragePool", (0,), 3)),
    "QLinearAveragePool": ("AveragePool", _as_float("AveragePool", (0,), 3)),
    "QLinearConcat": ("Concat", _as_float("Concat", (2,), 0)),
    "QLinearWhere": ("Where", _as_float("Where", (1, 4), 7, 0)),
    "QLinearConv": ("Conv", _qlinear_conv),
    "QGemm": ("Gemm", _qgemm),
}  # fmt: skip

REWRITES = (
    Rewrite("QLinearConv", _BETWEEN.format("Conv"), NO_CONVERTER, _qlinear_conv),
    Rewrite("QLinearMatMul", _BETWEEN.format("MatMul"), NO_CONVERTER, _qlinear_matmul),
    *(
        Rewrite(f"com.microsoft::{op}", _BETWEEN.format(plain), NO_CONVERTER, apply)
        for op, (plain, apply) in _MICROSOFT.items()
    ),
)
