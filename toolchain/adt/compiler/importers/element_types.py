"""Operators on operands for which TVM has no kernel, or a wrong one, by operators that it has."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm import relax

from adt.compiler.ir.nodes import operator_name
from adt.compiler.ir.passes import replaced_calls

Emit = Callable[[Any], Any]
"""Binds an expression to a variable."""


def with_kernels_of_their_types(module: Any) -> Any:
    """Return *module* with other operators for those of :data:`REPLACED`."""
    return replaced_calls("adt.ElementTypes", REPLACED, _replaced)(module)


def _replaced(builder: Any, call: Any) -> Any:
    dtype = getattr(call.args[0].struct_info, "dtype", "")
    return REPLACED[operator_name(call)](call, dtype, builder.emit) or call


def _compared(call: Any, dtype: str, emit: Emit) -> Any:
    """Compare booleans as integers, which LLVM takes for floats, and test floats for NaN.

    A float that is compared with itself tells NaN, and TVM simplifies that comparison away.
    """
    if dtype.startswith("float") and call.args[0].same_as(call.args[1]):
        is_nan = emit(relax.op.isnan(call.args[0]))
        name = operator_name(call)
        if name == "relax.not_equal":
            return is_nan
        return relax.op.logical_not(is_nan) if "equal" in name else None
    return _on_integers(call, emit) if dtype == "bool" else _with_tensors(call, dtype, emit)


def _on_integers(call: Any, emit: Emit) -> Any:
    """Return the *call* on operands of int8."""
    return relax.Call(call.op, [emit(relax.op.astype(arg, "int8")) for arg in call.args], call.attrs)


def _sign(call: Any, dtype: str, emit: Emit) -> Any:
    """Compute the sign of unsigned numbers, for which TVM makes a -1 of their type."""
    if not dtype.startswith("u"):
        return None
    return relax.op.astype(emit(relax.op.not_equal(call.args[0], relax.const(0, dtype))), dtype)


def _mean(call: Any, dtype: str, emit: Emit) -> Any:
    """Compute the mean of integers, rounded towards zero: TVM divides by a number of another type."""
    shape = getattr(call.args[0].struct_info.shape, "values", ())
    if not dtype.startswith(("int", "uint")) or not all(hasattr(extent, "value") for extent in shape):
        return None
    axes = range(len(shape)) if call.attrs.axis is None else [int(axis) for axis in call.attrs.axis]
    count = math.prod(int(shape[axis]) for axis in axes)
    total = relax.op.sum(emit(relax.op.astype(call.args[0], "int64")), call.attrs.axis, call.attrs.keepdims)
    return relax.op.astype(emit(relax.op.divide(emit(total), relax.const(count, "int64"))), dtype)


def _scanned(call: Any, dtype: str, emit: Emit) -> Any:
    """Compute running sums and products of booleans, as int64 unless another type is given, as in PyTorch."""
    if dtype != "bool":
        return None
    attributes, given = call.attrs, call.attrs.dtype
    wide = "int64" if str(given) in ("", "void", "bool") else str(given)
    scan = getattr(relax.op, operator_name(call).removeprefix("relax."))
    operand = emit(relax.op.astype(call.args[0], wide))
    result = scan(operand, attributes.axis, wide, exclusive=attributes.exclusive)
    return relax.op.astype(emit(result), "bool") if str(given) == "bool" else result


def _with_tensors(call: Any, dtype: str, emit: Emit) -> Any:
    """Compute booleans as integers, and with tensors instead of scalar constants that TVM cannot have.

    Its simplifier fails on a division by a scalar 0, and takes products and quotients of one for 0, where
    infinities and NaN may come of it; its integers have 63 bits and a sign.
    """
    scaling = operator_name(call) in ("relax.divide", "relax.multiply")

    def is_unfit(arg: Any) -> bool:
        if not isinstance(arg, relax.Constant) or arg.data.shape:
            return False
        value = arg.data.numpy()
        return bool(value >= 2**63 if dtype == "uint64" else scaling and not value)

    if dtype == "bool" and operator_name(call) != "relax.where":
        return relax.op.astype(emit(_on_integers(call, emit)), "bool")
    if not dtype.startswith(("float", "uint64")) or not any(map(is_unfit, call.args)):
        return None
    args = [relax.const(arg.data.numpy().reshape(1), dtype) if is_unfit(arg) else arg for arg in call.args]
    result = relax.Call(call.op, args, call.attrs)
    return result if call.struct_info.ndim else relax.op.reshape(emit(result), ())


def _of_integers(call: Any, dtype: str, emit: Emit) -> Any:
    """Reduce booleans as integers: TVM knows no least and no largest boolean."""
    return relax.op.astype(emit(_on_integers(call, emit)), "bool") if dtype == "bool" else None


def _of_floats(call: Any, dtype: str, emit: Emit) -> Any:
    """Test integers and booleans for NaN and infinities as floats: TVM tests floats alone."""
    if dtype.startswith("float"):
        return None
    return relax.Call(call.op, [emit(relax.op.astype(call.args[0], "float32"))], call.attrs)


def _in_single(call: Any, dtype: str, emit: Emit) -> Any:
    """Compute in float32 what LLVM has no intrinsic for in half precision."""
    if dtype != "float16":
        return None
    args = [emit(relax.op.astype(arg, "float32")) for arg in call.args]
    return relax.op.astype(emit(relax.Call(call.op, args, call.attrs)), dtype)


def _first(call: Any, _dtype: str, emit: Emit) -> Any:
    """Return index 0, where TVM returns -1: all elements are -inf, or the least of their type."""
    index = emit(call)
    return relax.op.maximum(index, relax.const(0, index.struct_info.dtype))


REPLACED: dict[str, Callable[[Any, str, Emit], Any]] = {
    f"relax.{name}": replacement
    for replacement, names in (
        (_compared, ("equal", "greater", "greater_equal", "less", "less_equal", "not_equal")),
        (_with_tensors, ("add", "divide", "maximum", "minimum", "multiply", "subtract", "where")),
        (_scanned, ("cumprod", "cumsum")),
        (_of_integers, ("max", "min")),
        (_first, ("argmax", "argmin")),
        (_of_floats, ("isfinite", "isinf", "isnan")),
        (_in_single, ("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cosh", "sinh", "tan")),
        (_mean, ("mean",)),
        (_sign, ("sign",)),
    )
    for name in names
}
"""Operators, and what gives another expression for a call on some types; None on others."""
