"""Rewrite of a node: one node in, the nodes that compute the same out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import onnx

from adt.compiler.importers.onnx.graph import Builder, Graph, Uncovered

NO_CONVERTER = "TVM's importer has no converter"

Apply = Callable[[Builder], str | list[str] | None]
"""Adds the nodes that take a node's place; returns the names of its outputs (a single one as text), or None
where it needs no rewriting. What it cannot rewrite raises :class:`Uncovered`."""


@dataclass(frozen=True)
class Rewrite:
    """Rewrite of the nodes of one operator."""

    op: str
    """As :func:`adt.compiler.importers.onnx.graph.op_name` spells it: ``com.microsoft::FusedGemm``."""
    into: str
    """Name of what it becomes, for the op table."""
    reason: str
    """Reason for it, for the op table."""
    apply: Apply

    def nodes(self, node: onnx.NodeProto, graph: Graph) -> list[onnx.NodeProto] | None:
        """The nodes in the place of *node*, with its output names; None: it stays."""
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
