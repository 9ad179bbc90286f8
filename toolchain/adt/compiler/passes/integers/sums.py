"""Convolutions and products: sums of integers, with a bias, and what they are scaled by."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tvm import relax

from adt.compiler.ir.nodes import operator_name
from adt.compiler.ir.rewriter import static_shape
from adt.compiler.passes.dot import SUMS
from adt.compiler.passes.integers.moves import whole_numbers
from adt.compiler.passes.integers.rewriter import Integers, Rule
from adt.compiler.passes.integers.tensors import (
    EXACT,
    LARGEST,
    RANGES,
    SUMMED,
    Floats,
    Quantized,
    Sums,
    Weights,
    along,
)
from adt.compiler.passes.layout.convolutions import in_steps, outputs_first, window_of
from adt.package.reports import Convolution

TOO_LARGE = "a sum could be too large"
LEAST_ROWS = 4
"""Rows from which on it is worth to pack what a product of computed tensors multiplies them by."""


def summed(compute: Callable[[Integers, relax.Expr, relax.Expr], relax.Expr]) -> Rule:
    """Return the rule of a convolution or product whose new value *compute* gives, or raises Floats."""

    def rule(self: Integers, variable: relax.Var, call: relax.Call) -> bool:
        reason = ""
        try:
            result = compute(self, variable, call)
            (self.exact if call.args[0] in self.wholes else self.values)[variable] = result
            self.sums.add(variable)
        except Floats as floats:
            reason = str(floats)
            if call.args[1] not in self.weights:
                self.products.add(variable)
        self.report.append(_reported(variable, call, reason))
        return not reason

    return rule


def _reported(variable: relax.Var, call: relax.Call, reason: str) -> Convolution:
    name, kind = variable.name_hint, operator_name(call)
    result, data, weight = (
        static_shape(tensor) or (0,) * tensor.struct_info.ndim for tensor in (variable, *call.args)
    )
    if kind == "relax.matmul":
        inputs, outputs = weight[-2:] if len(weight) > 1 else (*weight, 1)
        return Convolution(name, (outputs, inputs), 1, math.prod(result) * inputs, reason, kind="product")
    groups, layout = int(call.attrs.groups), str(call.attrs.kernel_layout)
    spread, channel = (data, "I") if kind.endswith("_transpose") else (result, "O")
    macs = math.prod(spread) * math.prod(weight) // max(1, weight[layout.index(channel)])
    order = sorted(range(len(layout)), key=lambda axis: ("OI".find(layout[axis]) % 3, axis))
    return Convolution(name, tuple(weight[axis] for axis in order), groups, macs, reason)


def _operands(self: Integers, call: relax.Call) -> tuple[Quantized, Weights]:
    """Return the quantized data and constants of a convolution or product."""
    data, weights = self.floats.get(call.args[0]), self.weights.get(call.args[1])
    if call.args[0] in self.wholes:
        data, numbers = self.wholes[call.args[0]], whole_numbers(self, call.args[1])
        if numbers is not None and np.abs(numbers).max(initial=0) <= LARGEST:
            weights = Weights(numbers.astype("int16"), np.ones(1, "float32"), 0)
    if data is None:
        raise Floats("its input is not quantized")
    if weights is None:
        raise Floats("its weights are no constants of 8 bits")
    return data, weights


def convolution(self: Integers, variable: relax.Var, call: relax.Call) -> Any:
    """Compute a convolution in integers; Floats where it has to stay in floats."""
    attrs = call.attrs
    data, weights = _operands(self, call)
    layouts = [str(layout) for layout in (attrs.data_layout, attrs.kernel_layout, attrs.out_layout)]
    output = layouts[1].index("O")
    if weights.scale.size > 1 and weights.axis != output:
        raise Floats("its weights have several scales in a sum")
    groups, channel = int(attrs.groups), layouts[0].index("C")
    shape = (static_shape(variable) or ())[channel : channel + 1]
    if shape != weights.values.shape[output : output + 1] or layouts[2] not in ("", layouts[0]):
        raise Floats("its layout is unusual")
    values = _with_border(self, data, layouts[0], attrs.padding)

    def convolved(data: relax.Expr, weights: relax.Expr, dtype: str) -> Any:
        return self.emit(
            getattr(relax.op.nn, call.op.name.rpartition(".")[2]),
            data,
            relax.const(weights),
            strides=list(attrs.strides),
            padding=0,
            dilation=list(attrs.dilation),
            groups=groups,
            data_layout=layouts[0],
            kernel_layout=layouts[1],
            out_dtype=dtype,
        )

    if groups > 1:
        # Channel by channel no instruction sums several products; of so few, float32 is exact, and fast.
        sums = convolved(values, weights.values, "float32")
    else:
        sums = _sums(self, values, weights.values, (output, layouts[1].index("I")), channel, convolved)
    return _scaled(self, sums, data, weights, output, channel, whole=call.args[0] in self.wholes)


def _sums(
    self: Integers,
    values: Any,
    weights: relax.Expr,
    axes: tuple[int, int],
    channel: int,
    multiplied: Callable[[relax.Expr, relax.Expr, str], relax.Expr],
) -> Any:
    """Sum *values* (8 bits) times the array *weights*; *multiplied* computes that in a given type.

    *axes* are those of outputs and inputs in the weights, *channel* the axis that both are in tensors.
    """
    op = relax.op
    stored, missing = self.in_bytes(weights, axes[0])
    sums = multiplied(values, stored, SUMS)
    if not missing.any():
        return sums
    if weights.size // weights.shape[axes[0]] * LARGEST >= EXACT:
        raise Floats(TOO_LARGE)
    # What is missing to all weights of an output is multiplied by the sum of what they are multiplied by.
    of_channels = self.emit(op.sum, self.emit(op.astype, values, "float32"), [channel], keepdims=True)
    ones = np.ones([1 if axis in axes else size for axis, size in enumerate(weights.shape)], "float32")
    totals = self.emit(op.astype, multiplied(of_channels, ones, "float32"), SUMS)
    factors = along(missing.astype(SUMS), channel, len(sums.struct_info.shape))
    return self.emit(op.add, sums, self.emit(op.multiply, totals, relax.const(factors, SUMS)))


def transposed(self: Integers, variable: relax.Var, call: relax.Call) -> Any:
    """Compute a plain convolution whose channels are those of each pixel of a step, and move them there."""
    op, attrs = relax.op, call.attrs
    data, weights = _operands(self, call)
    layouts = [str(layout) for layout in (attrs.data_layout, attrs.kernel_layout)]
    inputs, output = static_shape(call.args[0]), static_shape(variable)
    if weights.scale.size > 1 and weights.axis != 1:
        raise Floats("its weights have several scales in a sum")
    if not inputs or not output or not layouts[0].startswith("NC") or not layouts[1].startswith("IO"):
        raise Floats("its layout is unusual")
    array, channels = outputs_first(weights.values, 1), output[1]
    transposed_window = window_of(array.shape[2:], attrs)
    array, window, first = in_steps(array, transposed_window, 1, channels, inputs[2:], output[2:])
    strides, rank = transposed_window.strides, len(transposed_window.strides)
    if int(attrs.groups) > 1 or max(attrs.dilation) > 1 or min(*window.before, *window.after) < 0:
        raise Floats("it has groups or is dilated, or its border is wider than its window")
    values = _with_border(self, data, layouts[0], (*window.before, *window.after))

    def convolved(data: relax.Expr, weights: relax.Expr, dtype: str) -> Any:
        return self.emit(getattr(op.nn, f"conv{rank}d"), data, relax.const(weights), out_dtype=dtype)

    sums = _sums(self, values, array, (0, 1), 1, convolved)
    scale = np.tile(np.broadcast_to(weights.scale, (channels,)), math.prod(strides))
    pixels = _scaled(self, sums, data, Weights(array, scale, 0), 0, 1)
    extents = window.extents(inputs[2:])
    split = self.emit(op.reshape, pixels, (output[0], *strides, channels, *extents))
    order = [0, 1 + rank, *(axis for place in range(rank) for axis in (2 + rank + place, 1 + place))]
    wide = [extent * step for extent, step in zip(extents, strides, strict=True)]
    whole = self.emit(op.reshape, self.emit(op.permute_dims, split, order), (*output[:2], *wide))
    ends = [start + extent for start, extent in zip(first, output[2:], strict=True)]
    return self.emit(op.strided_slice, whole, list(range(2, 2 + rank)), list(first), ends)


def _with_border(self: Integers, data: Quantized, layout: str, border: Sequence[Any]) -> Any:
    """Pad the 8 bits with what stands for zero: a *border* as convolutions' padding is written."""
    padding = [int(extent) for extent in border]
    if not any(padding):
        return data.values
    rank = len(layout) - 2
    padding = padding * 2 if len(padding) == rank else padding
    widths = [0] * 2 * len(layout)
    spatial = [axis for axis, name in enumerate(layout) if name not in "NC"]
    for place, axis in enumerate(spatial):
        widths[2 * axis : 2 * axis + 2] = padding[place], padding[rank + place]
    number = data.zero if isinstance(data.zero, int) else 0
    padded = self.emit(relax.op.nn.pad, data.values, widths, "constant", float(number))
    if number is data.zero:
        return padded
    sizes = [1 if name in "NC" else int(padded.struct_info.shape[axis]) for axis, name in enumerate(layout)]
    around = np.ones(sizes, self.dtype)
    around[tuple(slice(low, -high or None) for low, high in zip(widths[::2], widths[1::2], strict=True))] = 0
    zero = self.emit(relax.op.astype, self.emit(relax.op.reshape, data.zero, (1,) * len(layout)), self.dtype)
    return self.emit(relax.op.add, padded, self.emit(relax.op.multiply, zero, relax.const(around)))


def product(self: Integers, variable: relax.Var, call: relax.Call) -> Any:
    """Compute a product in integers; Floats where it has to stay in floats."""
    if call.args[0] in self.floats and call.args[1] in self.floats:
        return _product_of_computed(self, call)
    data, weights = _operands(self, call)
    if weights.values.ndim != 2 or (weights.scale.size > 1 and weights.axis != 1):
        raise Floats("its weights are several matrices, or have several scales in a sum")

    def multiplied(data: relax.Expr, weights: relax.Expr, dtype: str) -> Any:
        return self.emit(relax.op.matmul, data, relax.const(weights), out_dtype=dtype)

    channel = len(static_shape(variable) or ()) - 1
    sums = _sums(self, data.values, weights.values, (1, 0), channel, multiplied)
    return _scaled(self, sums, data, weights, 1, channel, whole=call.args[0] in self.wholes)


def _product_of_computed(self: Integers, call: relax.Call) -> Any:
    """Multiply two quantized tensors, as attention does."""
    op, dot = relax.op, self.dot_of_computed
    if dot is None:
        raise Floats("no instruction for two computed tensors takes all numbers")
    left, right = (self.floats[tensor] for tensor in call.args)
    a, b = (static_shape(tensor) or () for tensor in call.args)
    if min(len(a), len(b)) < 2 or a[-2] < LEAST_ROWS or a[-1] % dot.terms:
        raise Floats(f"it has under {LEAST_ROWS} rows, or sums of no multiple of {dot.terms} products")
    if a[-1] * LARGEST * LARGEST >= SUMMED:
        raise Floats(TOO_LARGE)
    scale = self.number(left.scale * right.scale)
    if dot.data not in RANGES:  # there is room for what is around zero
        x, y = (
            self.emit(
                op.subtract, self.emit(op.astype, part.values, dot.data), self.number(part.zero, dot.data)
            )
            for part in (left, right)
        )
        sums = self.emit(op.matmul, x, y, out_dtype="int32")
        return self.emit(op.multiply, self.emit(op.astype, sums, "float32"), scale)
    x, y = left.values, self.shifted(right.values, dot.weights)
    zero = right.zero + RANGES[dot.weights][0] - RANGES[self.dtype][0]
    sums = self.emit(op.matmul, x, y, out_dtype="int32")
    # sum((x - zx) * (y - zy)) = sum(x * y) - zx * sum(y) - zy * sum(x) + terms * zx * zy
    for part, factor, axis in ((y, left.zero, -2), (x, zero, -1)):
        if factor:
            total = self.emit(op.sum, self.emit(op.astype, part, "int32"), axis=[axis], keepdims=True)
            sums = self.emit(op.subtract, sums, self.emit(op.multiply, total, self.number(factor, "int32")))
    if border := a[-1] * left.zero * zero:
        sums = self.emit(op.add, sums, self.number(border, "int32"))
    return self.emit(op.multiply, self.emit(op.astype, sums, "float32"), scale)


def _scaled(
    self: Integers,
    sums: Any,
    data: Quantized,
    weights: Weights,
    outputs: int,
    axis: int,
    *,
    whole: bool = False,
) -> Any:
    """Scale *sums* of *data* times *weights* to floats.

    The channels are axis *outputs* of the weights and *axis* of the sums. With *whole*, the scales are 1,
    and integers are wanted. Floats if a sum could be too large.
    """
    rank, dtype = len(sums.struct_info.shape), str(sums.struct_info.dtype)
    terms = tuple(at for at in range(weights.values.ndim) if at != outputs)
    largest = LARGEST * int(np.abs(weights.values).sum(terms, dtype=np.int64).max(initial=0))
    if largest >= (EXACT if dtype == "float32" else SUMMED):
        raise Floats(TOO_LARGE)
    totals = along(weights.values.sum(terms, dtype=np.int64), axis, rank)
    if isinstance(data.zero, int):
        border = totals * data.zero
    else:
        border, zero = totals * 0, self.emit(relax.op.astype, data.zero, dtype)
        product = self.emit(relax.op.multiply, zero, relax.const(totals.astype(dtype), dtype))
        sums = self.emit(relax.op.subtract, sums, product)
    if whole:
        return self.less(sums, border)
    scale = np.float32(data.scale) * weights.scale.astype(np.float32)
    form = scale.reshape(1) if scale.size == 1 else along(scale, axis, rank)
    return self.emit_sums(Sums(sums, border, form, largest))


def biased(self: Integers, variable: relax.Var, call: relax.Call) -> bool:
    """Add a bias to the sums as the integer that it is of their scale, as models' runtimes do."""
    for value, bias in (call.args, call.args[::-1]):
        sums, floats = self.scaled.get(self.values.get(value)), self.biases.get(bias)
        if sums is None or floats is None:
            continue
        with np.errstate(divide="ignore", invalid="ignore"):  # the scale of a channel of zeros may be 0
            steps = np.rint(floats / sums.scale)
        if not np.allclose(steps * sums.scale, floats, rtol=1e-5, atol=0):
            continue
        border = sums.border - steps.astype(np.int64)
        if border.shape == sums.border.shape and sums.largest + np.abs(border).max(initial=0) < SUMMED:
            self.values[variable] = self.emit_sums(replace(sums, border=border))
            return True
    return False
