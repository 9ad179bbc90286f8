"""Quantized operators with integer arithmetic inside, written with floating point between.

``QLinearConv`` becomes dequantize, convolve, quantize: what onnxruntime fuses back, and
what TVM has converters for. Results may differ by one quantum where a value lies on the
edge of two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adt.model.importers.onnx.graph import Builder, Graph
from adt.model.importers.onnx.rewrites.rewrite import NO_CONVERTER, Rewrite

if TYPE_CHECKING:
    import onnx


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    from onnx import helper

    return {found.name: helper.get_attribute_value(found) for found in node.attribute}


def _qlinear_conv(node: onnx.NodeProto, graph: Graph) -> list[onnx.NodeProto] | None:
    """x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero[, bias in units of x_scale·w_scale]."""
    x, xs, xz, w, ws, wz, ys, yz, *rest = node.input
    weights, w_scale = graph.constant(w), graph.constant(ws)
    x_scale = graph.constant(xs)
    if weights is None or w_scale is None or x_scale is None:
        return None
    import numpy as np

    build = Builder(graph, node)
    data = build.add("DequantizeLinear", x, xs, xz)
    axis: dict[str, Any] = {"axis": 0} if w_scale.size > 1 else {}
    inputs = [data, build.add("DequantizeLinear", w, ws, wz, **axis)]
    if rest and rest[0]:
        bias = graph.constant(rest[0])
        if bias is None:
            return None
        scale = x_scale.astype(np.float64).ravel() * w_scale.astype(np.float64).ravel()
        inputs.append(build.constant(bias.astype(np.float64) * scale, "float32"))
    result = build.add("Conv", *inputs, **_attributes(node))
    build.add("QuantizeLinear", result, ys, yz, out=node.output[0])
    return build.nodes


def _qlinear_matmul(node: onnx.NodeProto, graph: Graph) -> list[onnx.NodeProto] | None:
    """a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero."""
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = node.input
    scales = [graph.constant(a_scale), graph.constant(b_scale)]
    if any(scale is None or scale.size > 1 for scale in scales):
        return None
    build = Builder(graph, node)
    left = build.add("DequantizeLinear", a, a_scale, a_zero)
    right = build.add("DequantizeLinear", b, b_scale, b_zero)
    build.add("QuantizeLinear", build.add("MatMul", left, right), y_scale, y_zero, out=node.output[0])
    return build.nodes


def _conv_integer(node: onnx.NodeProto, graph: Graph) -> list[onnx.NodeProto] | None:
    """The sums are whole numbers that float32 holds exactly up to 2^24."""
    from onnx import TensorProto

    build = Builder(graph, node)
    inputs = []
    for position, name in enumerate(node.input[:2]):
        value = build.add("Cast", name, to=TensorProto.FLOAT)
        zero = node.input[position + 2] if len(node.input) > position + 2 else ""
        if zero:
            zero_value = graph.constant(zero)
            if zero_value is None or zero_value.size > 1:
                return None
            value = build.add("Sub", value, build.constant(float(zero_value.item()), "float32"))
        inputs.append(value)
    result = build.add("Conv", *inputs, **_attributes(node))
    build.add("Cast", result, out=node.output[0], to=TensorProto.INT32)
    return build.nodes


REWRITES = (
    Rewrite("QLinearConv", "DequantizeLinear, Conv, QuantizeLinear", NO_CONVERTER, _qlinear_conv),
    Rewrite("QLinearMatMul", "DequantizeLinear, MatMul, QuantizeLinear", NO_CONVERTER, _qlinear_matmul),
    Rewrite("ConvInteger", "Conv in float32", NO_CONVERTER, _conv_integer),
)
