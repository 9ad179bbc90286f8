"""Weights in the functions that a vendor's library computes; the rest become parameters again.

TVM's FuseOpsByPattern can do so itself (``bind_constants``), but it then takes two
functions that differ in nothing but their weights for one (TVM 0.25), and the second
layer of a network silently computes with the first one's. So the functions are made
with their weights as arguments, and get them here, a function of its own for each call.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Set
from typing import Any

import tvm
import tvm_ffi
from tvm import relax
from tvm.relax import transform
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.relax.utils import copy_with_new_vars

from adt.compiler.ir.nodes import relax_nodes

CODEGEN = "Codegen"
"""Attribute of a function that TVM's RunCodegen hands over, to the code generator that it names."""
COMPOSITE = "Composite"  # attribute of a function in one of those: the pattern that it is a match of
LARGE = 1024  # elements from which on a constant is worth a place in mod.params


def fold_weights(module: tvm.IRModule, params: Mapping[str, tvm.runtime.Tensor]) -> tvm.IRModule:
    """Bind those *params* that ``main`` of *module* takes, and fold batch norms into them."""
    passes = [
        transform.BindParams("main", weights_of(module, params)),
        transform.Normalize(),
        transform.FoldBatchnormToConv2D(),
        transform.FoldConstant(),
    ]
    return tvm.transform.Sequential(passes)(module)


def weights_of(
    module: tvm.IRModule, params: Mapping[str, tvm.runtime.Tensor]
) -> dict[relax.Var, tvm.runtime.Tensor]:
    """Return the parameters of ``main`` that are weights, with their values of *params*."""
    variables = {str(variable.name_hint): variable for variable in module["main"].params}
    return {variables[name]: value for name, value in params.items() if name in variables}


def bind_weights(module: tvm.IRModule, names: Mapping[str, str], inside: Set[str]) -> tvm.IRModule:
    """Bind the weights of *module* after MergeCompositeFunctions, and shorten names of functions handed over.

    They begin with what *names* has for the code generator, as ``clml_0``, or ``clml_1_softmax`` of one
    operator: TVM's are made of all operators inside, too long for a file. Functions of the code generators
    *inside* get the constants that ``main`` passes to them.
    """
    counts: Counter[str] = Counter()
    unbound: dict[Any, Any] = {}

    def codegen(function: tvm.ir.BaseFunc | None) -> str:
        attributes = (function.attrs if function is not None else None) or {}
        return str(attributes[CODEGEN]) if CODEGEN in attributes else ""

    @mutator
    class Bind(PyExprMutator):  # type: ignore[misc]
        def visit_call_(self, call: relax.Call) -> relax.Expr:
            function = module[call.op] if isinstance(call.op, relax.GlobalVar) else None
            generator = codegen(function)
            if not generator:
                return super().visit_call_(call)
            if generator in inside:
                variable = self.add(generator, _inside(_bound(function, call.args)))
                arguments = _variables(call.args)
            else:
                variable = unbound[call.op] = unbound.get(call.op) or self.add(generator, function)
                arguments = call.args
            return relax.Call(variable, [self.visit_expr(argument) for argument in arguments])

        def add(self, generator: str, function: relax.Function) -> tvm.ir.GlobalVar:
            name = f"{names[generator]}_{counts[generator]}{_only_operator(function)}"
            counts[generator] += 1
            return self.builder_.add_func(function.with_attr("global_symbol", name), name)

    bind = Bind(module)
    bind.builder_.update_func(module.get_global_var("main"), bind.visit_expr(module["main"]))
    old = {variable.name_hint for variable, function in module.functions_items() if codegen(function)}
    functions = {
        variable: function
        for variable, function in bind.builder_.get().functions_items()
        if variable.name_hint not in old
    }
    return relax.transform.Normalize()(tvm.IRModule(functions, attrs=module.attrs))


def detach_weights(
    module: tvm.IRModule, params: Mapping[str, tvm.runtime.Tensor]
) -> tuple[tvm.IRModule, dict[str, tvm.runtime.Tensor]]:
    """Make parameters of ``main`` out of its larger constants again, with the old names where there are.

    Those of *params* that it takes stay.
    """
    names = {_handle(tensor): name for name, tensor in params.items()}
    taken = {*params, *(str(parameter.name_hint) for parameter in module["main"].params)}
    numbers = itertools.count()
    variables: dict[str, Any] = {}
    params_left = {str(variable.name_hint): value for variable, value in weights_of(module, params).items()}

    @mutator
    class Detach(PyExprMutator):  # type: ignore[misc]
        def visit_constant_(self, constant: relax.Constant) -> relax.Expr:
            old_name = names.get(_handle(constant.data))
            if old_name is None and constant.data.numpy().size < LARGE:
                return constant
            name = old_name or next(name for name in map("folded_{}".format, numbers) if name not in taken)
            names[_handle(constant.data)] = name
            if name not in variables:
                variables[name] = relax.Var(name, constant.struct_info)
                params_left[name] = constant.data
            return variables[name]

    main = module["main"]
    body = Detach().visit_expr(main.body)
    if not variables:
        return module, params_left
    function = relax.Function(
        [*main.params, *variables.values()], body, main.ret_struct_info, main.is_pure, main.attrs
    )
    module.update_func(module.get_global_var("main"), function)
    return relax.transform.Normalize()(module), params_left


def _only_operator(function: relax.Function) -> str:
    """Return the suffix of the name of a function that calls one composite alone."""
    composites = [node for node in relax_nodes(function.body, relax.Function) if COMPOSITE in node.attrs]
    return f"_{str(composites[0].attrs[COMPOSITE]).rpartition('.')[2]}" if len(composites) == 1 else ""


def _constant(expression: relax.Expr) -> bool:
    return isinstance(expression, relax.Constant)


def _variables(arguments: tvm_ffi.Array) -> list[relax.Var]:
    return [argument for argument in arguments if not _constant(argument)]


def _bound(function: relax.Function, arguments: tvm_ffi.Array) -> relax.Function:
    """Copy *function* without the parameters for which *arguments* has constants."""
    function = copy_with_new_vars(function)
    pairs = zip(function.params, arguments, strict=True)
    constants = {parameter: argument.data for parameter, argument in pairs if _constant(argument)}
    return function.bind_params(constants) if constants else function


def _inside(function: relax.Function) -> relax.Function:
    """Bind the constants that *function* passes to its local functions there."""
    local: dict[Any, Any] = {}
    blocks = []
    for block in function.body.blocks:
        bindings: list[relax.VarBinding] = []
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
        blocks.append(type(block)(bindings))
    body = relax.SeqExpr(blocks, function.body.body)
    return relax.Function(function.params, body, function.ret_struct_info, function.is_pure, function.attrs)


def _handle(tensor: tvm.runtime.Tensor) -> int:
    return int(tensor.__chandle__())
