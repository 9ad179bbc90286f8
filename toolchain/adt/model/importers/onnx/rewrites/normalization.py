"""Normalizations that return more than what is normalized, that go over several axes, or are not ONNX's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adt.model.importers.onnx.graph import Builder, Graph, attribute, operand, type_number
from adt.model.importers.onnx.rewrites.rewrite import FLOATS, NO_CONVERTER, Rewrite

if TYPE_CHECKING:
    import onnx


def normalized(
    build: Builder,
    value: str,
    dtype: str,
    epsilon: float,
    scale: str,
    bias: str = "",
    *,
    axes: list[int],
    centred: bool = True,
    inner: str = "",
    outs: tuple[str, str, str] = ("", "", ""),
) -> list[onnx.NodeProto]:
    """(x − mean) / √(variance + epsilon) · scale + bias over *axes*.

    Args:
        centred: False: without the mean, by the root of the mean square.
        inner: element type of the computation and of mean and deviation, when it is not *dtype*.
        outs: names of the result, the mean and the inverse deviation; empty: not wanted.
    """
    inner = inner or dtype

    def mean(name: str, out: str | None = None) -> str:
        return build.reduced("ReduceMean", name, axes, out=out)

    result, mean_out, deviation_out = outs
    if inner != dtype:
        value = build.add("Cast", value, to=type_number(inner))
    if centred:
        value = build.add("Sub", value, mean(value, mean_out or None))
    variance = build.add("Add", mean(build.add("Mul", value, value)), build.constant(epsilon, inner))
    inverse = build.add("Reciprocal", build.add("Sqrt", variance), out=deviation_out or None)
    value = build.add("Mul", value, inverse)
    if inner != dtype:
        value = build.add("Cast", value, to=type_number(dtype))
    value = build.add("Mul", value, scale, out=None if bias else result)
    if bias:
        build.add("Add", value, bias, out=result)
    return build.nodes


def outputs(node: onnx.NodeProto) -> tuple[str, str, str]:
    """Names of the result, the mean and the inverse deviation."""
    outs = [*node.output, "", ""]
    return outs[0], outs[1], outs[2]


def _layer_norm(node: onnx.NodeProto, graph: Graph) -> list[onnx.NodeProto] | None:
    """X, scale[, bias] to Y[, mean, inverse deviation]; onnxruntime writes it before opset 17, too."""
    converted = node.op_type == "LayerNormalization" and graph.opset >= 17
    return None if converted and not any(node.output[1:]) else _by_parts(node, graph)


def _rms_norm(node: onnx.NodeProto, graph: Graph) -> list[onnx.NodeProto] | None:
    """X, scale to Y."""
    shape = graph.shape(node.input[0])
    last = shape is not None and attribute(node, "axis", -1) in (-1, len(shape) - 1)
    return None if last else _by_parts(node, graph)


def _by_parts(node: onnx.NodeProto, graph: Graph) -> list[onnx.NodeProto] | None:
    from onnx import TensorProto, helper

    shape, dtype = graph.shape(node.input[0]), graph.dtype(node.input[0])
    if shape is None or dtype not in FLOATS:
        return None
    stash = helper.tensor_dtype_to_np_dtype(attribute(node, "stash_type", TensorProto.FLOAT)).name
    first = attribute(node, "axis", -1) % len(shape)
    return normalized(
        Builder(graph, node),
        node.input[0],
        dtype,
        attribute(node, "epsilon", 1e-5),
        node.input[1],
        operand(node, 2),
        axes=list(range(first - len(shape), 0)),
        centred=node.op_type == "LayerNormalization",
        inner=stash if dtype == "float16" else dtype,
        outs=outputs(node),
    )


REWRITES = (
    Rewrite(
        "LayerNormalization",
        "Sub, Mul, ReduceMean, Sqrt, …",
        "TVM takes opset 17 and later, and computes the first output only",
        _layer_norm,
    ),
    Rewrite("SimplifiedLayerNormalization", "Mul, ReduceMean, Sqrt, …", NO_CONVERTER, _layer_norm),
    Rewrite("RMSNormalization", "Mul, ReduceMean, Sqrt, …", "TVM goes over the last axis only", _rms_norm),
)
