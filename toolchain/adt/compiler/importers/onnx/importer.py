"""Import of an ONNX file: prepared, and then converted by TVM's importer and the converters of our own.

What comes of a node must have the type and shape that ONNX infers for it: TVM's converters
ignore some attributes and inputs, and compute something else then.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import onnx
from onnx import defs, helper, numpy_helper
from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend

from adt.compiler.importers.constants import lift_weights
from adt.compiler.importers.frameworks import quiet
from adt.compiler.importers.functions import unrunnable
from adt.compiler.importers.imported_model import ImportedModel, detached, imported_model
from adt.compiler.importers.layers import check_layers
from adt.compiler.importers.onnx.converters import CONVERTERS
from adt.compiler.importers.onnx.converters.node import REMEDY, Converter, Node, refusal
from adt.compiler.importers.onnx.converters.whole import whole_converters
from adt.compiler.importers.onnx.graph import (
    Graph,
    all_graphs,
    all_nodes,
    drop_unused,
    node_name,
    nodes_within,
    op_name,
    open_shape_origin,
    opset,
    unused_name,
)
from adt.compiler.importers.onnx.layers import kinds_of, layers_of, reference_of
from adt.compiler.importers.onnx.prepared_file import SIMPLIFIER, prepared_file
from adt.compiler.importers.op_table import OpRow, after_trial, refusal_notes
from adt.compiler.importers.shapes import RequestedShapes, distinct_names
from adt.compiler.passes.recurrence import GATES, RecurrentSteps
from adt.errors import AdtError, ModelError, UnsupportedOp, last_line
from adt.host.isolated import begin
from adt.package.manifest import SourceModel

UNSAFE = re.compile(r"[onx:].*|.*[onx:]|[lg]v\d*", re.DOTALL)
"""Names of weights that the importer would cut (it strips the letters ``onx:`` from both ends), or would take
for a variable of its own, and that variable for the weight."""
MOST_WHOLE_ARGUMENT = 4096
"""Elements up to which a tensor of integers is an argument (sizes, axes, indices), not a weight."""
MOST_FLOAT_ARGUMENT = 16
"""Largest number of elements of such an argument of floats (scales, limits, padding values)."""


def import_onnx(
    path: Path,
    shapes: RequestedShapes,
    source: SourceModel,
    steps: RecurrentSteps | None = None,
    *,
    blockwise: bool = False,
    check: bool = False,
) -> ImportedModel:
    """Import an ONNX model with static shapes; see :func:`adt.compiler.importers.importer.import_model`."""
    begin(SIMPLIFIER)
    with prepared_file(path, shapes, loops=steps is not None, blockwise=blockwise) as (file, written):
        assert written is not None
        model = onnx.load(written)
        whole = whole_converters(steps)
        kept = {op: whole[op] for op in file.kept}
        kinds = list(kinds_of(model, dict.fromkeys(kept, type(steps).__name__))) if check else []
        module, suspects = to_relax(model, kept), tuple[str, ...]()

        def convert(layer: bytes) -> tuple[Any, Sequence[Any]]:
            return detached(to_relax(onnx.ModelProto.FromString(layer), kept))

        if check:
            give = partial(layers_of, written)
            suspects = check_layers("onnxruntime", lambda: kinds, give, convert, reference_of)
    if any(node.op_type == "If" for node in model.graph.node):
        module = lift_weights(module)  # TVM leaves those of branches where they are
    return imported_model(
        module,
        inputs={spec.name: spec for spec in file.inputs},
        output_names=distinct_names(file.outputs),
        source=source,
        file=path,
        ops=file.table,
        suspects=suspects,
        origin=partial(open_shape_origin, Graph(model, model.graph)),
    )


def explain_onnx(path: Path, shapes: RequestedShapes) -> tuple[OpRow, ...]:
    """Return the op table of a file whose import fails; what some shape may make convertible is untried."""
    with prepared_file(path, shapes, explains=True) as (file, written):
        if written is None:
            return after_trial(file.table, {}, {row.op for row in file.table})
        module, unsupported, untried = _try_conversion(onnx.load(written))
    if module is not None and not unsupported:
        unsupported = unrunnable(module, file.table)
    return after_trial(file.table, unsupported, untried)


def to_relax(model: onnx.ModelProto, layers: Mapping[str, Converter] | None = None) -> Any:
    """Convert *model*, whose initializers become parameters; their values are in ``main``'s attributes.

    *layers* convert the operators that were left as they are. UnsupportedOp names the node that cannot be
    converted.
    """
    importer = _importer(model, layers or {})
    try:
        with quiet():
            return importer.from_onnx(model.graph, opset(model))
    except AdtError:
        raise
    except Exception as error:  # the importer asserts and raises plain Python errors
        details = f"{type(error).__name__}: {last_line(error)}"
        op, name = importer.at
        if op:
            argument = _unknown_argument(model, name)
            reason = "is used in a way that cannot be imported"
            if argument:
                reason = f"cannot be imported: its input {argument} is not constant"
            raise UnsupportedOp(f"{op} at node {name} {reason}", remedy=REMEDY, details=details) from error
        raise ModelError(
            "TVM's ONNX importer failed", remedy="Export the model in another opset.", details=details
        ) from error


def _unknown_argument(model: onnx.ModelProto, name: str) -> str:
    """Find the first computed input of node *name* that ONNX defines as int64 (axes, a shape)."""
    graph = Graph(model, model.graph)
    node = next((node for node in model.graph.node if node.name == name), None)
    if node is None or not defs.has(node.op_type, graph.opset, node.domain):
        return ""
    parameters = defs.get_schema(node.op_type, graph.opset, node.domain).inputs
    for parameter, given in zip(parameters, node.input, strict=False):
        if parameter.type_str == "tensor(int64)" and given and graph.constant(given) is None:
            return str(parameter.name)
    return ""


def _try_conversion(model: onnx.ModelProto) -> tuple[Any, Mapping[str, str], frozenset[str]]:
    """Try every node of *model*; a refused one gives unknown values of the shape that ONNX infers.

    Return the module, None when a node was refused; the reason for each operator of a refused node; and the
    operators with nodes that were not reached, as they need what a refused one computes.
    """
    importer = _importer(model, {}, goes_on=True)
    module = None
    with quiet(), contextlib.suppress(Exception):  # ends with what the last node raised
        module = importer.from_onnx(model.graph, opset(model))
    untried = frozenset(op_name(node) for node in model.graph.node[importer.count :])
    return module, refusal_notes(importer.refused), untried


def _importer(model: onnx.ModelProto, layers: Mapping[str, Converter], *, goes_on: bool = False) -> Any:
    """Create TVM's importer with adt's converters and *layers*; a refusal does not end it if it *goes_on*."""
    drop_unused(model)
    repacked = (node for node in model.graph.node if op_name(node) in GATES and op_name(node) in layers)
    _inline_arguments(model, {name for node in repacked for name in node.input})
    _rename_initializers(model)
    nodes = _named_nodes(model)
    converters = {**CONVERTERS, **layers}

    class Importer(onnx_frontend.ONNXGraphImporter):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__({}, "float32", keep_params_in_input=True, sanitize=False)
            self.at = ("", "")  # operator and name of the node that is being converted
            self.count = 0  # nodes of the main graph that were tried
            self.refused: list[tuple[str, str, str]] = []
            """Operator, name and reason of each node that was refused."""

        def _check_for_unsupported_ops(self, graph: onnx.GraphProto) -> None:
            """Do nothing: the op table says so before, with nodes."""

        def _construct_nodes(self, graph: onnx.GraphProto) -> None:
            for node in graph.node:
                self.at = (op_name(node), node.name)
                try:
                    super()._construct_nodes(onnx.GraphProto(node=[node]))
                except Exception as error:
                    if not goes_on:
                        raise
                    reason = f"TVM's importer refuses it: {last_line(error)}"
                    self.refused.append((*self.at, error.what if isinstance(error, AdtError) else reason))
                    self._nodes |= {name: self._unknown(name) for name in node.output if name}
                self.count += 1

        def _unknown(self, name: str) -> Any:
            """Create a value of the shape and type that *name* has in the model."""
            types = Graph(model, model.graph)
            shape, dtype = types.shape(name), types.dtype(name)
            if shape is None or dtype is None:
                raise ModelError(f"the shape of {name} is not known", remedy="Fix the inputs' shapes.")
            return self._new_var(name, shape, dtype)

        def _convert_operator(self, op: str, inputs: Any, attrs: Any, version: int) -> Any:
            self.at = (self.at[0] if self.at[0].endswith(f"::{op}") else op, attrs["tvm_custom"]["name"])
            proto, graph = nodes[self.at[1]]
            convert = super()._convert_operator

            def by_tvm(given: Any, **changes: Any) -> Any:
                return convert(op, type(inputs)(given), {**attrs, **changes}, version)

            converter = converters.get(op_name(proto))
            node = Node(proto, tuple(inputs), version, self.bb, self._params, by_tvm)
            result = converter(node) if converter else None
            by_ours = result is not None
            if not by_ours:
                result = by_tvm(inputs)
            if isinstance(result, tuple):
                result = relax.Tuple([self.bb.normalize(value) for value in result])
            _check_types(self.bb, proto, graph, result, shapes=not by_ours)
            return result

    return Importer()


def _named_nodes(model: onnx.ModelProto) -> dict[str, tuple[onnx.NodeProto, Graph]]:
    """Give every node a name of its own; return each with its graph, by name."""
    nodes: dict[str, tuple[onnx.NodeProto, Graph]] = {}
    for node, graph in nodes_within(Graph(model, model.graph)):
        node.name = unused_name(node_name(node), nodes)
        nodes[node.name] = (node, graph)
    return nodes


def _check_types(builder: Any, node: onnx.NodeProto, graph: Graph, result: Any, *, shapes: bool) -> None:
    """Refuse *node* when an output has not the type that ONNX infers, or with *shapes* the shape."""
    result = builder.normalize(result) if isinstance(result, relax.Expr) else result
    info = getattr(result, "struct_info", None)
    infos = list(info.fields) if isinstance(info, relax.TupleStructInfo) else [info]
    for name, computed in zip(node.output, infos, strict=False):
        if not name or not isinstance(computed, relax.TensorStructInfo):
            continue
        dtype, shape = graph.dtype(name), graph.shape(name)
        extents = [getattr(extent, "value", None) for extent in getattr(computed.shape, "values", [None])]
        if dtype and computed.dtype and dtype != str(computed.dtype):
            raise refusal(node, f"it would be {computed.dtype}, not {dtype}")
        if shapes and shape is not None and None not in extents and list(shape) != extents:
            raise refusal(node, f"it would be of shape {extents}, not {list(shape)}")


def _rename_initializers(model: onnx.ModelProto) -> None:
    """Rename initializers with names of :data:`UNSAFE` in place, if that is enough by dropping ``onnx::``."""
    taken = {tensor.name for tensor in model.graph.initializer}
    taken |= {value.name for value in (*model.graph.input, *model.graph.output)}
    taken |= {name for node in all_nodes(model.graph) for name in (*node.input, *node.output)}
    renamed: dict[str, str] = {}
    for tensor in model.graph.initializer:
        if not UNSAFE.fullmatch(tensor.name):
            continue
        stem = re.sub(r"^(onnx::)+", "", tensor.name)
        stem = f"weight_{stem}_" if not stem or UNSAFE.fullmatch(stem) else stem
        name, number = stem, 0
        while name in taken:
            number += 1
            name = f"{stem}_{number}_"
        taken.add(name)
        renamed[tensor.name] = name
        tensor.name = name
    for graph in all_graphs(model.graph) if renamed else ():
        for value in (*graph.input, *graph.output):
            value.name = renamed.get(value.name, value.name)
        for node in graph.node:
            node.input[:] = [renamed.get(name, name) for name in node.input]


def _inline_arguments(model: onnx.ModelProto, repacked: Collection[str]) -> None:
    """Turn initializers that are arguments rather than weights into Constant nodes, in place.

    The importer needs the value of a split's sizes or a resize's scales while it converts; as a parameter
    of the module it would be unknown until run time. A converter makes others of weights *repacked*.
    """
    returned = {value.name for value in model.graph.output}
    names = {tensor.name for tensor in model.graph.initializer}
    weights: list[onnx.TensorProto] = []
    results: list[onnx.TensorProto] = []
    constants: list[onnx.NodeProto] = []
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        most = MOST_WHOLE_ARGUMENT if array.dtype.kind in "iub" else MOST_FLOAT_ARGUMENT
        if array.size > most and tensor.name not in repacked:
            weights.append(tensor)
        elif tensor.name in returned:
            results.append(tensor)
        else:
            constants.append(helper.make_node("Constant", [], [tensor.name], value=tensor))
    nodes = [*constants, *model.graph.node]
    inputs = [value for value in model.graph.input if value.name not in names]
    del model.graph.initializer[:], model.graph.node[:], model.graph.input[:]
    model.graph.initializer.extend([*weights, *results])
    model.graph.node.extend(nodes)
    model.graph.input.extend(inputs)
