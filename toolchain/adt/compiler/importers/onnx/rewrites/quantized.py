"""Quantized operators, with floats between (dequantize, compute, quantize), and integer products.

What onnxruntime fuses from such a graph is written apart again; TVM has converters for the
parts. Results may differ by one quantum where a value lies on the edge of two.

A quantized tensor is three inputs in a row: values, scale, zero point (which may be missing).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adt.compiler.importers.onnx.blockwise import DOMAIN, MATMUL_N_BITS, OPERATOR, form_of
from adt.compiler.importers.onnx.graph import (
    NO_CONVERTER,
    Apply,
    Builder,
    Rewrite,
    Uncovered,
    attribute,
    op_name,
    operand,
    type_name,
)
from adt.compiler.importers.onnx.rewrites.elementary import limited
from adt.compiler.passes.weight_bits import Blockwise, packed, unpacked

RANGES = {"uint8": (0, 255), "int8": (-128, 127), "uint16": (0, 65535), "int16": (-32768, 32767)}
"""Least and greatest value of the types that QuantizeLinear writes."""
FEW_BITS = ("uint8", "int8", "uint4", "int4")
BLOCKS = (16, 32, 64, 128, 256)  # terms that may share a scale in MatMulNBits
LONGEST_BLOCK = 128  # longest part of a column that has one scale


def scalar(build: Builder, name: str) -> str:
    """Reshape *name* to a scalar when it has one element: ONNX writes those as ``[1]``, too."""
    shape = build.graph.shape(name) if name else None
    if not shape or any(extent != 1 for extent in shape):
        return name
    if (value := build.graph.constant(name)) is not None:
        return build.constant(value.item(), str(value.dtype))
    return build.reshaped(name)


def dequantized(build: Builder, values: str, scale: str, zero: str = "", axis: int = 0) -> str:
    """Add the dequantization of *values*; *axis* is that of a scale with several elements."""
    shape = build.graph.shape(scale)
    one = shape is not None and all(extent == 1 for extent in shape)
    attributes: dict[str, Any] = {} if one else {"axis": axis}
    scale = _single(build, scale)
    return build.add("DequantizeLinear", values, scale, scalar(build, zero), **attributes)


def _single(build: Builder, scale: str) -> str:
    """Cast *scale* to single precision: what lies between, computed in half, would be off by a step."""
    half = build.graph.dtype(scale) == "float16"
    scale = scalar(build, scale)
    return build.cast(scale, "float32") if half else scale


def _tensor(build: Builder, position: int, axis: int = 0) -> str:
    """Return the floats of the quantized tensor whose values are the input at *position*."""
    values, scale, zero = (build.operand(position + i) for i in range(3))
    return dequantized(build, values, scale, zero, axis)


def _quantize(build: Builder, position: int, value: str) -> str:
    """Quantize *value* as the scale and zero point at *position* say."""
    zero = scalar(build, build.operand(position + 1))
    return build.add("QuantizeLinear", value, _single(build, build.operand(position)), zero)


def _as_float(
    plain: str, tensors: Sequence[int], out: int, *leading: int, without: Sequence[str] = ()
) -> Apply:
    """Rewrite to *plain* on floats: inputs *tensors* are quantized, input *out* is the output's scale."""

    def apply(build: Builder) -> str:
        last = bool(build.attribute("channels_last", 0))
        rank = len(build.attribute("kernel_shape", [])) + 2  # of a pool
        if last and rank == 2:
            rank = len(build.shape(build.operand(tensors[0])))
        positions = tensors if plain != "Concat" else range(tensors[0], len(build.node.input), 3)
        values = [_tensor(build, position) for position in positions]
        if last:
            values = [build.channels_first(value, rank) for value in values]
        options = build.attributes(without=("channels_last", *without))
        result = build.add(plain, *(build.operand(position) for position in leading), *values, **options)
        return _quantize(build, out, build.channels_last(result, rank) if last else result)

    return apply


def _softmax(build: Builder) -> str | list[str] | None:
    flattens = build.attribute("opset", 13) < 13  # all axes from this one on are one
    axis, differs = build.attribute("axis", -1), flattens != (build.graph.opset < 13)
    if differs and axis != -1 and axis != len(build.shape(build.operand(0))) - 1:
        raise Uncovered(f"opset={build.attribute('opset', 13)} with axis={axis} goes over other axes")
    return _as_float("Softmax", (0,), 3, without=("opset",))(build)


def _qlinear_conv(build: Builder) -> str | None:
    """Write out x, w, y's scale and zero point, bias in units of x_scale·w_scale."""
    x_scale, w_scale, weights = (build.value(build.operand(i)) for i in (1, 4, 3))
    bias = build.value(build.operand(8)) if build.operand(8) else None
    data, rank = _tensor(build, 0), weights.ndim
    last = bool(build.attribute("channels_last", 0))
    inputs = [build.channels_first(data, rank) if last else data, _tensor(build, 3)]
    if bias is not None:
        scale = x_scale.astype(np.float64).ravel() * w_scale.astype(np.float64).ravel()
        inputs.append(build.constant(bias.astype(np.float64) * scale, "float32"))
    result = build.add("Conv", *inputs, **build.attributes(without=("channels_last",)))
    return _quantize(build, 6, build.channels_last(result, rank) if last else result)


def _columns(build: Builder, position: int, axis: int) -> str:
    """Return the floats of a product's operand, whose scale may have one element for each place of *axis*."""
    scale = build.shape(name := build.operand(position + 1))
    if math.prod(scale) == 1:
        return _tensor(build, position)
    if len(scale) != 1:
        raise Uncovered(f"its scale {name} has {len(scale)} axes, more than one")
    return _tensor(build, position, len(build.shape(build.operand(position))) + axis)


def _qlinear_matmul(build: Builder) -> str | None:
    """Write out a, b, y's scale and zero point."""
    product = build.add("MatMul", _columns(build, 0, -2), _columns(build, 3, -1))
    return _quantize(build, 6, product)


def _qgemm(build: Builder) -> str | None:
    """Write out a, b, bias in units of alpha·a_scale·b_scale; without its scale y is float32."""
    inputs = [_columns(build, 0, -2), _columns(build, 3, -2 if build.attribute("transB", 0) else -1)]
    if bias := build.operand(6):
        alpha = build.constant(build.attribute("alpha", 1.0), "float32")
        unit = build.add("Mul", build.add("Mul", build.operand(1), build.operand(4)), alpha)
        inputs.append(build.add("Mul", build.cast(bias, "float32"), unit))
    result = build.add("Gemm", *inputs, **build.attributes())
    return _quantize(build, 7, result) if build.operand(7) else result


def _spread(build: Builder, name: str, shape: Sequence[int], axis: int, block: int) -> str:
    """Broadcast a scale or zero point, one for each place or block of *axis*, to *shape*."""
    extents = build.graph.shape(name)
    assert extents is not None
    axis %= len(shape)
    if len(extents) == 1:
        return build.reshaped(name, *(shape[i] if i == axis else 1 for i in range(len(shape))))
    before, after = extents[: axis + 1], extents[axis + 1 :]
    apart = build.reshaped(name, *before, 1, *after)
    wide = build.add("Expand", apart, build.integers([*before, block, *after]))
    places = extents[axis] * block
    joined = build.reshaped(wide, *extents[:axis], places, *after)
    if places == shape[axis]:
        return joined
    return build.add("Slice", joined, *(build.integers([value]) for value in (0, shape[axis], axis)))


def _linear(build: Builder) -> str | None:
    """Give it a scalar instead of ``[1]``, or write it as arithmetic, where TVM's converter needs that."""
    name, scale, zero = build.operands(3)
    shape, extents = build.graph.shape(name), build.shape(scale)
    if len(extents) <= 1 and shape != () and not build.node.domain:  # TVM takes it, or almost
        if shape is None or extents != (1,):
            return None
        parameters = (scalar(build, each) for each in (scale, zero))
        return build.add(build.node.op_type, name, *parameters, **build.attributes())
    if math.prod(extents) == 1:  # whatever is known of the tensor
        scale, zero = scalar(build, scale), scalar(build, zero)
    else:
        shape = build.shape(name)
        axis, block = build.attribute("axis", 1), build.attribute("block_size", 0)
        scale, zero = (
            each if build.graph.shape(each) == () or not each else _spread(build, each, shape, axis, block)
            for each in (scale, scalar(build, zero))
        )
    return (_by_product if build.node.op_type == "DequantizeLinear" else _by_division)(build, scale, zero)


def _by_product(build: Builder, scale: str, zero: str) -> str | None:
    """Compute (x − zero) · scale."""
    dtype = build.graph.dtype(build.operand(1)) or ""
    build.require_floats(dtype)
    value = build.cast(build.operand(0), dtype)
    if zero:
        value = build.add("Sub", value, build.cast(zero, dtype))
    return build.add("Mul", value, scale)


def _by_division(build: Builder, scale: str, zero: str) -> str | None:
    """Write round(x / scale) + zero, within the type."""
    kind = build.graph.dtype(build.operand(2)) if zero else type_name(build.attribute("output_dtype", 0) or 2)
    build.dtype = build.graph.dtype(build.operand(1)) or ""  # of x, too, of which nothing may be known yet
    if not build.dtype or kind not in RANGES:
        raise Uncovered(f"it quantizes to {kind}, not {', '.join(RANGES)}")
    value = build.add("Round", build.add("Div", build.operand(0), scale))
    if zero:
        value = build.add("Add", value, build.cast(zero, build.dtype))
    return build.cast(limited(build, value, *RANGES[kind]), kind)


def _conv_integer(build: Builder) -> str | None:
    """Rewrite ConvInteger: the sums are integers that float32 holds exactly up to 2^24."""
    shape = build.shape(build.operand(1))
    inputs = []
    for position in range(2):
        value, zero_name = build.cast(build.operand(position), "float32"), build.operand(position + 2)
        if zero := scalar(build, zero_name):
            zero = build.cast(zero, "float32")
            if build.graph.shape(zero_name) == shape[:1] != (1,):  # one for each filter
                zero = build.reshaped(zero, shape[0], *[1] * (len(shape) - 1))
            value = build.add("Sub", value, zero)
        inputs.append(value)
    return build.cast(build.add("Conv", *inputs, **build.attributes()), "int32")


def _product(build: Builder, integers: Sequence[str], scale: str, bias: str) -> str:
    """Multiply a by b (*integers*, and their zero points) in units of *scale*, and add *bias*."""
    a, b, a_zero, b_zero = integers
    zeros = (scalar(build, zero) for zero in (a_zero, b_zero))
    product = build.cast(build.add("MatMulInteger", a, b, *zeros), "float32")
    return build.plus(build.add("Mul", product, scale), bias)


def _matmul_integer_to_float(build: Builder) -> str:
    a, b, a_scale, b_scale, a_zero, b_zero, bias = build.operands(7)
    return _product(build, (a, b, a_zero, b_zero), build.add("Mul", a_scale, b_scale), bias)


def _dynamic_quantize_matmul(build: Builder) -> str:
    """Rewrite DynamicQuantizeMatMul, whose first operand holds floats."""
    a, b, b_scale, b_zero, bias = build.operands(5)
    a, a_scale, a_zero = build.add_many("DynamicQuantizeLinear", a, outputs=("values", "scale", "zero"))
    return _product(build, (a, b, a_zero, b_zero), build.add("Mul", a_scale, b_scale), bias)


def _matmul_n_bits(build: Builder) -> str | None:
    """Write out a, b [N, blocks, bytes], scales, zero points, order of the groups, bias; b becomes floats."""
    a, b, scale, zero_name, order, bias = build.operands(6)
    if order:
        raise Uncovered("its columns have an order of their own (g_idx)")
    values, scales = build.value(b), build.value(scale)
    zeros = build.value(zero_name) if zero_name else None
    dtype, form, n = str(scales.dtype), form_of(build.node), build.attribute("N")
    whole = unpacked(values.reshape(n, form.blocks, -1), form.bits).astype("float32")
    zero = np.full((n, form.blocks), form.middle, "float32")
    if zeros is not None:
        if zeros.dtype == np.uint8:
            zeros = unpacked(zeros.reshape(n, -1), form.bits)[:, : form.blocks]
        zero = zeros.reshape(n, form.blocks).astype("float32")
    table = (whole - zero[..., None]) * scales.reshape(n, form.blocks, 1)
    weights = build.constant(table.reshape(n, -1)[:, : form.terms].T, dtype)
    return build.plus(build.add("MatMul", a, weights), bias)


def _by_few_bits(build: Builder) -> str | None:
    """Write a product by constants that are dequantized from blocks along the terms, or from 4 bits."""
    graph, columns_first = build.graph, bool(build.attribute("transB", 0))
    makers = {name: node for node in graph.graph.node for name in node.output}
    node = makers.get(build.operand(1))
    if node is not None and node.op_type == "Transpose" and attribute(node, "perm", [1, 0]) == [1, 0]:
        columns_first, node = not columns_first, makers.get(node.input[0])
    if node is None or op_name(node) != "DequantizeLinear" or build.dtype != "float32":
        return None
    values, scales, zeros = (graph.constant(operand(node, place)) for place in range(3))
    if values is None or scales is None or values.ndim != 2 or (operand(node, 2) and zeros is None):
        return None
    kind, block, axis = str(values.dtype), attribute(node, "block_size", 0), attribute(node, "axis", 1) % 2
    if scales.dtype != np.float32 or kind not in FEW_BITS or build.attribute("transA", 0):
        return None
    if build.attribute("beta", 1.0) != 1 or (block and axis != columns_first):
        return None
    columns, terms = values.shape if columns_first else values.shape[::-1]
    if not block:
        if kind in RANGES or (scales.size > 1 and axis == columns_first):
            return None
        block = LONGEST_BLOCK
    if block not in BLOCKS:
        return None
    form = Blockwise(int(kind.removeprefix("u")[3:]), block, terms)

    def by_column(array: NDArray[np.generic]) -> NDArray[np.generic]:
        """Arrange *array* as a number for each block of each column."""
        if array.ndim < 2:
            return np.broadcast_to(array.reshape(-1, 1), (columns, form.blocks))
        return array if columns_first else array.T

    least = 0 if kind.startswith("u") else form.middle  # what all of them are more as MatMulNBits has them
    whole = (values if columns_first else values.T).astype(np.int16) + least
    padded = np.pad(whole, [(0, 0), (0, form.blocks * block - terms)]).reshape(columns, form.blocks, block)
    scale = by_column(scales).astype(np.float32) * np.float32(build.attribute("alpha", 1.0))
    inputs = [build.constant(packed(padded, form.bits), "uint8"), build.constant(scale, "float32")]
    if zeros is not None or not least:
        zero = np.zeros(1, np.int16) if zeros is None else zeros.astype(np.int16)
        inputs.append(build.constant(packed(by_column(zero) + least, form.bits), "uint8"))
    if all(opset.domain != DOMAIN for opset in graph.model.opset_import):
        graph.model.opset_import.add(domain=DOMAIN, version=1)
    result = build.add(
        OPERATOR, build.operand(0), *inputs,
        domain=DOMAIN, K=terms, N=columns, bits=form.bits, block_size=block,
    )  # fmt: skip
    return build.plus(result, build.operand(2))


_ONE_OPERAND = ("LeakyRelu", "Sigmoid", "GlobalAveragePool", "AveragePool")
_QLINEAR: tuple[tuple[str, str, Apply], ...] = (
    ("QLinearConv", "Conv", _qlinear_conv),
    ("QLinearMatMul", "MatMul", _qlinear_matmul),
    *((f"com.microsoft::QLinear{op}", op, _as_float(op, (0, 3), 6)) for op in ("Add", "Mul")),
    *((f"com.microsoft::QLinear{op}", op, _as_float(op, (0,), 3)) for op in _ONE_OPERAND),
    ("com.microsoft::QLinearSoftmax", "Softmax", _softmax),
    ("com.microsoft::QLinearConcat", "Concat", _as_float("Concat", (2,), 0)),
    ("com.microsoft::QLinearWhere", "Where", _as_float("Where", (1, 4), 7, 0)),
    ("com.microsoft::QLinearConv", "Conv", _qlinear_conv),
    ("com.microsoft::QGemm", "Gemm", _qgemm),
)
_PRODUCT = "MatMulInteger, Cast, Mul, Add"
_SCALES = "TVM takes scalar scales or those of one axis, of tensors"
REWRITES = (
    *(
        Rewrite(op, f"DequantizeLinear, {plain}, QuantizeLinear", NO_CONVERTER, apply)
        for op, plain, apply in _QLINEAR
    ),
    *(
        Rewrite(f"{domain}{op}", into, _SCALES, _linear)
        for domain in ("", "com.microsoft::")
        for op, into in (
            ("DequantizeLinear", "Cast, Sub, Mul"),
            ("QuantizeLinear", "Div, Round, Add, Max, Min, Cast"),
        )
    ),
    Rewrite("ConvInteger", "Conv in float32", NO_CONVERTER, _conv_integer),
    Rewrite(MATMUL_N_BITS, "MatMul with weights of floats", NO_CONVERTER, _matmul_n_bits),
    *(
        Rewrite(op, MATMUL_N_BITS, "TVM has no blocks of weights, nor 4 bits", _by_few_bits)
        for op in ("MatMul", "Gemm")
    ),
    Rewrite("com.microsoft::MatMulIntegerToFloat", _PRODUCT, NO_CONVERTER, _matmul_integer_to_float),
    Rewrite(
        "com.microsoft::DynamicQuantizeMatMul",
        f"DynamicQuantizeLinear, {_PRODUCT}",
        NO_CONVERTER,
        _dynamic_quantize_matmul,
    ),
)
