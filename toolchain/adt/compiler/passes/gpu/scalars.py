"""Scalars that a model computes, as the scales are by which it quantizes at run time."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from adt.compiler.ir.nodes import operator_name
from adt.compiler.ir.rewriter import ELEMENTWISE, Rewriter, static_shape


class ScalarsWhereRead(Rewriter):
    """Has each kernel that reads a scalar compute it, from the results of kernels that take more than to be
    started."""

    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self.computed: dict[Any, Any] = {}
        """Variable of the old function that is such a scalar, to the call that gives it."""
        self.copies: dict[Any, Any] = {}
        """Map from such a variable to what stands for it where the latest binding reads it."""

    def bind(self, binding: relax.VarBinding) -> None:
        if static_shape(binding.var) == () and operator_name(binding.value) in ELEMENTWISE:
            self.computed[binding.var] = binding.value
        else:
            self.copies = {}
            super().bind(binding)

    def value_of(self, variable: relax.Var) -> Any:
        if variable not in self.computed:
            return super().value_of(variable)
        if variable not in self.copies:
            self.copies[variable] = self.builder.emit(self.copy(self.computed[variable]))
        return self.copies[variable]
