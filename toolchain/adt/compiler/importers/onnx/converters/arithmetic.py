"""Operators that compute element by element, or along one axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np
from tvm import relax, tirx

from adt.compiler.importers.onnx.converters.node import Converter, Node, literal
from adt.compiler.importers.onnx.graph import type_name

SIGNED = ("int8", "int16", "int32", "int64")
BITS = {f"{sign}int{bits}": bits for sign in ("", "u") for bits in (8, 16, 32, 64)}
MOST_ROWS = 4  # most rows of a matrix whose determinant is computed


def _folded(node: Node, op: Any) -> Any:
    """Apply *op* to one input after another: no pass fuses TVM's stack of them."""
    return reduce(lambda a, b: node.builder.normalize(op(a, b)), node.inputs)


def _mean(node: Node) -> Any:
    total = _folded(node, relax.op.add)
    return relax.op.multiply(total, relax.const(1 / len(node.inputs), total.struct_info.dtype))


def _bit_shift(node: Node) -> Any:
    """Convert BitShift: a shift by the width or more, undefined in C, shifts every bit out."""
    bits = BITS[node.dtype()]
    left = node.attribute("direction") == "LEFT"

    def shifted(x: Any, by: Any) -> Any:
        inside = tirx.all(by >= tirx.const(0, by.dtype), by < tirx.const(bits, by.dtype))
        amount = tirx.Select(inside, by, tirx.const(0, by.dtype))
        beyond = tirx.const(0, x.dtype)
        if not left and x.dtype in SIGNED:
            beyond = x >> tirx.const(bits - 1, x.dtype)
        return tirx.Select(inside, x << amount if left else x >> amount, beyond)

    return _broadcast(node, shifted)


def _broadcast(node: Node, element: Callable[[Any, Any], Any]) -> Any:
    """Apply *element* to the node's two inputs, broadcast to one shape."""
    shapes = [node.shape(index) for index in range(2)]
    extents = np.broadcast_shapes(*shapes)

    def at(tensor: Any, shape: Sequence[int], indices: Any) -> Any:
        own = indices[len(extents) - len(shape) :]
        return tensor(*(i if n != 1 else 0 for i, n in zip(own, shape, strict=True)))

    def compute(a: Any, b: Any, indices: Any) -> Any:
        return element(at(a, shapes[0], indices), at(b, shapes[1], indices))

    return node.compute(extents, compute, *node.inputs)


def _mod(node: Node) -> Any:
    """Compute the remainder, which has the sign of the dividend with ``fmod``, of the divisor without."""
    by_dividend = node.attribute("fmod", 0)

    def element(x: Any, y: Any) -> Any:
        if not x.dtype.startswith("float"):
            return tirx.truncmod(x, y) if by_dividend else tirx.floormod(x, y)
        infinite = tirx.all(tirx.isinf(y), tirx.Not(tirx.isinf(x)))
        rest = tirx.Select(infinite, x, x - tirx.trunc(x / y) * y)
        if by_dividend:
            return rest
        zero = tirx.const(0, x.dtype)
        other_side = tirx.any(tirx.all(rest < zero, y > zero), tirx.all(rest > zero, y < zero))
        return tirx.Select(other_side, rest + y, rest)

    return _broadcast(node, element)


def _pow(node: Node) -> Any:
    """Convert Pow: the result has the base's type, and TVM has powers of floating point only."""
    base, exponent = node.dtype(0), node.dtype(1)
    if base.startswith("float"):
        same = base == exponent
        return None if same else relax.op.power(node.inputs[0], relax.op.astype(node.inputs[1], base))

    def of_whole(x: Any, by: Any) -> Any:
        """Compute an integer power by squaring: exact, and it wraps around as the type does."""
        one = tirx.const(1, x.dtype)
        result, square = one, x
        for bit in range(BITS[x.dtype].bit_length()):
            odd = (by >> tirx.const(bit, by.dtype)) & tirx.const(1, by.dtype)
            result = result * tirx.Select(odd != tirx.const(0, by.dtype), square, one)
            square = square * square
        negative = by < tirx.const(0, by.dtype)
        inverse = tirx.Select(x == one, one, tirx.const(0, x.dtype))
        if x.dtype in SIGNED:
            minus = tirx.const(-1, x.dtype)
            even = (by & tirx.const(1, by.dtype)) == tirx.const(0, by.dtype)
            inverse = tirx.Select(x == minus, tirx.Select(even, one, minus), inverse)
        return tirx.Select(negative, inverse, result)

    def of_real(x: Any, by: Any) -> Any:
        return tirx.pow(x.astype("float64"), by.astype("float64")).astype(x.dtype)

    return _broadcast(node, of_real if exponent.startswith("float") else of_whole)


def _is_inf(node: Node) -> Any:
    x = node.inputs[0]
    infinity = relax.const(float("inf"), node.dtype())
    positive, negative = (node.attribute(f"detect_{sign}", 1) for sign in ("positive", "negative"))
    if positive and negative:
        return relax.op.isinf(x)
    if positive or negative:
        return relax.op.equal(x if positive else relax.op.negative(x), infinity)
    return relax.op.zeros(node.shape(), "bool")


def _mish(node: Node) -> Any:
    """Compute x·tanh(ln(1 + eˣ)) as x·n/(n + 2) with n = eˣ(eˣ + 2), exact where eˣ is small."""
    x, dtype = node.inputs[0], node.dtype()
    most = 5 if dtype == "float16" else 10  # the gate is 1 from there on, and n no infinity yet
    e = relax.op.exp(relax.op.minimum(x, relax.const(most, dtype)))
    n = relax.op.multiply(e, relax.op.add(e, relax.const(2, dtype)))
    gate = relax.op.divide(n, relax.op.add(n, relax.const(2, dtype)))
    return relax.op.multiply(x, gate)


def _elu(node: Node) -> Any:
    """Convert Elu and Selu: the constants in TVM's converters are float32, whatever the input is."""
    x, dtype = node.inputs[0], node.dtype()
    selu = node.proto.op_type == "Selu"
    alpha = node.attribute("alpha", 1.6732632 if selu else 1.0)
    below = relax.op.minimum(relax.op.subtract(relax.op.exp(x), relax.const(1, dtype)), relax.const(0, dtype))
    result = relax.op.add(relax.op.nn.relu(x), relax.op.multiply(relax.const(alpha, dtype), below))
    gamma = node.attribute("gamma", 1.050701)
    return relax.op.multiply(relax.const(gamma, dtype), result) if selu else result


def _thresholded_relu(node: Node) -> Any:
    """Convert ThresholdedRelu: TVM multiplies by the comparison, which makes NaN of infinity."""
    x, dtype = node.inputs[0], node.dtype()
    above = relax.op.greater(x, relax.const(node.attribute("alpha", 1.0), dtype))
    return relax.op.where(above, x, relax.const(0, dtype))


def _prelu(node: Node) -> Any:
    """Convert PRelu but for pictures; a slope of one axis that does not fit the last is by channel."""
    x, slope, shape = *node.inputs, node.shape()
    by_channel = len(shape) > 1 and node.shape(1) == shape[1:2] != shape[-1:]
    if len(shape) == 4 and not by_channel:
        return None
    if by_channel:
        slope = relax.op.reshape(slope, (shape[1], *[1] * (len(shape) - 2)))
    zero = relax.const(0, node.dtype())
    return relax.op.add(relax.op.maximum(x, zero), relax.op.multiply(slope, relax.op.minimum(x, zero)))


def _dequantize(node: Node) -> Any:
    """Convert DequantizeLinear: the result has the scale's type; TVM's is always float32."""
    if node.dtype(1) == "float32":
        return None
    return relax.op.astype(node.builder.normalize(node.by_tvm(node.inputs)), node.dtype(1))


def _cast(node: Node) -> Any:
    """Convert Cast: numbers beyond a narrower integer type wrap, what is not finite becomes 0, as in TVM's.

    TVM's converter wraps by a remainder of 2**32, with which TVM's simplifier cannot compute in kernels for a
    GPU; a narrowing cast of int64 wraps by itself.
    """
    kind, x = type_name(node.attribute("to")), node.inputs[0]
    computed = isinstance(x.struct_info, relax.TensorStructInfo) and not isinstance(x, relax.Constant)
    if not computed or not node.dtype().startswith("float") or BITS.get(kind, 64) == 64:
        return None
    emit = node.builder.normalize
    finite = emit(relax.op.where(emit(relax.op.isfinite(x)), x, relax.const(0, node.dtype())))
    return relax.op.astype(emit(relax.op.astype(finite, "int64")), kind)


def _bit_cast(node: Node) -> Any:
    dtype = type_name(node.attribute("to"))

    def element(a: Any, at: Any) -> Any:
        x = a(*at)
        if "bool" in (x.dtype, dtype):
            return x.astype(dtype)
        return x if x.dtype == dtype else tirx.reinterpret(dtype, x)

    return node.compute(node.shape(), element, node.inputs[0])


def _cumulative(node: Node, scan: Any) -> Any:
    x, axis = node.inputs[0], node.number(1, "axis") % len(node.shape())
    reverse, exclusive = node.attribute("reverse", 0), bool(node.attribute("exclusive", 0))
    if reverse:
        x = relax.op.flip(x, axis)
    result = scan(x, axis, node.dtype(), exclusive=exclusive)
    return relax.op.flip(result, axis) if reverse else result


def _lp_normalization(node: Node) -> Any:
    """Convert LpNormalization: a vector of norm 0 stays as it is."""
    x, dtype, p = node.inputs[0], node.dtype(), node.attribute("p", 2)
    axis = node.axis(len(node.shape()), -1)
    norm = relax.op.sum(relax.op.abs(x) if p == 1 else relax.op.multiply(x, x), axis, keepdims=True)
    norm = node.builder.normalize(norm if p == 1 else relax.op.sqrt(norm))
    zero = relax.op.equal(norm, relax.const(0, dtype))
    return relax.op.divide(x, relax.op.where(zero, relax.const(1, dtype), norm))


def _compared(node: Node, compare: np.ufunc) -> Any:
    """Compare two constants: TVM gives the result their type."""
    left, right = node.value(0), node.value(1)
    return None if left is None or right is None else literal(compare(left, right))


def _by_floats(node: Node) -> Any:
    """Compute roots, logarithms and fractions of integers in float64, rounded towards zero."""
    dtype = node.dtype()
    if dtype.startswith("float"):
        return None
    wide = node.builder.normalize(relax.op.astype(node.inputs[0], "float64"))
    return relax.op.astype(node.builder.normalize(node.by_tvm((wide, *node.inputs[1:]))), dtype)


def _reduced_bool(node: Node) -> Any:
    """Reduce booleans to the largest or smallest: TVM knows no least value of that type."""
    if node.dtype() != "bool":
        return None
    data = node.builder.normalize(relax.op.astype(node.inputs[0], "int32"))
    return relax.op.astype(node.by_tvm((data, *node.inputs[1:])), "bool")


def _batch_normalization(node: Node) -> Any:
    """Convert BatchNormalization: TVM takes training for inference, and only the input's type."""
    if node.attribute("training_mode", 0):
        raise node.refusal("training_mode is 1: it is for training")
    dtype, *others = (node.dtype(index) for index in range(5))
    if all(other == dtype for other in others):
        return None
    emit, wider = node.builder.normalize, "float64" if "float64" in (dtype, *others) else "float32"
    wide = [emit(relax.op.astype(value, wider)) for value in node.inputs]
    return relax.op.astype(emit(relax.TupleGetItem(emit(node.by_tvm(wide)), 0)), dtype)


def _det(node: Node) -> Any:
    """Compute determinants by Laplace's rule: for the small matrices that models have."""
    *batch, rows, _ = node.shape()
    if rows > MOST_ROWS:
        raise node.refusal(f"matrices of more than {MOST_ROWS} rows")

    def expanded(a: Any, at: Any, row: int, columns: tuple[int, ...]) -> Any:
        if row == rows - 1:
            return a(*at, row, columns[0])
        total: Any = None
        for number, column in enumerate(columns):
            rest = columns[:number] + columns[number + 1 :]
            part = a(*at, row, column) * expanded(a, at, row + 1, rest)
            total = part if total is None else total - part if number % 2 else total + part
        return total

    return node.compute(batch, lambda a, at: expanded(a, at, 0, tuple(range(rows))), node.inputs[0])


def _dynamic_quantize(node: Node) -> Any:
    """Quantize by the range of the values and 0; zeros alone have a step of 1, where TVM's divides by 0."""
    x, (zero, one, most) = node.inputs[0], (relax.const(value, "float32") for value in (0, 1, 255))
    least = relax.op.minimum(zero, relax.op.min(x))
    extent = node.builder.emit(relax.op.subtract(relax.op.maximum(zero, relax.op.max(x)), least))
    alone = relax.op.subtract(one, relax.op.sign(extent))  # a number, which GPUs compute where it is read
    step = node.builder.emit(relax.op.add(relax.op.divide(extent, most), alone))
    point = relax.op.clip(relax.op.subtract(zero, relax.op.divide(least, step)), 0, 255)
    point = node.builder.emit(relax.op.astype(relax.op.round(point), "uint8"))
    return relax.op.quantize(x, step, point, axis=0, out_dtype="uint8"), step, point


CONVERTERS: dict[str, Converter] = {
    "BatchNormalization": _batch_normalization,
    "BitCast": _bit_cast,
    "BitShift": _bit_shift,
    "Cast": _cast,
    "CastLike": lambda node: relax.op.astype(node.inputs[0], node.dtype(1)),
    "CumProd": partial(_cumulative, scan=relax.op.cumprod),
    "DequantizeLinear": _dequantize,
    "Det": _det,
    "DynamicQuantizeLinear": _dynamic_quantize,
    "Elu": _elu,
    "Equal": partial(_compared, compare=np.equal),
    "Greater": partial(_compared, compare=np.greater),
    "GreaterOrEqual": partial(_compared, compare=np.greater_equal),
    "IsInf": _is_inf,
    "Less": partial(_compared, compare=np.less),
    "LessOrEqual": partial(_compared, compare=np.less_equal),
    "LpNormalization": _lp_normalization,
    "Max": partial(_folded, op=relax.op.maximum),
    "Mean": _mean,
    "Min": partial(_folded, op=relax.op.minimum),
    "Mish": _mish,
    "Mod": _mod,
    "PRelu": _prelu,
    "Pow": _pow,
    "ReduceL2": _by_floats,
    "ReduceLogSum": _by_floats,
    "ReduceLogSumExp": _by_floats,
    "ReduceMax": _reduced_bool,
    "ReduceMin": _reduced_bool,
    "Selu": _elu,
    "Shrink": _by_floats,
    "Sum": partial(_folded, op=relax.op.add),
    "ThresholdedRelu": _thresholded_relu,
}
