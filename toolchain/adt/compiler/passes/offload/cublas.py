"""Rules of cuBLAS: matrix products.

The runtime is adt's own (``cmake_presets/src/cuda/cublas_runtime.cc``). A bias and what follows stay: TVM
computes them in one kernel with the next operators, where cuBLAS has but a few activations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from tvm import relax
from tvm.relax.dpl import is_op, wildcard

from adt.compiler.ir.nodes import operator_name
from adt.compiler.passes.offload.json_graph import Layer, register, write_layer
from adt.compiler.passes.offload.rules import Rules, mixed_types, shape_of

MATMUL = "relax.matmul"


def rules(*, tf32: bool, **_options: object) -> Rules:
    """Return the rules and give TVM the code generator; *tf32*: float32 may be rounded to TF32."""
    register("cublas", partial(write_layer, layer_of=partial(_layer, tf32=tf32)))
    patterns: list[Any] = [("cublas.matmul", is_op(MATMUL)(wildcard(), wildcard()), {}, None)]
    return Rules(patterns, "cublas", _objection, apart=True)


def _objection(_name: str, calls: list[relax.Call]) -> str:
    (call,) = calls
    if reason := mixed_types("cuBLAS", call):
        return reason
    first, second = map(shape_of, call.args)
    if len(first) < 2 or len(second) < 2:
        return "cuBLAS multiplies matrices"
    if _batches(first) > 1 < _batches(second) and first[:-2] != second[:-2]:
        return "cuBLAS repeats a matrix for all others, not for some"
    return ""


def _batches(shape: Sequence[int]) -> int:
    """Return the number of matrices in a tensor of *shape*."""
    return math.prod(shape[:-2])


def _layer(bindings: Sequence[relax.VarBinding], *, tf32: bool) -> Layer:
    """Describe ``a @ b``; ``step_a``, ``step_b``: elements from one matrix to the next, 0: it repeats."""
    call = next(binding.value for binding in bindings if operator_name(binding.value) == MATMUL)
    a, b = map(shape_of, call.args)
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
    return list(call.args), attributes
