"""Operators that quantize, move, join and average numbers of 8 bits."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from tvm import relax

from adt.compiler.ir.nodes import operator_name
from adt.compiler.ir.rewriter import static_shape
from adt.compiler.passes.dot import SUMS
from adt.compiler.passes.integers.rewriter import Integers, quantization_of
from adt.compiler.passes.integers.tensors import RANGES, Quantized, Weights, along, array_of
from adt.compiler.passes.products import PERMUTE

RESHAPES = frozenset({"relax.expand_dims", "relax.flatten", "relax.reshape", "relax.squeeze"})
"""Operators that move no element."""


def quantize(self: Integers, variable: relax.Var, call: relax.Call) -> bool:
    value, *by = call.args
    if kind := quantization_of(self, call):
        self.bytes[variable] = self.as_kind(value, *kind)
        return True
    scalars = all(static_shape(number) == () for number in by)
    if not scalars or variable.struct_info.dtype not in RANGES or value.struct_info.dtype != "float32":
        return False
    self.bytes[variable] = self.quantized_by(*map(self.copy, call.args))
    return True


def dequantize(self: Integers, variable: relax.Var, call: relax.Call) -> bool:
    value, scale, zero = call.args[0], *map(array_of, call.args[1:3])
    dtype, array = str(value.struct_info.dtype), array_of(value)
    if scale is None or zero is None or variable.struct_info.dtype != "float32":
        return False
    if array is not None and dtype == SUMS and array.ndim == 1 and not zero.any():
        self.biases[variable] = array.astype("float32") * scale
    if dtype not in RANGES:
        return False
    if array is None:
        if scale.size != 1 or zero.size != 1:
            return False
        self.floats[variable] = Quantized(
            self.bytes_of(value), float(scale.item()), int(zero.item()) + self.shift(dtype)
        )
        return True
    if scale.size == zero.size == 1:
        self.embeddings[variable] = Quantized(array, float(scale.item()), int(zero.item()))
    axis = int(call.attrs.axis) % array.ndim if array.ndim else 0
    weights = array.astype("int16") - along(zero.astype("int16"), axis, array.ndim)
    self.weights[variable] = Weights(weights, scale.reshape(-1), axis)
    return False  # other readers want the floats


def transposed_weights(self: Integers, variable: relax.Var, call: relax.Call) -> bool:
    """Transpose quantized weights now, or what is quantized itself."""
    weights = self.weights.get(call.args[0])
    if weights is None:
        return moved(self, variable, call)
    rank = weights.values.ndim
    axes = [int(axis) % rank for axis in call.attrs.axes or range(rank)[::-1]]
    self.weights[variable] = replace(
        weights, values=weights.values.transpose(axes), axis=axes.index(weights.axis)
    )
    return False


def reshaped_weights(self: Integers, variable: relax.Var, call: relax.Call) -> bool:
    """Reshape quantized weights and biases now, or what is quantized itself."""
    weights, shape = self.weights.get(call.args[0]), static_shape(variable)
    if call.args[0] in self.biases and shape is not None:
        self.biases[variable] = self.biases[call.args[0]].reshape(shape)
    if weights is None or shape is None:
        return moved(self, variable, call)
    before, extent = math.prod(weights.values.shape[: weights.axis]), weights.scale.size
    axes = [axis for axis, size in enumerate(shape) if size == extent and math.prod(shape[:axis]) == before]
    if extent == 1 or axes:
        axis = axes[-1] if extent > 1 else 0
        self.weights[variable] = replace(weights, values=weights.values.reshape(shape), axis=axis)
    return False


def taken(self: Integers, variable: relax.Var, call: relax.Call) -> bool:
    """Take rows of what is quantized, and of constants, as embeddings are."""
    table = self.embeddings.get(call.args[0])
    if table is None:
        return moved(self, variable, call)
    more = self.shift(str(table.values.dtype))
    values = relax.const((table.values.astype("int16") + more).astype(self.dtype), self.dtype)
    rows = self.builder.emit(relax.Call(call.op, [values, *map(self.copy, call.args[1:])], call.attrs))
    self.floats[variable] = Quantized(rows, table.scale, table.zero + more)
    return True


def moved(self: Integers, variable: relax.Var, call: relax.Call) -> bool:
    """Move some of the elements of the first operand, whatever they stand for."""
    data, numbers = self.floats.get(call.args[0]), self.constants.get(call.args[0])
    if numbers is not None and operator_name(call) in RESHAPES:
        self.constants[variable] = numbers.reshape(static_shape(variable))
    if data is None:
        return False
    others = [self.copy(arg) for arg in call.args[1:]]

    def move(values: Any) -> Any:
        return self.builder.emit(relax.Call(call.op, [values, *others], call.attrs, call.sinfo_args))

    if data.values in self.of_products and operator_name(call) == PERMUTE:  # their kernels write them so
        values = self.quantized(move(self.of_products[data.values]), data.scale, data.zero, sums=False)
    else:
        values = move(data.values)
    first, moves = self.moved.get(data.values, (data.values, ()))
    self.moved[values] = first, (*moves, move)
    self.floats[variable] = replace(data, values=values)
    return True


def nearest(self: Integers, variable: relax.Var, call: relax.Call) -> bool:
    return str(call.attrs.method) == "nearest_neighbor" and moved(self, variable, call)


def pad(self: Integers, variable: relax.Var, call: relax.Call) -> bool:
    data, attrs = self.floats.get(call.args[0]), call.attrs
    if data is None or len(call.args) != 1 or float(attrs.pad_value) != 0:
        return False
    padded = relax.op.nn.pad(data.values, list(attrs.pad_width), str(attrs.pad_mode), float(data.zero))
    self.floats[variable] = replace(data, values=self.builder.emit(padded))
    return True


def concat(self: Integers, variable: relax.Var, call: relax.Call) -> bool:
    parts = getattr(call.args[0], "fields", ())
    kinds = {self.kind_of(part) for part in parts}
    kind = (kinds.pop() if len(kinds) == 1 else None) or self.wanted(variable)
    if kind is None:
        return False
    joined = relax.op.concat([self.as_kind(part, *kind) for part in parts], int(call.attrs.axis))
    self.floats[variable] = Quantized(self.builder.emit(joined), *kind)
    return True


def relu(self: Integers, variable: relax.Var, call: relax.Call) -> bool:
    """Leave a relu out where nothing that is stored is below the zero point."""
    data = self.floats.get(call.args[0])
    if data is None or data.zero != RANGES[self.dtype][0]:
        return False
    self.floats[variable] = data
    return True


def mean(self: Integers, variable: relax.Var, call: relax.Call) -> bool:
    """Sum integers in float32; nothing but their mean is made a float of the model."""
    data, attrs = self.floats.get(call.args[0]), call.attrs
    if data is None or (getattr(attrs, "count_include_pad", False) and any(attrs.padding)):
        return False
    wide = self.emit(relax.op.astype, data.values, "float32")
    mean = self.builder.emit(relax.Call(call.op, [wide], attrs))
    self.values[variable] = self.dequantized(replace(data, values=mean))
    return True


# Integers that a model computes itself, as those do that are quantized at run time (ConvInteger)


def widened(self: Integers, variable: relax.Var, call: relax.Call) -> bool:
    (value,) = call.args
    dtype, array = str(value.struct_info.dtype), array_of(value)
    if value in self.exact:
        self.exact[variable] = self.exact[value]
        return True
    if variable.struct_info.dtype in ("int32", "float32") and dtype in RANGES:
        if array is None:
            self.wholes[variable] = Quantized(self.bytes_of(value), 1, self.shift(dtype))
        else:
            self.constants[variable] = array.astype("int32")
    return False  # others may read it


def finite(self: Integers, variable: relax.Var, call: relax.Call) -> bool:
    """Keep a float finite that becomes an integer: sums of these are finite."""
    condition, chosen, _ = call.args
    readers = [reader for reader in self.readers[chosen] if reader and reader.var.same_as(condition)]
    if chosen not in self.exact or not any(operator_name(each.value) == "relax.isfinite" for each in readers):
        return False
    self.exact[variable] = self.exact[chosen]
    return True


def subtracted(self: Integers, variable: relax.Var, call: relax.Call) -> bool:
    value, less = call.args
    if value not in self.constants and value not in self.wholes:
        return False
    whole, number = self.wholes.get(value), whole_numbers(self, less)
    if value in self.constants:
        if number is not None:
            self.constants[variable] = self.constants[value] - number
    elif whole and isinstance(whole.zero, int) and static_shape(less) == ():
        if number is not None:
            self.wholes[variable] = replace(whole, zero=whole.zero + int(number))
        elif less in self.wholes or less.struct_info.dtype == "int32":
            computed = self.emit(relax.op.astype, self.copy(less), "int32")
            zero = self.emit(relax.op.add, computed, relax.const(whole.zero, "int32"))
            self.wholes[variable] = replace(whole, zero=zero)
    return False


def whole_numbers(self: Integers, value: relax.Expr) -> Any | None:
    """Return the numbers of a constant, if all are integers."""
    array = self.constants.get(value, array_of(value))
    return None if array is None or (array != np.rint(array)).any() else array.astype("int32")
