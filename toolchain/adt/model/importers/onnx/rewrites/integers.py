"""Products of whole numbers, and of floats that are quantized at run time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from adt.model.importers.onnx.graph import Builder, Graph, attribute, attributes, operand, type_number
from adt.model.importers.onnx.rewrites.quantized import scalar
from adt.model.importers.onnx.rewrites.rewrite import NO_CONVERTER, Rewrite

if TYPE_CHECKING:
    import numpy as np
    import onnx
    from numpy.typing import NDArray


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
REWRITES = tuple(
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
