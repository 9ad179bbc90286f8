"""Activations and limits, element by element; operators that move or name values and compute nothing."""

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


def _squeeze(node: onnx.NodeProto, graph: Graph) -> list[onnx.NodeProto] | None:
    """Before opset 13 the axes are an attribute, which TVM ignores: it squeezes every axis of 1."""
    axes, shape = attribute(node, "axes"), graph.shape(node.input[0])
    if axes is None or shape is None:
        return None
    gone = {axis % len(shape) for axis in axes}
    build = Builder(graph, node)
    kept = [extent for axis, extent in enumerate(shape) if axis not in gone]
    build.add("Reshape", node.input[0], build.constant(kept, "int64"), out=node.output[0])
    return build.nodes


def _pad(node: onnx.NodeProto, graph: Graph) -> list[onnx.NodeProto] | None:
    """From opset 18 Pad may name its axes, which TVM ignores."""
    if len(node.input) < 4 or not node.input[3]:
        return None
    shape, axes, pads = (
        graph.shape(node.input[0]),
        graph.constant(node.input[3]),
        graph.constant(node.input[1]),
    )
    if shape is None or axes is None or pads is None:
        return None
    full = [0] * (2 * len(shape))
    for position, axis in enumerate(axes.tolist()):
        full[axis % len(shape)] = int(pads[position])
        full[axis % len(shape) + len(shape)] = int(pads[position + len(axes)])
    build = Builder(graph, node)
    inputs = [node.input[0], build.constant(full, "int64"), *node.input[2:3]]
    build.add("Pad", *inputs, out=node.output[0], mode=attribute(node, "mode", "constant"))
    return build.nodes


def _constant(node: onnx.NodeProto, graph: Graph) -> list[onnx.NodeProto] | None:
    """TVM reads a Constant's ``value`` only, not ``value_float`` and the like."""
    import numpy as np
    from onnx import helper, numpy_helper

    kinds = {"value_float": "float32", "value_floats": "float32", "value_int": "int64", "value_ints": "int64"}
    found = node.attribute[0] if node.attribute else None
    if found is None or found.name not in kinds:
        return None
    value = np.asarray(helper.get_attribute_value(found), kinds[found.name])
    tensor = numpy_helper.from_array(value)
    return [helper.make_node("Constant", [], list(node.output), name=node.name, value=tensor)]


REWRITES = (
    Rewrite("Clip", "Max, Min", "TVM adds a choice on NaN that OpenCL textures cannot hold", _clip),
    Rewrite("HardSigmoid", "Mul, Add, Max, Min", "precision passes fail on its scalars", _hard_sigmoid),
    Rewrite("HardSwish", "Add, Max, Min, Mul", "precision passes fail on its scalars", _hard_swish),
    Rewrite("PRelu", "PRelu with a full slope; Max, Min, Mul, Add", "TVM refuses its slope's shape", _prelu),
    Rewrite("Squeeze", "Reshape", "TVM ignores the attribute axes", _squeeze),
    Rewrite("Pad", "Pad of every axis", "TVM ignores the input axes", _pad),
    Rewrite("Constant", "Constant with a tensor", "TVM reads tensors only", _constant),
)
