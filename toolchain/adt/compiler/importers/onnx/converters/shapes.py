"""Operators that say, make, change or cut shapes, and fill tensors with given values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from onnx import numpy_helper
from tvm import relax, tirx

from adt.compiler.importers.onnx.converters.node import Converter, Node, literal
from adt.compiler.importers.onnx.graph import type_name
from adt.compiler.importers.shapes import small
from adt.limits import MOST_CONSTANT


def _shape(node: Node) -> Any:
    shape = node.shape()[node.attribute("start", 0) : node.attribute("end")]
    return literal(np.asarray(shape, np.int64))


def _constant_of_shape(node: Node) -> Any:
    shape = node.constant(0, "input").tolist()
    tensor = node.attribute("value")
    value = numpy_helper.to_array(tensor).reshape(()) if tensor is not None else np.zeros((), np.float32)
    return relax.op.full(shape, literal(value), str(value.dtype))


def _range(node: Node) -> Any:
    first, limit, step = (node.number(index, name) for index, name in enumerate(("start", "limit", "delta")))
    count = max(0, math.ceil((limit - first) / step))
    small({"of Range": (count,)}, MOST_CONSTANT)
    return literal((first + np.arange(count) * step).astype(node.dtype()))


def _eye_like(node: Node) -> Any:
    to = node.attribute("dtype")
    dtype = type_name(to) if to else node.dtype()
    rows, columns = node.shape()
    small({"of EyeLike": (rows, columns)}, MOST_CONSTANT)
    return literal(np.eye(rows, columns, node.attribute("k", 0)).astype(dtype))


def _center_crop_pad(node: Node) -> Any:
    shape = node.shape()
    extents = node.constant(1, "shape").tolist()
    axes = node.attribute("axes") or range(len(shape))
    size = list(shape)
    for axis, extent in zip(axes, extents, strict=True):
        size[axis] = extent

    def element(x: Any, at: Any) -> Any:
        source, inside = [], []
        for i, have, extent in zip(at, shape, size, strict=True):
            start, before = max(0, (have - extent) // 2), max(0, (extent - have) // 2)
            source.append(i + (start - before))
            if extent > have:
                inside += [i >= before, i < before + have]
        value = x(*source)
        return tirx.if_then_else(tirx.all(*inside), value, tirx.const(0, x.dtype)) if inside else value

    return node.compute(size, element, node.inputs[0])


def _pad(node: Node) -> Any:
    """Convert Pad's mode ``wrap`` to a slice of repetitions; a rewrite gave every axis its pads."""
    if node.attribute("mode", "constant") != "wrap":
        return None
    shape, pads = node.shape(), node.constant(1, "pads").tolist()
    before, after = pads[: len(shape)], pads[len(shape) :]
    size = [sum(extents) for extents in zip(shape, before, after, strict=True)]

    def element(x: Any, at: Any) -> Any:
        places = zip(at, before, shape, strict=True)
        return x(*(tirx.floormod(i - width, extent) if extent > 1 else 0 for i, width, extent in places))

    return node.compute(size, element, node.inputs[0])


def _space_to_depth(node: Node) -> Any:
    if node.attribute("mode", "DCR") == "DCR":
        return None
    block = node.attribute("blocksize")
    n, c, h, w = node.shape()
    parts = relax.op.reshape(node.inputs[0], (n, c, h // block, block, w // block, block))
    moved = relax.op.permute_dims(parts, (0, 1, 3, 5, 2, 4))
    return relax.op.reshape(moved, (n, c * block * block, h // block, w // block))


def _dropout(node: Node) -> Any:
    """Convert Dropout: nothing in inference, and a mask of true, before opset 12 of false as onnxruntime."""
    return node.inputs[0], relax.op.full(node.shape(), relax.const(node.opset >= 12), "bool")


CONVERTERS: dict[str, Converter] = {
    "CenterCropPad": _center_crop_pad,
    "ConstantOfShape": _constant_of_shape,
    "Dropout": _dropout,
    "EyeLike": _eye_like,
    "OptionalHasElement": lambda node: relax.const(node.has(0), "bool"),
    "Pad": _pad,
    "Range": _range,
    "Shape": _shape,
    "Size": lambda node: literal(np.asarray(math.prod(node.shape()), np.int64)),
    "SpaceToDepth": _space_to_depth,
}
