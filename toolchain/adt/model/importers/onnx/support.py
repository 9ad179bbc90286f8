"""Which ONNX operators TVM's importer converts."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from adt.model.importers.onnx.graph import all_nodes, op_name
from adt.model.importers.onnx.rewrites.recurrent import MOST_STEPS
from adt.model.importers.op_table import named_nodes

if TYPE_CHECKING:
    import onnx

OTHER_DOMAINS = {
    ("com.microsoft", "FastGelu"),
    ("com.microsoft", "BiasGelu"),
    ("com.microsoft", "Gelu"),
    ("com.microsoft", "SkipLayerNormalization"),
    ("com.microsoft", "EmbedLayerNormalization"),
    ("com.microsoft", "MatMulInteger16"),
}
"""What the importer converts besides ONNX's own operators: it goes by the name and ignores the domain."""
_PARTS = dict.fromkeys(
    ("LSTM", "GRU", "RNN"),
    f"only up to {MOST_STEPS} steps of fixed length, with constant weights, default activations, no clipping,"
    " no peepholes and no sequence lengths",
)


@cache
def _converters() -> frozenset[str]:
    from tvm.relax.frontend.onnx import onnx_frontend

    return frozenset(onnx_frontend._get_convert_map()) - {"Attention"} | {"If"}


def convertible(domain: str, op: str) -> bool:
    """Whether TVM's importer has a converter for *op* of *domain*."""
    if domain in ("", "ai.onnx"):
        return op in _converters()
    return (domain, op) in OTHER_DOMAINS


def unsupported_ops(model: onnx.ModelProto) -> dict[str, str]:
    """Operators of *model* that cannot be converted, with the reason and their nodes."""
    nodes: dict[str, list[str]] = {}
    for node in all_nodes(model.graph):
        if not convertible(node.domain, node.op_type):
            nodes.setdefault(op_name(node), []).append(node.name)
    return {
        op: f"{_PARTS.get(op, 'no converter in this TVM')}; {named_nodes(names)}"
        for op, names in nodes.items()
    }
