"""All converters of adt's own."""

from __future__ import annotations

from collections.abc import Mapping

from adt.model.importers.onnx.converters import arithmetic, images, indices, shapes, signal, windows
from adt.model.importers.onnx.converters.node import Converter

CONVERTERS: Mapping[str, Converter] = {
    op: converter
    for module in (arithmetic, images, indices, shapes, signal, windows)
    for op, converter in module.CONVERTERS.items()
}
"""Converters by operator of ONNX's own domain."""
