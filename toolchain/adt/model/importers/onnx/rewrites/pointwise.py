"""Activations and limits, element by element."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adt.model.importers.onnx.graph import Builder, Graph, attribute
from adt.model.importers.onnx.rewrites.rewrite import FLOATS, Rewrite

if TYPE_CHECKING:
    import onnx


def _clip(node: onnx.NodeProto, graph: Graph) -> list[onnx.NodeProto] | None:
    dtype = graph.dtype(node.input[0]) or graph.dtype(node.output[0])
    if dtype is None:
        return None
    build = Builder(graph, node)
    limits: dict[str, str] = {}
    for position, (op, name) in enumerate((("Max", "min"), ("Min", "max")), start=1):
        if len(node.input) > position and node.input[position]:
            limits[op] = node.input[position]
        elif (value := attribute(node, name)) is not None:
            limits[op] = build.constant(value, dtype)
    value = node.input[0]
    for number, (op, limit) in enumerate(limits.items(), start=1):
        value = build.add(op, value, limit, out=node.output[0] if number == len(limits) else None)
    if not limits:
        build.add("Identity", value, out=node.output[0])
    return build.nodes


def _hard_sigmoid(node: onnx.NodeProto, graph: Graph) -> list[onnx.NodeProto] | None:
    dtype = graph.dtype(node.input[0]) or graph.dtype(node.output[0])
    if dtype not in FLOATS:
        return None
    build = Builder(graph, node)
    slope, offset = attribute(node, "alpha", 0.2), attribute(node, "beta", 0.5)
    scaled = build.add("Mul", node.input[0], build.constant(slope, dtype))
    moved = build.add("Add", scaled, build.constant(offset, dtype))
    low = build.add("Max", moved, build.constant(0, dtype))
    build.add("Min", low, build.constant(1, dtype), out=node.output[0])
    return build.nodes


def _hard_swish(node: onnx.NodeProto, graph: Graph) -> list[onnx.NodeProto] | None:
    dtype = graph.dtype(node.input[0]) or graph.dtype(node.output[0])
    if dtype not in FLOATS:
        return None
    build = Builder(graph, node)
    moved = build.add("Add", node.input[0], build.constant(3, dtype))
    low = build.add("Max", moved, build.constant(0, dtype))
    high = build.add("Min", low, build.constant(6, dtype))
    gate = build.add("Mul", high, build.constant(1 / 6, dtype))
    build.add("Mul", node.input[0], gate, out=node.output[0])
    return build.nodes


def _prelu(node: onnx.NodeProto, graph: Graph) -> list[onnx.NodeProto] | None:
    """TVM takes a slope of one axis or of full rank with one axis; exporters write ``[C, 1, 1]``."""
    data, slope = graph.shape(node.input[0]), graph.shape(node.input[1])
    dtype = graph.dtype(node.input[0]) or graph.dtype(node.output[0])
    if data is None or slope is None or dtype is None:
        return None
    axes = [axis for axis, extent in enumerate(slope) if extent != 1]
    if len(axes) == 1 and len(slope) in (1, len(data)):
        return None
    build = Builder(graph, node)
    value = graph.constant(node.input[1])
    if len(axes) == 1 and value is not None:
        full = value.reshape((1,) * (len(data) - len(slope)) + slope)
        name = graph.add_constant(f"{node.input[1]}_full", full)
        build.add("PRelu", node.input[0], name, out=node.output[0])
        return build.nodes
    zero = build.constant(0, dtype)
    above = build.add("Max", node.input[0], zero)
    below = build.add("Min", node.input[0], zero)
    build.add("Add", above, build.add("Mul", below, node.input[1]), out=node.output[0])
    return build.nodes


REWRITES = (
    Rewrite("Clip", "Max, Min", "TVM adds a choice on NaN that OpenCL textures cannot hold", _clip),
    Rewrite("HardSigmoid", "Mul, Add, Max, Min", "precision passes fail on its scalars", _hard_sigmoid),
    Rewrite("HardSwish", "Add, Max, Min, Mul", "precision passes fail on its scalars", _hard_swish),
    Rewrite("PRelu", "PRelu with a full slope; Max, Min, Mul, Add", "TVM refuses its slope's shape", _prelu),
)
