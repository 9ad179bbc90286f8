"""Operators that TVM's importer refuses, misreads or converts badly, written with others.

One module for each kind of operator, each with its ``REWRITES``;
:mod:`adt.compiler.importers.onnx.preparation` runs the graph before and after each rewrite and compares both.
"""

from __future__ import annotations

from collections.abc import Mapping

from adt.compiler.importers.onnx.graph import Rewrite
from adt.compiler.importers.onnx.rewrites import (
    attention,
    elementary,
    loops,
    microsoft,
    normalization,
    quantized,
    recurrent,
)  # fmt: skip

_MODULES = (
    attention, elementary, loops, microsoft, normalization, quantized, recurrent,
)  # fmt: skip
REWRITES: Mapping[str, Rewrite] = {rewrite.op: rewrite for module in _MODULES for rewrite in module.REWRITES}
"""Rewrites by operator."""
