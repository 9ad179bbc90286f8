"""Quantized operators, with floats between (dequantize, compute, quantize), and whole-number products.

What onnxruntime fuses from such a graph is written apart again; TVM has converters for the
parts. Results may differ by one quantum where a value lies on the edge of two.

A quantized tensor is three inputs in a row: values, scale, zero point (which may be missing).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from adt.model.importers.onnx.graph import (
    Builder,
    Graph,
    attribute,
    attributes,
    operand,
    type_name,
    type_number,
)
from adt.model.importers.onnx.rewrites.rewrite import NO_CONVERTER, Rewrite

if TYPE_CHECKING:
    import numpy as np
    import onnx
    from numpy.typing import NDArray

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
            values = [build.channels_first(value, rank) for value in values]
        kept = attributes(node, without=("channels_last", *without))
        result = build.add(plain, *(node.input[position] for position in leading), *values, **kept)
        return _quantize(build, node, out, build.channels_last(result, rank) if last else result)

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
    inputs = [build.channels_first(data, rank) if last else data, _tensor(build, node, 3)]
    if bias is not None:
        scale = x_scale.astype(np.float64).ravel() * w_scale.astype(np.float64).ravel()
        inputs.append(build.constant(bias.astype(np.float64) * scale, "float32"))
    result = build.add("Conv", *inputs, **attributes(node, without=("channels_last",)))
    return _quantize(build, node, 6, build.channels_last(result, rank) if last else result)


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

_QLINEAR_REWRITES = (
    Rewrite("QLinearConv", _BETWEEN.format("Conv"), NO_CONVERTER, _qlinear_conv),
    Rewrite("QLinearMatMul", _BETWEEN.format("MatMul"), NO_CONVERTER, _qlinear_matmul),
    *(
        Rewrite(f"com.microsoft::{op}", _BETWEEN.format(plain), NO_CONVERTER, apply)
        for op, (plain, apply) in _MICROSOFT.items()
    ),
)


RANGES = {"uint8": (0, 255), "int8": (-128, 127), "uint16": (0, 65535), "int16": (-32768, 32767)}
"""Least and greatest value of the types that QuantizeLinear writes."""


def _spread(build: Builder, name: str, shape: Sequence[int], axis: int, block: int) -> str:
    """A scale or zero point, one for each place or block of *axis*, as it broadcasts to *shape*."""
    extents = build.graph.shape(name)
    assert extents is not None
    axis %= len(shape)
    if len(extents) == 1:
        return build.reshaped(name, [shape[i] if i == axis else 1 for i in range(len(shape))])
    apart = build.reshaped(name, [*extents[: axis + 1], 1, *extents[axis + 1 :]])
    wide = build.constant([*extents[: axis + 1], block, *extents[axis + 1 :]], "int64")
    places = extents[axis] * block
    joined = build.reshaped(build.add("Expand", apart, wide), [*extents[:axis], places, *extents[axis + 1 :]])
    if places == shape[axis]:
        return joined
    return build.add("Slice", joined, *(build.constant([value], "int64") for value in (0, shape[axis], axis)))


def _linear(node: onnx.NodeProto, graph: Graph) -> list[onnx.NodeProto] | None:
    """The same with a scalar instead of ``[1]``, or by arithmetic, where TVM's converter needs that."""
    shape, extents = graph.shape(node.input[0]), graph.shape(node.input[1])
    if shape is None or extents is None:
        return None
    taken = len(extents) <= 1 and shape != () and not node.domain
    if taken and extents != (1,):
        return None
    build = Builder(graph, node)
    if taken:
        scale, zero = scalar(build, node.input[1]), scalar(build, operand(node, 2))
        build.add(node.op_type, node.input[0], scale, zero, out=node.output[0], **attributes(node))
        return build.nodes
    axis, block = attribute(node, "axis", 1), attribute(node, "block_size", 0)
    scale, zero = (
        name if graph.shape(name) == () or not name else _spread(build, name, shape, axis, block)
        for name in (scalar(build, node.input[1]), scalar(build, operand(node, 2)))
    )
    written = _dequantized if node.op_type == "DequantizeLinear" else _quantized
    return written(build, node, scale, zero)


def _dequantized(build: Builder, node: onnx.NodeProto, scale: str, zero: str) -> list[onnx.NodeProto] | None:
    """(x − zero) · scale."""
    dtype = build.graph.dtype(node.input[1])
    if dtype is None:
        return None
    value = build.add("Cast", node.input[0], to=type_number(dtype))
    if zero:
        value = build.add("Sub", value, build.add("Cast", zero, to=type_number(dtype)))
    build.add("Mul", value, scale, out=node.output[0])
    return build.nodes


def _quantized(build: Builder, node: onnx.NodeProto, scale: str, zero: str) -> list[onnx.NodeProto] | None:
    """round(x / scale) + zero, within the type."""
    graph, number = build.graph, attribute(node, "output_dtype", 0) or type_number("uint8")
    dtype, kind = graph.dtype(node.input[0]), graph.dtype(operand(node, 2)) if zero else type_name(number)
    if dtype is None or kind not in RANGES:
        return None
    value = build.add("Round", build.add("Div", node.input[0], scale))
    if zero:
        value = build.add("Add", value, build.add("Cast", zero, to=type_number(dtype)))
    least, greatest = (build.constant(limit, dtype) for limit in RANGES[kind])
    limited = build.add("Min", build.add("Max", value, least), greatest)
    build.add("Cast", limited, out=node.output[0], to=type_number(kind))
    return build.nodes


_WHY = "TVM takes scalar scales or those of one axis, of tensors"
_LINEAR_REWRITES = tuple(
    Rewrite(f"{domain}{op}", into, _WHY, _linear)
    for domain in ("", "com.microsoft::")
    for op, into in (
        ("DequantizeLinear", "Cast, Sub, Mul"),
        ("QuantizeLinear", "Div, Round, Add, Max, Min, Cast"),
    )
)


def _conv_integer(node: onnx.NodeProto, graph: Graph) -> list[onnx.NodeProto] | None:
    """The sums are whole numbers that float32 holds exactly up to 2^24."""
    shape = graph.shape(node.input[1])
    if shape is None:
        return None
    build = Builder(graph, node)
    inputs = []
    for position, name in enumerate(node.input[:2]):
        value = build.add("Cast", name, to=type_number("float32"))
        if zero := scalar(build, operand(node, position + 2)):
            zero = build.add("Cast", zero, to=type_number("float32"))
            if graph.shape(operand(node, position + 2)) == shape[:1] != (1,):  # one for each filter
                zero = build.reshaped(zero, [shape[0], *[1] * (len(shape) - 1)])
            value = build.add("Sub", value, zero)
        inputs.append(value)
    result = build.add("Conv", *inputs, **attributes(node))
    build.add("Cast", result, out=node.output[0], to=type_number("int32"))
    return build.nodes


def _integers_to_float(
    build: Builder, node: onnx.NodeProto, integers: Sequence[str], scale: str, bias: str
) -> list[onnx.NodeProto]:
    """The product of *integers* (a, b and their zero points) in units of *scale*, plus *bias*."""
    product = build.add("Cast", build.add("MatMulInteger", *integers), to=type_number("float32"))
    out = node.output[0]
    scaled = build.add("Mul", product, scale, out=None if bias else out)
    if bias:
        build.add("Add", scaled, bias, out=out)
    return build.nodes


def _matmul_integer_to_float(node: onnx.NodeProto, graph: Graph) -> list[onnx.NodeProto] | None:
    """a, b, a_scale, b_scale, a_zero, b_zero, bias."""
    build = Builder(graph, node)
    scale = build.add("Mul", node.input[2], node.input[3])
    integers = [*node.input[:2], *(scalar(build, operand(node, i)) for i in (4, 5))]
    return _integers_to_float(build, node, integers, scale, operand(node, 6))


def _dynamic_quantize_matmul(node: onnx.NodeProto, graph: Graph) -> list[onnx.NodeProto] | None:
    """a (of floats), b, b_scale, b_zero, bias."""
    build = Builder(graph, node)
    a, a_scale, a_zero = quantized_at_run_time(build, node.input[0])
    scale = build.add("Mul", a_scale, node.input[2])
    integers = [a, node.input[1], a_zero, scalar(build, operand(node, 3))]
    return _integers_to_float(build, node, integers, scale, operand(node, 4))


def quantized_at_run_time(build: Builder, value: str) -> list[str]:
    """*value* as uint8, its scale and its zero point."""
    outs = [build.graph.fresh(f"{build.stem}_{part}") for part in ("values", "scale", "zero")]
    return build.add_many("DynamicQuantizeLinear", value, outs=outs)


def _matmul_n_bits(node: onnx.NodeProto, graph: Graph) -> list[onnx.NodeProto] | None:
    """a, b [N, blocks, bytes], scales, zero points, order of the groups, bias; b becomes floats."""
    packed, scales = graph.constant(node.input[1]), graph.constant(node.input[2])
    zeros, dtype = graph.constant(operand(node, 3)), graph.dtype(node.input[2])
    bits, k, n = (attribute(node, name) for name in ("bits", "K", "N"))
    open_zeros = operand(node, 3) and zeros is None
    if packed is None or scales is None or open_zeros or operand(node, 4) or not dtype:
        return None
    import numpy as np

    blocks = -(-k // attribute(node, "block_size"))
    values = _unpacked(packed.reshape(n, blocks, -1), bits).astype("float32")
    zero = np.full((n, blocks), 2 ** (bits - 1), "float32")
    if zeros is not None:
        if zeros.dtype == np.uint8:
            zeros = _unpacked(zeros.reshape(n, -1), bits)[:, :blocks]
        zero = zeros.reshape(n, blocks).astype("float32")
    table = (values - zero[..., None]) * scales.reshape(n, blocks, 1)
    build = Builder(graph, node)
    weights = build.constant(table.reshape(n, -1)[:, :k].T, dtype)
    bias = operand(node, 5)
    product = build.add("MatMul", node.input[0], weights, out=None if bias else node.output[0])
    if bias:
        build.add("Add", product, bias, out=node.output[0])
    return build.nodes


def _unpacked(values: NDArray[np.generic], bits: int) -> NDArray[np.generic]:
    """Whole numbers of *bits* bits out of bytes, along the last axis, the lowest bits first."""
    import numpy as np

    parts = np.asarray(values, np.uint8)[..., None] >> np.arange(0, 8, bits, dtype=np.uint8)
    whole: NDArray[np.generic] = parts & (2**bits - 1)
    return whole.reshape(*values.shape[:-1], -1)


_PRODUCT = "MatMulInteger, Cast, Mul, Add"
_INTEGER_REWRITES = tuple(
    Rewrite(op, into, NO_CONVERTER, apply)
    for op, into, apply in (
        ("com.microsoft::MatMulNBits", "MatMul with weights of floats", _matmul_n_bits),
        ("ConvInteger", "Conv in float32", _conv_integer),
        ("com.microsoft::MatMulIntegerToFloat", _PRODUCT, _matmul_integer_to_float),
        (
            "com.microsoft::DynamicQuantizeMatMul",
            f"DynamicQuantizeLinear, {_PRODUCT}",
            _dynamic_quantize_matmul,
        ),
    )
)

REWRITES = (*_QLINEAR_REWRITES, *_LINEAR_REWRITES, *_INTEGER_REWRITES)
