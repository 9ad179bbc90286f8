"""From a prepared ONNX model to Relax, by TVM's importer with some converters of our own.

TVM 0.25 converts Max, Min, Sum and Mean by stacking their inputs and reducing the stack,
which no later pass fuses, and takes the wrong maximum of constants. Ours are chains of
the operator on two inputs.
"""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from adt.errors import AdtError, ModelError
from adt.model.importers.imported import last_line
from adt.model.importers.onnx.graph import Graph, all_nodes, node_name, op_name, opset, subgraphs
from adt.model.importers.op_table import named_nodes

if TYPE_CHECKING:
    import onnx

log = logging.getLogger("adt.import")

CUT = "onx:"
"""Letters that the importer strips from both ends of a weight's name."""
MOST_WHOLE_ARGUMENT = 4096
"""Elements up to which a tensor of whole numbers is an argument (sizes, axes, indices), not a weight."""
MOST_FLOAT_ARGUMENT = 16
"""The same for floating point (scales, limits, padding values)."""

CONVERTED_HERE = dict.fromkeys(
    ("Max", "Min", "Sum", "Mean"), "converted by adt: TVM's stacks its inputs and reduces the stack"
)
"""Operators whose converters are ours."""


def to_relax(model: onnx.ModelProto) -> Any:
    """Convert *model*, whose initializers become parameters; their values are in ``main``'s attributes.

    Raises:
        ModelError: TVM's importer failed; the operator and its node are in the message.
    """
    _make_importable(model)
    importer = _importer(model)
    try:
        with _quiet():
            return importer.from_onnx(model.graph, opset(model))
    except AdtError:
        raise
    except Exception as why:  # the importer asserts and raises plain Python errors
        where = f" at node {importer.at[1]} ({importer.at[0]})" if importer.at[0] else ""
        raise ModelError(
            f"TVM's ONNX importer failed{where}: {type(why).__name__}: {last_line(why)}",
            remedy="Fix every input's shape with --shape; if it persists, the model uses something"
            " that this TVM does not import: export it without that operator.",
        ) from why


@dataclass(frozen=True)
class Conversion:
    """What TVM's importer says of each operator of a model."""

    failures: Mapping[str, str]
    """Operator to the reason why one of its nodes is refused, and the nodes."""
    untried: frozenset[str]
    """Operators with nodes that were not reached: they need what a refused node computes."""


def try_conversion(model: onnx.ModelProto) -> Conversion:
    """Try every node of *model*; a refused one gives unknown values of the shape that ONNX infers."""
    _make_importable(model)
    importer = _importer(model, goes_on=True)
    with _quiet(), contextlib.suppress(Exception):  # ends with what the last node raised
        importer.from_onnx(model.graph, opset(model))
    names: dict[str, list[str]] = {}
    reasons: dict[str, str] = {}
    for op, name, why in importer.refused:
        names.setdefault(op, []).append(name)
        reasons.setdefault(op, f"TVM's importer refuses it: {last_line(why)}")
    untried = frozenset(op_name(node) for node in model.graph.node[importer.count :])
    return Conversion({op: f"{reason}; {named_nodes(names[op])}" for op, reason in reasons.items()}, untried)


def _make_importable(model: onnx.ModelProto) -> None:
    _drop_unused(model)
    _inline_arguments(model)
    _rename_initializers(model)
    for node in all_nodes(model.graph):
        node.name = node_name(node)


def _importer(model: onnx.ModelProto, *, goes_on: bool = False) -> Any:
    """TVM's importer with our converters.

    Args:
        goes_on: try the nodes after a refused one, too, and convert nothing in the end.
    """
    import onnx
    from tvm.relax.frontend.onnx.onnx_frontend import ONNXGraphImporter

    class Importer(ONNXGraphImporter):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__({}, "float32", keep_params_in_input=True)
            self.at = ("", "")
            """Operator and name of the node that is being converted."""
            self.count = 0
            """Nodes of the main graph that were tried."""
            self.refused: list[tuple[str, str, Exception]] = []
            """Operator, name and reason of each node that was refused."""

        def _check_for_unsupported_ops(self, graph: onnx.GraphProto) -> None:
            if not goes_on:
                super()._check_for_unsupported_ops(graph)

        def _construct_nodes(self, graph: onnx.GraphProto) -> None:
            for node in graph.node:
                self.at = (op_name(node), node.name)
                try:
                    super()._construct_nodes(onnx.GraphProto(node=[node]))
                except Exception as why:
                    if not goes_on:
                        raise
                    self.refused.append((*self.at, why))
                    self._nodes |= {name: self._unknown(name) for name in node.output if name}
                self.count += 1

        def _unknown(self, name: str) -> Any:
            """A value of the shape and type that *name* has in the model."""
            types = Graph(model, model.graph)
            shape, dtype = types.shape(name), types.dtype(name)
            if shape is None or dtype is None:
                raise ModelError(f"the shape of {name} is not known", remedy="Fix the inputs' shapes.")
            return self._new_var(name, shape, dtype)

        def _convert_operator(self, op: str, inputs: Any, attrs: Any, version: int) -> Any:
            self.at = (self.at[0] if self.at[0].endswith(f"::{op}") else op, attrs["tvm_custom"]["name"])
            if chain := _chains().get(op):
                return functools.reduce(lambda a, b: self.bb.normalize(chain(a, b)), list(inputs))
            if op == "Mean":
                return _mean(self.bb, list(inputs))
            return super()._convert_operator(op, inputs, attrs, version)

    return Importer()


@functools.cache
def _chains() -> dict[str, Callable[[Any, Any], Any]]:
    from tvm import relax

    return {"Max": relax.op.maximum, "Min": relax.op.minimum, "Sum": relax.op.add}


def _mean(builder: Any, inputs: list[Any]) -> Any:
    from tvm import relax

    total = functools.reduce(lambda a, b: builder.normalize(relax.op.add(a, b)), inputs)
    return relax.op.multiply(total, relax.const(1 / len(inputs), total.struct_info.dtype))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep what the importer prints and warns of out of our output; it goes to the debug log."""
    printed = io.StringIO()
    with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(printed):
        warnings.simplefilter("always")
        try:
            yield
        finally:
            for said in (*(str(warning.message) for warning in caught), printed.getvalue()):
                if said.strip():
                    log.debug("TVM's importer: %s", said.strip())


def _drop_unused(model: onnx.ModelProto) -> None:
    """Remove initializers that nothing uses, in place: rewrites leave some, each would become a parameter."""
    nodes = list(all_nodes(model.graph))
    used = {name for node in nodes for name in node.input}
    used |= {value.name for node in nodes for inner in subgraphs(node) for value in inner.output}
    used |= {value.name for value in model.graph.output}
    kept = [tensor for tensor in model.graph.initializer if tensor.name in used]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)


def _rename_initializers(model: onnx.ModelProto) -> None:
    """Give those initializers other names whose names the importer would cut, in place.

    It strips the letters ``onx:`` from both ends of a name, so that two names may
    become one; exporters' prefix ``onnx::`` is dropped here where that is safe.
    """
    taken = {tensor.name for tensor in model.graph.initializer}
    renamed: dict[str, str] = {}
    for tensor in model.graph.initializer:
        if tensor.name.strip(CUT) == tensor.name:
            continue
        stem = re.sub(r"^(onnx::)+", "", tensor.name)
        stem = stem if stem and stem.strip(CUT) == stem else f"weight_{stem}_"
        name, number = stem, 0
        while name in taken:
            number += 1
            name = f"{stem}_{number}_"
        taken.add(name)
        renamed[tensor.name] = name
        tensor.name = name
    if renamed:
        _rename_uses(model.graph, renamed)


def _rename_uses(graph: onnx.GraphProto, renamed: dict[str, str]) -> None:
    for value in (*graph.input, *graph.output):
        value.name = renamed.get(value.name, value.name)
    for node in graph.node:
        for index, name in enumerate(node.input):
            node.input[index] = renamed.get(name, name)
        for inner in subgraphs(node):
            _rename_uses(inner, renamed)


def _inline_arguments(model: onnx.ModelProto) -> None:
    """Turn initializers that are arguments rather than weights into Constant nodes, in place.

    The importer needs the value of a split's sizes or a resize's scales while it
    converts; as a parameter of the module it would be unknown until run time.
    """
    from onnx import helper, numpy_helper

    weights: list[onnx.TensorProto] = []
    arguments: list[onnx.TensorProto] = []
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        whole = array.dtype.kind in "iub"
        is_argument = array.size <= (MOST_WHOLE_ARGUMENT if whole else MOST_FLOAT_ARGUMENT)
        (arguments if is_argument else weights).append(tensor)
    returned = {value.name for value in model.graph.output}
    constants = [
        helper.make_node("Constant", [], [tensor.name], value=tensor)
        for tensor in arguments
        if tensor.name not in returned
    ]
    kept = [*weights, *(tensor for tensor in arguments if tensor.name in returned)]
    nodes = [*constants, *model.graph.node]
    del model.graph.initializer[:], model.graph.node[:]
    model.graph.initializer.extend(kept)
    model.graph.node.extend(nodes)
    names = {tensor.name for tensor in (*arguments, *kept)}
    inputs = [value for value in model.graph.input if value.name not in names]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
