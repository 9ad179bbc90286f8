"""Constants of an imported Relax module, which become parameters where they are weights.

TVM's TFLite importer writes every weight into the function as a constant, its PyTorch importer the running
means of batch norms; a package keeps weights apart from the code (``mod.params``).
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from adt.compiler.ir.nodes import operator_name
from adt.numerics import Array

LEAST_WEIGHT = 64  # elements from which a constant is a weight rather than an argument


def lift_weights(module: Any) -> Any:
    """Turn the larger constants of ``main`` into parameters after the others, with values in its attributes.

    What only moves or converts a constant (transposes to TVM's layouts, casts from half
    precision) is computed here, so that no device does it for every inference.
    """
    main = module["main"]
    names, taken = map("weight_{}".format, itertools.count()), {str(var.name_hint) for var in main.params}

    @mutator
    class Lift(PyExprMutator):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.weights: list[tuple[Any, Any]] = []  # variables and values
            self.known: dict[Any, Any] = {}  # variables that are constants, by themselves

        def visit_var_binding_(self, binding: Any) -> None:
            value = binding.value
            first = value.args[0] if isinstance(value, relax.Call) and value.args else None
            constant = self.known.get(first, first)
            array = _moved(constant.data, value) if isinstance(constant, relax.Constant) else None
            if array is None:
                super().visit_var_binding_(binding)
            else:
                self.known[binding.var] = relax.const(array, str(array.dtype))  # not narrowed to 32 bits

        def visit_var_(self, op: Any) -> Any:
            return self.visit_constant_(self.known[op]) if op in self.known else super().visit_var_(op)

        visit_dataflow_var_ = visit_var_

        def visit_constant_(self, op: Any) -> Any:
            if math.prod(op.data.shape) < LEAST_WEIGHT:
                return op
            for variable, value in self.weights:
                if value.same_as(op.data):
                    return variable
            variable = relax.Var(next(name for name in names if name not in taken), op.struct_info)
            self.weights.append((variable, op.data))
            return variable

    lift = Lift()
    body = lift.visit_expr(main.body)
    inputs = int(main.attrs["num_input"])
    # what TVM's TFLite importer lists are no parameters
    before = list(main.attrs.get("params", []))[: len(main.params) - inputs]
    parameters = [*main.params, *(variable for variable, _ in lift.weights)]
    lifted = relax.Function(parameters, body, main.ret_struct_info, main.is_pure, main.attrs)
    lifted = lifted.with_attr("params", [*before, *(value for _, value in lift.weights)])
    result = tvm.IRModule(dict(module.functions.items()))
    result[module.get_global_var("main")] = lifted
    return relax.transform.Normalize()(result)


def _moved(constant: Any, call: Any) -> Array | None:
    """Compute the *call* on a constant if it only moves or converts the elements; else return None."""
    moved: Array | None = None
    match operator_name(call):
        case "relax.permute_dims":
            axes = call.attrs.axes
            moved = np.ascontiguousarray(
                constant.numpy().transpose([int(axis) for axis in axes] if axes else None)
            )
        case "relax.reshape" | "relax.expand_dims" | "relax.squeeze":
            moved = constant.numpy().reshape([int(extent) for extent in call.struct_info.shape])
        case "relax.astype":
            moved = constant.numpy().astype(str(call.struct_info.dtype))
    return moved
