"""Polynomials in float32 for exp, log, sigmoid, tanh and erf, which LLVM computes by vectors.

For a vector of calls to libm it would call libm once a lane. The errors below were found by trying every
32nd float32 (tests/integration/test_cpu_kernels.py tries a part of them).

Sources: exp and log by Cephes' expf and logf (reduction by ln 2 in two parts, a polynomial), tanh and erf by
the rational minimax approximations of Eigen (unsupported/SpecialFunctions and Core/MathFunctionsImpl.h).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import tvm_ffi
from tvm import tirx

from adt.compiler.ir.nodes import is_call, tir_nodes
from adt.compiler.passes.layout.signature import variables_of

EXP_LOW, EXP_HIGH = -87.3, 89.0
"""Ends of exp: where it is 0 here (from -86.99 on, not 2e-38), and where it is infinite."""
_EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4
_LOG = (7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
        -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1)  # fmt: skip
_SMALLEST = 1.17549435e-38
"""The least normal number."""
_ONE, _ROOT_OF_HALF = 0x3F800000, 0x3F3504F3
"""Bits of 1 and of the root of a half: what is between that and its double has the power 0."""
_TANH = (
    (-2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08,
     1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03),
    (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03),
    7.90531110763549805,
)  # fmt: skip
_ERF = (
    (-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05,
     -7.34990630326855e-04, -2.95459980854025e-03, -1.60960333262415e-02),
    (-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03,
     -1.42647390514189e-02),
    4.0,
)  # fmt: skip
"""Numerator of the odd powers, denominator of the even ones (highest first), and where it becomes ±1."""


def vectorized_math(statement: tirx.Stmt) -> tirx.Stmt:
    """Replace the calls of these functions in the TIR *statement*.

    A result that is an argument is stored for the lanes of its loop, and LLVM keeps it in registers. TVM's
    code generator would put the value of each variable in wherever it is read, also in that of others.
    """

    def replaced(node: tirx.For | tirx.BufferStore) -> tirx.Stmt | None:
        if isinstance(node, tirx.BufferStore):
            return _by_lanes(node, tirx.const(0), tirx.const(1))
        if node.kind == tirx.ForKind.VECTORIZED:
            return _by_lanes(node, node.loop_var, node.extent)
        return None

    return tirx.stmt_functor.ir_transform(statement, replaced, None, ["tirx.For", "tirx.BufferStore"])


def _by_lanes(statement: tirx.Stmt, lane: tirx.PrimExpr, lanes: tirx.PrimExpr) -> tirx.Stmt:
    """Replace the calls in a vectorized loop, or in the one lane of a *statement* outside of any.

    The arguments are allocated around it: TVM gives what is allocated within the loop the room of one lane.
    """
    arguments: list[tirx.Buffer] = []

    def replaced(store: tirx.BufferStore) -> tirx.Stmt:
        before: list[tirx.Stmt] = []

        def stored(result: tirx.PrimExpr) -> tirx.PrimExpr:
            arguments.append(tirx.decl_buffer([lanes], "float32", "argument", scope="global"))
            before.append(tirx.BufferStore(arguments[-1], result, [lane]))
            return arguments[-1][lane]

        value = _computed(store.value, stored)
        return tirx.stmt_seq(*before, tirx.BufferStore(store.buffer, value, store.indices))

    result = tirx.stmt_functor.ir_transform(statement, replaced, None, ["tirx.BufferStore"])
    return tirx.stmt_seq(*map(tirx.AllocBuffer, arguments), result)


def _computed(value: tirx.PrimExpr, stored: Callable[[tirx.PrimExpr], tirx.PrimExpr]) -> tirx.PrimExpr:
    """Replace the calls in *value*; *stored* stores a result that is an argument, and reads it."""

    def argument(x: tirx.PrimExpr) -> tirx.PrimExpr:
        return stored(x) if tir_nodes(x, tirx.Let) else x

    def chosen(node: tirx.PrimExpr) -> tirx.PrimExpr | None:
        if (x := _argument_of_softplus(node)) is not None:
            bound = _bound("x", argument(_computed(x, stored)))
            return _tanh_of_softplus(argument(_let(_exp(bound.var, 20), bound)))
        if not is_call(node, "tirx.if_then_else"):
            return None
        condition, yes, no = node.args
        condition, zero = _computed(condition, stored), _constant(0)  # nothing is read that it keeps from it
        yes = _computed(yes, lambda x: stored(tirx.if_then_else(condition, x, zero)))
        no = _computed(no, lambda x: stored(tirx.if_then_else(condition, zero, x)))
        return tirx.if_then_else(condition, yes, no)

    def replaced(node: tirx.PrimExpr) -> tirx.PrimExpr | None:
        if is_call(node, "tirx.nearbyint"):  # TVM makes a loop of a vector of these
            return tirx.call_llvm_pure_intrin(node.dtype, "llvm.nearbyint", node.args[0])
        function = _BY_NAME.get(node.op.name) if hasattr(node.op, "name") else None
        if function is None or node.dtype not in ("float32", "float16"):
            return None
        bound = _bound("x", argument(node.args[0].astype("float32")))
        return _let(function(bound.var), bound).astype(node.dtype)

    result = tirx.Evaluate(value)
    return tirx.stmt_functor.ir_transform(result, chosen, replaced, ["tirx.Call"]).value


def shared_divisors(statement: tirx.SBlockRealize) -> tirx.SBlockRealize:
    """Multiply each row of float32 in the TIR *statement* by the inverse of what all of it is divided by.

    A division takes several multiplications' time. At most 1 unit in the last place off.
    """

    def replaced(store: tirx.BufferStore) -> tirx.BufferStore:
        along = variables_of(store.indices[-1:])

        def inverted(node: tirx.Div) -> tirx.PrimExpr | None:
            if node.dtype != "float32" or _is_number(node.b) or variables_of([node.b]) & along:
                return None
            return node.a * (_constant(1) / node.b)

        return tirx.stmt_functor.ir_transform(store, None, inverted, ["tirx.Div"]) if along else store

    return tirx.stmt_functor.ir_transform(statement, None, replaced, ["tirx.BufferStore"])


def _is_number(value: tirx.BufferLoad) -> bool:
    """Return True if *value* is a number of the model's, by which it quantizes: there a last place counts."""
    if isinstance(value, tirx.BufferLoad):
        return all(isinstance(extent, tirx.IntImm) and int(extent) == 1 for extent in value.buffer.shape)
    return isinstance(value, tirx.FloatImm)


def _constant(value: float) -> tirx.PrimExpr:
    return tirx.const(value, "float32")


def _bound(name: str, value: tirx.PrimExpr) -> tirx.Let:
    """Bind *value*, which an expression, a tree, would compute wherever it stands; the body comes later."""
    return tirx.Let(tirx.Var(name, value.dtype), value, value)


def _let(result: tirx.PrimExpr, *bounds: tirx.Let) -> tirx.PrimExpr:
    for bound in reversed(bounds):
        result = tirx.Let(bound.var, bound.value, result)
    return result


def _polynomial(x: tirx.PrimExpr, coefficients: Sequence[float]) -> tirx.PrimExpr:
    """Evaluate a polynomial by Horner's rule; the coefficient of the highest power is the first."""
    value = _constant(coefficients[0])
    for coefficient in coefficients[1:]:
        value = value * x + _constant(coefficient)
    return value


def _exp(x: tirx.PrimExpr, high: float = EXP_HIGH) -> tirx.PrimExpr:
    """Compute e to the power *x*, at most 2 units in the last place off; NaN stays NaN.

    At the lower bound the power is -126, whose half is the number 0; at the upper one 128, which is infinite.
    """
    near = _bound("near", tirx.Select(x > _constant(high), _constant(high), x))
    far = _bound("bounded", tirx.Select(near.var < _constant(EXP_LOW), _constant(EXP_LOW), near.var))
    power = _bound("power", tirx.floor(far.var * _constant(1.44269504088896341) + _constant(0.5)))
    rest = _bound("rest", far.var - power.var * _constant(_LN2_HIGH) - power.var * _constant(_LN2_LOW))
    half = tirx.reinterpret("float32", (power.var.astype("int32") + 126) << 23)
    polynomial = _polynomial(rest.var, _EXP) * rest.var * rest.var + rest.var + _constant(1)
    # Doubled first: half of what is small would be no normal number, which processors take long for.
    return _let(polynomial * _constant(2) * half, near, far, power, rest)


def _argument_of_softplus(node: tirx.PrimExpr) -> tirx.PrimExpr | None:
    """Return the argument of tanh(softplus(…)), as in Mish, if the call *node* is that."""
    inner = node.args[0] if is_call(node, "tirx.tanh") and node.dtype == "float32" else None
    if not isinstance(inner, tirx.Select):
        return None
    x, grown = inner.true_value, inner.false_value
    return x if tvm_ffi.structural_equal(grown, tirx.log(_constant(1) + tirx.exp(x))) else None


def _tanh_of_softplus(exponential: tirx.PrimExpr) -> tirx.PrimExpr:
    """Compute tanh(log(1 + n)) of n = exp(x): (n² + 2n) / (n² + 2n + 2), which is 1 from x = 20 on."""
    grown = _bound("grown", exponential)
    both = _bound("both", grown.var * (grown.var + _constant(2)))
    return _let(both.var / (both.var + _constant(2)), grown, both)


def _log(x: tirx.PrimExpr) -> tirx.PrimExpr:
    """Compute the natural logarithm, at most 2 units in the last place off; NaN stays NaN."""
    normal = tirx.Select(x < _constant(_SMALLEST), x * _constant(1 << 23), x)
    bits = _bound("bits", tirx.reinterpret("int32", normal) + (_ONE - _ROOT_OF_HALF))
    scale = tirx.Select(x < _constant(_SMALLEST), _constant(127 + 23), _constant(127))
    power = _bound("power", (bits.var >> 23).astype("float32") - scale)
    near = tirx.reinterpret("float32", (bits.var & 0x7FFFFF) + _ROOT_OF_HALF)
    rest = _bound("rest", near - _constant(1))
    square = _bound("square", rest.var * rest.var)
    low = _polynomial(rest.var, _LOG) * rest.var * square.var + power.var * _constant(_LN2_LOW)
    value = low - square.var * _constant(0.5) + rest.var + power.var * _constant(_LN2_HIGH)
    infinity = _constant(math.inf)
    positive = tirx.Select(x < infinity, _let(value, bits, power, rest, square), x)
    return tirx.Select(
        x > _constant(0), positive, tirx.Select(x == _constant(0), -infinity, _constant(math.nan))
    )


def _rational(x: tirx.PrimExpr, form: tuple[Sequence[float], Sequence[float], float]) -> tirx.PrimExpr:
    numerator, denominator, limit = form
    below = _bound("below", tirx.Select(x > _constant(limit), _constant(limit), x))
    near = _bound("near", tirx.Select(below.var < _constant(-limit), _constant(-limit), below.var))
    square = _bound("square", near.var * near.var)
    value = near.var * _polynomial(square.var, numerator) / _polynomial(square.var, denominator)
    return _let(value, below, near, square)


_BY_NAME: dict[str, Callable[[tirx.PrimExpr], tirx.PrimExpr]] = {
    "tirx.exp": _exp,
    "tirx.log": _log,
    "tirx.sigmoid": lambda x: _constant(1) / (_constant(1) + _exp(_constant(0) - x)),
    "tirx.tanh": lambda x: _rational(x, _TANH),  # at most 7 units in the last place off
    "tirx.erf": lambda x: _rational(x, _ERF),  # at most 4e-7 off
}
