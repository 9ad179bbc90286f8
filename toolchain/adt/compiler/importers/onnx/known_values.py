"""Values that static shapes and constants tell: they become constants."""

from __future__ import annotations

import logging
import math

import numpy as np
import onnx
from onnx import helper, numpy_helper

from adt.compiler.importers.onnx.graph import COMPUTED, Graph, subgraphs
from adt.numerics import Array

log = logging.getLogger("adt.import")

MOST_ELEMENTS = 4096  # elements of a tensor that is taken for a shape, or for what one is made of


def fold_known(model: onnx.ModelProto, *, uncomputed: bool = False) -> bool:
    """Make constants of the nodes of *model* whose values its inferred shapes tell, in place.

    Return True if there were any: more shapes may be inferred now. *uncomputed* takes only nodes that read
    constants of types in which nothing computes, of any size.
    """
    graph = Graph(model, model.graph)
    known: dict[str, Array] = {}
    nodes: list[onnx.NodeProto] = []
    for node in model.graph.node:
        values = {} if node.op_type == "Constant" else _values(node, graph, known, uncomputed)
        if not values:
            _drop_empty(node, graph)
            nodes.append(node)
        for name, value in values.items():
            constant = numpy_helper.from_array(value)
            nodes.append(helper.make_node("Constant", [], [name], value=constant))
        known |= values
    model.graph.ClearField("node")
    model.graph.node.extend(nodes)
    return bool(known)


def _is_empty(name: str, graph: Graph) -> bool:
    """Return True if the tensor *name* has no elements: all of its values are known."""
    return 0 in (graph.shape(name) or ())


def _drop_empty(node: onnx.NodeProto, graph: Graph) -> None:
    """Drop operands without elements that *node* joins or scatters: no kernel reads them."""
    if node.op_type == "Concat":
        node.input[:] = [name for name in node.input if not _is_empty(name, graph)]
    elif node.op_type.startswith("Scatter") and _is_empty(node.input[1], graph):
        node.CopyFrom(helper.make_node("Identity", node.input[:1], node.output, node.name))


def _values(
    node: onnx.NodeProto, graph: Graph, known: dict[str, Array], uncomputed: bool
) -> dict[str, Array]:
    """Compute the outputs of *node* by name, if its inputs are constant or their shapes do; else none."""
    from onnx.reference import ReferenceEvaluator  # takes long to import

    most = math.inf if uncomputed else MOST_ELEMENTS
    outputs = [name for name in node.output if name]
    if outputs and all(graph.dtype(name) and _is_empty(name, graph) for name in outputs):
        return {name: np.zeros(graph.shape(name) or (), graph.dtype(name)) for name in outputs}
    if uncomputed and not any(
        graph.dtype(name) not in COMPUTED or _is_empty(name, graph) for name in node.input if name
    ):
        return {}
    if node.op_type in ("Shape", "Size") and (shape := graph.shape(node.input[0])) is not None:
        inputs = {node.input[0]: np.broadcast_to(np.zeros((), bool), shape)}  # of no memory
    else:
        given = {name: known.get(name, graph.constant(name)) for name in node.input if name}
        inputs = {name: value for name, value in given.items() if value is not None}
        if len(inputs) < len(given) or any(value.size > most for value in inputs.values()):
            return {}
    if not inputs or node.domain or any(subgraphs(node)):  # without inputs it may be random
        return {}
    infos = [helper.make_tensor_value_info(name, 1, None) for name in inputs]
    outputs = [helper.make_tensor_value_info(name, 1, None) for name in node.output if name]
    alone = helper.make_model(
        helper.make_graph([node], "alone", infos, outputs), opset_imports=graph.model.opset_import
    )
    try:
        results = ReferenceEvaluator(alone).run(None, inputs)
    except Exception as error:  # the reference raises what numpy does
        log.debug("%s has no known value: %s", node.output[0], error)
        return {}
    arrays = {info.name: np.asarray(result) for info, result in zip(outputs, results, strict=True)}
    fit = all(a.size <= most and graph.dtype(name) in (None, a.dtype) for name, a in arrays.items())
    return arrays if fit else {}
