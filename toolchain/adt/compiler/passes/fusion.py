"""Fusion of a model's operators to kernels whose weights are parameters, for what blocks channels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.relax.backend.gpu_generic import pipeline as generic

from adt.compiler.ir.flops import count_flops
from adt.compiler.ir.nodes import operator_name
from adt.compiler.ir.passes import module_pass, replaced_calls
from adt.compiler.ir.rewriter import extents_of, is_flat, lift_constants, returned_views
from adt.compiler.passes.extrema import extrema
from adt.compiler.passes.inlining import bounded_expressions
from adt.compiler.passes.layout.blocks import LOOKUP
from adt.compiler.passes.selections import selections
from adt.compiler.passes.workarounds import parallel_scatters, scans_as_reductions, shorten_kernel_names

ELEMENT_BY_ELEMENT = 0  # TVM's ``relax::OpPatternKind`` of such


def bound_operators(module: tvm.IRModule) -> tvm.IRModule:
    """Decompose the imported *module*, whose parameters are constants, which the layout walk can pack."""
    decompose, fold = relax.transform.DecomposeOpsForInference(), relax.transform.FoldConstant()
    whole = relax.transform.CanonicalizeBindings()  # a norm is a tuple of its result and of constants
    return tvm.transform.Sequential([decompose, whole, folded_by_numpy(), fold])(module)


def folded_by_numpy() -> tvm.transform.Pass:
    """Return a pass that computes operators of constants by numpy, to the bit as TVM's kernels do.

    TVM would compile a kernel for each of them, in 15 ms: a hundred in a network of many normalizations.
    """
    names = ("add", "subtract", "multiply", "divide", "sqrt")
    functions = {f"relax.{name}": getattr(np, name) for name in names}

    def bound(builder: relax.BlockBuilder, arg: relax.Expr) -> relax.Expr:
        return builder.lookup_binding(arg) if isinstance(arg, relax.Var) else arg

    def replaced(builder: relax.BlockBuilder, call: relax.Call) -> relax.Call:
        moved = _MOVES.get(operator_name(call))
        operands = [bound(builder, arg) for arg in (call.args[:1] if moved else call.args)]
        if not all(isinstance(operand, relax.Constant) for operand in operands):
            return call
        arrays = [operand.data.numpy() for operand in operands]
        if moved and arrays[0].dtype.kind in "fiu":
            result = moved(arrays[0], call)
            if result is None:
                return call
            return relax.const(np.ascontiguousarray(result), str(result.dtype))  # else 64 bits become 32
        if any(array.dtype != np.float32 for array in arrays):
            return call
        with np.errstate(all="ignore"):
            return relax.const(functions[operator_name(call)](*arrays), "float32")

    return replaced_calls("adt.FoldedByNumpy", (*functions, *_MOVES), replaced)


def _reshaped(array: Any, call: relax.Call) -> Any:
    shape = extents_of(call.args[1].struct_info)
    return None if shape is None else array.reshape(shape)


_MOVES: Mapping[str, Callable[[Any, relax.Call], Any]] = {
    "relax.expand_dims": lambda array, call: np.expand_dims(array, tuple(map(int, call.attrs.axis))),
    "relax.permute_dims": lambda array, call: array.transpose(
        call.attrs.axes and list(map(int, call.attrs.axes))
    ),
    "relax.reshape": _reshaped,
}
"""Operators that only move elements, by numpy: the result for the first operand and the call."""


def gpu_dispatch(target: tvm.target.Target) -> tuple[Any, ...]:
    """Return the passes by which a GPU computes otherwise than by TVM's tensor expressions."""
    return (scans_as_reductions(), parallel_scatters(), *generic.library_dispatch_passes(target))


def cpu_dispatch() -> tuple[tvm.transform.Pass, ...]:
    """Return the passes for what a CPU computes otherwise than by TVM's tensor expressions."""
    return (extrema(), selections(), relax.backend.DispatchSampling(), relax.backend.DispatchSortScan())


@module_pass("adt.Lookups")
def _lookups(module: tvm.IRModule) -> tvm.IRModule:
    """Have lookups fused with sums before them: TVM does not know that they may be."""
    for variable, function in module.functions_items():
        if isinstance(function, tirx.PrimFunc) and LOOKUP in (function.attrs or {}):
            module.update_func(variable, function.with_attr("op_pattern", ELEMENT_BY_ELEMENT))
    return module


def fuse(
    operators: tvm.IRModule, params: Mapping[str, tvm.runtime.Tensor], dispatch: Sequence[tvm.transform.Pass]
) -> tuple[tvm.IRModule, dict[str, tvm.runtime.Tensor]]:
    """Return the kernels of a model of *operators*, and their parameters, with those that were packed.

    Names come from *params*. *dispatch* takes operators that TVM's tensor expressions are not to compute.
    """
    legal = tvm.transform.Sequential(
        [
            folded_by_numpy(),
            relax.transform.FoldConstant(),
            *dispatch,
            relax.transform.LegalizeOps(),
            relax.transform.FoldConstant(),
            relax.transform.DeadCodeElimination(["main"]),
        ]
    )(operators)
    lifted, weights = lift_constants(legal, params) if is_flat(legal) else (legal, {})
    fused = tvm.transform.Sequential(
        [
            relax.transform.AnnotateTIROpPattern(),
            _lookups(),
            bounded_expressions(),
            relax.transform.FuseOps(),
            relax.transform.FuseTIR(),
            relax.transform.DeadCodeElimination(["main"]),
            shorten_kernel_names(),
            count_flops(),
        ]
    )(lifted)
    # Before tensors are placed and kernels scheduled: a kernel that reads an image is taken for a view, too,
    # and of a scheduled one TVM cannot tell that it is one.
    return relax.transform.RewriteDataflowReshape()(returned_views(fused)), weights
