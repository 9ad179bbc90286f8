"""A bound on the expressions that fusion makes of element by element operators.

A schedule puts each such operator in where it is read. TIR's expressions are trees: what is read n times is
there n times, so that a chain of operators which read their operand twice doubles with each of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import tvm
from tvm import relax, tirx
from tvm.ir import PrimExpr

from adt.compiler.ir.nodes import operator_name, relax_nodes, tir_nodes
from adt.compiler.ir.passes import module_pass

INJECTIVE, REDUCTION, OPAQUE = 2, 3, 8
"""TVM's ``relax::OpPatternKind``: up to the first, an operator is put in where it is read; the second is put
in nowhere, and takes in what is element by element."""
LARGEST = 2048  # nodes of a kernel's expression from which on an operand is stored
READS_OF_A_FUNCTION = 4
"""Weight of a function's argument: what replaces the function reads it several times (exp, isfinite)."""
FREE_CALLS = ("tirx.if_then_else", "tirx.likely", "tirx.reinterpret")
PARTS = ("a", "b", "value", "body", "condition", "true_value", "false_value")


@dataclass(frozen=True)
class _Size:
    """Number of an expression's nodes, as a linear function of the sizes of what it reads."""

    nodes: int
    reads: Mapping[tirx.Buffer, int]  # buffer → how often it is read


def _sum(parts: Sequence[_Size], nodes: int, weight: int = 1) -> _Size:
    reads: dict[tirx.Buffer, int] = {}
    for part in parts:
        for buffer, count in part.reads.items():
            reads[buffer] = reads.get(buffer, 0) + weight * count
    return _Size(nodes + weight * sum(part.nodes for part in parts), reads)


def _size_of(value: tirx.PrimExpr, stored: Mapping[tirx.Buffer, _Size]) -> _Size:
    """Measure the expression *value*, in which the buffers of *stored* are replaced by theirs."""
    if isinstance(value, tirx.BufferLoad):
        indices = [_size_of(index, stored) for index in value.indices]
        # Arithmetic of indices is left out: it is simplified.
        inner = [_Size(0, part.reads) for part in indices if part.reads]
        return _sum([stored.get(value.buffer, _Size(0, {value.buffer: 1})), *inner], 0)
    parts = [getattr(value, name) for name in PARTS if hasattr(value, name)] + list(
        getattr(value, "args", ())
    )
    operands = [_size_of(part, stored) for part in parts if isinstance(part, PrimExpr)]
    function = isinstance(value, tirx.Call) and getattr(value.op, "name", "") not in FREE_CALLS
    return _sum(operands, 1, READS_OF_A_FUNCTION if function else 1)


def _kernel_size(kernel: tirx.PrimFunc) -> tuple[int, tuple[int, ...]]:
    """Count the nodes of *kernel*'s expression, and how often it reads each of its parameters."""
    stored: dict[tirx.Buffer, _Size] = {}
    largest = _Size(0, {})
    for store in tir_nodes(kernel.body, tirx.BufferStore):
        largest = _size_of(store.value, {k: v for k, v in stored.items() if not k.same_as(store.buffer)})
        stored[store.buffer] = largest
    buffers = [kernel.buffer_map.get(parameter) for parameter in kernel.params]
    return largest.nodes, tuple(largest.reads.get(buffer, 0) for buffer in buffers)


@dataclass
class _Value:
    """A variable that a kernel computes."""

    kernel: tvm.ir.GlobalVar
    own: int  # nodes of the kernel's expression
    reads: tuple[tuple[relax.Var, int], ...]  # each operand that is a variable, and how often it is read
    inlined: bool  # the kernel is put in where the variable is read
    size: int = 1  # nodes of the whole expression


class _Function:
    """The kernels of one Relax function, in their order."""

    def __init__(self, module: tvm.IRModule, function: relax.Function) -> None:
        self.values: dict[relax.Var, _Value] = {}
        self.cuts: list[relax.Var] = []
        measured: dict[tvm.ir.GlobalVar, tuple[int, tuple[int, ...]]] = {}
        readers: dict[relax.Var, list[int]] = {}
        for block in function.body.blocks:
            for binding in block.bindings:
                kernel, pattern = _kernel_of(module, binding.value)
                for variable in relax_nodes(binding.value, relax.Var):
                    readers.setdefault(variable, []).append(pattern)
                if kernel is None:
                    continue
                if kernel not in measured:
                    measured[kernel] = _kernel_size(module[kernel])
                own, counts = measured[kernel]
                reads = tuple(zip(binding.value.args[1].fields, counts, strict=False))
                self.values[binding.var] = _Value(kernel, own, reads, pattern <= INJECTIVE)
        results = set(relax_nodes(function.body.body, relax.Var))
        for variable, value in self.values.items():
            patterns = readers.get(variable, [])
            # A kernel that is not element by element has its operand stored for all who read it.
            apart = max(patterns, default=0) > (REDUCTION if len(patterns) == 1 else INJECTIVE)
            value.inlined &= not apart and variable not in results

    def bound(self) -> None:
        """Choose the variables to store, so that no expression is larger than LARGEST."""
        order = list(self.values)
        for position, variable in enumerate(order):
            self._measure(self.values[variable])
            while self.values[variable].size > LARGEST and (cut := self._cut(order, position)):
                self.values[cut].inlined = False
                self.cuts.append(cut)
                for later in order[order.index(cut) : position + 1]:
                    self._measure(self.values[later])

    def _seen(self, operand: relax.Var) -> int:
        """Count the nodes of an expression that reads *operand* once."""
        value = self.values.get(operand)
        return value.size if value and value.inlined else 1

    def _measure(self, value: _Value) -> None:
        value.size = value.own + sum(count * self._seen(operand) for operand, count in value.reads)

    def _cut(self, order: Sequence[relax.Var], position: int) -> relax.Var | None:
        """Choose the largest variable that is read several times to store, so that few are, if any."""
        root = order[position]
        copies: dict[relax.Var, int] = {root: 1}
        for variable in reversed(order[: position + 1]):
            for operand, count in self.values[variable].reads if variable in copies else ():
                if operand in self.values and self.values[operand].inlined and count:
                    copies[operand] = copies.get(operand, 0) + count * copies[variable]
        del copies[root]
        whole = self.values[root].size

        def worth(variable: relax.Var) -> tuple[bool, bool, int]:
            size, times = self.values[variable].size, copies[variable]
            left = whole - times * (size - 1)
            return left <= LARGEST, times > 1, size if left <= LARGEST else -left

        return max(copies, key=worth, default=None)


def _kernel_of(module: tvm.IRModule, value: relax.Expr) -> tuple[tvm.ir.GlobalVar | None, int]:
    """Return the kernel that *value* calls for one tensor, and its pattern; else None and one never fused."""
    if operator_name(value) == "relax.call_tir" and isinstance(value.sinfo_args[0], relax.TensorStructInfo):
        kernel = module[value.args[0]]
        if isinstance(kernel, tirx.PrimFunc) and "op_pattern" in (kernel.attrs or {}):
            return value.args[0], int(kernel.attrs["op_pattern"])
    return None, OPAQUE


@module_pass("adt.BoundedExpressions")
def bounded_expressions(module: tvm.IRModule) -> tvm.IRModule:
    """Store, before FuseOps, what would make a kernel larger than LARGEST nodes."""
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function) and isinstance(function.body, relax.SeqExpr):
            analysis = _Function(module, function)
            analysis.bound()
            if analysis.cuts:
                module = _stored(module, variable, analysis)
    return module


def _stored(module: tvm.IRModule, name: tvm.ir.GlobalVar, analysis: _Function) -> tvm.IRModule:
    """Give the cuts of *analysis* kernels of their own, which are put in nowhere."""
    builder = relax.BlockBuilder(module)
    kernels: dict[tvm.ir.GlobalVar, tvm.ir.GlobalVar] = {}
    for cut in analysis.cuts:
        kernel = analysis.values[cut].kernel
        if kernel not in kernels:
            copy = module[kernel].with_attr("op_pattern", REDUCTION).without_attr("global_symbol")
            kernels[kernel] = builder.add_func(copy, kernel.name_hint)

    @relax.expr_functor.mutator
    class Store(relax.PyExprMutator):  # type: ignore[misc]
        """Mutator that replaces the kernels of the cuts."""

        def visit_var_binding_(self, binding: relax.VarBinding) -> None:
            if binding.var in analysis.cuts:
                call = binding.value
                call = relax.Call(
                    call.op, [kernels[call.args[0]], *call.args[1:]], call.attrs, call.sinfo_args
                )
                binding = relax.VarBinding(binding.var, call)
            super().visit_var_binding_(binding)

    module = builder.get()
    module[name] = Store(module).visit_expr(module[name])
    return module
