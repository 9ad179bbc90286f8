"""What a rewrite is: one node in, the nodes that compute the same out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from adt.model.importers.onnx.graph import Graph

if TYPE_CHECKING:
    import onnx

    Apply = Callable[[onnx.NodeProto, Graph], list[onnx.NodeProto] | None]

FLOATS = ("float16", "float32", "float64")
NO_CONVERTER = "TVM's importer has no converter"


@dataclass(frozen=True)
class Rewrite:
    """How nodes of one operator are rewritten."""

    op: str
    """As :func:`adt.model.importers.onnx.graph.op_name` spells it: ``Clip``, ``com.microsoft::FusedGemm``."""
    into: str
    """What it becomes, for the op table."""
    why: str
    apply: Apply
    """The nodes in its place, with its output names; None where it needs or allows no rewriting."""
