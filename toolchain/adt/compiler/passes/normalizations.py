"""Softmax and normalizations as one kernel each, also where an exporter wrote them as many operators.

How a kernel goes through a row is the target's: it says so by its :class:`Row`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import tvm
from tvm import relax, te, tirx

from adt.compiler.ir.nodes import operator_name
from adt.compiler.ir.rewriter import Rewriter, static_shape

Element = Callable[..., tirx.PrimExpr]
"""Function that gives an element of a tensor, by its place."""


@dataclass(frozen=True)
class Normalization:
    """``(x − mean) / √(variance + epsilon) · scale + shift`` over the last *axes* axes."""

    x: Any
    axes: int
    epsilon: float
    centred: bool = True
    """False: without the mean, by the root of the mean square."""
    scale: Any = None
    shift: Any = None

    @property
    def extras(self) -> list[Any]:
        """Scale and shift, those that there are."""
        return [extra for extra in (self.scale, self.shift) if extra is not None]


class Row(Protocol):
    """The rows of a tensor as a kernel goes through them; *at* is the place of an element there."""

    length: int
    """Elements of a row."""

    def filled(self, value: float) -> Element:
        """Return the tensor's element by place; *value* where a place is behind the row."""

    def each(self, value: Element, name: str) -> Element:
        """Return *value* for each place, computed once if it can be kept."""

    def masked(self, value: Element, name: str) -> Element:
        """Return what :meth:`each` does, and 0 behind the row."""

    def reduced(self, reduce: Element, value: Element, name: str) -> Element:
        """Return the sum or maximum of what *value* gives for the places of a row, by any place of it."""

    def result(self, value: Element, name: str) -> te.Tensor:
        """Return the tensor of what *value* gives for each place, and for its element's indices."""


@dataclass(frozen=True)
class Rows:
    """Kernels of a target for rows."""

    row: Callable[[te.Tensor], Row]
    """Loops of a kernel over the rows of a tensor, which are its last axis."""
    columns: Callable[[te.Tensor], Row] | None = None
    """Loops where rows are the axes between the first two and the last one; None: no kernel does."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """Attributes of a kernel."""
    channels: bool = False
    """True if what each channel's places are normalized by is left an operator, for the layout walk."""


class Normalizations(Rewriter):
    """Rewriter of softmaxes and normalizations of float32 to kernels, over last axes of known extents."""

    def __init__(self, module: tvm.IRModule, rows: Rows) -> None:
        super().__init__(module)
        self.rows = rows
        self.bound: dict[relax.Var, relax.Expr] = {}  # variable of the module to its value
        self.normal: dict[relax.Var, Normalization] = {}
        """Variable of the module that is a normalization; what only leads to it is left out later."""

    def bind(self, binding: relax.VarBinding) -> None:
        variable, value = binding.var, binding.value
        self.bound[variable] = value
        if not isinstance(value, relax.Call) or static_shape(variable) is None or not _is_float(variable):
            super().bind(binding)
        elif operator_name(value) == "relax.nn.softmax" and _last_axes(value, [int(value.attrs.axis)]):
            self.values[variable] = self._row_kernel(_softmax, [value.args[0]], 1, "softmax")
        elif operator_name(value) == "relax.nn.softmax" and self.rows.columns is not None:
            self.values[variable] = self._column_softmax(value, self.rows.columns)
        elif normal := self._normalization(value):
            self.normal[variable] = normal
            if self.rows.channels and _of_channels(normal):
                self.values[variable] = self.builder.emit(_by_channel(self.copy(normal.x), normal))
                return
            self.values[variable] = self._row_kernel(
                lambda row, *rest: _normalized(row, normal, rest),
                [normal.x, *normal.extras],
                normal.axes,
                "normalization",
            )
        else:
            super().bind(binding)

    def _row_kernel(
        self, expression: Element, operands: Sequence[relax.Expr], axes: int, name: str
    ) -> relax.Var:
        """Emit the kernel of the *expression* of the operands, whose last *axes* axes are one."""
        shape = static_shape(operands[0]) or ()
        flat = [_flat(static_shape(operand) or (), len(shape), axes) for operand in operands]
        tensors = [
            self.builder.emit(relax.op.reshape(self.copy(operand), extents))
            if extents != static_shape(operand)
            else self.copy(operand)
            for operand, extents in zip(operands, flat, strict=True)
        ]
        result = self.builder.emit_te(
            lambda x, *rest: expression(self.rows.row(x), *rest),
            *tensors,
            primfunc_name_hint=name,
            primfunc_attrs=dict(self.rows.attributes),
        )
        return result if flat[0] == shape else self.builder.emit(relax.op.reshape(result, shape))

    def _column_softmax(self, call: relax.Call, columns: Callable[[te.Tensor], Row]) -> relax.Expr:
        shape = static_shape(call) or ()
        axis = int(call.attrs.axis) % len(shape)
        flat = (math.prod(shape[:axis]), 1, shape[axis], math.prod(shape[axis + 1 :]))
        result = self.builder.emit_te(
            lambda x: _softmax(columns(x)),
            self.builder.emit(relax.op.reshape(self.copy(call.args[0]), flat)),
            primfunc_name_hint="softmax",
            primfunc_attrs=dict(self.rows.attributes),
        )
        return self.builder.emit(relax.op.reshape(result, shape))

    def _normalization(self, call: relax.Call) -> Normalization | None:
        """Return the normalization that *call* ends, if it ends one."""
        name, args = operator_name(call), call.args
        if name in ("relax.nn.layer_norm", "relax.nn.rms_norm"):
            centred = name == "relax.nn.layer_norm"
            axes = [int(axis) for axis in call.attrs.axes]
            extras = tuple(args[1:]) if centred else (args[1], None)
            count = _last_axes(args[0], axes)
            return (
                Normalization(args[0], count, float(call.attrs.epsilon), centred, *extras) if count else None
            )
        if name == "relax.nn.group_norm":
            return _of_group_norm(call)
        if name == "relax.multiply":
            return self._extended(args, "scale") or self._by_inverse(*args)
        if name == "relax.add":
            return self._extended(args, "shift")
        return self._by_deviation(args[0], args[1]) if name == "relax.divide" else None

    def _value(self, variable: relax.Expr) -> Any:
        """Return what *variable* is bound to; None where it is no variable, or an input."""
        return self.bound.get(variable)

    def _extended(self, operands: Sequence[relax.Expr], name: str) -> Normalization | None:
        """Return the normalization among *operands* with the other one as its ``scale`` or ``shift``."""
        for normal, extra in (operands, reversed(operands)):
            whole = self.normal.get(normal)
            if whole is None or whole.shift is not None or not _fits(extra, whole):
                continue
            if name == "shift" or whole.scale is None:
                return replace(whole, **{name: extra})
        return None

    def _by_inverse(self, first: relax.Expr, second: relax.Expr) -> Normalization | None:
        """Match a product by 1 / √(…)."""
        for value, inverse in ((first, second), (second, first)):
            call = self._value(inverse)
            name = operator_name(call)
            if name == "relax.rsqrt":
                return self._by_root(value, call.args[0])
            if name == "relax.divide" and _number(call.args[0]) == 1:
                return self._by_deviation(value, call.args[1])
        return None

    def _by_deviation(self, value: relax.Expr, deviation: relax.Expr) -> Normalization | None:
        call = self._value(deviation)
        return self._by_root(value, call.args[0]) if operator_name(call) == "relax.sqrt" else None

    def _by_root(self, value: relax.Expr, radicand: relax.Expr) -> Normalization | None:
        """Match ``value / √radicand``, where that is the mean square of *value*, or its source's variance."""
        total = self._value(radicand)
        if operator_name(total) != "relax.add":
            return None
        for mean, number in (total.args, reversed(total.args)):
            epsilon, square = _number(number), self._value(mean)
            if epsilon is None or operator_name(square) not in ("relax.mean", "relax.variance"):
                continue
            axes = [int(axis) for axis in square.attrs.axis or ()]
            count = _last_axes(value, axes) if square.attrs.keepdims else 0
            source = self._centred(value, axes)
            if not count:
                return None
            if operator_name(square) == "relax.variance":
                same = source is not None and square.args[0].same_as(source)
                return Normalization(source, count, epsilon) if same else None
            if not self._is_square(square.args[0], value):
                return None
            return Normalization(value if source is None else source, count, epsilon, source is not None)
        return None

    def _centred(self, value: relax.Expr, axes: Sequence[int]) -> relax.Expr | None:
        """Return the tensor from which *value* subtracts its mean over *axes*; None: it does not."""
        call = self._value(value)
        if operator_name(call) != "relax.subtract":
            return None
        source, mean = call.args[0], self._value(call.args[1])
        if operator_name(mean) != "relax.mean" or not mean.args[0].same_as(source) or not mean.attrs.keepdims:
            return None
        return source if [int(axis) for axis in mean.attrs.axis or ()] == list(axes) else None

    def _is_square(self, square: relax.Expr, value: relax.Expr) -> bool:
        call = self._value(square)
        name = operator_name(call)
        if name == "relax.power":
            return bool(call.args[0].same_as(value)) and _number(call.args[1]) == 2
        if name == "relax.square":
            return bool(call.args[0].same_as(value))
        return name == "relax.multiply" and all(factor.same_as(value) for factor in call.args)


def _of_channels(normal: Normalization) -> bool:
    """Return True if all places of a channel are normalized, by constants of the channel."""
    shape = static_shape(normal.x) or ()
    if not normal.centred or normal.axes != len(shape) - 2 or len(normal.extras) < 2:
        return False
    return all(
        isinstance(extra, relax.Constant) and _padded(extra, len(shape)) == (1, shape[1], *(1,) * normal.axes)
        for extra in normal.extras
    )


def _by_channel(x: Any, normal: Normalization) -> Any:
    """Emit the normalization of *x*, which is of the new function, by channel."""
    _, channels, *places = static_shape(x) or ()
    scale, shift = (relax.const(extra.data.numpy().reshape(channels)) for extra in normal.extras)
    axes = list(range(2, 2 + len(places)))
    return relax.op.nn.group_norm(x, scale, shift, channels, 1, axes, normal.epsilon)


def _of_group_norm(call: relax.Call) -> Normalization | None:
    """Return what the operator *call* computes for each channel; None where it is not by constants."""
    x, scale, shift = call.args
    axes = sorted(int(axis) for axis in call.attrs.axes)
    shape = static_shape(x) or (0, 0)
    constants = isinstance(scale, relax.Constant) and isinstance(shift, relax.Constant)
    if axes != list(range(2, len(shape))) or int(call.attrs.num_groups) != shape[1] or not constants:
        return None
    extras = (relax.const(extra.data.numpy().reshape(-1, *(1,) * len(axes))) for extra in (scale, shift))
    return Normalization(x, len(axes), float(call.attrs.epsilon), True, *extras)


def normalized_maps(row: Row, epsilon: float, scale: te.Tensor, shift: te.Tensor) -> Any:
    """Normalize the rows of a tensor, scaled and shifted by tensors that broadcast to it."""
    normal = Normalization(None, 1, epsilon, scale=scale, shift=shift)
    return _normalized(row, normal, normal.extras)


def _padded(tensor: relax.Expr, rank: int) -> tuple[int, ...]:
    shape = static_shape(tensor) or ()
    return (1,) * (rank - len(shape)) + shape


def _is_float(value: relax.Expr) -> bool:
    return str(value.struct_info.dtype) == "float32"


def _last_axes(value: relax.Expr, axes: Sequence[int]) -> int:
    """Return how many last axes of the tensor *value* the *axes* are; 0: they are others."""
    rank = len(static_shape(value) or ())
    places = sorted(axis % rank for axis in axes) if rank else []
    return len(places) if places and places == list(range(rank - len(places), rank)) else 0


def _number(value: relax.Expr) -> float | None:
    if not isinstance(value, relax.Constant) or math.prod(static_shape(value) or ()) != 1:
        return None
    return float(value.data.numpy().reshape(()))


def _fits(value: relax.Expr, normal: Normalization) -> bool:
    """Return True if a tensor broadcasts to a normalization, over all of its last axes or over none."""
    shape, whole = static_shape(value), static_shape(normal.x) or ()
    if shape is None or len(shape) > len(whole) or not _is_float(value):
        return False
    padded = _padded(value, len(whole))
    if any(extent not in (1, full) for extent, full in zip(padded, whole, strict=True)):
        return False
    return padded[-normal.axes :] in ((1,) * normal.axes, whole[-normal.axes :])


def _flat(shape: Sequence[int], rank: int, axes: int) -> tuple[int, ...]:
    padded = (1,) * (rank - len(shape)) + tuple(shape)
    return (*padded[:-axes], math.prod(padded[-axes:]))


def _softmax(row: Row) -> te.Tensor:
    x = row.filled(float("-inf"))
    most = row.reduced(te.max, x, "most")
    power = row.each(lambda *at: tirx.exp(x(*at) - most(*at)), "power")
    total = row.reduced(te.sum, power, "total")
    return row.result(lambda at, _indices: power(*at) / total(*at), "softmax")


def _normalized(row: Row, normal: Normalization, extras: Sequence[te.Tensor]) -> te.Tensor:
    x = row.filled(0.0)
    share = tirx.const(1 / row.length, "float32")
    if normal.centred:
        total, source = row.reduced(te.sum, x, "total"), x
        x = row.masked(lambda *at: source(*at) - total(*at) * share, "centred")
    squares = row.reduced(te.sum, lambda *at: x(*at) * x(*at), "squares")

    def result(at: Sequence[tirx.PrimExpr], indices: Sequence[tirx.PrimExpr]) -> tirx.PrimExpr:
        value = x(*at) / tirx.sqrt(squares(*at) * share + tirx.const(normal.epsilon, "float32"))
        rest = [_broadcast(extra, indices) for extra in extras]
        if normal.scale is not None:
            value = value * rest.pop(0)
        return value + rest.pop(0) if rest else value

    return row.result(result, "normalization")


def _broadcast(tensor: te.Tensor, at: Sequence[tirx.PrimExpr]) -> tirx.PrimExpr:
    return tensor(*(0 if int(extent) == 1 else place for place, extent in zip(at, tensor.shape, strict=True)))
