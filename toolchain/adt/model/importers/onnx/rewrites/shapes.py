"""Operators that move or name values and compute nothing: shapes, padding, constants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adt.model.importers.onnx.graph import Builder, Graph, attribute
from adt.model.importers.onnx.rewrites.rewrite import Rewrite

if TYPE_CHECKING:
    import onnx


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
    Rewrite("Squeeze", "Reshape", "TVM ignores the attribute axes", _squeeze),
    Rewrite("Pad", "Pad of every axis", "TVM ignores the input axes", _pad),
    Rewrite("Constant", "Constant with a tensor", "TVM reads tensors only", _constant),
)
