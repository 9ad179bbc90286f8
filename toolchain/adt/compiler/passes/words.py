"""Words of 32 bits that hold four numbers of 8 bits, of which a GPU multiplies four pairs at once.

Compilers of OpenCL call that differently, or not at all. A kernel calls it by a name of ours, and what that
is stands before its source, where the device's own compiler chooses.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import arith, ir, tirx

from adt.compiler.ir.nodes import is_call
from adt.compiler.ir.passes import kernel_pass

NUMBERS = 4  # in a word
DATA, WEIGHTS, SUMS = "uint8", "int8", "int32"
"""Types of the numbers that are multiplied, and of their sums and words. Adreno GPUs multiply no others."""
DOT = "adt.dot"
"""TVM's name of the operator that adds the products of two words, or of a word and each of a vector."""
_WORD, _DOT, _DOT_EACH = "adt_word", "adt_dot", "adt_dots"
_SOURCE = f"""\
#define {_WORD}(a, b, c, d) as_int((uchar4)((a), (b), (c), (d)))
#if defined(cl_khr_integer_dot_product)
#define {_DOT}(x, w, s) (dot_4x8packed_us_int((x), (w)) + (s))
#elif defined(cl_qcom_dot_product8) && __OPENCL_C_VERSION__ < 300
#pragma OPENCL EXTENSION cl_qcom_dot_product8 : enable
#define {_DOT}(x, w, s) qcom_dot8_acc((w), (x), (s))
#elif defined(__NV_CL_C_VERSION)
int {_DOT}(int x, int w, int s) {{
  asm("dp4a.u32.s32 %0, %1, %2, %0;" : "+r"(s) : "r"(x), "r"(w));
  return s;
}}
#else
int {_DOT}(int x, int w, int s) {{
  int4 a = convert_int4(as_uchar4(x)), b = convert_int4(as_char4(w));
  return mad24(a.x, b.x, mad24(a.y, b.y, mad24(a.z, b.z, mad24(a.w, b.w, s))));
}}
#endif
int4 {_DOT_EACH}(int x, int4 w, int4 s) {{
  return (int4)({_DOT}(x, w.x, s.x), {_DOT}(x, w.y, s.y), {_DOT}(x, w.z, s.z), {_DOT}(x, w.w, s.w));
}}
"""
"""Code for data *x*, weights *w* and sums *s*. Each kernel that multiplies words has it in its package."""


def word(read: Callable[[int], tirx.PrimExpr]) -> Any:
    """Pack the numbers that *read* gives into a word, in a tensor expression."""
    return tirx.call_pure_extern(SUMS, _WORD, *map(read, range(NUMBERS)))


def dot(data: Any, weights: Any) -> Any:
    """Sum the products of the numbers in two words, in a tensor expression."""
    define_words()
    return tirx.Call(SUMS, ir.Op.get(DOT), [data, weights, tirx.const(0, SUMS)])


def repeated(number: int) -> int:
    """Return the word that holds the unsigned *number* four times."""
    return int.from_bytes([number] * NUMBERS, "little", signed=True)


def packed(weights: Any) -> Any:
    """Pack int8 *weights*, whose last axis is as long as a word, into words without that axis."""
    return np.ascontiguousarray(weights, WEIGHTS).view(SUMS)[..., 0]


@kernel_pass("adt.CombineWords")
def combine_words(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Read adjacent numbers as a vector, the word, and add as the operator does."""

    def combined(node: tirx.PrimExpr) -> tirx.PrimExpr:
        return _added(node) if isinstance(node, tirx.Add) else _as_vector(node)

    kinds = ["tirx.Add", "tirx.Call"]
    return function.with_body(tirx.stmt_functor.ir_transform(function.body, None, combined, kinds))


def without_words(function: tirx.PrimFunc) -> Any:
    """Replace words in the unscheduled TIR *function* by arithmetic that any processor has."""

    def plain(call: Any) -> Any:
        bits = [8 * place for place in range(NUMBERS)]
        if is_call(call, "tirx.call_pure_extern") and call.args[0].value == _WORD:
            return sum(number.astype(SUMS) << at for number, at in zip(call.args[1:], bits, strict=True))
        if not is_call(call, DOT):
            return call
        data, weights, _zero = call.args
        return sum(((data >> at) & 255) * ((weights << (24 - at)) >> 24) for at in bits)

    return function.with_body(tirx.stmt_functor.ir_transform(function.body, None, plain, ["tirx.Call"]))


def _added(total: tirx.PrimExpr) -> tirx.PrimExpr:
    products = total.b
    if not is_call(products, DOT):
        return total
    data, weights, _zero = products.args
    return tirx.Call(products.dtype, products.op, [data, weights, total.a])


def _as_vector(call: tirx.PrimExpr) -> tirx.PrimExpr:
    if not is_call(call, "tirx.call_pure_extern") or call.args[0].value != _WORD:
        return call
    numbers = call.args[1:]
    if not all(isinstance(number, tirx.BufferLoad) for number in numbers) or not _neighbours(numbers):
        return call
    *outer, lane = numbers[0].indices
    vector = tirx.BufferLoad(numbers[0].buffer, [*outer, tirx.Ramp(lane, 1, NUMBERS)])
    return tirx.call_pure_extern(SUMS, "as_int", vector)


def _neighbours(loads: Sequence[Any]) -> bool:
    """Return True if the elements that are read follow one another from a multiple of their number on."""
    analyzer, first = arith.Analyzer(), loads[0]
    if not analyzer.can_prove_equal(tirx.floormod(first.indices[-1], len(loads)), 0):
        return False
    return all(
        load.buffer.same_as(first.buffer)
        and all(map(analyzer.can_prove_equal, load.indices[:-1], first.indices[:-1]))
        and analyzer.can_prove_equal(load.indices[-1] - first.indices[-1], place)
        for place, load in enumerate(loads)
    )


@functools.cache
def define_words() -> None:
    """Make TVM know :data:`DOT`, as records name it."""

    def named(call: Any) -> Any:
        data, weights, sums = call.args
        if call.dtype == SUMS:
            return tirx.call_pure_extern(SUMS, _DOT, data, weights, sums)
        return tirx.call_pure_extern(call.dtype, _DOT_EACH, data.value, weights, sums)

    ir.register_op_attr(DOT, "TCallEffectKind", tirx.CallEffectKind.Pure.value)
    ir.register_op_attr(DOT, "TVectorizable", True)
    ir.register_op_attr(DOT, "TScriptPrinterName", DOT)
    ir.register_intrin_lowering(DOT, "opencl", f=named)


def with_words(source: str) -> str:
    """Put the definitions of words before the *source* of a kernel, if it multiplies any."""
    return _SOURCE + source if _DOT in source else source
