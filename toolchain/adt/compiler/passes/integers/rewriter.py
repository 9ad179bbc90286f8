"""A model whose operators on quantized tensors become others, by rules: what is known of its tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import tvm
from tvm import relax

from adt.compiler.ir.nodes import operator_name
from adt.compiler.ir.rewriter import ELEMENTWISE, Rewriter, readers_of
from adt.compiler.passes.dot import Dot
from adt.compiler.passes.integers.tensors import (
    RANGES,
    Floats,
    Pointwise,
    Quantized,
    Sums,
    Weights,
    array_of,
    pointwise_of,
    quantized_values,
)
from adt.package.reports import Convolution

ROUNDS = 3 << 22  # in whose neighbourhood float32 holds integers only


class Integers(Rewriter):
    """Rewriter of ``main`` for a processor that sums products of integers; see :func:`.rules.in_integers`."""

    def __init__(
        self,
        module: tvm.IRModule,
        rules: Mapping[str, Rule],
        data: str,
        least: int,
        computed: Dot | None,
        inlined: bool,
    ) -> None:
        super().__init__(module)
        self.rules = rules
        self.dtype = data if data in RANGES else "uint8"
        """Type uint8 or int8; tensors of the other one are computed in this one."""
        self.least = least
        self.dot_of_computed = computed
        self.inlined = inlined
        self.floats: dict[relax.Var, Quantized] = {}
        """Variable of the old function that stands for floats, which nothing has computed yet."""
        self.moved: dict[relax.Var, tuple[relax.Var, tuple[Callable[[relax.Expr], relax.Expr], ...]]] = {}
        """Variable of 8 bits of the new function to what was moved to it, and what moves a tensor so."""
        self.products: set[relax.Var] = set()
        """Variables of the old function that are products of computed floats."""
        self.of_products: dict[relax.Var, relax.Var] = {}
        """Variable of 8 bits of the new function to the floats of such that it is."""
        self.bytes: dict[relax.Var, relax.Var] = {}
        """Variable of 8 bits of the old function, to what it is as :attr:`dtype`."""
        self.weights: dict[relax.Var, Weights] = {}
        self.embeddings: dict[relax.Var, Quantized] = {}
        """Variable of the old function that is constant floats, to the numpy array that they are of."""
        self.wholes: dict[relax.Var, Quantized] = {}
        """Variable of integers, int32 or float32, of the old function: the scale is 1."""
        self.constants: dict[relax.Var, Any] = {}
        """Map from such a variable to its numbers, if they are known."""
        self.exact: dict[relax.Var, relax.Var] = {}
        """Variable of the old function, of any type, to sums of the new one that have its numbers."""
        self.biases: dict[relax.Var, Any] = {}
        """Variable of the old function to the numpy array of floats that it is: an element per channel."""
        self.scaled: dict[relax.Var, Sums] = {}  # floats of the new function to what they are computed of
        self.sums: set[relax.Var] = set()
        """Variables of the old function that are sums, or computed from one element by element."""
        self.readers = readers_of(module)
        self.kinds: dict[tuple[relax.Var, float, int], relax.Var] = {}
        """Variable of the old function, scale and zero to its 8 bits of these."""
        self.functions: dict[relax.Var, Pointwise] = {}
        """Variable of the old function to what it is of a tensor of 8 bits."""
        self.tables: dict[relax.Var, Pointwise] = {}
        """Variable of 8 bits of the new function to what it was looked up of."""
        self.report: list[Convolution] = []  # result for each convolution and product

    def value_of(self, variable: relax.Var) -> relax.Var:
        """Return the value in the new function; each reader computes floats, fused with it."""
        if variable in self.floats:
            return self._floats_of(variable)
        if variable in self.exact and variable not in self.values:
            sums, dtype = self.exact[variable], variable.struct_info.dtype
            same = sums.struct_info.dtype == dtype
            self.values[variable] = sums if same else self.emit(relax.op.astype, sums, dtype)
        if variable in self.bytes and variable not in self.values:
            self.values[variable] = self.shifted(self.bytes[variable], variable.struct_info.dtype)
        return super().value_of(variable)

    def bind(self, binding: relax.VarBinding) -> None:
        variable, value = binding.var, binding.value
        name = operator_name(value)
        if name in ELEMENTWISE and not self.sums.isdisjoint(value.args):
            self.sums.add(variable)
        if function := pointwise_of(variable, value, self.function_of):
            self.functions[variable] = function
        if isinstance(value, relax.TupleGetItem) and value.tuple_value in self.floats:
            parts = self.floats[value.tuple_value]
            part = self.builder.emit(relax.TupleGetItem(parts.values, value.index))
            self.floats[variable] = replace(parts, values=part)
            return
        rule = self.rules.get(name)
        if rule is None or isinstance(binding, relax.MatchCast) or not rule(self, variable, value):
            super().bind(binding)

    def convolutions(self) -> tuple[Convolution, ...]:
        """Return the report of a model that has quantized tensors, of others nothing."""
        computed = any(not row.reason for row in self.report)
        return tuple(self.report) if self.floats or self.weights or computed else ()

    def emit(self, op: Callable[..., relax.Expr], *args: Any, **attributes: Any) -> relax.Var:
        return self.builder.emit(op(*args, **attributes))

    def number(self, value: float, dtype: str = "float32") -> relax.Expr:
        """Return a tensor of one element."""
        return relax.const(np.full(() if self.inlined else (1,), value, dtype), dtype)

    def less(self, sums: relax.Expr, border: relax.Expr) -> relax.Expr:
        """Subtract the array *border* from *sums*."""
        if not border.any():
            return sums
        dtype = str(sums.struct_info.dtype)
        return self.emit(relax.op.subtract, sums, relax.const(border.astype(dtype), dtype))

    def emit_sums(self, sums: Sums) -> relax.Expr:
        """Emit the floats that *sums* are."""
        whole = self.less(sums.sums, sums.border)
        if whole.struct_info.dtype != "float32":
            whole = self.emit(relax.op.astype, whole, "float32")
        scale = self.number(sums.scale.item()) if sums.scale.size == 1 else relax.const(sums.scale, "float32")
        result = self.emit(relax.op.multiply, whole, scale)
        self.scaled[result] = sums
        return result

    def in_bytes(self, weights: relax.Expr, axis: int) -> tuple[relax.Expr, relax.Expr]:
        """Return *weights* as int8, and their offset for each index of *axis*; Floats if there is none."""
        others = tuple(at for at in range(weights.ndim) if at != axis)
        low, high = (bound(weights, axis=others, initial=0, keepdims=True) for bound in (np.min, np.max))
        most = RANGES["int8"][1]
        missing = np.where((low < self.least) | (high > most), (low + high + 1) // 2, 0)
        if (low - missing < self.least).any() or (high - missing > most).any():
            raise Floats("its weights are more different numbers than the instruction takes")
        return (weights - missing).astype("int8"), missing.reshape(-1)

    def shift(self, dtype: str) -> int:
        """Return the difference between a number as :attr:`dtype` and as *dtype*."""
        return RANGES[self.dtype][0] - RANGES[dtype][0]

    def quantized(self, value: relax.Expr, scale: float, zero: int, *, sums: bool) -> relax.Expr:
        """Quantize the float tensor *value* of the new function to :attr:`dtype`.

        *sums* are multiplied by 1 / *scale*, much faster than the division of the model's own runtime: hardly
        one lies in the middle of two quanta, where that matters. Values that were quantized before often do.
        """
        op = relax.op
        low, high = (self.number(bound - zero + ROUNDS) for bound in RANGES[self.dtype])
        if scaled := self.scaled.get(value):
            # One factor, as runtimes of such models have it.
            steps = self.emit_sums(replace(scaled, scale=scaled.scale / np.float32(scale)))
        elif sums:
            steps = self.emit(op.multiply, value, self.number(1 / scale))
        else:
            steps = self.emit(op.divide, value, self.number(scale))
        return self._rounded(steps, low, high, self.number(ROUNDS - zero))

    def quantized_by(self, value: relax.Expr, scale: relax.Expr, zero: relax.Expr) -> relax.Expr:
        """Quantize the float tensor *value* by scalars of the new function, a scale and a zero of 8 bits."""
        op, shift = relax.op, self.shift(zero.struct_info.dtype)
        floats = self.emit(op.astype, zero, "float32")
        start = self.emit(op.subtract, relax.const(float(ROUNDS - shift)), floats)
        low, high = (self.emit(op.add, start, relax.const(float(bound))) for bound in RANGES[self.dtype])
        return self._rounded(self.emit(op.divide, value, scale), low, high, start)

    def _rounded(self, steps: relax.Expr, low: relax.Expr, high: relax.Expr, start: relax.Expr) -> relax.Expr:
        """Round *steps* to quantization steps from *low* to *high*, and subtract *start*: all more by ROUNDS.

        A sum with ROUNDS has no digits behind the point: it is rounded as ONNX rounds, by vectors. The limits
        stand between, since TVM drops a number that is added and subtracted again.
        """
        op = relax.op
        least = self.emit(op.maximum, self.emit(op.add, steps, self.number(ROUNDS)), low)
        steps = self.emit(op.subtract, self.emit(op.minimum, least, high), start)
        return self.emit(op.astype, steps, self.dtype)

    def kind_of(self, variable: relax.Var) -> tuple[float, int] | None:
        """Return the scale and zero of the floats *variable*, if nothing has computed them yet."""
        tensor = self.floats.get(variable)
        return (tensor.scale, tensor.zero) if tensor else None

    def as_kind(self, variable: relax.Var, scale: float, zero: int) -> relax.Expr:
        """Return the floats *variable* as 8 bits of such a scale and zero."""
        if self.kind_of(variable) == (scale, zero):
            return self.floats[variable].values
        key = (variable, scale, zero)
        if key not in self.kinds:
            function = self.functions.get(variable)
            if function and function.slow:
                self.kinds[key] = self._looked_up(function, scale, zero)
            else:
                value = self.copy(variable)
                self.kinds[key] = self.quantized(value, scale, zero, sums=variable in self.sums)
                if variable in self.products:
                    self.of_products[self.kinds[key]] = value
        return self.kinds[key]

    def function_of(self, variable: relax.Var) -> Pointwise | None:
        """Return the floats *variable* as a function of a tensor of 8 bits."""
        tensor = self.floats.get(variable)
        if tensor is None:
            return self.functions.get(variable)
        every = Pointwise(tensor.values, np.arange(256, dtype="uint8").view(self.dtype))
        table = self.tables.get(tensor.values, every)
        floats = (table.values.astype("float32") - tensor.zero) * np.float32(tensor.scale)
        return replace(table, values=floats)

    def _looked_up(self, function: Pointwise, scale: float, zero: int) -> relax.Expr:
        """Look up the 8 bits that *function* gives, quantized."""
        numbers = quantized_values(function.values, scale, zero, *RANGES[self.dtype]).astype(self.dtype)
        bits = self.emit(relax.op.astype, function.base, "uint8")
        index = self.emit(relax.op.astype, bits, "int32")
        result = self.emit(relax.op.take, relax.const(numbers), index, axis=0, mode="clip")
        self.tables[result] = replace(function, values=numbers)
        return result

    def wanted(self, variable: relax.Var) -> tuple[float, int] | None:
        """Return the scale and zero by which every reader of *variable* quantizes it."""
        kinds = {quantization_of(self, reader.value) if reader else None for reader in self.readers[variable]}
        return kinds.pop() if len(kinds) == 1 else None

    def _floats_of(self, variable: relax.Var) -> relax.Expr:
        """Return the floats that *variable* of 8 bits stands for.

        Products of computed floats read these where they lie, transposed or not: they are moved after they
        were made floats, and the producer of the 8 bits gives floats instead.
        """
        tensor = self.floats[variable]
        products = self.dot_of_computed is None and all(
            reader
            and operator_name(reader.value) == "relax.matmul"
            and reader.value.args[1].struct_info.ndim > 2
            for reader in self.readers[variable]
        )
        unmoved = tensor.values, ()
        first, moves = self.moved.get(tensor.values, unmoved) if products else unmoved
        value = self.dequantized(replace(tensor, values=first))
        for move in moves:
            value = move(value)
        return value

    def dequantized(self, tensor: Quantized) -> relax.Expr:
        """Return the floats that *tensor* stands for."""
        value = self.emit(relax.op.astype, tensor.values, "float32")
        if tensor.zero:
            value = self.emit(relax.op.subtract, value, self.number(tensor.zero))
        return self.emit(relax.op.multiply, value, self.number(tensor.scale))

    def shifted(self, value: relax.Expr, dtype: str) -> relax.Expr:
        """Convert the 8-bit tensor *value* to *dtype*, shifted as its range is."""
        own = str(value.struct_info.dtype)
        if own == dtype:
            return value
        wide = self.emit(relax.op.astype, value, "int16")
        more = relax.const(RANGES[dtype][0] - RANGES[own][0], "int16")
        return self.emit(relax.op.astype, self.emit(relax.op.add, wide, more), dtype)

    def bytes_of(self, variable: relax.Var) -> relax.Expr:
        """Convert the *variable* of 8 bits to :attr:`dtype`."""
        if variable not in self.bytes:
            self.bytes[variable] = self.shifted(super().value_of(variable), self.dtype)
        return self.bytes[variable]


Rule = Callable[[Integers, relax.Var, relax.Call], bool]
"""Function that rewrites the call that a variable is bound to; False: it is copied."""


def quantization_of(self: Integers, call: relax.Expr) -> tuple[float, int] | None:
    """Return the scale and zero by which *call* quantizes floats, if it does by one for all."""
    if operator_name(call) != "relax.quantize" or call.args[0].struct_info.dtype != "float32":
        return None
    dtype, scale, zero = str(call.struct_info.dtype), *map(array_of, call.args[1:3])
    if dtype not in RANGES or scale is None or zero is None or not scale.size == zero.size == 1:
        return None
    return (float(scale.item()), int(zero.item()) + self.shift(dtype)) if scale.item() > 0 else None
