"""Integers that a model computes itself, as those do that are quantized at run time (ConvInteger)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from tvm import relax

from adt.compiler.ir.nodes import operator_name
from adt.compiler.ir.rewriter import static_shape
from adt.compiler.passes.integers.rewriter import Integers
from adt.compiler.passes.integers.tensors import RANGES, Quantized, array_of


def widened(self: Integers, variable: relax.Var, call: relax.Call) -> bool:
    (value,) = call.args
    dtype = str(value.struct_info.dtype)
    if value in self.exact:
        self.exact[variable] = self.exact[value]
        return True
    if variable.struct_info.dtype in ("int32", "float32") and dtype in RANGES:
        array = array_of(value)
        if array is None:
            self.wholes[variable] = Quantized(self.bytes_of(value), 1, self.shift(dtype))
        else:
            self.constants[variable] = array.astype("int32")
    return False  # others may read it


def finite(self: Integers, variable: relax.Var, call: relax.Call) -> bool:
    """Keep a float finite that becomes an integer: sums of these are finite."""
    condition, chosen, _ = call.args
    checks = [
        reader.var
        for reader in self.readers[chosen]
        if reader and operator_name(reader.value) == "relax.isfinite"
    ]
    if chosen not in self.exact or not any(check.same_as(condition) for check in checks):
        return False
    self.exact[variable] = self.exact[chosen]
    return True


def subtracted(self: Integers, variable: relax.Var, call: relax.Call) -> bool:
    value, less = call.args
    if value not in self.constants and value not in self.wholes:
        return False
    number = whole_numbers(self, less)
    if value in self.constants:
        if number is not None:
            self.constants[variable] = self.constants[value] - number
    elif static_shape(less) == ():
        whole = self.wholes[value]
        if not isinstance(whole.zero, int):
            return False
        if number is not None:
            zero = whole.zero + int(number)
        elif less in self.wholes or less.struct_info.dtype == "int32":
            computed = self.emit(relax.op.astype, self.copy(less), "int32")
            zero = self.emit(relax.op.add, computed, relax.const(whole.zero, "int32"))
        else:
            return False
        self.wholes[variable] = replace(whole, zero=zero)
    return False


def whole_numbers(self: Integers, value: relax.Expr) -> Any | None:
    """The numbers of a constant, if all are whole."""
    array = self.constants.get(value, array_of(value))
    return None if array is None or (array != np.rint(array)).any() else array.astype("int32")
