"""Converters from ONNX operators to Relax that are adt's own, one module per kind of operator.

TVM's importer has none for some operators, and others of its compute something else or cannot be compiled for
every type. A rewrite to other ONNX operators is preferred where there is one
(:mod:`adt.compiler.importers.onnx.rewrites`); what is here is shorter as Relax, or as a tensor expression.
"""

from __future__ import annotations

from collections.abc import Mapping

from tvm.relax.frontend.onnx import onnx_frontend

from adt.compiler.importers.onnx.converters import arithmetic, images, indices, shapes, windows
from adt.compiler.importers.onnx.converters.node import Converter

CONVERTERS: Mapping[str, Converter] = {
    op: converter
    for module in (arithmetic, images, indices, shapes, windows)
    for op, converter in module.CONVERTERS.items()
}
"""Converters by operator of ONNX's own domain."""


def operators() -> tuple[frozenset[str], frozenset[str]]:
    """Return the operators that TVM's importer has a converter for, and those that adt has one for."""
    return frozenset(onnx_frontend._get_convert_map()) - {"Attention"}, frozenset(CONVERTERS)
