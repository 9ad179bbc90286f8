"""Rewrite of a model in half precision so that it computes in float32, where that is faster: on CPUs.

Weights become float32 in the file. Inputs and outputs keep their types, and are cast once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tvm
from tvm import relax

from adt.compiler.ir.nodes import operator_name, relax_nodes
from adt.compiler.ir.rewriter import Rewriter, bindings_of, is_flat
from adt.compiler.passes.precision.half import HALF, SINGLE
from adt.compiler.passes.precision.policy import dtype_of


def in_single_precision(
    module: tvm.IRModule, params: Mapping[str, tvm.runtime.Tensor]
) -> tuple[Any, Mapping[str, Any]]:
    """Put float32 in place of float16 in the imported *module* and its parameters.

    A model that branches, or calls functions whose types are fixed, stays as it is. *params* are
    ``tvm.runtime.Tensor`` by name, in the order of the parameters behind the inputs.
    """
    calls = relax_nodes(module["main"], relax.Call)
    typed_by_arguments = all(operator_name(call) and not call.sinfo_args for call in calls)
    if not is_flat(module) or not has_half(module) or not typed_by_arguments:
        return module, params
    return _SinglePrecision(module, params).run(), {name: _widened(data) for name, data in params.items()}


class _SinglePrecision(Rewriter):
    """A copy of ``main`` whose tensors of float16 are float32."""

    def __init__(self, module: tvm.IRModule, params: Mapping[str, tvm.runtime.Tensor]) -> None:
        super().__init__(module)
        variables = list(module["main"].params)
        weights = variables[len(variables) - len(params) :]
        self.values |= {w: relax.Var(w.name_hint, _single(w.struct_info)) for w in weights}
        self.weights = frozenset(weights)

    def value_of(self, variable: relax.Var) -> relax.Expr:
        if variable not in self.values and dtype_of(variable) == HALF:  # an input, when it is first read
            self.values[variable] = self.builder.emit(relax.op.astype(variable, SINGLE))
        return super().value_of(variable)

    def constant(self, constant: relax.Constant) -> relax.Expr:
        return relax.Constant(_widened(constant.data))

    def copy(self, value: relax.Expr) -> relax.Expr:
        copied = super().copy(value)
        if not isinstance(value, relax.Call) or value.attrs is None:
            return copied
        if operator_name(value) == "relax.astype" and str(value.attrs.dtype) in (HALF, SINGLE):
            argument = copied.args[0]
            return argument if dtype_of(argument) == SINGLE else relax.op.astype(argument, SINGLE)
        attributes = tvm.ir.load_json(tvm.ir.save_json(value.attrs).replace(f'"{HALF}"', f'"{SINGLE}"'))
        return relax.Call(copied.op, copied.args, attributes, copied.sinfo_args, copied.span)

    def bind(self, binding: relax.VarBinding) -> None:
        if isinstance(binding, relax.MatchCast):
            value, info = self.copy(binding.value), _single(binding.struct_info)
            self.values[binding.var] = self.builder.match_cast(value, info)
        else:
            super().bind(binding)

    def params(self) -> list[relax.Var]:
        return [self.values[param] if param in self.weights else param for param in super().params()]

    def result(self) -> Any:
        body = self.module["main"].body.body
        return self._as_before(super().result(), body.struct_info)

    def _as_before(self, value: relax.Expr, info: relax.StructInfo) -> relax.Expr:
        """Cast *value* back to the types of *info*."""
        if isinstance(info, relax.TupleStructInfo):
            parts = (self.builder.emit(relax.TupleGetItem(value, i)) for i in range(len(info.fields)))
            return relax.Tuple(
                [self._as_before(part, part_info) for part, part_info in zip(parts, info.fields, strict=True)]
            )
        if getattr(info, "dtype", "") != HALF:
            return value
        return self.builder.emit(relax.op.astype(value, HALF))


def _single(info: relax.StructInfo) -> relax.StructInfo:
    """Return a tensor's type, float32 where it was float16."""
    if getattr(info, "dtype", "") != HALF:
        return info
    extents = {"shape": info.shape} if info.shape else {"ndim": info.ndim}
    return relax.TensorStructInfo(dtype=SINGLE, **extents)


def _widened(tensor: Any) -> Any:
    if str(tensor.dtype) != HALF:
        return tensor
    return tvm.runtime.tensor(tensor.numpy().astype(np.float32))


def has_half(module: tvm.IRModule) -> bool:
    """Return True if a tensor of the Relax *module* is float16."""
    variables = [*module["main"].params, *(binding.var for binding in bindings_of(module))]
    return any(f'"{HALF}"' in str(variable.struct_info) for variable in variables)
