"""QuantizeLinear and DequantizeLinear that TVM does not take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from adt.model.importers.onnx.graph import (
    Builder,
    Graph,
    attribute,
    attributes,
    operand,
    type_name,
    type_number,
)
from adt.model.importers.onnx.rewrites.quantized import scalar
from adt.model.importers.onnx.rewrites.rewrite import Rewrite

if TYPE_CHECKING:
    import onnx

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
REWRITES = tuple(
    Rewrite(f"{domain}{op}", into, _WHY, _linear)
    for domain in ("", "com.microsoft::")
    for op, into in (
        ("DequantizeLinear", "Cast, Sub, Mul"),
        ("QuantizeLinear", "Div, Round, Add, Max, Min, Cast"),
    )
)
