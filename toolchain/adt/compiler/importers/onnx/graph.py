"""An ONNX graph while it is rewritten: shapes, constants, fresh names, nodes replaced by others."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from adt.numerics import Array

_INTEGERS = tuple(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64))
COMPUTED = frozenset(("bool", *_INTEGERS, "float16", "float32", "float64"))
"""Element types that kernels have on every target."""
FLOATS = ("float16", "float32", "float64")


class Uncovered(Exception):
    """Reason why a node cannot be written with other nodes."""


class Graph:
    """A model, or a branch of an If in it, with what shape inference and constants tell of its tensors."""

    def __init__(self, model: onnx.ModelProto, graph: onnx.GraphProto, outer: Graph | None = None) -> None:
        self.model = model
        self.graph = graph
        self.opset = opset(model)
        self._outer = outer
        self._types: dict[str, onnx.TypeProto.Tensor] = dict(outer._types) if outer else {}
        self._types |= {
            value.name: value.type.tensor_type for value in (*graph.input, *graph.value_info, *graph.output)
        }
        self._taken: set[str] = outer._taken if outer else all_names(model.graph)

    @functools.cached_property
    def _constants(self) -> dict[str, Array]:
        values = dict(self._outer._constants) if self._outer else {}
        values |= {tensor.name: numpy_helper.to_array(tensor) for tensor in self.graph.initializer}
        for node in self.graph.node:
            if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
                values[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
        return values

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Return the static shape of the tensor *name*; None when it is not known."""
        if (constant := self.constant(name)) is not None:
            return tuple(constant.shape)
        tensor = self._types.get(name)
        if tensor is None or not tensor.HasField("shape"):
            return None
        dims = [dim.dim_value if dim.HasField("dim_value") else -1 for dim in tensor.shape.dim]
        return None if any(dim < 0 for dim in dims) else tuple(dims)

    def dtype(self, name: str) -> str | None:
        """Return numpy's name of the element type of *name*; None when it is not known."""
        if (constant := self.constant(name)) is not None:
            return str(constant.dtype)
        tensor = self._types.get(name)
        return type_name(tensor.elem_type) if tensor is not None and tensor.elem_type else None

    def constant(self, name: str) -> Array | None:
        """Return the value of *name* when it is an initializer or a Constant node's; None otherwise."""
        return self._constants.get(name)

    def fresh(self, stem: str) -> str:
        """Reserve a tensor or node name that nothing has yet."""
        name = unused_name(stem, self._taken)
        self._taken.add(name)
        return name

    def add_constant(self, stem: str, value: Array) -> str:
        """Add *value* as an initializer and return its name."""
        name = self.fresh(stem)
        self._constants[name] = value
        self.graph.initializer.append(numpy_helper.from_array(value, name))
        return name


def unused_name(stem: str, taken: Container[str]) -> str:
    """Return *stem*, with a number behind it if it is *taken*."""
    numbered = (f"{stem}_{number}" for number in itertools.count(1))
    return next(name for name in itertools.chain([stem], numbered) if name not in taken)


def open_shape_origin(graph: Graph, name: str) -> str:
    """Describe the first operator before the tensor *name* whose result has no known shape, with its node."""
    producers = {output: node for node in graph.graph.node for output in node.output}
    node = producers[name]
    while behind := [each for each in node.input if each in producers and graph.shape(each) is None]:
        node = producers[behind[0]]
    return f"{op_name(node)} at node {node_name(node)}"


class Builder:
    """The nodes that take the place of one node."""

    def __init__(self, graph: Graph, node: onnx.NodeProto) -> None:
        self.graph, self.node = graph, node
        self.stem = node.name or node.output[0]
        self.nodes: list[onnx.NodeProto] = []
        self.dtype = graph.dtype(self.operand(0)) or graph.dtype(node.output[0]) or ""
        """Element type of the first input; that of the output where it is not known."""

    def operand(self, position: int) -> str:
        return operand(self.node, position)

    def operands(self, count: int) -> list[str]:
        """Return the first *count* inputs, with empty names for those that the node does not have."""
        return [self.operand(position) for position in range(count)]

    def attribute(self, name: str, default: Any = None) -> Any:
        return attribute(self.node, name, default)

    def attributes(self, without: Collection[str] = ()) -> dict[str, Any]:
        """Return all of the node's attributes but *without*, by name."""
        kept = (each for each in self.node.attribute if each.name not in without)
        return {each.name: helper.get_attribute_value(each) for each in kept}

    def require_floats(self, dtype: str | None = None) -> None:
        """Raise :class:`Uncovered` unless :attr:`dtype`, or another element type, is of floating point."""
        dtype = self.dtype if dtype is None else dtype
        if dtype not in FLOATS:
            raise Uncovered(f"its elements are {dtype or 'of an unknown type'}, not {', '.join(FLOATS)}")

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the static shape of the tensor *name*, or raise :class:`Uncovered` if it is not known."""
        if (shape := self.graph.shape(name)) is None:
            raise Uncovered(f"the shape of {name} is not known")
        return shape

    def value(self, name: str) -> Array:
        """Return the value of the constant *name*, or raise :class:`Uncovered` if it is none."""
        if (value := self.graph.constant(name)) is None:
            raise Uncovered(f"its input {name} is not constant")
        return value

    def has_output(self, position: int) -> bool:
        """Return True if the output at *position* is used."""
        return len(self.node.output) > position and bool(self.node.output[position])

    def constant(self, value: Any, dtype: str) -> str:
        """Add a constant with *value*, and return its name."""
        return self.graph.add_constant(f"{self.stem}_c", np.asarray(value, dtype))

    def integers(self, value: Any) -> str:
        """Add a constant of integers (axes, extents, indices), and return its name."""
        return self.constant(value, "int64")

    def add(self, op: str, *inputs: str | float, **attributes: Any) -> str:
        """Append a node with one output and return its name; numbers become constants of :attr:`dtype`."""
        return self.add_many(op, *inputs, outputs=(op,), **attributes)[0]

    def add_many(self, op: str, *inputs: str | float, outputs: Sequence[str], **attributes: Any) -> list[str]:
        """Append a node with several *outputs*, whose names end so; empty inputs at the end are left out."""
        names = [name if isinstance(name, str) else self.constant(name, self.dtype) for name in inputs]
        while names and not names[-1]:
            names.pop()
        results = [self.graph.fresh(f"{self.stem}_{output}") for output in outputs]
        name = self.graph.fresh(f"{self.stem}_{op}_{len(self.nodes)}")
        self.nodes.append(helper.make_node(op, names, results, name=name, **attributes))
        return results

    def plus(self, name: str, term: str) -> str:
        """Add *term* to *name*, where there is one."""
        return self.add("Add", name, term) if term else name

    def cast(self, name: str, dtype: str) -> str:
        """Cast *name* to elements of *dtype*."""
        return self.add("Cast", name, to=type_number(dtype))

    def reshaped(self, name: str, *shape: int) -> str:
        """Reshape *name*; 0 keeps an extent, -1 is what is left."""
        return self.add("Reshape", name, self.integers(shape))

    def reduced(self, op: str, name: str, axes: Sequence[int], *, since: int = 18, keepdims: int = 1) -> str:
        """Reduce *name* over *axes*, which are an input *since* this opset and an attribute before."""
        if self.graph.opset >= since:
            return self.add(op, name, self.integers(axes), keepdims=keepdims)
        return self.add(op, name, axes=list(axes), keepdims=keepdims)

    def split(self, name: str, sizes: Sequence[int], axis: int) -> list[str]:
        """Split *name* into parts of *sizes* along *axis*."""
        parts = ["part"] * len(sizes)
        if self.graph.opset >= 13:
            return self.add_many("Split", name, self.integers(sizes), outputs=parts, axis=axis)
        return self.add_many("Split", name, outputs=parts, axis=axis, split=sizes)

    def heads(self, name: str, count: int) -> str:
        """Transpose [batch, length, heads · size] to [batch, heads, length, size]."""
        return self.add("Transpose", self.reshaped(name, 0, 0, count, -1), perm=[0, 2, 1, 3])

    def channels_first(self, name: str, rank: int) -> str:
        """Transpose *name* ``[batch, …, channels]`` to ``[batch, channels, …]``."""
        return self.add("Transpose", name, perm=[0, rank - 1, *range(1, rank - 1)])

    def channels_last(self, name: str, rank: int) -> str:
        """Transpose *name* ``[batch, channels, …]`` to ``[batch, …, channels]``."""
        return self.add("Transpose", name, perm=[0, *range(2, rank), 1])

    def finish(self, results: Sequence[str]) -> list[onnx.NodeProto]:
        """Return the nodes, with *results* under the names of the node's outputs; empty ones are left out."""
        computed = {name for node in self.nodes for name in node.output}
        names: dict[str, str] = {}
        for result, output in zip(results, self.node.output, strict=False):
            if result and output:
                is_free = result in computed and result not in names
                names[result if is_free else self.add("Identity", result)] = output
        for node in self.nodes:
            node.input[:] = [names.get(name, name) for name in node.input]
            node.output[:] = [names.get(name, name) for name in node.output]
        return self.nodes


NO_CONVERTER = "TVM's importer has no converter"

Apply = Callable[[Builder], str | list[str] | None]
"""Adds the nodes that take a node's place; returns the names of its outputs (a single one as text), or None
where it needs no rewriting. What it cannot rewrite raises :class:`Uncovered`."""


@dataclass(frozen=True)
class Rewrite:
    """Rewrite of the nodes of one operator."""

    op: str
    """Name as :func:`op_name` spells it: ``com.microsoft::FusedGemm``."""
    into: str
    """Name of what it becomes, for the op table."""
    reason: str
    """Reason for it, for the op table."""
    apply: Apply

    def nodes(self, node: onnx.NodeProto, graph: Graph) -> list[onnx.NodeProto] | None:
        """Return the nodes in the place of *node*, with its output names; None: it stays."""
        build = Builder(graph, node)
        try:
            results = self.apply(build)
        except Uncovered:
            return None
        names = [results] if isinstance(results, str) else results
        return None if names is None else build.finish(names)

    def refusal(self, node: onnx.NodeProto, graph: Graph) -> str:
        """Return the reason why *node* is not rewritten."""
        try:
            self.apply(Builder(graph, node))
        except Uncovered as error:
            return str(error)
        return "what it is rewritten to computes something else (a warning tells by how much)"


def attribute(node: onnx.NodeProto, name: str, default: Any = None) -> Any:
    """Return the value of a node's attribute, or *default*; byte strings as text."""
    for each in node.attribute:
        if each.name == name:
            value = helper.get_attribute_value(each)
            return value.decode() if isinstance(value, bytes) else value
    return default


def operand(node: onnx.NodeProto, position: int) -> str:
    """Return the name of the input at *position*; empty when the node does not have it."""
    return node.input[position] if len(node.input) > position else ""


def type_number(dtype: str) -> int:
    """Return ONNX's number of the element type that numpy calls *dtype*."""
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def type_name(number: int) -> str:
    """Return numpy's name of ONNX's element type *number*."""
    return str(helper.tensor_dtype_to_np_dtype(number))


def opset(model: onnx.ModelProto) -> int:
    """Return the version of ONNX's own operators that *model* asks for."""
    return next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 1)


def op_name(node: onnx.NodeProto) -> str:
    """Return the operator, with its domain unless that is ONNX's own."""
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}::{node.op_type}"


def node_name(node: onnx.NodeProto) -> str:
    """Return a node's name; of one without a name, the tensor that it gives."""
    return node.name or next((f"(gives {name})" for name in node.output if name), "")


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Yield the graphs in a node's attributes (branches of an If, bodies of a Loop)."""
    for each in node.attribute:
        if each.HasField("g"):
            yield each.g
        yield from each.graphs


def read_by(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the names that *node* reads, and the graphs in it."""
    yield from node.input
    for inner in subgraphs(node):
        yield from (value.name for value in inner.output)
        for each in inner.node:
            yield from read_by(each)


def nodes_within(graph: Graph) -> Iterator[tuple[onnx.NodeProto, Graph]]:
    """Yield every node of *graph* and of the graphs in it, with the graph that it is in."""
    for node in graph.graph.node:
        yield node, graph
        for inner in subgraphs(node):
            yield from nodes_within(Graph(graph.model, inner, graph))


def all_graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield *graph* and the graphs in it."""
    yield graph
    for node in graph.node:
        for inner in subgraphs(node):
            yield from all_graphs(inner)


def all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Yield every node of *graph* and of the graphs in it."""
    return (node for each in all_graphs(graph) for node in each.node)


def all_names(graph: onnx.GraphProto) -> set[str]:
    """Return every name of a tensor or node in *graph* and the graphs in it."""
    names = {name for node in all_nodes(graph) for name in node.output}
    for each in all_graphs(graph):
        names.update(named.name for named in (*each.input, *each.output, *each.initializer, *each.node))
    return names


def with_inputs(model: onnx.ModelProto, values: Mapping[str, Array]) -> onnx.ModelProto:
    """Copy the constants of *model*, with inputs for *values* and no nodes."""
    result = deepcopy(model)
    for field in ("node", "input", "output", "value_info"):
        result.graph.ClearField(field)
    for name, value in values.items():
        info = helper.make_tensor_value_info(name, type_number(str(value.dtype)), value.shape)
        result.graph.input.append(info)
    return result


def drop_unused(model: onnx.ModelProto) -> None:
    """Remove unused nodes and initializers in place, which would be computed, or become parameters."""
    read = {value.name for value in model.graph.output}
    needed: list[onnx.NodeProto] = []
    for node in reversed(model.graph.node):
        if not node.output or not read.isdisjoint(node.output):
            needed.append(node)
            read.update(read_by(node))
    del model.graph.node[:]
    model.graph.node.extend(reversed(needed))
    initializers = [tensor for tensor in model.graph.initializer if tensor.name in read]
    del model.graph.initializer[:]
    model.graph.initializer.extend(initializers)
