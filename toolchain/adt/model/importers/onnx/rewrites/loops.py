"""Loops whose number of steps is known, written out step by step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from adt.model.importers.onnx.graph import Builder, Graph, attribute, operand, subgraphs
from adt.model.importers.onnx.rewrites.rewrite import NO_CONVERTER, Rewrite

if TYPE_CHECKING:
    import onnx

MOST_NODES = 8192
"""Nodes that a loop may become: all are compiled one by one."""


def _scan(node: onnx.NodeProto, graph: Graph) -> list[onnx.NodeProto] | None:
    """Its inputs are the states, then what it goes through; its outputs the states, then what it gathers."""
    body, count = attribute(node, "body"), attribute(node, "num_scan_inputs")
    states, sequences = list(node.input[: len(node.input) - count]), list(node.input[-count:])
    shapes = [graph.shape(name) for name in sequences]
    if graph.opset < 9 or any(not shape for shape in shapes):
        return None
    axes = attribute(node, "scan_input_axes", [0] * count)
    backwards = attribute(node, "scan_input_directions", [0] * count)
    steps = (shapes[0] or ())[axes[0]]
    if not 0 < steps * len(body.node) <= MOST_NODES or not _is_plain(body):
        return None
    build = Builder(graph, node)
    gathered = len(body.output) - len(states)
    rows: list[list[str]] = [[] for _ in range(gathered)]
    for step in range(steps):
        inputs = list(states)
        for name, axis, reverse in zip(sequences, axes, backwards, strict=True):
            place = build.constant(steps - 1 - step if reverse else step, "int64")
            inputs.append(build.add("Gather", name, place, axis=axis))
        outputs = _step(build, body, inputs)
        states = outputs[: len(states)]
        for row, name in zip(rows, outputs[len(states) :], strict=True):
            row.append(name)
    for index, reverse in enumerate(attribute(node, "scan_output_directions", [])):
        rows[index] = rows[index][::-1] if reverse else rows[index]
    return _finish(build, node, states, rows, attribute(node, "scan_output_axes", [0] * gathered))


def _loop(node: onnx.NodeProto, graph: Graph) -> list[onnx.NodeProto] | None:
    """Trip count, condition, states to states, what is gathered; the condition must stay true."""
    body = attribute(node, "body")
    count = graph.constant(operand(node, 0)) if operand(node, 0) else None
    start = graph.constant(operand(node, 1)) if operand(node, 1) else True
    if count is None or start is None or not bool(start) or not _goes_on(body) or not _is_plain(body):
        return None
    states = list(node.input[2:])
    gathered = len(body.output) - 1 - len(states)
    steps = int(count.item())
    if not 0 < steps * len(body.node) <= MOST_NODES:
        return None
    build = Builder(graph, node)
    rows: list[list[str]] = [[] for _ in range(gathered)]
    true = build.constant(True, "bool")
    for step in range(steps):
        outputs = _step(build, body, [build.constant(step, "int64"), true, *states])[1:]
        states = outputs[: len(states)]
        for row, name in zip(rows, outputs[len(states) :], strict=True):
            row.append(name)
    return _finish(build, node, states, rows, [0] * gathered)


def _is_plain(body: onnx.GraphProto) -> bool:
    return not any(True for node in body.node for _ in subgraphs(node))


def _goes_on(body: onnx.GraphProto) -> bool:
    """Whether the condition that *body* returns is the one that it gets, or true."""
    from onnx import numpy_helper

    name = body.output[0].name
    giver = next((node for node in body.node if name in node.output), None)
    while giver is not None and giver.op_type == "Identity":
        name = giver.input[0]
        giver = next((node for node in body.node if name in node.output), None)
    if giver is not None:
        return giver.op_type == "Constant" and bool(numpy_helper.to_array(attribute(giver, "value")))
    tensor = next((tensor for tensor in body.initializer if tensor.name == name), None)
    return name == body.input[1].name or (tensor is not None and bool(numpy_helper.to_array(tensor)))


def _step(build: Builder, body: onnx.GraphProto, inputs: Sequence[str]) -> list[str]:
    """Append the nodes of *body* for one step; the names of its outputs."""
    import onnx
    from onnx import numpy_helper

    names = {value.name: name for value, name in zip(body.input, inputs, strict=True)}
    for tensor in body.initializer:
        names[tensor.name] = build.graph.add_constant(tensor.name, numpy_helper.to_array(tensor))
    for node in body.node:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copy.name = build.graph.fresh(node.name or f"{build.stem}_{node.op_type}")
        del copy.input[:], copy.output[:]
        copy.input.extend(names.get(name, name) for name in node.input)
        for name in node.output:
            names[name] = build.graph.fresh(name) if name else ""
        copy.output.extend(names[name] for name in node.output)
        build.nodes.append(copy)
    return [names.get(value.name, value.name) for value in body.output]


def _finish(
    build: Builder,
    node: onnx.NodeProto,
    states: Sequence[str],
    rows: Sequence[Sequence[str]],
    axes: Sequence[int],
) -> list[onnx.NodeProto]:
    """Give the last states, and the rows stacked along a new axis, the names of *node*'s outputs."""
    gathered = []
    for names, axis in zip(rows, axes, strict=True):
        if build.graph.opset >= 13:
            along = build.constant([axis], "int64")
            wide = [build.add("Unsqueeze", name, along) for name in names]
        else:
            wide = [build.add("Unsqueeze", name, axes=[axis]) for name in names]
        gathered.append(build.add("Concat", *wide, axis=axis))
    for name, out in zip((*states, *gathered), node.output, strict=False):
        if out:
            build.add("Identity", name, out=out)
    return build.nodes


REWRITES = (
    Rewrite("Scan", "its body for each step", NO_CONVERTER, _scan),
    Rewrite("Loop", "its body for each step", NO_CONVERTER, _loop),
)
