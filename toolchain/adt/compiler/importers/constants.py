"""Constants of an imported Relax module, which become parameters where they are weights.

TVM's TFLite importer writes every weight into the function as a constant, its PyTorch importer the running
means of batch norms; a package keeps weights apart from the code (``mod.params``).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

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
            self.variables: list[Any] = []
            self.values: list[Any] = []
            self.known: dict[Any, Any] = {}  # variables that are constants, by themselves

        def visit_var_binding_(self, binding: Any) -> None:
            value = binding.value
            if isinstance(value, relax.Call) and value.args:
                first = value.args[0]
                constant = first if isinstance(first, relax.Constant) else self.known.get(first)
                compute = _moves().get(getattr(value.op, "name", ""))
                if constant is not None and compute is not None:
                    array = compute(constant.data.numpy(), value)
                    self.known[binding.var] = relax.const(array, str(array.dtype))  # not narrowed to 32 bits
                    return
            super().visit_var_binding_(binding)

        def visit_var_(self, op: Any) -> Any:
            if op in self.known:
                return self.visit_constant_(self.known[op])
            return super().visit_var_(op)

        visit_dataflow_var_ = visit_var_

        def visit_constant_(self, op: Any) -> Any:
            if math.prod(int(extent) for extent in op.data.shape) < LEAST_WEIGHT:
                return op
            for variable, value in zip(self.variables, self.values, strict=True):
                if value.same_as(op.data):
                    return variable
            info = relax.TensorStructInfo([int(extent) for extent in op.data.shape], op.data.dtype)
            name = next(name for name in names if name not in taken)
            self.variables.append(relax.Var(name, info))
            self.values.append(op.data)
            return self.variables[-1]

    lift = Lift()
    body = lift.visit_expr(main.body)
    inputs = int(main.attrs["num_input"])
    had = list(main.attrs["params"]) if "params" in main.attrs.keys() else []  # noqa: SIM118
    before = had[: len(main.params) - inputs]  # what TVM's TFLite importer lists are no parameters
    parameters = [*main.params, *lift.variables]
    lifted = relax.Function(parameters, body, main.ret_struct_info, main.is_pure, main.attrs)
    lifted = lifted.with_attr("params", [*before, *lift.values])
    result = tvm.IRModule(dict(module.functions.items()))
    result[module.get_global_var("main")] = lifted
    return relax.transform.Normalize()(result)


def _moves() -> dict[str, Callable[[Array, Any], Array]]:
    """Map operators that only move or convert a constant's elements to functions of numpy arrays."""

    def shape_of(call: Any) -> list[int]:
        return [int(extent) for extent in call.struct_info.shape]

    return {
        "relax.permute_dims": lambda array, call: np.ascontiguousarray(
            array.transpose([int(axis) for axis in call.attrs.axes] if call.attrs.axes else None)
        ),
        "relax.reshape": lambda array, call: array.reshape(shape_of(call)),
        "relax.expand_dims": lambda array, call: array.reshape(shape_of(call)),
        "relax.squeeze": lambda array, call: array.reshape(shape_of(call)),
        "relax.astype": lambda array, call: array.astype(str(call.struct_info.dtype)),
    }
