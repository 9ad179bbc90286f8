"""Move of convolutions' channels to the second axis: TFLite has them last.

One walk, like the one in :mod:`adt.compiler.passes.layout.operators`: each tensor of four axes has
the form of the model, ``(N, H, W, C)``, one with channels first, or both. A convolution
with its channels last is computed with channels first, and what follows it, too, as far
as there is a rule; where there is none, the tensor is transposed back, once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax

from adt.compiler.ir.nodes import operator_name
from adt.compiler.ir.rewriter import ELEMENTWISE, Rewriter, is_flat, resized, static_shape

TO_FIRST = (0, 3, 1, 2)
TO_LAST = (0, 2, 3, 1)
MOVED = {0: 0, 1: 2, 2: 3, 3: 1}  # axis of a tensor with channels last to its place with channels first


class _Walk(Rewriter):
    """One walk over the model."""

    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self.first: dict[relax.Var, relax.Var] = {}
        """Variable of the model to its form with channels first; ``values`` holds the model's own."""

    def value_of(self, variable: relax.Var) -> relax.Var:
        """Return the model's own form, transposed once if there is only the other."""
        if variable not in self.values and variable in self.first:
            self.values[variable] = self.builder.emit(relax.op.permute_dims(self.first[variable], TO_LAST))
        return super().value_of(variable)

    def channels_first(self, value: relax.Expr) -> relax.Expr:
        """Return the tensor *value* of four axes with channels first, made if need be."""
        if value not in self.first:
            self.first[value] = self.builder.emit(relax.op.permute_dims(self.copy(value), TO_FIRST))
        return self.first[value]

    def bind(self, binding: relax.VarBinding) -> None:
        variable, value = binding.var, binding.value
        name = operator_name(value)
        if name and not isinstance(binding, relax.MatchCast):
            result = None
            if name in ELEMENTWISE:
                result = _elementwise(self, variable, value)
            elif name in _RULES:
                result = _RULES[name](self, variable, value)
            elif name in _RULES_OF_FIRST and value.args[0] in self.first:
                result = _RULES_OF_FIRST[name](self, self.first[value.args[0]], variable, value)
            if variable in self.values:  # the rule gave it the form of the model
                return
            if result is not None:
                self.first[variable] = self.builder.emit(result)
                return
        super().bind(binding)


def channels_first(module: tvm.IRModule) -> tvm.IRModule:
    """Put channels first in ``main`` of the flat Relax *module*; constant weights are transposed once."""
    if not is_flat(module):
        return module
    walk = _Walk(module)
    result = walk.run()
    return relax.transform.DeadCodeElimination(["main"])(result) if walk.first else module


def _convolution(walk: _Walk, _variable: relax.Var, call: relax.Call) -> relax.Expr | None:
    data, weight = call.args
    attrs = call.attrs
    order = str(attrs.kernel_layout)
    if (
        attrs.data_layout != "NHWC"
        or sorted(order) != sorted("OIHW")
        or not isinstance(weight, relax.Constant)
    ):
        return None
    moved = weight.data.numpy().transpose([order.index(axis) for axis in "OIHW"])
    return relax.op.nn.conv2d(
        walk.channels_first(data),
        _constant(moved, weight),
        strides=list(attrs.strides),
        padding=list(attrs.padding),
        dilation=list(attrs.dilation),
        groups=int(attrs.groups),
        out_dtype=attrs.out_dtype,
    )


def _pool(_walk: _Walk, x: relax.Var, _variable: relax.Var, call: relax.Call) -> relax.Expr | None:
    attrs = call.attrs
    if attrs.layout != "NHWC":
        return None
    operator = relax.op.nn.max_pool2d if call.op.name.endswith("max_pool2d") else relax.op.nn.avg_pool2d
    return operator(
        x,
        list(attrs.pool_size),
        list(attrs.strides),
        list(attrs.padding),
        list(attrs.dilation),
        bool(attrs.ceil_mode),
        bool(attrs.count_include_pad),
    )


def _elementwise(walk: _Walk, variable: relax.Var, call: relax.Call) -> relax.Expr | None:
    output = static_shape(variable)
    if output is None or len(output) != 4 or not any(arg in walk.first for arg in call.args):
        return None
    operands = []
    for arg in call.args:
        operand = arg if not isinstance(arg.struct_info, relax.TensorStructInfo) else _operand(walk, arg)
        if operand is None:
            return None
        operands.append(operand)
    return relax.Call(call.op, operands, call.attrs, call.sinfo_args)


def _operand(walk: _Walk, value: relax.Expr) -> relax.Expr | None:
    """Return the tensor *value* as an operand of one with channels first."""
    shape = static_shape(value)
    if shape is None:
        return None
    if isinstance(value, relax.Constant):
        if all(extent == 1 for extent in shape):
            return value
        aligned = value.data.numpy().reshape((1,) * (4 - len(shape)) + shape)
        return _constant(aligned.transpose(TO_FIRST), value)
    return walk.channels_first(value) if len(shape) == 4 else None


def _prelu(_walk: _Walk, x: relax.Var, _variable: relax.Var, call: relax.Call) -> relax.Expr | None:
    slope = call.args[1]
    if int(call.attrs.axis) % 4 != 3 or not isinstance(slope, relax.Constant):
        return None
    return relax.op.nn.prelu(x, slope, 1)


def _pad(_walk: _Walk, x: relax.Var, _variable: relax.Var, call: relax.Call) -> relax.Expr | None:
    if len(call.args) != 1:
        return None
    widths = [int(width) for width in call.attrs.pad_width]
    moved = [width for axis in TO_FIRST for width in widths[2 * axis : 2 * axis + 2]]
    return relax.op.nn.pad(x, moved, call.attrs.pad_mode, float(call.attrs.pad_value))


def _mean(walk: _Walk, x: relax.Var, variable: relax.Var, call: relax.Call) -> relax.Expr | None:
    if call.attrs.axis is None:
        return None
    axes = sorted(int(axis) % 4 for axis in call.attrs.axis)
    result = relax.op.mean(x, [MOVED[axis] for axis in axes], keepdims=bool(call.attrs.keepdims))
    if call.attrs.keepdims:
        return result
    if axes == [1, 2]:  # what is left, (N, C), is in the order of both forms
        walk.values[variable] = walk.builder.emit(result)
    return None


def _reshape(walk: _Walk, x: relax.Var, variable: relax.Var, call: relax.Call) -> None:
    """Reshape a single pixel: the order is that of both forms."""
    shape, output = static_shape(call.args[0]), static_shape(variable)
    if shape and output and shape[1:3] == (1, 1):
        walk.values[variable] = walk.builder.emit(relax.op.reshape(x, output))


def _concat(walk: _Walk, variable: relax.Var, call: relax.Call) -> relax.Expr | None:
    (parts,) = call.args
    if not isinstance(parts, relax.Tuple) or not any(part in walk.first for part in parts.fields):
        return None
    if len(static_shape(variable) or ()) != 4:
        return None
    return relax.op.concat(
        [walk.channels_first(part) for part in parts.fields], MOVED[int(call.attrs.axis) % 4]
    )


def _resize(_walk: _Walk, x: relax.Var, _variable: relax.Var, call: relax.Call) -> relax.Expr | None:
    return resized(call, x, "NCHW") if call.attrs.layout == "NHWC" else None


def _lookup(walk: _Walk, _variable: relax.Var, call: relax.Call) -> relax.Expr | None:
    table, index = call.args
    if index not in walk.first or not isinstance(table, relax.Constant) or table.struct_info.ndim != 1:
        return None
    return relax.Call(call.op, [table, walk.first[index]], call.attrs)


def _constant(array: NDArray[np.generic], like: relax.Expr) -> relax.Expr:
    return relax.const(np.ascontiguousarray(array), like.struct_info.dtype)


_RULES: Mapping[str, Callable[[_Walk, relax.Var, relax.Call], relax.Expr | None]] = {
    "relax.concat": _concat,
    "relax.nn.conv2d": _convolution,
    "relax.take": _lookup,
}
_RULES_OF_FIRST: Mapping[str, Callable[[_Walk, relax.Var, relax.Var, relax.Call], relax.Expr | None]] = {
    "relax.flatten": _reshape,
    "relax.image.resize2d": _resize,
    "relax.mean": _mean,
    "relax.nn.avg_pool2d": _pool,
    "relax.nn.max_pool2d": _pool,
    "relax.nn.pad": _pad,
    "relax.nn.prelu": _prelu,
    "relax.reshape": _reshape,
    "relax.squeeze": _reshape,
}
"""Rules for calls whose first argument has channels first, which they get, too."""
