"""Activations and limits, element by element; operators that move or name values and compute nothing."""

from __future__ import annotations

import numpy as np
from onnx import numpy_helper

from adt.compiler.importers.onnx.graph import Builder, Rewrite


def limited(build: Builder, name: str, least: float | str, greatest: float | str) -> str:
    """Limit *name* to [*least*, *greatest*]."""
    return build.add("Min", build.add("Max", name, least), greatest)


def _clip(build: Builder) -> str | None:
    """Rewrite Clip, whose limits are inputs, or attributes before opset 11."""
    if not build.dtype:
        return None
    value = build.operand(0)
    for position, (op, name) in enumerate((("Max", "min"), ("Min", "max")), start=1):
        limit = build.operand(position) or build.attribute(name)
        if limit is not None:
            value = build.add(op, value, limit)
    return value


def _hard_sigmoid(build: Builder) -> str | None:
    build.require_floats()
    scaled = build.add("Mul", build.operand(0), build.attribute("alpha", 0.2))
    return limited(build, build.add("Add", scaled, build.attribute("beta", 0.5)), 0, 1)


def _hard_swish(build: Builder) -> str | None:
    build.require_floats()
    gate = limited(build, build.add("Add", build.operand(0), 3), 0, 6)
    return build.add("Mul", build.operand(0), build.add("Mul", gate, 1 / 6))


def _prelu(build: Builder) -> str | None:
    """Rewrite PRelu: TVM takes slopes of one axis or of full rank; exporters write ``[C, 1, 1]``."""
    name, slope_name = build.operands(2)
    data, slope = build.shape(name), build.shape(slope_name)
    axes = [axis for axis, extent in enumerate(slope) if extent != 1]
    if len(axes) == 1 and len(slope) in (1, len(data)):
        return None
    value = build.graph.constant(slope_name)
    if len(axes) == 1 and value is not None:
        full = value.reshape((1,) * (len(data) - len(slope)) + slope)
        return build.add("PRelu", name, build.constant(full, str(full.dtype)))
    below = build.add("Mul", build.add("Min", name, 0), slope_name)
    return build.add("Add", build.add("Max", name, 0), below)


def _squeeze(build: Builder) -> str | None:
    """Rewrite Squeeze before opset 13: TVM ignores its attribute of axes, and squeezes every axis of 1."""
    if (axes := build.attribute("axes")) is None:
        return None
    shape = build.shape(build.operand(0))
    left = np.delete(shape, np.asarray(axes, int) % len(shape))
    return build.reshaped(build.operand(0), *left.tolist())


def _pad(build: Builder) -> str | None:
    """Rewrite Pad with axes (from opset 18), which TVM ignores."""
    name, pads_name, value, axes_name = build.operands(4)
    if not axes_name:
        return None
    shape, pads, axes = build.shape(name), build.value(pads_name), build.value(axes_name)
    full = np.zeros((2, len(shape)), int)  # in front of each axis, and behind it
    full[:, axes % len(shape)] = pads.reshape(2, -1)
    return build.add(
        "Pad", name, build.integers(full.ravel()), value, mode=build.attribute("mode", "constant")
    )


def _constant(build: Builder) -> str | None:
    """Rewrite a Constant's ``value_float`` and the like to ``value``, the only one that TVM reads."""
    for name, value in build.attributes().items():
        if name.startswith(("value_float", "value_int")):
            array = np.asarray(value, "float32" if "float" in name else "int64")
            return build.add("Constant", value=numpy_helper.from_array(array))
    return None


REWRITES = (
    Rewrite("Clip", "Max, Min", "TVM adds a choice on NaN that OpenCL textures cannot hold", _clip),
    Rewrite("HardSigmoid", "Mul, Add, Max, Min", "precision passes fail on its scalars", _hard_sigmoid),
    Rewrite("HardSwish", "Add, Max, Min, Mul", "precision passes fail on its scalars", _hard_swish),
    Rewrite("PRelu", "PRelu with a full slope; Max, Min, Mul, Add", "TVM refuses its slope's shape", _prelu),
    Rewrite("Squeeze", "Reshape", "TVM ignores the attribute axes", _squeeze),
    Rewrite("Pad", "Pad of every axis", "TVM ignores the input axes", _pad),
    Rewrite("Constant", "Constant with a tensor", "TVM reads tensors only", _constant),
)
