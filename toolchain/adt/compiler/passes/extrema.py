"""Maxima and minima along axes on a CPU: one pass over the operand, through which NaN passes.

TVM's own keep NaN by its position only, for which its importer of ONNX counts NaN in a pass of its own.
"""

from __future__ import annotations

import math
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, te, tirx
from tvm.relax.dpl import is_const, is_op, rewrite_call, wildcard

from adt.compiler.ir.nodes import operator_name
from adt.compiler.ir.passes import kernel_pass, module_pass, replaced_calls

EXTREMUM = "extremum"  # the beginning of the names of blocks whose maxima and minima keep NaN
OPERATORS = {"relax.max": te.max, "relax.min": te.min}


@module_pass("adt.WithoutCountsOfNan")
def without_counts_of_nan(module: tvm.IRModule) -> tvm.IRModule:
    """Take the counts of NaN away which the importer of ONNX has beside an extremum."""
    x = wildcard()
    extremum = is_op("relax.max")(x) | is_op("relax.min")(x)
    count = is_op("relax.sum")(is_op("relax.astype")(is_op("relax.isnan")(x)))
    filled = is_op("relax.full_like")(extremum, is_const())
    pattern = is_op("relax.where")(is_op("relax.greater")(count, is_const()), filled, extremum)

    def replaced(call: relax.Call, matches: Any) -> Any:
        same = tvm_ffi.structural_equal(matches[extremum].attrs, matches[count].attrs)
        return matches[extremum] if same else call

    module = tvm.IRModule(dict(module.functions_items()), module.attrs, module.global_infos)
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            module.update_func(variable, rewrite_call(pattern, replaced, function))
    return relax.transform.DeadCodeElimination(["main"])(module)


def extrema() -> tvm.transform.Pass:
    """Return a pass that replaces ``relax.max`` and ``relax.min`` of floats by :func:`extremum`."""

    def replaced(builder: relax.BlockBuilder, call: relax.Call) -> Any:
        (data,) = call.args
        if not data.struct_info.dtype.startswith("float") or data.struct_info.shape is None:
            return call
        reduce, attributes, rank = OPERATORS[operator_name(call)], call.attrs, data.struct_info.ndim
        axes = range(rank) if attributes.axis is None else [int(axis) % rank for axis in attributes.axis]
        return builder.call_te(
            lambda x: _extremum(x, reduce, axes, bool(attributes.keepdims)),
            data,
            primfunc_name_hint=operator_name(call).rpartition(".")[2],
        )

    return replaced_calls("adt.Extrema", OPERATORS, replaced)


def _extremum(x: Any, reduce: Any, axes: Any, keepdims: bool) -> Any:
    terms = {axis: te.reduce_axis((0, x.shape[axis]), f"k{axis}") for axis in sorted(axes)}
    rest = [axis for axis in range(len(x.shape)) if axis not in terms]

    def value(*at: tirx.PrimExpr) -> Any:
        own = dict(zip(range(len(x.shape)) if keepdims else rest, at, strict=True)) | terms
        return reduce(x(*(own[axis] for axis in range(len(x.shape)))), axis=list(terms.values()))

    shape = [1 if axis in terms else n for axis, n in enumerate(x.shape) if keepdims or axis not in terms]
    return te.compute(shape, value, name=EXTREMUM)


@kernel_pass("adt.ExtremaKeepNan")
def extrema_keep_nan(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Let the blocks of :func:`extrema` keep NaN, in the form that ``limits_keep_nan`` knows."""

    def kept(block: tirx.SBlock) -> Any:
        if not block.name_hint.startswith(EXTREMUM):
            return None

        def changed(store: Any) -> Any:
            value = store.value
            if isinstance(value, tirx.FloatImm):  # TVM's least number
                value = tirx.FloatImm(value.dtype, math.copysign(math.inf, value.value))
            elif isinstance(value, tirx.Max | tirx.Min):
                total, term = value.a, value.b  # TVM takes term == term for true
                value = tirx.Select(tirx.LE(term, term), type(value)(term, total), term)
            return tirx.BufferStore(store.buffer, value, store.indices)

        return tirx.stmt_functor.ir_transform(block, None, changed, ["tirx.BufferStore"])

    return function.with_body(tirx.stmt_functor.ir_transform(function.body, None, kept, ["tirx.SBlock"]))
