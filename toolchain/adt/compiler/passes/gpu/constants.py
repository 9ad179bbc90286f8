"""One constant for each kernel of several: a driver takes half a microsecond for every argument of a call."""

from __future__ import annotations

import itertools
import math
import operator
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import ir, relax, tirx

from adt.compiler.ir.nodes import block_with, is_kernel_call, operator_name, tir_nodes
from adt.compiler.ir.rewriter import ELEMENTWISE, Rewriter, bindings_of, readers_of, static_shape
from adt.compiler.passes.records.schedules import is_scheduled
from adt.package.reports import LANES

TYPES = ("int32", "float32")
"""Types of what is joined: as wide as one another."""


def joined_constants(
    module: tvm.IRModule, params: Mapping[str, tvm.runtime.Tensor], plain: Mapping[str, tirx.PrimFunc]
) -> tuple[tvm.IRModule, dict[str, tvm.runtime.Tensor], dict[str, tirx.PrimFunc]]:
    """Join the constants that only one call of a kernel reads, of :data:`TYPES` and of whole vectors.

    The flat *module* has its tensors in buffers, and *params* behind the inputs of its ``main``; *plain* are
    its kernels before they were scheduled, by name. Kernels that are not scheduled are left alone.
    """
    main = module["main"]
    constants = set(main.params[len(main.params) - len(params) :])
    readers = readers_of(module)
    places: dict[tvm.ir.GlobalVar, list[int]] = {}
    """Kernel to the arguments that can be joined in each of its calls."""
    for binding in bindings_of(module):
        if not is_kernel_call(binding.value):
            continue
        kernel, operands = binding.value.args
        can = [
            place
            for place, value in enumerate(operands.fields)
            if value in constants and len(readers[value]) == 1 and _in_vectors(value)
        ]
        places[kernel] = [place for place in places.get(kernel, can) if place in can]
    places = {
        kernel: chosen
        for kernel, all_places in places.items()
        if is_scheduled(module[kernel]) and kernel.name_hint in plain
        if len(chosen := _read_alike(module[kernel], all_places)) > 1
    }
    joiner = _Joiner(module, places)
    joined = joiner.run()
    functions = {
        joiner.kernels.get(name, name): _reading_one(function, places.get(name, ()))
        for name, function in joined.functions_items()
    }
    result = tvm.IRModule(functions, attrs=joined.attrs, global_infos=joined.global_infos)
    reading = {
        kernel.name_hint: _reading_one(plain[kernel.name_hint], chosen) for kernel, chosen in places.items()
    }
    return result, joiner.weights(params), {**plain, **reading}


def _in_vectors(value: relax.Expr) -> bool:
    shape = static_shape(value) or (0,)
    return shape[-1] == LANES and value.struct_info.dtype in TYPES


def _read_alike(function: tirx.PrimFunc, places: Sequence[int]) -> list[int]:
    """Return those of *places* whose buffers the scheduled *function* reads by vectors, or else by
    numbers: from one buffer a code generator reads no vectors where it reads numbers, too."""

    def reads(body: tirx.Stmt) -> Counter[tirx.Buffer]:
        return Counter(load.buffer for load in tir_nodes(body, tirx.BufferLoad))

    loops = (loop for loop in tir_nodes(function.body, tirx.For) if loop.kind == tirx.ForKind.VECTORIZED)
    by_vectors, every = sum(map(reads, loops), Counter()), reads(function.body)
    alike: dict[bool, list[int]] = {True: [], False: []}
    for place in places:
        buffer = function.buffer_map[function.params[place]]
        alike[by_vectors[buffer] == every[buffer]].append(place)
    return max(alike.values(), key=len)


class _Joiner(Rewriter):
    """Rewriter of calls of the kernels in *places*, which joins arguments into one, a new parameter."""

    def __init__(self, module: tvm.IRModule, places: Mapping[tvm.ir.GlobalVar, Sequence[int]]) -> None:
        super().__init__(module)
        self.places = places
        self.kernels = {kernel: ir.GlobalVar(kernel.name_hint) for kernel in places}
        """Kernel to what stands for it, which takes other arguments."""
        for kernel in self.kernels.values():
            relax.expr._update_struct_info(kernel, relax.FuncStructInfo.opaque_func())
        self.joined: dict[relax.Var, list[relax.Var]] = {}
        """New parameter to what it holds, in order."""

    def bind(self, binding: relax.VarBinding) -> None:
        chosen = self.places.get(binding.value.args[0]) if is_kernel_call(binding.value) else None
        if chosen is None:
            super().bind(binding)
            return
        kernel, operands = binding.value.args
        parts = [operands.fields[place] for place in chosen]
        size = sum(math.prod(static_shape(part) or ()) for part in parts)
        info = relax.TensorStructInfo((size,), _type_of([part.struct_info.dtype for part in parts]))
        variable = relax.Var(parts[0].name_hint, info)
        self.joined[variable] = parts
        arguments = _one([self.copy(value) for value in operands.fields], chosen)
        arguments[chosen[0]] = variable
        call = relax.call_tir(self.kernels[kernel], relax.Tuple(arguments), binding.value.sinfo_args[0])
        self.values[binding.var] = self.builder.emit(call, name_hint=binding.var.name_hint)

    def params(self) -> list[relax.Var]:
        gone = self._gone()
        return [*(param for param in super().params() if param not in gone), *self.joined]

    def _gone(self) -> set[relax.Var]:
        return {part for parts in self.joined.values() for part in parts}

    def weights(self, params: Mapping[str, tvm.runtime.Tensor]) -> dict[str, tvm.runtime.Tensor]:
        """Return those of *params* that follow the inputs, joined, by name and in order."""
        gone = {part.name_hint for part in self._gone()}
        kept = {name: value for name, value in params.items() if name not in gone}
        joined = {}
        for variable, parts in self.joined.items():
            arrays = [params[part.name_hint].numpy().reshape(-1) for part in parts]
            array = np.concatenate([array.view(variable.struct_info.dtype) for array in arrays])
            joined[variable.name_hint] = tvm.runtime.tensor(array)
        return kept | joined


def _type_of(types: Sequence[str]) -> str:
    return types[0] if len(set(types)) == 1 else TYPES[0]


def _one(arguments: Sequence[relax.Expr], places: Sequence[int]) -> list[relax.Expr]:
    """Keep only the first of the *arguments* in *places*, which stands for all."""
    return [argument for place, argument in enumerate(arguments) if place not in places[1:]]


def _reading_one(function: tirx.PrimFunc, places: Sequence[int]) -> Any:
    """Give the TIR *function* one buffer for its arguments in *places*, if there are any."""
    if not places:
        return function

    parts = [function.buffer_map[function.params[place]] for place in places]
    sizes = [math.prod(int(extent) for extent in part.shape) for part in parts]
    kind = _type_of([part.dtype for part in parts])
    whole = tirx.decl_buffer((sum(sizes),), kind, parts[0].name, layout=None)
    starts = dict(zip(parts, itertools.accumulate(sizes, initial=0), strict=False))

    def of_whole(node: Any) -> Any:
        if isinstance(node, tirx.SBlock):
            everything = tirx.BufferRegion(whole, [ir.Range(0, whole.shape[0])])
            reads = [everything if region.buffer in starts else region for region in node.reads]
            return block_with(node, node.body, reads)
        if node.buffer not in starts:
            return node
        index = starts[node.buffer]
        strides = itertools.accumulate(reversed(node.buffer.shape[1:]), operator.mul, initial=1)
        for place, stride in zip(reversed(node.indices), strides, strict=True):
            index = index + place * stride
        load = tirx.BufferLoad(whole, [index])
        return load if load.dtype == node.dtype else tirx.reinterpret(node.dtype, load)

    body = tirx.stmt_functor.ir_transform(function.body, None, of_whole, ["tirx.SBlock", "tirx.BufferLoad"])
    params = _one(function.params, places)
    buffers = {param: function.buffer_map[param] for param in params} | {params[places[0]]: whole}
    return tirx.PrimFunc(params, body, function.ret_type, buffers, function.attrs)


class ScalarsWhereRead(Rewriter):
    """Rewriter that has each kernel which reads a scalar compute it, from results of longer kernels."""

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
