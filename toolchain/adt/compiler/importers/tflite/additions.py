"""TFLite operators that TVM's importer lacks, or converts unchecked."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx
from tvm.relax.frontend.tflite.tflite_frontend import OperatorConverter

Converter = Callable[[OperatorConverter, Any], relax.Expr]
"""Gives the value of an operator's result in Relax."""


def _operands(converter: OperatorConverter, op: Any) -> list[relax.Expr]:
    operands = map(converter.get_tensor_expr, converter.get_input_tensors(op))
    return [converter.bb.normalize(operand) for operand in operands]


def _elementwise(compute: Callable[..., relax.Expr], converter: OperatorConverter, op: Any) -> relax.Expr:
    return compute(*_operands(converter, op))


def _rank(converter: OperatorConverter, op: Any) -> relax.Expr:
    (operand,) = _operands(converter, op)
    return relax.const(operand.struct_info.ndim, "int32")


def _bucketize(converter: OperatorConverter, op: Any) -> relax.Expr:
    """Count the boundaries that are no larger than each element."""
    (value,) = _operands(converter, op)
    boundaries = converter._options(op, "BucketizeOptions").BoundariesAsNumpy()
    kind = value.struct_info.dtype
    if kind.startswith("int"):  # n >= b where n >= ceil(b)
        boundaries = np.ceil(boundaries)
    reached = relax.op.greater_equal(relax.op.expand_dims(value, -1), relax.const(boundaries.astype(kind)))
    return relax.op.sum(relax.op.astype(reached, "int32"), -1)


def _segments(reduction: str, converter: OperatorConverter, op: Any) -> relax.Expr:
    """Combine the rows of each segment; one without rows has the reduction's neutral element.

    TVM's converters do not compare constant numbers of segments with how many there are.
    """
    data, places, number = converter.get_input_tensors(op)
    count = int(converter.get_tensor_value(number).reshape(()))
    if not converter.has_expr(places.tensor_idx):
        numbers = converter.get_tensor_value(places)
        if numbers.size and not 0 <= numbers.min() <= numbers.max() < count:
            raise tvm.error.OpNotImplemented(f"a row belongs to none of {count} segments")
    rows, indices = (converter.bb.normalize(converter.get_tensor_expr(each)) for each in (data, places))
    (result,) = converter.get_output_tensors(op)
    dtype = converter.get_tensor_type_str(result.tensor.Type())
    limits = np.finfo(dtype) if dtype.startswith("float") else np.iinfo(dtype)
    extents = [int(extent) for extent in rows.struct_info.shape]
    neutral = {"add": 0, "mul": 1, "max": limits.min, "min": limits.max}[reduction]
    shape = [count, *extents[indices.struct_info.ndim :]]
    start = relax.op.full(shape, relax.const(neutral, dtype), dtype)
    return relax.op.scatter_nd(start, relax.op.expand_dims(indices, -1), rows, reduction)


def _dynamic_update_slice(converter: OperatorConverter, op: Any) -> relax.Expr:
    """Replace a part of a tensor; a start that would lead beyond the end is moved back."""

    def compute(whole: te.Tensor, part: te.Tensor, starts: te.Tensor) -> te.Tensor:
        def element(*at: tirx.Var) -> tirx.PrimExpr:
            inside, places = [], []
            for axis, position in enumerate(at):
                size, last = part.shape[axis], whole.shape[axis] - part.shape[axis]
                start = tirx.min(starts(axis), last.astype(starts.dtype))
                start = tirx.max(tirx.const(0, starts.dtype), start).astype("int32")
                inside += [position >= start, position < start + size]
                places.append(tirx.max(0, tirx.min(position - start, size - 1)))
            return tirx.if_then_else(tirx.all(*inside), part(*places), whole(*at))

        return te.compute(whole.shape, element)

    return converter.bb.emit_te(compute, *_operands(converter, op))


def _reduce_window(converter: OperatorConverter, op: Any) -> relax.Expr:
    """Convert a ReduceWindow that sums along any axes; other reducers are TVM's."""
    import tflite

    options = converter._get_stablehlo_options(op, tflite.StablehloReduceWindowOptions)
    name = "STABLEHLO_REDUCE_WINDOW"
    body = converter._get_stablehlo_simple_body_op(int(options.BodySubgraphIndex()), name, 2)
    if converter.get_op_code_str(body) not in ("ADD", "STABLEHLO_ADD"):
        return converter._convert_stablehlo_reduce_window(op)
    data, start = converter.get_input_tensors(op)
    converter._check_stablehlo_reduce_init(start, "STABLEHLO_ADD", name)
    value = converter.bb.normalize(converter.get_tensor_expr(data))
    rank = value.struct_info.ndim

    def numbers(name: str, count: int, default: int) -> list[int]:
        if not getattr(options, f"{name}Length")():
            return [default] * count
        return [int(number) for number in getattr(options, f"{name}AsNumpy")()]

    if any(step != 1 for step in numbers("BaseDilations", rank, 1)):
        raise tvm.error.OpNotImplemented(f"{name} with base dilations")
    before = numbers("Padding", 2 * rank, 0)[::2]
    (result,) = converter.get_output_tensors(op)
    shape = [int(extent) for extent in result.tensor.ShapeAsNumpy()]
    windows, strides, dilations = (
        numbers(name, rank, 1) for name in ("WindowDimensions", "WindowStrides", "WindowDilations")
    )
    return converter.bb.emit_te(_window_sums, value, shape, windows, strides, dilations, before)


def _window_sums(
    data: te.Tensor,
    shape: Sequence[int],
    windows: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    before: Sequence[int],
) -> te.Tensor:
    taps = [te.reduce_axis((0, extent), f"k{axis}") for axis, extent in enumerate(windows)]

    def element(*at: tirx.Var) -> tirx.PrimExpr:
        places = [
            position * stride + tap * dilation - pad
            for position, tap, stride, dilation, pad in zip(at, taps, strides, dilations, before, strict=True)
        ]
        pairs = zip(places, data.shape, strict=True)
        inside = tirx.all(*(tirx.all(place >= 0, place < extent) for place, extent in pairs))
        return te.sum(tirx.if_then_else(inside, data(*places), tirx.const(0, data.dtype)), axis=taps)

    return te.compute(tuple(shape), element)


ADDED: dict[str, Converter] = {
    "BITWISE_XOR": functools.partial(_elementwise, relax.op.bitwise_xor),
    "BUCKETIZE": _bucketize,
    "DYNAMIC_UPDATE_SLICE": _dynamic_update_slice,
    "RANK": _rank,
    "RELU_0_TO_1": functools.partial(_elementwise, lambda value: relax.op.clip(value, 0, 1)),
    "RIGHT_SHIFT": functools.partial(_elementwise, relax.op.right_shift),
    "SIGN": functools.partial(_elementwise, relax.op.sign),
    "STABLEHLO_REDUCE_WINDOW": _reduce_window,
    "UNSORTED_SEGMENT_MAX": functools.partial(_segments, "max"),
    "UNSORTED_SEGMENT_MIN": functools.partial(_segments, "min"),
    "UNSORTED_SEGMENT_PROD": functools.partial(_segments, "mul"),
    "UNSORTED_SEGMENT_SUM": functools.partial(_segments, "add"),
}
"""Converters by operator."""
