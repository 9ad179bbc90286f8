"""Loops whose number of steps is known, written out step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy

import onnx
from onnx import numpy_helper

from adt.compiler.importers.onnx.graph import NO_CONVERTER, Builder, Rewrite, Uncovered, attribute, subgraphs

MOST_NODES = 8192  # nodes that a loop may become: all are compiled one by one


def _scan(build: Builder) -> list[str] | None:
    """Unroll Scan: states, then what it goes through, to states, then what it gathers."""
    body, count = build.attribute("body"), build.attribute("num_scan_inputs")
    states, sequences = list(build.node.input[:-count]), build.node.input[-count:]
    shapes = [build.shape(name) for name in sequences]
    if build.graph.opset < 9:
        raise Uncovered("it is of an opset before 9")
    axes = build.attribute("scan_input_axes", [0] * count)
    backwards = build.attribute("scan_input_directions", [0] * count)
    steps = shapes[0][axes[0]]
    _check_length(body, steps)

    def elements(step: int) -> list[str]:
        places = (build.integers(steps - 1 - step if reverse else step) for reverse in backwards)
        return [
            build.add("Gather", name, place, axis=axis)
            for name, place, axis in zip(sequences, places, axes, strict=True)
        ]

    states, rows = _unroll(build, body, states, steps, lambda step, states: [*states, *elements(step)])
    for index, reverse in enumerate(build.attribute("scan_output_directions", [])):
        rows[index] = rows[index][::-1] if reverse else rows[index]
    return [*states, *_stacked(build, rows, build.attribute("scan_output_axes", [0] * len(rows)))]


def _loop(build: Builder) -> list[str] | None:
    """Unroll Loop: trip count, condition, states to states, what is gathered; the condition stays true."""
    body = build.attribute("body")
    count, start = build.operands(2)
    steps = int(build.value(count).item()) if count else MOST_NODES + 1
    if (start and not build.value(start)) or not _stays_true(body):
        raise Uncovered("its condition may become false")
    _check_length(body, steps)
    true = build.constant(True, "bool")

    def inputs(step: int, states: list[str]) -> list[str]:
        return [build.integers(step), true, *states]

    states, rows = _unroll(build, body, list(build.node.input[2:]), steps, inputs, skipped=1)  # the condition
    return [*states, *_stacked(build, rows, [0] * len(rows))]


def _check_length(body: onnx.GraphProto, steps: int) -> None:
    """Raise :class:`Uncovered` unless *steps* of *body* can be written out."""
    if any(True for node in body.node for _ in subgraphs(node)):
        raise Uncovered("its body has graphs (If, Loop, Scan) in it")
    if not 0 < steps * len(body.node) <= MOST_NODES:
        raise Uncovered(f"{steps} steps of {len(body.node)} nodes are none, or more than {MOST_NODES}")


def _stays_true(body: onnx.GraphProto) -> bool:
    """Return True if the condition that *body* returns is the one that it gets, or true."""
    producers = {name: node for node in body.node for name in node.output}
    name = body.output[0].name
    while name in producers and producers[name].op_type == "Identity":
        name = producers[name].input[0]
    if producer := producers.get(name):
        return producer.op_type == "Constant" and bool(numpy_helper.to_array(attribute(producer, "value")))
    tensor = next((tensor for tensor in body.initializer if tensor.name == name), None)
    return name == body.input[1].name or (tensor is not None and bool(numpy_helper.to_array(tensor)))


def _unroll(
    build: Builder,
    body: onnx.GraphProto,
    states: list[str],
    steps: int,
    inputs: Callable[[int, list[str]], list[str]],
    skipped: int = 0,
) -> tuple[list[str], list[list[str]]]:
    """Return the states after all steps, and of each other output of *body* what the steps gave.

    *inputs* gives the inputs of *body* for a step; *skipped* outputs of *body* come before the states.
    """
    count = len(states)
    rows: list[list[str]] = [[] for _ in range(len(body.output) - skipped - count)]
    for step in range(steps):
        outputs = _step(build, body, inputs(step, states))[skipped:]
        states = outputs[:count]
        for row, name in zip(rows, outputs[count:], strict=True):
            row.append(name)
    return states, rows


def _step(build: Builder, body: onnx.GraphProto, inputs: Sequence[str]) -> list[str]:
    """Append the nodes of *body* for one step; the names of its outputs."""
    names = {value.name: name for value, name in zip(body.input, inputs, strict=True)}
    for tensor in body.initializer:
        names[tensor.name] = build.graph.add_constant(tensor.name, numpy_helper.to_array(tensor))
    for node in body.node:
        copy = deepcopy(node)
        copy.name = build.graph.fresh(node.name or f"{build.stem}_{node.op_type}")
        copy.input[:] = [names.get(name, name) for name in node.input]
        names |= {name: build.graph.fresh(name) if name else "" for name in node.output}
        copy.output[:] = [names[name] for name in node.output]
        build.nodes.append(copy)
    return [names.get(value.name, value.name) for value in body.output]


def _stacked(build: Builder, rows: Sequence[Sequence[str]], axes: Sequence[int]) -> list[str]:
    """Concatenate each of *rows* along a new axis."""
    stacks = []
    for names, axis in zip(rows, axes, strict=True):
        if build.graph.opset >= 13:
            along = build.integers([axis])
            wide = [build.add("Unsqueeze", name, along) for name in names]
        else:
            wide = [build.add("Unsqueeze", name, axes=[axis]) for name in names]
        stacks.append(build.add("Concat", *wide, axis=axis))
    return stacks


REWRITES = (
    Rewrite("Scan", "its body for each step", NO_CONVERTER, _scan),
    Rewrite("Loop", "its body for each step", NO_CONVERTER, _loop),
)
