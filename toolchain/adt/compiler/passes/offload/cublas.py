"""Rules of cuBLAS: matrix products.

The runtime is adt's own (``cmake_presets/src/cuda/cublas_runtime.cc``). A bias and what follows stay: TVM
computes them in one kernel with the next operators, where cuBLAS has but a few activations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import tvm
from tvm import relax
from tvm.relax.dpl import is_op, wildcard

from adt.compiler.ir.nodes import operator_name
from adt.compiler.passes.offload.cuda_graph import Layer, check_types, register
from adt.compiler.passes.offload.rules import Rules
from adt.compiler.passes.offload.weights import fold_weights

MATMUL = "relax.matmul"


@dataclass(frozen=True)
class Cublas(Rules):
    """Rules of cuBLAS, by adt's runtime."""

    def prepare(self, module: tvm.IRModule, params: Mapping[str, tvm.runtime.Tensor]) -> Any:
        """Bind the weights and compute what depends on constants alone."""
        return fold_weights(module, params)

    def objection(self, name: str, calls: list[relax.Call]) -> str:
        """See :meth:`adt.compiler.passes.offload.rules.Rules.objection`."""
        (call,) = calls
        if reason := check_types("cuBLAS", call):
            return reason
        first, second = (_shape(argument) for argument in call.args)
        if len(first) < 2 or len(second) < 2:
            return "cuBLAS multiplies matrices"
        if _batches(first) > 1 < _batches(second) and first[:-2] != second[:-2]:
            return "cuBLAS repeats a matrix for all others, not for some"
        return ""


def rules(*, tf32: bool, **_options: bool) -> Cublas:
    """Return the rules and give TVM the code generator; *tf32*: float32 may be rounded to TF32."""
    register("cublas", partial(_layer, tf32=tf32))
    patterns: list[Any] = [("cublas.matmul", is_op(MATMUL)(wildcard(), wildcard()), {}, None)]
    return Cublas(patterns, "cublas", frozenset(), weights_inside=False, apart=True)


def _shape(expression: relax.Expr) -> list[int]:
    return [int(extent) for extent in expression.struct_info.shape]


def _batches(shape: Sequence[int]) -> int:
    """Return the number of matrices in a tensor of *shape*."""
    return math.prod(shape[:-2])


def _layer(bindings: Sequence[relax.VarBinding], *, tf32: bool) -> Layer:
    """The products ``a @ b``; ``step_a``, ``step_b``: elements from one matrix to the next, 0: it repeats."""
    call = next(binding.value for binding in bindings if operator_name(binding.value) == MATMUL)
    a, b = (_shape(argument) for argument in call.args)
    rows, inner, columns = a[-2], a[-1], b[-1]
    batch = max(_batches(a), _batches(b))
    if _batches(b) == 1:  # one product of more rows
        rows, batch = rows * batch, 1
    attributes = {
        "rows": rows,
        "columns": columns,
        "inner": inner,
        "batch": batch,
        "step_a": rows * inner if _batches(a) > 1 else 0,
        "step_b": inner * columns if _batches(b) > 1 else 0,
        "tf32": int(tf32),
    }
    return Layer(list(call.args), attributes)
