"""Each kind of node of a prepared ONNX model, as a model of its own with what onnxruntime computes of it."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adt.compiler.importers.layers import MOST_ARGUMENT, SECONDS, Layer, collected, make_cases
from adt.compiler.importers.onnx.comparison import run, run_reference
from adt.compiler.importers.onnx.graph import Graph, op_name, subgraphs, type_number
from adt.host.isolated import isolated

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx

SMALL, LONG = 1 << 12, 16
"""Elements up to which an operator keeps its extents; else those from LONG on become shorter."""


@isolated("running the operators of the model one by one", SECONDS)
def layers_of(path: Path) -> list[Layer]:
    """Return each kind of node of the prepared model alone: of one operator, attributes, types and extents.

    Nodes with branches are left out, and what is in them.
    """
    import onnx

    model = onnx.load(path)
    graph, kinds = Graph(model, model.graph), dict[str, tuple[str, str, Any]]()
    for node in model.graph.node:
        if node.op_type != "Constant" and not any(subgraphs(node)):
            alone = _Alone(node, graph)
            kinds.setdefault(alone.key, (op_name(node), node.name or node.output[0], alone.cases))
    return collected(kinds.values(), "onnxruntime")


def shorter(shapes: Sequence[Sequence[int]], kept: set[int]) -> dict[int, int]:
    """Give each long extent of large *shapes*, but those *kept*, a short one of the same remainder by 8;
    different ones stay different."""
    if sum(map(math.prod, shapes)) <= SMALL:
        return {}
    short = dict[int, int]()
    for extent in sorted({extent for shape in shapes for extent in shape if extent >= LONG} - kept):
        value = 8 + extent % 8
        while value in short.values():
            value += 8
        short[extent] = value
    return short


class _Alone:
    """A node by itself."""

    def __init__(self, node: onnx.NodeProto, graph: Graph) -> None:
        self._node, self._graph = node, graph
        self._places = {name: f"operand_{place}_" for place, name in enumerate(node.input) if name}
        self._types = {name: (graph.shape(name), str(graph.dtype(name))) for name in self._places}
        known = {name: graph.constant(name) for name in self._places}
        self._constants = {name: value for name, value in known.items() if value is not None}
        arguments = {
            name: value
            for name, value in self._constants.items()
            if value.size <= MOST_ARGUMENT or value.dtype.kind in "iub"
        }
        kept = {number for each in node.attribute for number in (each.i, *each.ints)}
        kept |= {int(n) for value in arguments.values() if value.dtype.kind in "iu" for n in value.flat}
        self._short = shorter([s for name in (*known, *node.output) if (s := graph.shape(name))], kept)
        values = [(n in self._constants, n in arguments and arguments[n].tobytes()) for n in known]
        types = [(dtype, shape and self._shape(shape)) for shape, dtype in self._types.values()]
        attributes = sorted(each.SerializeToString(deterministic=True) for each in node.attribute)
        names = [self._places.get(name) for name in node.input], list(map(bool, node.output))
        self.key = repr((op_name(node), attributes, names, values, types))

    def _shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(self._short.get(extent, extent) for extent in shape)

    def cases(self) -> tuple[bytes, Any]:
        """Return a model of it, and what is computed; in its own extents where the short ones do not fit."""
        if self._short:
            with contextlib.suppress(Exception):  # onnxruntime's exceptions have no public base
                return self._cases()
            self._short = {}
        return self._cases()

    def _cases(self) -> tuple[bytes, Any]:
        from onnx import helper

        shapes = {name: self._shape(shape) for name, (shape, _) in self._types.items() if shape is not None}
        if len(shapes) < len(self._types):
            raise ValueError("the shape of an input is not known")
        model, first = self._model(shapes), next(iter(shapes.values()), ())
        specs = {self._places[n]: (shapes[n], self._types[n][1]) for n in shapes if n not in self._constants}
        cases = make_cases(self._node.op_type, specs, set(first), lambda inputs: _computed(model, inputs))
        for value, array in zip(model.graph.output, cases[0][1], strict=True):
            dtype = type_number(str(array.dtype))
            value.CopyFrom(helper.make_tensor_value_info(value.name, dtype, array.shape))
        return model.SerializeToString(), cases

    def _model(self, shapes: dict[str, tuple[int, ...]]) -> onnx.ModelProto:
        import onnx
        from onnx import helper, numpy_helper

        model = onnx.ModelProto(ir_version=self._graph.model.ir_version)
        model.opset_import.extend(self._graph.model.opset_import)
        model.graph.name = "layer"
        copy = model.graph.node.add()
        copy.CopyFrom(self._node)
        copy.name = ""
        copy.input[:] = [self._places.get(name, "") for name in self._node.input]
        copy.output[:] = [name and f"result_{place}_" for place, name in enumerate(self._node.output)]
        for name, place in self._places.items():
            if name in self._constants:
                part = self._constants[name][tuple(map(slice, shapes[name]))]
                model.graph.initializer.append(numpy_helper.from_array(part.copy(), place))
            else:
                dtype = type_number(self._types[name][1])
                model.graph.input.append(helper.make_tensor_value_info(place, dtype, shapes[name]))
        model.graph.output.extend(map(helper.make_empty_tensor_value_info, filter(None, copy.output)))
        return model


def _computed(model: onnx.ModelProto, inputs: dict[str, Any]) -> list[Any]:
    try:
        return list(run(model, inputs, optimize=False).values())
    except Exception as error:  # see above
        if "NOT_IMPLEMENTED" not in str(error):
            raise
        return list(run_reference(model, inputs).values())


@isolated("running an operator by itself", SECONDS)
def run_alone(model: bytes, inputs: list[dict[str, Any]]) -> list[list[Any]]:
    """Return the outputs for each of *inputs*, and last ONNX's reference's for the first, if it has any."""
    import onnx

    proto = onnx.ModelProto.FromString(model)
    answers = [_computed(proto, each) for each in inputs]
    with contextlib.suppress(Exception):  # numpy's, or its own
        answers.append(list(run_reference(proto, inputs[0]).values()))
    return answers
