"""The code generator for XNNPACK: graphs that ``cmake_presets/src/xnnpack_runtime.cc`` reads.

Each match of a pattern becomes one node of TVM's JSON graph: ``xnnpack.conv2d``, ``dense``, ``add``,
``max_pool2d``, ``avg_pool2d``, ``mean``, ``reshape`` or ``convert``, with ``min`` and ``max`` of an
activation. A node whose values are integers has ``scale`` (one, or one for each channel of weights) and
``zero_point``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tvm import relax

from adt.compiler.ir.nodes import operator_name
from adt.compiler.passes.offload import json_graph
from adt.errors import ModelError

CORES = {
    "relax.nn.conv2d": "conv2d",
    "relax.matmul": "dense",
    "relax.nn.max_pool2d": "max_pool2d",
    "relax.nn.avg_pool2d": "avg_pool2d",
    "relax.mean": "mean",
    "relax.reshape": "reshape",
    "relax.add": "add",
}
"""Main operators of matches."""
LAYERS = {"conv2d": 0, "dense": 1}
"""Operators with weights, and the dimension of their weights that is the channels."""
ATTRIBUTES = {
    "conv2d": ("strides", "padding", "dilation"),
    "max_pool2d": ("pool_size", "strides", "padding", "dilation"),
    "avg_pool2d": ("pool_size", "strides", "padding"),
}


def write_graph(function: relax.Function, names: Mapping[relax.Constant, str]) -> tuple[str, list[str]]:
    """Write the graph of *function*, whose constants have *names*, as JSON, and list them."""
    graph = _Graph(names)
    return graph.text(function), graph.constants


@dataclass(frozen=True)
class _Value:
    """A tensor inside a match."""

    node: int = -1
    """Index of the node that computes it; -1: a constant, …"""
    constant: Any = None  # content of that constant
    scale: tuple[float, ...] = ()  # scale of integers
    zero_point: int = 0


class _Graph:
    """One subgraph while it is written."""

    def __init__(self, names: Mapping[Any, Any]) -> None:
        self.names = names
        self.nodes: list[dict[str, Any]] = []
        self.arguments: list[int] = []
        self.constants: list[str] = []

    def text(self, function: relax.Function) -> str:
        """Write the graph of *function* as JSON."""
        values: dict[Any, int] = {}
        matches: dict[Any, Any] = {}
        for parameter in function.params:
            values[parameter] = self._add("input", str(parameter.name_hint), parameter.struct_info)
            self.arguments.append(values[parameter])
        for block in function.body.blocks:
            for binding in block.bindings:
                value = binding.value
                if isinstance(value, relax.Function):
                    matches[binding.var] = value
                elif isinstance(value, relax.Call):
                    operands = [values[argument] for argument in value.args]
                    values[binding.var] = self._kernel(matches[value.op], operands)
                elif isinstance(value, relax.Var):
                    values[binding.var] = values[value]
        results = function.body.body
        heads = results.fields if isinstance(results, relax.Tuple) else [results]
        return json_graph.graph_text(self.nodes, self.arguments, [values[head] for head in heads])

    def _add(self, kind: str, name: str, info: relax.TensorStructInfo, **attributes: Any) -> int:
        self.nodes.append(json_graph.node(kind, name, info, **attributes))
        return len(self.nodes) - 1

    def _kernel(self, match: relax.Function, operands: Sequence[int]) -> int:
        """Add the node for one call of *match*, a function whose weights are inside."""
        values = {parameter: _Value(node) for parameter, node in zip(match.params, operands, strict=True)}
        calls = [binding for block in match.body.blocks for binding in block.bindings]
        kind = ""
        attributes: dict[str, Any] = {}
        inputs: Sequence[_Value] = ()
        quantization = _Value()
        for binding in calls:
            call = binding.value
            if isinstance(call, relax.Var):
                values[binding.var] = values[call]
                continue
            name = operator_name(call)
            arguments = [
                _Value(constant=argument) if isinstance(argument, relax.Constant) else values[argument]
                for argument in call.args
                if isinstance(argument, (relax.Constant, relax.Var))
            ]
            first = result = arguments[0]
            if name == "relax.dequantize":
                result = _integers(first, arguments)
            elif name == "relax.quantize":
                quantization = _integers(_Value(), arguments)
            elif name == "relax.reshape" and first.constant is not None:
                pass  # of a bias
            elif kind and name == "relax.add":
                inputs = [*inputs, arguments[1]]
            elif name in CORES:
                kind = CORES[name]
                inputs = arguments
                attributes = {
                    key: [int(number) for number in getattr(call.attrs, key)]
                    for key in ATTRIBUTES.get(kind, ())
                }
                if kind == "conv2d":
                    attributes["groups"] = int(call.attrs.groups)
            else:
                attributes |= _bounds(name, call, arguments)
            values[binding.var] = result
        if not kind:  # a conversion alone
            kind, inputs = "convert", [values[calls[-1].var]]
        channels = inputs[1].constant.struct_info.shape[LAYERS[kind]] if kind in LAYERS else 0
        numbers = [self._input(value, int(channels)) for value in inputs]
        node = self._add("kernel", f"xnnpack.{kind}", match.ret_struct_info, **attributes)
        json_graph.feed(self.nodes[node], numbers)
        if quantization.scale:
            self._quantize(node, quantization)
        return node

    def _input(self, value: _Value, channels: int) -> int:
        """Return an operand's node; constants become nodes, with a scale for each of *channels*."""
        node = value.node
        if value.constant is not None:
            node = self._add("const", str(self.names[value.constant]), value.constant.struct_info)
            self.arguments.append(node)
            self.constants.append(str(self.names[value.constant]))
            if len(value.scale) == 1:
                value = replace(value, scale=value.scale * channels)
        if value.scale:
            self._quantize(node, value)
        return node

    def _quantize(self, node: int, value: _Value) -> None:
        """Say what the integers of *node* mean."""
        attributes = self.nodes[node]["attrs"]
        meaning = {"scale": list(value.scale), "zero_point": value.zero_point}
        if any(attributes.setdefault(key, meaning[key]) != meaning[key] for key in meaning):
            raise ModelError(
                "a tensor of integers is read with another scale than it was written with, which XNNPACK "
                "does not do",
                remedy="Compile without --offload, or quantize the model again.",
            )


def _integers(value: _Value, arguments: Sequence[_Value]) -> _Value:
    """Give *value* scale and zero point: the second and third of a quantization's *arguments*."""
    scale, zero_point = (argument.constant.data.numpy().ravel() for argument in arguments[1:3])
    return replace(value, scale=tuple(map(float, scale)), zero_point=int(zero_point[0]))


def _bounds(name: str, call: relax.Call, arguments: Sequence[_Value]) -> dict[str, float]:
    """Return the bounds that an activation sets a result."""
    if name == "relax.nn.relu":
        return {"min": 0.0}
    if name == "relax.clip":
        return {"min": float(call.args[1].value), "max": float(call.args[2].value)}
    bound = float(np.ravel(arguments[1].constant.data.numpy())[0])
    return {"min" if name == "relax.maximum" else "max": bound}
