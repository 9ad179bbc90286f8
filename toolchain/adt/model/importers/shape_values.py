"""Make constants of what an importer computes from the shapes of tensors.

TVM's importers take a tensor's shape apart at run time (ONNX's Gather adds the table's
extent to negative indices), even where every extent is known. What they use for it,
``relax.run.shape_to_tensor``, is registered in Python only: no runtime on a device has it.
"""

from __future__ import annotations

import math
from typing import Any


def fold_shape_values(module: Any) -> Any:
    """*module* whose ``shape_of``, ``shape_to_tensor`` and ``size`` of known extents are constants."""
    from tvm import relax
    from tvm.relax.expr_functor import PyExprMutator, mutator

    @mutator
    class Fold(PyExprMutator):  # type: ignore[misc]
        def visit_call_(self, call: Any) -> Any:
            call = self.visit_expr_post_order(call)
            name = getattr(call.op, "name", "")
            if name not in ("relax.shape_of", "relax.shape_to_tensor", "relax.size"):
                return call
            extents = _extents(call.args[0].struct_info)
            if extents is None:
                return call
            if name == "relax.shape_of":
                return relax.ShapeExpr(extents)
            return relax.const(math.prod(extents) if name == "relax.size" else extents, "int64")

    fold = Fold(module)
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            fold.builder_.update_func(variable, fold.visit_expr(function))
    return fold.builder_.get()


def _extents(info: Any) -> list[int] | None:
    """The extents of a tensor or of a shape; None if one is open."""
    shape = getattr(info, "shape", None) or info
    values = getattr(shape, "values", None)
    if values is None or any(not hasattr(extent, "value") for extent in values):
        return None
    return [int(extent) for extent in values]
