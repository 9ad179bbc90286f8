"""Models of old opsets in newer operators, and nodes whose extents ONNX infers wrongly in other forms."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, version_converter

from adt.compiler.importers.onnx.graph import Builder, Graph, all_nodes, attribute, node_name, operand

POOLS = ("AveragePool", "LpPool", "MaxPool")


def upgraded(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """Bring a *model* of before opset 11 to *opset*.

    ONNX's converter gives Upsample and Resize the coordinates of opset 11; theirs are asymmetric.
    """
    result = version_converter.convert_version(model, opset)
    result.ir_version = max(4, result.ir_version)  # before, only inputs could be constants
    for node in [node for node in all_nodes(result.graph) if node.op_type == "Resize"]:
        node.attribute.append(helper.make_attribute("coordinate_transformation_mode", "asymmetric"))
        node.attribute.append(helper.make_attribute("nearest_mode", "floor"))
    _shrink_upwards(result)
    return result


def _shrink_upwards(model: onnx.ModelProto) -> None:
    """Round nearest pixels up along axes that a Resize shortens, as onnxruntime does before opset 11."""
    graph = Graph(model, model.graph)
    for node in list(model.graph.node):
        scales: Any = graph.constant(operand(node, 2)) if node.op_type == "Resize" else None
        if scales is not None and attribute(node, "mode", "nearest") == "nearest" and (scales < 1).any():
            second = _split(graph, node, scales >= 1)
            next(each for each in second.attribute if each.name == "nearest_mode").s = b"ceil"


def correct_windows(graph: Graph) -> bool:
    """Write out the padding of the first pool with a window that begins behind the data; False if none has.

    ONNX's inference counts it, onnxruntime and PyTorch leave it out.
    """
    for node in graph.graph.node:
        shape = graph.shape(operand(node, 0)) if attribute(node, "ceil_mode", 0) else None
        if node.op_type not in POOLS or shape is None or attribute(node, "auto_pad", "NOTSET") != "NOTSET":
            continue
        rank, kernel = len(shape) - 2, attribute(node, "kernel_shape")
        strides, dilations = (attribute(node, name, [1] * rank) for name in ("strides", "dilations"))
        pads, behind = attribute(node, "pads", [0] * (2 * rank)), list[int]()
        drops = False
        for axis, extent in enumerate(shape[2:]):
            reach, padded = (kernel[axis] - 1) * dilations[axis] + 1, extent + pads[axis]
            last = -(-(padded + pads[axis + rank] - reach) // strides[axis]) * strides[axis]
            drops |= last >= padded
            behind.append(max(pads[axis + rank], last + reach - padded if last < padded else 0))
        if drops:
            _pad_explicitly(graph, node, pads, behind)
            return True
    return False


def _pad_explicitly(graph: Graph, node: onnx.NodeProto, pads: list[int], behind: list[int]) -> None:
    """Give the pool *node* the padding *behind* instead of ``ceil_mode``.

    What that adds to its *pads* counts in no mean; where these do, they become part of the data.
    """
    build, nodes = Builder(graph, node), list(graph.graph.node)
    data, before, after = build.operand(0), pads[: len(behind)], pads[len(behind) :]
    options = build.attributes(without=("ceil_mode", "pads"))
    if options.pop("count_include_pad", 0):
        data = build.add("Pad", data, build.integers([0, 0, *before, 0, 0, *after]))
        before, behind = [0] * len(before), [wide - given for wide, given in zip(behind, after, strict=True)]
    options["pads"] = [*before, *behind]
    results = build.add_many(node.op_type, data, outputs=["pooled"] * len(node.output), **options)
    nodes[nodes.index(node) : nodes.index(node) + 1] = build.finish(results)
    nodes = list(map(deepcopy, nodes))  # clearing the field empties those that are in it
    graph.graph.ClearField("node")
    graph.graph.node.extend(nodes)


def correct_extents(graph: Graph) -> bool:
    """Give extents to the first Resize whose float32 scales make others than ONNX infers, if there is one."""
    for node in graph.graph.node:
        scales: Any = graph.constant(operand(node, 2)) if node.op_type == "Resize" else None
        shape = graph.shape(operand(node, 0))
        if scales is None or shape is None or len(scales) != len(shape):
            continue
        extents = (np.asarray(shape, np.float32) * scales).astype(np.int64)
        other = extents != np.floor(np.multiply(shape, scales, dtype=np.float64))
        if other.any() and attribute(node, "coordinate_transformation_mode") != "tf_crop_and_resize":
            _split(graph, node, other)
            node.input[2] = graph.add_constant("scales", np.zeros(0, np.float32))
            node.input.append(graph.add_constant("sizes", np.where(other, extents, shape)))
            return True
    return False


def _split(graph: Graph, node: onnx.NodeProto, axes: NDArray[np.bool_]) -> onnx.NodeProto:
    """Leave the Resize *node* its *axes*; returns a new one after it, of the others."""
    one = np.float32(1)
    scales: Any = graph.constant(operand(node, 2))
    second = deepcopy(node)
    node.output[0] = second.input[0] = graph.fresh(f"{node.output[0]}_resized")
    second.name = graph.fresh(f"{node_name(node)}_resized")
    for half, own in ((node, axes), (second, ~axes)):
        half.input[2] = graph.add_constant("scales", np.where(own, scales, one))
    place = list(graph.graph.node).index(node) + 1
    graph.graph.node.insert(place, second)
    return graph.graph.node[place]
