"""Operators of ONNX that can be converted."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import onnx
from onnx import defs

from adt.compiler.importers.onnx.blockwise import MATMUL_N_BITS
from adt.compiler.importers.onnx.graph import COMPUTED, Graph, all_nodes, node_name, op_name
from adt.compiler.importers.onnx.rewrites import REWRITES
from adt.compiler.importers.onnx.rewrites.recurrent import MOST_STEPS
from adt.compiler.importers.op_table import named_nodes

OTHER_DOMAINS = {("com.microsoft", "MatMulInteger16")}
"""Operators of other domains that the importer converts: it goes by the name and ignores the domain."""
_PARTS = dict.fromkeys(
    ("LSTM", "GRU", "RNN", "com.microsoft::DynamicQuantizeLSTM"),
    f"only up to {MOST_STEPS} steps of fixed length, with constant weights, activations without parameters,"
    " no clipping, no lengths below the sequence's",
) | {
    "Loop": "only with a constant number of steps, a condition that stays true and no graphs in its body",
    "Scan": "only of opset 9 and later, with known shapes and no graphs in its body",
    MATMUL_N_BITS: "only with constant weights, in the order of their columns (no g_idx)",
}
_OF_VALUES = dict.fromkeys(
    ("NonZero", "NonMaxSuppression", "Unique"),
    "how much it gives depends on its input's values: cut the model before it (onnx.utils.extract_model)"
    " and do the rest in the app",
)
"""Operators that TVM may have a converter for, and no compiled model can return; constant ones were
folded."""

_NCHWC = (
    "written by onnxruntime for the processor it ran on: save the optimized model with"
    " graph_optimization_level = ORT_ENABLE_EXTENDED"
)


_told: list[tuple[frozenset[str], frozenset[str]]] = []


def tell_operators(by_tvm: Collection[str], by_adt: Collection[str]) -> None:
    """Set the operators with a converter, TVM's or adt's own, for a process without TVM."""
    _told[:] = [(frozenset(by_tvm), frozenset(by_adt))]


def _operators() -> tuple[frozenset[str], frozenset[str]]:
    if not _told:
        from adt.compiler.importers.onnx import conversion

        tell_operators(*conversion.operators())
    return _told[0]


def adt_operators() -> frozenset[str]:
    """Return the operators with a converter of adt's own."""
    return _operators()[1]


def convertible(domain: str, op: str) -> bool:
    """Return True if there is a converter for *op* of *domain*, TVM's or ours."""
    if domain in ("", "ai.onnx"):
        return op not in _OF_VALUES and (op == "If" or any(op in names for names in _operators()))
    return (domain, op) in OTHER_DOMAINS


def _is_function(domain: str, op: str) -> bool:
    """Return True if ONNX defines *op* of *domain* by other operators, which can be written out."""
    if not defs.has(op, domain=domain):
        return False
    schema = defs.get_schema(op, domain=domain)
    return bool(schema.has_function or schema.has_context_dependent_function)


def unsupported_ops(model: onnx.ModelProto) -> dict[str, str]:
    """Operators of a prepared *model* that cannot be converted, with the reason and their nodes."""
    return _notes(node for node in all_nodes(model.graph) if not convertible(node.domain, node.op_type))


def uncomputed_types(model: onnx.ModelProto) -> dict[str, str]:
    """Operators of a prepared *model* that read or give elements of types without kernels, as above."""
    graph, nodes = Graph(model, model.graph), dict[str, tuple[str, list[str]]]()
    for node in model.graph.node:
        types = [graph.dtype(name) for name in (*node.input, *node.output) if name]
        if others := [dtype for dtype in types if dtype and dtype not in COMPUTED]:
            nodes.setdefault(op_name(node), (others[0], []))[1].append(node_name(node))
    return {
        op: f"nothing computes in {'string' if dtype == 'object' else dtype}: export or quantize the model"
        f" with float32, float16, int8 or uint8 there; {named_nodes(names)}"
        for op, (dtype, names) in nodes.items()
    }


def never_supported_ops(model: onnx.ModelProto) -> dict[str, str]:
    """Operators of *model* as it was read that no shapes of its inputs make convertible, as above.

    What depends on shapes alone does not count: it is folded once they are fixed.
    """
    own = {(function.domain, function.name) for function in model.functions}
    return _notes(
        node
        for node in _on_values(model.graph)
        if not convertible(node.domain, node.op_type)
        and op_name(node) not in REWRITES
        and (node.domain, node.op_type) not in own
        and not _is_function("" if node.domain == "ai.onnx" else node.domain, node.op_type)
    )


def _on_values(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Nodes of the main graph that compute from the values of the inputs, not from their shapes alone."""
    values = {value.name for value in graph.input} - {tensor.name for tensor in graph.initializer}
    for node in graph.node:
        if values.isdisjoint(node.input):
            continue
        yield node
        if node.op_type not in ("Shape", "Size"):
            values.update(node.output)


def _notes(nodes: Iterable[onnx.NodeProto]) -> dict[str, str]:
    names: dict[str, list[str]] = {}
    for node in nodes:
        names.setdefault(op_name(node), []).append(node_name(node))
    return {op: f"{_reason(op)}; {named_nodes(named)}" for op, named in names.items()}


def _reason(op: str) -> str:
    """Return why there is no converter for *op*."""
    return (
        _NCHWC
        if op.startswith("com.microsoft.nchwc::")
        else (_PARTS | _OF_VALUES).get(op, "no converter in this TVM")
    )
