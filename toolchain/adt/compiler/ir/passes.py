"""Passes of TVM's that are made of functions."""

from __future__ import annotations

from collections.abc import Callable, Collection

import tvm
from tvm import relax, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator

from adt.compiler.ir.nodes import operator_name

MakePass = Callable[[], tvm.transform.Pass]


def module_pass(name: str) -> Callable[[Callable[[tvm.IRModule], tvm.IRModule]], MakePass]:
    """Make a function of a module one that gives the pass *name*, as a decorator."""
    return lambda rewrite: (
        lambda: tvm.transform.module_pass(lambda module, _context: rewrite(module), opt_level=0, name=name)
    )


def kernel_pass(name: str) -> Callable[[Callable[[tirx.PrimFunc], tirx.PrimFunc]], MakePass]:
    """Make a function of a kernel one that gives the pass *name* over TIR, as a decorator."""
    return lambda rewrite: (
        lambda: tirx.transform.prim_func_pass(
            lambda function, _module, _context: rewrite(function), opt_level=0, name=name
        )
    )


def replaced_calls(
    name: str, operators: Collection[str], replace: Callable[[relax.BlockBuilder, relax.Call], relax.Expr]
) -> tvm.transform.Pass:
    """Return the pass *name*, in which *replace* rewrites each call of *operators* with a builder."""

    @mutator
    class Replace(PyExprMutator):  # type: ignore[misc]
        def visit_call_(self, call: relax.Call) -> relax.Expr:
            call = super().visit_call_(call)
            return replace(self.builder_, call) if operator_name(call) in operators else call

    @module_pass(name)
    def replaced(module: tvm.IRModule) -> tvm.IRModule:
        visitor = Replace(module)
        for variable, function in module.functions_items():
            if isinstance(function, relax.Function):
                visitor.builder_.update_func(variable, visitor.visit_expr(function))
        return visitor.builder_.get()

    return replaced()
