"""Each kind of node of a prepared ONNX model, as a model of its own with what onnxruntime computes of it."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import onnx
from onnx import helper, numpy_helper

from adt.compiler.importers import layers
from adt.compiler.importers.onnx.comparison import run_reference, session_of
from adt.compiler.importers.onnx.graph import Graph, op_name, subgraphs, type_number
from adt.host.isolated import isolated

BY_VALUE = ("Clip", "Pow", "Range", "Resize", "Upsample")
"""Operators whose floats are arguments, as integers are."""


def kinds_of(model: onnx.ModelProto, kept: Mapping[str, str]) -> Iterator[layers.Kind]:
    """Yield the nodes of a prepared model; those of equal operators, attributes and types are of one kind.

    Nodes with branches are left out, and what is in them; and nodes of constants, which become one.
    *kept* maps operators that adt converts as a whole to the way.
    """
    graph = Graph(model, model.graph)
    for place, node in enumerate(model.graph.node):
        computed = any(graph.constant(name) is None for name in node.input if name)
        if computed and not any(subgraphs(node)):
            shapes = {name: graph.shape(name) for name in (*node.input, *node.output) if name}
            size = sum(math.prod(shape) for shape in shapes.values() if shape)
            how = graph.opset, kept.get(op_name(node)), size > layers.MOST_ELEMENTS
            key = layers.digest_of(*how, *_key(node, graph, shapes))
            yield layers.Kind(key, op_name(node), node.name or node.output[0], place, size)


def _key(node: onnx.NodeProto, graph: Graph, shapes: Mapping[str, Sequence[int] | None]) -> Any:
    """Return what nodes that are converted alike have in common."""
    step = max((max(each.ints) for each in node.attribute if each.name == "strides"), default=1)
    most = layers.MOST_ELEMENTS if node.op_type in ("Resize", "Upsample") else 2  # these go by ratios

    def value(name: str) -> Any:
        array = graph.constant(name)
        if array is None or array.size > layers.MOST_ARGUMENT:
            return array is None
        whole = array.dtype.kind in "iu" and array.itemsize >= 4
        return array.tolist() if whole or node.op_type in BY_VALUE else False

    attributes: list[tuple[str, Any]] = sorted(
        (each.name, min(each.i, 2) if each.name == "group" else each.SerializeToString(deterministic=True))
        for each in node.attribute
    )
    extents = [shape is None or [(min(e, most), e % step) for e in shape] for shape in shapes.values()]
    types = extents, list(map(graph.dtype, shapes))
    names = [list(shapes).index(name) if name else None for name in node.input], list(map(bool, node.output))
    return op_name(node), attributes, names, list(map(value, filter(None, node.input))), types


@isolated("running the operators of the model one by one", layers.SECONDS)
def layers_of(path: Path, kinds: list[layers.Kind]) -> list[layers.Layer]:
    """Return each of *kinds*, of the prepared model, alone."""
    model = onnx.load(path)
    graph = Graph(model, model.graph)
    return layers.collected(kinds, lambda kind: _alone(model.graph.node[kind.place], graph))


def _alone(node: onnx.NodeProto, graph: Graph) -> tuple[bytes, list[layers.Case]]:
    """Return a model of *node*, and what is computed; in its own extents where short ones do not fit."""
    shapes = {name: graph.shape(name) for name in node.input if name}
    if None in shapes.values():
        raise ValueError("the shape of an input is not known")
    constants = {name: value for name in shapes if (value := graph.constant(name)) is not None}
    kept = {number for each in node.attribute for number in (each.i, *each.ints)}
    whole = [value for value in constants.values() if value.dtype.kind in "iu" and value.itemsize >= 4]
    kept |= {int(number) for value in whole for number in value.flat}
    results = {name: shape for name in node.output if (shape := graph.shape(name))}
    own = {name: shape or () for name, shape in shapes.items()}
    return layers.in_short_extents(own | results, kept, partial(_cases, node, graph))


def _cases(
    node: onnx.NodeProto, graph: Graph, shapes: Mapping[str, Sequence[int]]
) -> tuple[bytes, list[layers.Case]]:
    places = {name: f"operand_{place}_" for place, name in enumerate(node.input) if name}
    copy, whole = deepcopy(node), graph.model
    copy.input[:] = [places.get(name, "") for name in node.input]
    copy.output[:] = [name and f"result_{place}_" for place, name in enumerate(node.output)]
    specs: dict[str, tuple[Sequence[int], str]] = {}
    constants = []
    for name, place in places.items():
        if (value := graph.constant(name)) is None:
            specs[place] = shapes[name], str(graph.dtype(name))
        else:
            part = value[tuple(map(slice, shapes[name]))].copy()
            constants.append(numpy_helper.from_array(part, place))
    inputs = [helper.make_tensor_value_info(n, type_number(dtype), s) for n, (s, dtype) in specs.items()]
    outputs = list(map(helper.make_empty_tensor_value_info, filter(None, copy.output)))
    single = helper.make_graph([copy], "layer", inputs, outputs, constants)
    model = helper.make_model(single, opset_imports=whole.opset_import, ir_version=whole.ir_version)
    run = partial(session_of(model, optimize=False, threads=1).run, None)
    cases = layers.make_cases(node.op_type, specs, set(next(iter(shapes.values()), ())), run)
    for value, array in zip(model.graph.output, cases[0][1], strict=True):
        value.CopyFrom(helper.make_tensor_value_info(value.name, type_number(str(array.dtype)), array.shape))
    return model.SerializeToString(), cases


@isolated("running an operator by itself", layers.SECONDS)
def reference_of(model: bytes, inputs: dict[str, Any]) -> list[Any]:
    """Return the outputs of ONNX's reference implementation, if it has any."""
    with contextlib.suppress(Exception):  # numpy's, or its own
        return list(run_reference(onnx.ModelProto.FromString(model), inputs).values())
    return []
