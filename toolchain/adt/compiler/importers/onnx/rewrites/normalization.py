"""Normalizations that return more than what is normalized, that go over several axes, or are not ONNX's."""

from __future__ import annotations

from adt.compiler.importers.onnx.graph import NO_CONVERTER, Builder, Rewrite, type_name


def normalized(
    build: Builder,
    value: str,
    epsilon: float,
    scale: str,
    bias: str = "",
    *,
    axes: list[int],
    dtype: str = "",
    centred: bool = True,
    inner: str = "",
) -> list[str]:
    """Compute (x − mean) / √(variance + epsilon) · scale + bias over *axes*; the mean; the inverse deviation.

    *dtype* is the element type of *value* when it is not that of the node's first input, *inner* that of the
    computation, mean and deviation when it is not *dtype*. Without *centred* the root of the mean square
    divides.
    """
    dtype = dtype or build.dtype
    inner, mean = inner or dtype, ""
    if inner != dtype:
        value = build.cast(value, inner)
    if centred:
        mean = build.reduced("ReduceMean", value, axes)
        value = build.add("Sub", value, mean)
    square = build.reduced("ReduceMean", build.add("Mul", value, value), axes)
    deviation = build.add("Sqrt", build.add("Add", square, build.constant(epsilon, inner)))
    inverse = build.add("Reciprocal", deviation)
    value = build.add("Mul", value, inverse)
    if inner != dtype:
        value = build.cast(value, dtype)
    return [build.plus(build.add("Mul", value, scale), bias), mean, inverse]


def _layer_norm(build: Builder) -> list[str] | None:
    """Rewrite X, scale[, bias] to Y[, mean, inverse deviation]; onnxruntime's comes before opset 17, too."""
    converted = build.node.op_type == "LayerNormalization" and build.graph.opset >= 17
    is_plain = converted and build.dtype != "float64" and not any(build.node.output[1:])
    return None if is_plain else _by_parts(build)


def _rms_norm(build: Builder) -> list[str] | None:
    """Rewrite RMSNormalization over more than the last axis."""
    shape = build.graph.shape(build.operand(0))
    last = shape is not None and len(shape) > 1 and build.attribute("axis", -1) in (-1, len(shape) - 1)
    return None if last else _by_parts(build)


def _by_parts(build: Builder) -> list[str] | None:
    value, scale, bias = build.operands(3)
    rank = len(build.shape(value))
    epsilon = build.attribute("epsilon", 1e-5)
    build.require_floats()
    axes = list(range(build.attribute("axis", -1) % rank - rank, 0))
    inner = type_name(build.attribute("stash_type", 1)) if build.dtype == "float16" else ""
    centred = build.node.op_type == "LayerNormalization"
    return normalized(build, value, epsilon, scale, bias, axes=axes, centred=centred, inner=inner)


def _group_norm(build: Builder) -> str | None:
    """Rewrite GroupNormalization of X, scale, bias."""
    value, *parameters = build.operands(3)
    shape, groups = build.shape(value), build.attribute("num_groups", 1)
    build.require_floats()
    spread = (groups, -1, *[1] * (len(shape) - 2))
    scale, bias = (build.reshaped(parameter, *spread) for parameter in parameters)
    parts = build.reshaped(value, shape[0], groups, shape[1] // groups, *shape[2:])
    axes, inner = list(range(1 - len(shape), 0)), "float32" if build.dtype == "float16" else ""
    epsilon = build.attribute("epsilon", 1e-5)
    result, _, _ = normalized(build, parts, epsilon, scale, bias, axes=axes, inner=inner)
    return build.reshaped(result, *shape)


def _mean_variance(build: Builder) -> str | None:
    """Rewrite MeanVarianceNormalization: (X − mean) / (deviation + 1e-9)."""
    axes = build.attribute("axes", [0, 2, 3])
    build.require_floats()
    inner = "float32" if build.dtype == "float16" else ""
    scale = build.constant(1, build.dtype)
    return normalized(build, build.operand(0), 1e-18, scale, axes=list(axes), inner=inner)[0]


TWO_PASSES = "a mean of squares less a squared mean loses all digits far from zero"
REWRITES = (
    Rewrite("GroupNormalization", "Reshape, Sub, Mul, ReduceMean, Sqrt, …", TWO_PASSES, _group_norm),
    Rewrite("MeanVarianceNormalization", "Sub, Mul, ReduceMean, Sqrt, …", TWO_PASSES, _mean_variance),
    Rewrite(
        "LayerNormalization",
        "Sub, Mul, ReduceMean, Sqrt, …",
        "TVM takes opset 17 and later, no float64, and computes the first output only",
        _layer_norm,
    ),
    Rewrite("SimplifiedLayerNormalization", "Mul, ReduceMean, Sqrt, …", NO_CONVERTER, _layer_norm),
    Rewrite(
        "RMSNormalization",
        "Mul, ReduceMean, Sqrt, …",
        "TVM goes over the last axis only, of several",
        _rms_norm,
    ),
)
