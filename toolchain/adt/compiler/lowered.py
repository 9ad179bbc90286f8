"""``main`` of the module after the last Relax pass, as a graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import tvm
from tvm import relax

from adt.compiler.ir.flops import flops_of
from adt.compiler.ir.nodes import extents
from adt.compiler.ir.rewriter import input_count
from adt.package.inspection.graph import (
    BUILTIN,
    EXTERN,
    FUNCTION,
    GLOBAL,
    KERNEL,
    Call,
    Graph,
    Storage,
    Tensor,
    size_of,
)

BOOKKEEPING = (
    "vm.builtin.check_", "vm.builtin.match_", "vm.builtin.make_", "vm.builtin.alloc_shape_heap",
    "vm.builtin.null_value", "vm.builtin.store_", "vm.builtin.assert_", "vm.builtin.call_py_func",
)  # fmt: skip
"""Builtins that compute no tensor."""


def read_main(module: Any) -> Graph:
    """Read the graph of ``main`` of a lowered module, without branches and objects that are no tensors."""
    reader = _Reader(module)
    first = input_count(module)
    for index, parameter in enumerate(module["main"].params):
        reader.declare(parameter, "input" if index < first else "param")
    reader.body(module["main"].body)
    return reader.graph()


@dataclass
class _Reader:
    module: Any
    tensors: list[Tensor] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    storages: list[Storage] = field(default_factory=list)
    known: dict[Any, tuple[int, ...]] = field(default_factory=dict)
    """Tensors that a Relax variable stands for: one, or several of a tuple."""
    stored: dict[Any, int] = field(default_factory=dict)  # variable of a storage → its index
    unwritten: set[int] = field(default_factory=set)
    """Tensors that are allocated and that no call has written."""
    killed: set[int] = field(default_factory=set)
    returned: tuple[int, ...] = ()

    def declare(self, variable: Any, kind: str, **facts: Any) -> int:
        """Declare a new tensor for *variable*, from its annotation."""
        info = variable.struct_info
        shape, dtype = _shape(getattr(info, "shape", None)), str(getattr(info, "dtype", "") or "")
        name = str(getattr(variable, "name_hint", "")) or kind
        index = self.add(name, kind, shape, dtype, **facts)
        self.known[variable] = (index,)
        return index

    def add(self, name: str, kind: str, shape: Sequence[int | str], dtype: str, **facts: Any) -> int:
        """Add a tensor and return its index."""
        self.tensors.append(Tensor(name, kind, tuple(shape), dtype, size_of(tuple(shape), dtype), **facts))
        return len(self.tensors) - 1

    def body(self, expression: relax.SeqExpr) -> None:
        """Record the bindings of a function's or branch's body."""
        for binding in (each for block in expression.blocks for each in block.bindings):
            variable, value = binding.var, binding.value
            if isinstance(value, relax.If):
                for branch in (value.true_branch, value.false_branch):
                    self.body(branch)
                    self.known[variable] = self.known.get(variable, ()) + self.returned
            elif isinstance(value, relax.Call):
                self.call(variable, value)
            else:
                self.known[variable] = self.of(value)
                if value in self.stored:
                    self.stored[variable] = self.stored[value]
        self.returned = self.of(expression.body)

    def of(self, expression: Any) -> tuple[int, ...]:
        """Return the tensors that an argument or a returned expression stands for."""
        if isinstance(expression, relax.Var):
            return self.known.get(expression, ())
        if isinstance(expression, relax.Tuple):
            return tuple(index for part in expression.fields for index in self.of(part))
        if isinstance(expression, relax.TupleGetItem):
            whole = self.of(expression.tuple_value)
            return whole[expression.index : expression.index + 1]
        if isinstance(expression, relax.Constant):
            if expression not in self.known:
                shape, dtype = map(int, expression.data.shape), str(expression.data.dtype)
                name = f"constant{sum(t.kind == 'constant' for t in self.tensors)}"
                self.known[expression] = (self.add(name, "constant", tuple(shape), dtype),)
            return self.known[expression]
        return ()

    def call(self, variable: Any, call: Any) -> None:
        """Record a call: of the allocator, a kernel, a builtin or a library."""
        target = call.op
        if isinstance(target, tvm.ir.Op):
            self.operator(variable, str(target.name), call.args)
        elif isinstance(target, relax.ExternFunc):
            name = str(target.global_symbol)
            if not name.startswith(BOOKKEEPING):
                kind = BUILTIN if name.startswith("vm.builtin.") else EXTERN
                self.compute(variable, name, kind, call.args)
        elif isinstance(target, tvm.ir.GlobalVar):
            if isinstance(self.module[target], tvm.tirx.PrimFunc):
                self.kernel(variable, target, call.args)
            else:
                self.compute(variable, str(target.name_hint), FUNCTION, call.args)

    def operator(self, variable: Any, name: str, arguments: Sequence[Any]) -> None:
        """Record a call of one of the VM's or the memory planner's own operators."""
        short = name.removeprefix("relax.").removeprefix("vm.").removeprefix("memory.")
        if short == "alloc_storage":
            shape = _shape(arguments[0])
            scope = _text(arguments[3]) if len(arguments) > 3 else GLOBAL
            size = size_of(shape, _text(arguments[2]))
            self.stored[variable] = len(self.storages)
            self.storages.append(Storage(size, scope, int(arguments[1].value), len(self.calls), -1))
        elif short == "alloc_tensor":
            storage = self.stored.get(arguments[0])
            scope = self.storages[storage].scope if storage is not None else GLOBAL
            self.unwritten.add(self.declare(variable, "value", storage=storage, scope=scope))
        elif short in ("kill_object", "kill_storage"):
            if (index := self.stored.get(arguments[0])) is not None:  # it may have a later use
                self.killed.add(index)
                self.storages[index] = replace(self.storages[index], last=max(0, len(self.calls) - 1))
        elif short == "call_tir_dyn":
            inner = arguments[1].fields if hasattr(arguments[1], "fields") else arguments[1:]
            self.kernel(variable, arguments[0], inner)

    def kernel(self, variable: Any, name: tvm.ir.GlobalVar, arguments: Sequence[Any]) -> None:
        """Record a call of a kernel, and put tensors where it takes them to be; Relax no longer knows."""
        function = self.module[name]
        self.compute(variable, str(name.name_hint), KERNEL, arguments, flops_of(function))
        buffers = map(function.buffer_map.get, function.params)
        scopes = [str(buffer.scope()) if buffer is not None else GLOBAL for buffer in buffers]
        for argument, scope in zip(arguments, scopes, strict=False):
            for index in self.of(argument) if scope != GLOBAL else ():
                self.tensors[index] = replace(self.tensors[index], scope=scope)
                storage = self.tensors[index].storage
                if storage is not None:
                    self.storages[storage] = replace(self.storages[storage], scope=scope)

    def compute(
        self, variable: Any, name: str, kind: str, arguments: Sequence[Any], flops: int | None = None
    ) -> None:
        """Record a call that reads and writes tensors.

        Kernels write into arguments: those that were allocated and not written yet. The
        rest give their result back.
        """
        used = [index for argument in arguments for index in self.of(argument)]
        written = [index for index in used if index in self.unwritten]
        read = [index for index in used if index not in self.unwritten]
        self.unwritten -= set(written)
        if not written:
            info = getattr(variable, "struct_info", None)
            for position, part in enumerate(getattr(info, "fields", None) or [info]):
                if getattr(part, "dtype", None):
                    written.append(self.result(variable, position, part, read))
            if written:
                self.known[variable] = tuple(written)
        for index in used:
            storage = self.tensors[index].storage
            if storage in self.killed:  # TVM ends a storage when its last tensor has been made
                self.storages[storage] = replace(self.storages[storage], last=len(self.calls))
        reads, writes = tuple(dict.fromkeys(read)), tuple(dict.fromkeys(written))
        self.calls.append(Call(name, kind, reads, writes, flops))

    def result(self, variable: Any, position: int, info: Any, read: Sequence[int]) -> int:
        """Declare a tensor that a builtin gives back; a reshape's lies where its input does."""
        shape, dtype = _shape(getattr(info, "shape", None)), str(info.dtype)
        origin = self.tensors[read[0]] if len(read) == 1 else None
        name = str(getattr(variable, "name_hint", "value")) + (f".{position}" if position else "")
        facts = {"storage": origin.storage, "scope": origin.scope} if origin else {}
        kind = "view" if origin and origin.storage is not None else "value"
        return self.add(name, kind, shape, dtype, **facts)

    def graph(self) -> Graph:
        """Return the graph that was read; a storage that is never ended lives to the end."""
        last = max(0, len(self.calls) - 1)
        storages = tuple(
            storage if index in self.killed else replace(storage, last=last)
            for index, storage in enumerate(self.storages)
        )
        return Graph(tuple(self.tensors), tuple(self.calls), storages, self.returned)


def _shape(expression: Any) -> tuple[int | str, ...]:
    return extents(getattr(expression, "values", None) or ())


def _text(expression: Any) -> str:
    return str(getattr(expression, "value", expression))
