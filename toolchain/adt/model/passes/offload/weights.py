"""Put weights into the functions that a vendor's library computes.

TVM's FuseOpsByPattern can do so itself (``bind_constants``), but it then takes two
functions that differ in nothing but their weights for one (TVM 0.25), and the second
layer of a network silently computes with the first one's. So the functions are made
with their weights as arguments, and get them here, a function of its own for each call.
"""

from __future__ import annotations

from typing import Any

CODEGEN = "Codegen"
"""Attribute of a function that TVM's RunCodegen hands over."""


def bind_weights(module: Any) -> Any:
    """*module* after MergeCompositeFunctions, with every constant that ``main`` passes moved inside."""
    import tvm
    from tvm import relax
    from tvm.relax.expr_functor import PyExprMutator, mutator

    made: set[Any] = set()

    @mutator
    class Bind(PyExprMutator):  # type: ignore[misc]
        def visit_call_(self, call: Any) -> Any:
            function = module[call.op] if isinstance(call.op, relax.GlobalVar) else None
            if not _handed(function):
                return super().visit_call_(call)
            name = f"{call.op.name_hint}_{len(made)}"
            bound = _inside(_bound(function, call.args)).with_attr("global_symbol", name)
            variable = self.builder_.add_func(bound, name)
            made.add(variable)
            return relax.Call(variable, [self.visit_expr(argument) for argument in _variables(call.args)])

    bind = Bind(module)
    bind.builder_.update_func(module.get_global_var("main"), bind.visit_expr(module["main"]))
    kept = {
        variable: function
        for variable, function in bind.builder_.get().functions_items()
        if variable in made or not _handed(function)
    }
    return relax.transform.Normalize()(tvm.IRModule(kept, attrs=module.attrs))


def _handed(function: Any) -> bool:
    return function is not None and function.attrs is not None and CODEGEN in function.attrs


def _constant(expression: Any) -> bool:
    from tvm import relax

    return isinstance(expression, relax.Constant)


def _variables(arguments: Any) -> list[Any]:
    return [argument for argument in arguments if not _constant(argument)]


def _bound(function: Any, arguments: Any) -> Any:
    """A copy of *function* without the parameters for which *arguments* has constants."""
    from tvm.relax.utils import copy_with_new_vars

    function = copy_with_new_vars(function)
    pairs = zip(function.params, arguments, strict=True)
    constants = {parameter: argument.data for parameter, argument in pairs if _constant(argument)}
    return function.bind_params(constants) if constants else function


def _inside(function: Any) -> Any:
    """*function* with constants that it passes to its local functions bound there."""
    from tvm import relax

    local: dict[Any, Any] = {}
    blocks = []
    for block in function.body.blocks:
        bindings: list[Any] = []
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, relax.Function):
                local[binding.var] = value
            elif isinstance(value, relax.Call) and value.op in local:
                bound = _bound(local[value.op], value.args)
                callee = relax.Var(value.op.name_hint, bound.struct_info)
                bindings.append(relax.VarBinding(callee, bound))
                bindings.append(relax.VarBinding(binding.var, relax.Call(callee, _variables(value.args))))
            else:
                bindings.append(binding)
        dataflow = isinstance(block, relax.DataflowBlock)
        blocks.append((relax.DataflowBlock if dataflow else relax.BindingBlock)(bindings))
    body = relax.SeqExpr(blocks, function.body.body)
    return relax.Function(function.params, body, function.ret_struct_info, function.is_pure, function.attrs)
