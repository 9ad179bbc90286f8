"""Rewrite of a Relax function so that operators compute in half precision.

One walk in order of execution. Each tensor remembers in which type it was made and is cast where a reader
wants the other one, once. What is *flexible* (weights, constants, and operators that only move them) has no
type of its own and takes each reader's: that is how weights become half in the file, and never at run time.

A tensor is *wide* between a convolution that adds up in float32 and the place where it is stored as half:
elementwise operators behind it, which TVM fuses into its kernel, still see the float32 sums.

Convolutions that make a spectrum of which the logarithm is taken stay float32, and so does
what comes before them.

What no convolution and no matrix product reads any more stays float32: it is little work,
and the outputs (the coordinates of boxes, say) are float32 anyway.
"""

from __future__ import annotations

import inspect
import itertools
import logging
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import tvm
from tvm import relax

from adt.compiler.ir.rewriter import bindings_of, is_flat, readers_of
from adt.compiler.passes.precision.policy import (
    ELEMENTWISE,
    LARGEST,
    LAYOUT,
    PRODUCTS,
    STORED_HALF,
    Policy,
    dtype_of,
    operator_of,
    policy,
)

log = logging.getLogger("adt.compile")

HALF, SINGLE = "float16", "float32"

FEW = 16
"""Constants of up to this many elements must keep their value in half precision; larger ones are
weights, in which a few elements may become 0."""
KEEPS_VALUE = 0.01  # relative change of a constant that still counts as the same value


@dataclass
class _Float:
    """A float32 tensor of the original function: the expressions that hold it now, by type."""

    make: Callable[[str], relax.Expr]
    """Makes the expression that holds it in a type, for the first time."""
    fits_half: Callable[[], bool] = lambda: True
    """True if it keeps its value in half precision."""
    kind: str = ""
    """Type that readers who follow see; empty: it is flexible."""
    wide: bool = False
    """It was made in float32 and is not stored yet, although its kind is half."""
    versions: dict[str, relax.Expr] = field(default_factory=dict)

    def get(self, dtype: str) -> relax.Expr:
        """Return the expression that holds it in *dtype*."""
        if dtype not in self.versions:
            self.versions[dtype] = self.make(dtype)
        return self.versions[dtype]


def _constant(constant: relax.Constant) -> _Float:
    return _Float(
        lambda _: relax.const(_narrow(constant.data.numpy())),
        lambda: _fits(constant.data.numpy()),
        versions={SINGLE: constant},
    )


def _weight(var: relax.Var, data: tvm.runtime.Tensor) -> _Float:
    """Return the value of a float32 parameter; each type that is asked for becomes a parameter."""

    def parameter(dtype: str) -> relax.Var:
        info = relax.TensorStructInfo(var.struct_info.shape, dtype)
        return relax.Var(var.name_hint, info) if dtype == HALF else var

    return _Float(parameter, lambda: _fits(data.numpy()))


_Value: TypeAlias = "_Float | relax.Expr | tuple[_Value, ...]"
"""A float32 tensor, a tuple's fields, or anything else, which stays what it is."""


def rewrite(
    module: tvm.IRModule,
    params: Mapping[str, tvm.runtime.Tensor],
    precision: str,
    keep: Sequence[str] = (),
    only: Sequence[str] = (),
) -> tuple[tvm.IRModule, Mapping[str, tvm.runtime.Tensor]]:
    """Rewrite *module* to *precision*, except its inputs and outputs; return it and its parameters.

    The inside of an ``If``'s branches stays as it is, like every argument. *params* follow the inputs of
    ``main``, in order; *keep* and *only* are as in :func:`policy`.
    """
    if precision == "float32":
        return module, params
    rules = policy(module, precision, keep, only)
    if "nn.batch_norm" not in rules.kept:
        module = relax.transform.DecomposeOpsForInference()(module)
    rewriter = _Rewriter(module, params, rules)
    rewritten = rewriter.run()
    kept = ", ".join(f"{name} {count}×" for name, count in sorted(rewriter.kept.items())) or "none"
    log.info("%s: %d operators compute in half precision; in float32: %s", precision, rewriter.half, kept)
    return rewritten


@dataclass
class _Rewriter:
    module: tvm.IRModule
    params: Mapping[str, tvm.runtime.Tensor]
    policy: Policy
    half: int = 0  # number of operators that compute in half precision
    kept: Counter[str] = field(default_factory=Counter)
    """Operators that compute on floats in float32, and how often."""

    def run(self) -> tuple[tvm.IRModule, Mapping[str, tvm.runtime.Tensor]]:
        """Rewrite the module; return it and its parameters."""
        main, infos = self.module["main"], self.module.global_infos
        others = {gv: func for gv, func in self.module.functions.items() if gv.name_hint != "main"}
        self.builder = relax.BlockBuilder(tvm.IRModule(others, self.module.attrs, global_infos=infos))
        self.values: dict[relax.Var, _Value] = {}
        self.readers = readers_of(self.module)
        self.ahead = _ahead_of_products(self.module)
        self.spectra = _ahead_of_spectra(self.module)
        inputs = list(main.params)[: len(main.params) - len(self.params)]
        weights = dict(zip(list(main.params)[len(inputs) :], self.params.items(), strict=True))
        for var in inputs:
            self.values[var] = self._tensor(var) if dtype_of(var) == SINGLE else var
        for var, (_, data) in weights.items():
            self.values[var] = _weight(var, data) if dtype_of(var) == SINGLE else var
        # The parameters are known when the body is: the function's frame is made by hand.
        self.builder.begin_scope(list(main.params))
        dataflow = is_flat(self.module)
        if dataflow:
            self.builder._begin_dataflow_block()
        else:  # control flow cannot be in a dataflow block, which is formed around it afterwards
            self.builder._begin_binding_block()
        for binding in bindings_of(self.module):
            self.values[binding.var] = self._bind(binding)
        output = self._as(self._value(main.body.body))
        returned = self.builder.emit_output(output) if dataflow else self.builder.emit(output)
        blocks = [self.builder._end_block()]
        body = self.builder.normalize(relax.SeqExpr(blocks, returned))
        self.builder.end_scope()
        variables, params = inputs, dict[str, tvm.runtime.Tensor]()
        for var, (name, tensor) in weights.items():  # less what nobody reads
            value = self.values[var]
            versions = value.versions if isinstance(value, _Float) else {SINGLE: var}
            for dtype, version in sorted(versions.items(), reverse=True):  # float32 first
                key = name if dtype == SINGLE or len(versions) == 1 else f"{name}.{HALF}"
                variables.append(version)
                params[key] = tensor if dtype == SINGLE else tvm.runtime.tensor(_narrow(tensor.numpy()))
        function = relax.Function(variables, body, main.ret_struct_info, main.is_pure, main.attrs)
        self.builder.add_func(function, "main")
        result = self.builder.get()
        if not dataflow:
            result = relax.transform.ConvertToDataflow()(result)
        return relax.transform.DeadCodeElimination(["main"])(result), params

    def _value(self, expr: relax.Expr) -> _Value:
        if isinstance(expr, relax.Var):
            return self.values.get(expr, expr)
        if isinstance(expr, relax.Tuple):
            return tuple(map(self._value, expr.fields))
        if isinstance(expr, relax.Constant) and str(expr.data.dtype) == SINGLE:
            return _constant(expr)
        return expr

    def _as(self, value: _Value, dtype: str = SINGLE) -> relax.Expr:
        """Return the expression that holds *value*, its float32 tensors in *dtype*."""
        if isinstance(value, _Float):
            return value.get(dtype)
        if isinstance(value, tuple):
            return relax.Tuple([self._as(item, dtype) for item in value])
        return value

    def _tensor(self, var: relax.Var, kind: str = SINGLE, *, wide: bool = False) -> _Float:
        """Return the value of the result of an operator, or of an input, which readers see as *kind*."""

        def cast(dtype: str) -> relax.Expr:
            # named after it: variables keep the names that they have in the imported module
            return self._emit(relax.op.astype(var, dtype), f"{var.name_hint}_as_{dtype}")

        return _Float(cast, kind=kind, wide=wide, versions={SINGLE if wide else kind: var})

    def _emit(self, expr: relax.Expr, name: str = "") -> relax.Expr:
        return self.builder.emit(expr, name)

    def _bind(self, binding: relax.VarBinding) -> _Value:
        if isinstance(binding, relax.MatchCast):
            value = self._value(binding.value)
            return self._split(self.builder.match_cast(self._as(value), binding.struct_info))
        value, var = binding.value, binding.var
        if isinstance(value, relax.Call):
            return self._call(var, value)
        if isinstance(value, relax.TupleGetItem):
            group = self._value(value.tuple_value)
            if isinstance(group, tuple):
                return group[int(value.index)]
            return self._split(self._emit(relax.TupleGetItem(self._as(group), value.index)))
        if isinstance(value, relax.If | relax.SeqExpr):  # as it is, on what was there before
            self.kept["if"] += 1
            return self._split(self._emit(_replaced(value, self._reader), str(var.name_hint)))
        return self._value(value)

    def _reader(self, var: relax.Var) -> relax.Expr:
        return self._as(self._value(var))

    def _split(self, var: relax.Var, kind: str = SINGLE, *, wide: bool = False) -> _Value:
        """Return the value of the new *var*, its tuple's fields taken out, of which readers see *kind*."""
        info = var.struct_info
        if isinstance(info, relax.TupleStructInfo):
            name = var.name_hint
            items = (self._emit(relax.TupleGetItem(var, i), f"{name}_{i}") for i in range(len(info.fields)))
            return tuple(self._split(item, kind, wide=wide) for item in items)
        if not isinstance(info, relax.TensorStructInfo) or info.dtype != (SINGLE if wide else kind):
            return var
        return self._tensor(var, kind, wide=wide)

    def _call(self, var: relax.Var, call: relax.Call) -> _Value:
        op, name = operator_of(call), str(var.name_hint)
        args = [self._value(arg) for arg in call.args]
        floats = [leaf for arg in args for leaf in _floats(arg)]
        firm = [leaf for leaf in floats if leaf.kind]
        if op == "astype" and floats and str(call.attrs.dtype) == SINGLE:
            return args[0]
        if floats and not firm and op in LAYOUT:
            return _Float(
                lambda dtype: self._emit(self._again(call, args, dtype), name),
                lambda: all(leaf.fits_half() for leaf in floats),
            )
        if not floats or not _is_float(var):
            return self._split(self._emit(self._again(call, args, SINGLE), name))
        allowed = self.policy.half(op, name) and not _is_square(op, call) and var not in self.spectra
        allowed = allowed and (op in PRODUCTS or var in self.ahead)
        table = op == "take" and not firm  # an embedding's table is a weight like any other
        if allowed and (op in PRODUCTS or table or any(leaf.kind == HALF for leaf in firm)):
            if op in ELEMENTWISE and all(leaf.wide for leaf in firm):
                self.half += 1
                return self._wide(var, self._emit(self._again(call, args, SINGLE), name))
            if all(leaf.fits_half() for leaf in floats):
                self.half += 1
                return self._half(var, op, call, args)
        self.kept[op or "call"] += 1
        result = self._emit(self._again(call, args, SINGLE), name)
        if op in STORED_HALF and var in self.ahead and any(leaf.kind == HALF for leaf in firm):
            return self._wide(var, result)
        return self._split(result)

    def _half(self, var: relax.Var, op: str, call: relax.Call, args: Sequence[_Value]) -> _Value:
        """Repeat *call* on half arguments."""
        if op not in PRODUCTS:
            return self._split(self._emit(self._again(call, args, HALF), str(var.name_hint)), HALF)
        make = _operator(op)
        attrs = {name: getattr(call.attrs, name) for name in list(inspect.signature(make).parameters)[2:]}
        attrs["out_dtype"] = self.policy.accumulate
        result = self._emit(make(*(self._as(arg, HALF) for arg in args), **attrs), str(var.name_hint))
        if self.policy.accumulate == HALF:
            return self._split(result, HALF)
        return self._wide(var, result) if var in self.ahead else self._split(result)

    def _wide(self, var: relax.Var, result: relax.Expr) -> _Value:
        """Return the value of *result*, in float32, that is to be stored as half.

        With several readers it is stored at once: one tensor in memory, not two.
        """
        value = self._split(result, HALF, wide=True)
        if isinstance(value, _Float) and len(self.readers[var]) > 1:
            return self._tensor(value.get(HALF), HALF)
        return value

    def _again(self, call: relax.Call, args: Sequence[_Value], dtype: str) -> relax.Expr:
        """Repeat *call* on *args*, whose float32 tensors are *dtype*."""
        return relax.Call(call.op, [self._as(arg, dtype) for arg in args], call.attrs, call.sinfo_args)


def _replaced(expr: relax.Expr, read: Callable[[relax.Expr], relax.Expr]) -> relax.Expr:
    """Replace each variable in *expr* by what *read* gives for it."""

    @relax.expr_functor.mutator
    class Replacer(relax.PyExprMutator):  # type: ignore[misc]
        def visit_var_(self, var: relax.Var) -> relax.Expr:
            return read(var)

        def visit_dataflow_var_(self, var: relax.Var) -> relax.Expr:
            return read(var)

    return Replacer().visit_expr(expr)


def _floats(value: _Value) -> Iterator[_Float]:
    """Yield the float32 tensors in *value*."""
    if isinstance(value, tuple):
        yield from itertools.chain.from_iterable(map(_floats, value))
    elif isinstance(value, _Float):
        yield value


def _is_float(var: relax.Var) -> bool:
    """Return True if *var* is a float32 tensor, or a tuple of such."""
    parts = getattr(var.struct_info, "fields", [var.struct_info])
    return all(getattr(part, "dtype", "") == SINGLE for part in parts)


def _is_square(op: str, call: relax.Call) -> bool:
    return op == "multiply" and bool(call.args[0].same_as(call.args[1]))


def _operator(op: str) -> Any:
    """Return the Python function that makes a call of *op*."""
    return operator.attrgetter(op)(relax.op)


def _ahead_of_products(module: tvm.IRModule) -> set[relax.Var]:
    """Return the variables that a convolution or a matrix product reads, directly or through others."""
    ahead: set[relax.Var] = set()
    for binding in reversed(bindings_of(module)):
        if binding.var in ahead or operator_of(binding.value) in PRODUCTS:
            ahead.update(relax.analysis.free_vars(binding.value))
    return ahead


def _ahead_of_spectra(module: tvm.IRModule) -> set[relax.Var]:
    """Return the variables whose squares a logarithm is taken of, as of a spectrum's power.

    Half precision errs by a fraction of the loudest; a logarithm shows the quietest.
    """
    logged, spectra = set[relax.Var](), set[relax.Var]()
    for binding in reversed(bindings_of(module)):
        op, reads = operator_of(binding.value), relax.analysis.free_vars(binding.value)
        if op == "log" or (binding.var in logged and op not in PRODUCTS):
            logged.update(reads)
        squares = op in ("square", "power") or (op and _is_square(op, binding.value))
        if binding.var in spectra or (squares and binding.var in logged):
            spectra.update(reads)
    return spectra


def _narrow(data: Any) -> Any:
    with np.errstate(over="ignore"):
        return data.astype(np.float16)


def _fits(data: Any) -> bool:
    """Return True if *data* keeps its values in half precision; infinities and NaN do."""
    sizes = np.abs(data[np.isfinite(data)])
    if sizes.max(initial=0) > LARGEST:
        return False
    if data.size > FEW:
        return True
    return bool(np.all(np.abs(_narrow(sizes).astype(np.float32) - sizes) <= KEEPS_VALUE * sizes))
