"""Operators of ONNX that can be converted."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator

import onnx
from onnx import defs

from adt.compiler.importers.onnx.graph import (
    COMPUTED,
    Graph,
    node_name,
    nodes_within,
    op_name,
    operand,
    read_by,
    subgraphs,
)
from adt.compiler.importers.onnx.rewrites import REWRITES
from adt.compiler.importers.op_table import NO_CONVERTER, RANDOM, TRAINING, refusal_notes

OTHER_DOMAINS = {("com.microsoft", "MatMulInteger16")}
"""Operators of other domains that the importer converts: it goes by the name and ignores the domain."""
_OF_VALUES = dict.fromkeys(
    ("NonZero", "NonMaxSuppression", "Unique"),
    "how much it gives depends on its input's values: cut the model before it (onnx.utils.extract_model)"
    " and do the rest in the app",
)
"""Operators, not of constants, that no compiled model can return, whatever TVM converts."""

_RANDOM_OPS = re.compile("Random(Normal|Uniform)(Like)?|Multinomial|Bernoulli")

_NCHWC = (
    "written by onnxruntime for the processor it ran on: save the optimized model with"
    " graph_optimization_level = ORT_ENABLE_EXTENDED"
)

_told: list[tuple[frozenset[str], frozenset[str]]] = []


def tell_operators(by_tvm: Collection[str], by_adt: Collection[str]) -> None:
    """Set the operators with a converter, TVM's or adt's own, for a process without TVM."""
    _told[:] = [(frozenset(by_tvm), frozenset(by_adt))]


def known_operators() -> tuple[frozenset[str], frozenset[str]]:
    """Return the operators with a converter, TVM's and adt's own."""
    if not _told:
        from adt.compiler.importers.onnx.converters import operators

        tell_operators(*operators())
    return _told[0]


def convertible(domain: str, op: str) -> bool:
    """Return True if there is a converter for *op* of *domain*, TVM's or ours."""
    if domain in ("", "ai.onnx"):
        return op not in _OF_VALUES and (op == "If" or any(op in names for names in known_operators()))
    return (domain, op) in OTHER_DOMAINS


def _is_function(node: onnx.NodeProto) -> bool:
    """Return True if ONNX defines the operator by others, which can be written out."""
    domain = "" if node.domain == "ai.onnx" else node.domain
    schema = defs.get_schema(node.op_type, domain=domain) if defs.has(node.op_type, domain=domain) else None
    return schema is not None and bool(schema.has_function or schema.has_context_dependent_function)


def unsupported_ops(model: onnx.ModelProto) -> dict[str, str]:
    """Map the operators of a prepared *model* that cannot be converted to the reason and their nodes."""
    return _notes(
        (node, _reason(node, graph))
        for node, graph in nodes_within(Graph(model, model.graph))
        if not convertible(node.domain, node.op_type)
    )


def uncomputed_types(model: onnx.ModelProto) -> dict[str, str]:
    """Map the operators of a prepared *model* with element types that no kernel has to notes, as above."""
    graph, refusals = Graph(model, model.graph), []
    advice = "export or quantize the model with float32, float16, int8 or uint8 there"
    for node in model.graph.node:
        types = map(graph.dtype, filter(None, (*node.input, *node.output)))
        if other := next((dtype for dtype in types if dtype and dtype not in COMPUTED), ""):
            refusals.append((node, f"nothing computes in {other.replace('object', 'string')}: {advice}"))
    return _notes(refusals)


def never_supported_ops(model: onnx.ModelProto) -> dict[str, str]:
    """Map operators of *model* as read to notes, as above, if no shapes make them convertible or constant."""
    own = {(function.domain, function.name) for function in model.functions}
    graph = Graph(model, model.graph)
    return _notes(
        (node, _reason(node, graph))
        for node in _on_values(model.graph)
        if not convertible(node.domain, node.op_type)
        and op_name(node) not in REWRITES
        and (node.domain, node.op_type) not in own
        and not _is_function(node)
    )


def random_ops(model: onnx.ModelProto) -> dict[str, str]:
    """Return the operators whose random numbers an output of *model* depends on, as above.

    They are looked for before anything is folded: onnxslim takes what has no inputs for a constant.
    """
    graph = Graph(model, model.graph)
    needed = {value.name for value in model.graph.output}
    random: list[onnx.NodeProto] = []
    for node in reversed(model.graph.node):
        if node.op_type not in ("Shape", "Size") and not needed.isdisjoint(node.output):
            needed.update(read_by(node))
            inner = (pair for body in subgraphs(node) for pair in nodes_within(Graph(model, body, graph)))
            random += [each for each, within in ((node, graph), *inner) if _is_random(each, within)]
    return _notes((node, TRAINING if node.op_type == "Dropout" else RANDOM) for node in reversed(random))


def _is_random(node: onnx.NodeProto, graph: Graph) -> bool:
    """Return True if *node* gives other values in every run; a Dropout does so in training alone."""
    if node.op_type != "Dropout":
        return bool(_RANDOM_OPS.fullmatch(op_name(node)))
    ratio, training = (graph.constant(name) if (name := operand(node, place)) else None for place in (1, 2))
    keeps_all = ratio is not None and not ratio.any()
    return bool(operand(node, 2)) and (training is None or bool(training.any())) and not keeps_all


def _on_values(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Yield nodes of the main graph that compute from the inputs' values, not from their shapes alone."""
    values = {value.name for value in graph.input} - {tensor.name for tensor in graph.initializer}
    for node in graph.node:
        if values.isdisjoint(node.input):
            continue
        yield node
        if node.op_type not in ("Shape", "Size"):
            values.update(node.output)


def _notes(refusals: Iterable[tuple[onnx.NodeProto, str]]) -> dict[str, str]:
    return refusal_notes((op_name(node), node_name(node), reason) for node, reason in refusals)


def _reason(node: onnx.NodeProto, graph: Graph) -> str:
    """Return the reason why *node* cannot be converted."""
    op = op_name(node)
    if op.startswith("com.microsoft.nchwc::"):
        return _NCHWC
    if rewrite := REWRITES.get(op):
        return rewrite.refusal(node, graph)
    return _OF_VALUES.get(op, NO_CONVERTER)
