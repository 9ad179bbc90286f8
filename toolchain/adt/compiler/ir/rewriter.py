"""Rewriter of the function ``main`` of a Relax module, one binding after the other."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx

from adt.compiler.ir.nodes import operator_name
from adt.compiler.ir.passes import replaced_calls

ELEMENTWISE = frozenset(
    f"relax.{name}"
    for name in (
        "abs", "add", "astype", "ceil", "clip", "cos", "divide", "erf", "exp", "floor", "floor_divide", "log",
        "maximum", "minimum", "multiply", "negative", "nn.gelu", "nn.gelu_tanh", "nn.leakyrelu", "nn.relu",
        "nn.silu", "nn.softplus", "power", "round", "rsqrt", "sigmoid", "sign", "sin", "sqrt", "square",
        "subtract", "tan", "tanh",
    )
)  # fmt: skip
"""Operators that compute each element from the elements at the same place."""

IN_CACHE = 1 << 15  # values of a tensor that are looked at together


class Rewriter:
    """A copy of ``main``; subclasses say what becomes of a variable, a binding or a constant."""

    def __init__(self, module: tvm.IRModule) -> None:
        self.module = module
        self.builder = relax.BlockBuilder()
        self.values: dict[relax.Var, relax.Var] = {}
        """Variable of the old function to its expression in the new one."""

    def value_of(self, variable: relax.Var) -> relax.Var:
        """Return what stands for *variable* of the old function."""
        return self.values.get(variable, variable)

    def constant(self, constant: relax.Constant) -> relax.Constant:
        """Return what stands for a constant of the old function."""
        return constant

    def bind(self, binding: relax.VarBinding) -> None:
        """Carry one binding over; afterwards :meth:`value_of` answers for its variable."""
        value = self.copy(binding.value)
        if isinstance(binding, relax.MatchCast):
            self.values[binding.var] = self.builder.match_cast(value, binding.struct_info)
        elif isinstance(value, relax.ShapeExpr | relax.PrimValue):
            self.values[binding.var] = value  # operators want it itself, no variable of it
        else:
            self.values[binding.var] = self.builder.emit(value, name_hint=binding.var.name_hint)

    def copy(self, value: relax.Expr) -> relax.Expr:
        """Copy the expression *value* of the old function for the new one."""
        if isinstance(value, relax.Var):
            return self.value_of(value)
        if isinstance(value, relax.Constant):
            return self.constant(value)
        if isinstance(value, relax.Call):
            args = [self.copy(arg) for arg in value.args]
            return relax.Call(value.op, args, value.attrs, value.sinfo_args, value.span)
        if isinstance(value, relax.Tuple):
            return relax.Tuple([self.copy(part) for part in value.fields])
        if isinstance(value, relax.TupleGetItem):
            return relax.TupleGetItem(self.copy(value.tuple_value), value.index)
        return value

    def params(self) -> list[relax.Var]:
        """Return the parameters of the new function, asked for when its body is done."""
        return list(self.module["main"].params)

    def result(self) -> relax.Var:
        """Return the result of the new function."""
        return self.copy(self.module["main"].body.body)

    def run(self) -> tvm.IRModule:
        """Rebuild ``main``, and return the module with it."""
        main = self.module["main"]
        with self.builder.function("main", attrs=dict(main.attrs or {})):
            with self.builder.dataflow():
                for block in main.body.blocks:
                    for binding in block.bindings:
                        self.bind(binding)
                result = self.builder.emit_output(self.result())
            self.builder.emit_func_output(result, self.params())
        rewritten = self.builder.get()
        for name, function in self.module.functions.items():
            if name.name_hint != "main":
                rewritten.update_func(name, function)
        for key, info in self.module.global_infos.items():
            rewritten.update_global_info(key, info)
        return rewritten.with_attrs(dict(self.module.attrs)) if self.module.attrs else rewritten


def fold_shape_values(module: Any) -> Any:
    """Return *module* whose ``shape_of``, ``shape_to_tensor`` and ``size`` of known extents are constants.

    Importers take shapes apart at run time (ONNX's Gather adds the table's extent to negative indices), even
    where every extent is known. No runtime on a device has ``relax.run.shape_to_tensor``, a GPU's kernel
    cannot read its result, and folding constants fails at it.
    """

    def folded(_builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        name, extents = operator_name(call), extents_of(call.args[0].struct_info)
        if extents is None:
            return call
        if name == "relax.shape_of":
            return relax.ShapeExpr(extents)
        return relax.const(math.prod(extents) if name == "relax.size" else extents, "int64")

    operators = ("relax.shape_of", "relax.shape_to_tensor", "relax.size")
    return replaced_calls("adt.FoldShapeValues", operators, folded)(module)


def extents_of(info: Any) -> list[int] | None:
    """Return the extents of a tensor or of a shape; None if one is open."""
    values = getattr(getattr(info, "shape", None) or info, "values", None)
    if values is None or not all(isinstance(extent, tirx.IntImm) for extent in values):
        return None
    return [int(extent) for extent in values]


def returned_views(module: tvm.IRModule) -> tvm.IRModule:
    """Give what ``main`` returns a name of its own, where a kernel makes it of another's result.

    TVM makes views of reshapes, but of a returned one only if it has another name. No view of an input is
    returned: the caller may write to it.
    """
    main = module["main"]
    last = main.body.blocks[-1].bindings[-1] if is_flat(module) and main.body.blocks else None
    if last is None or not last.var.same_as(main.body.body) or not isinstance(last.value, relax.Call):
        return module
    read = relax.analysis.free_vars(last.value)
    return module if any(param in read for param in main.params) else Rewriter(module).run()


def input_count(module: tvm.IRModule) -> int:
    """Return how many parameters of ``main`` are inputs; the others are weights."""
    main = module["main"]
    return int(main.attrs["num_input"]) if main.attrs and "num_input" in main.attrs else len(main.params)


def bindings_of(module: tvm.IRModule) -> list[relax.VarBinding]:
    """Return the bindings of ``main``, in order."""
    return [binding for block in module["main"].body.blocks for binding in block.bindings]


def readers_of(module: tvm.IRModule) -> defaultdict[relax.Var, list[relax.VarBinding | None]]:
    """Return what reads each variable of ``main``: bindings, and None for the result."""
    readers: defaultdict[Any, list[Any]] = defaultdict(list)
    for binding in bindings_of(module):
        for variable in relax.analysis.free_vars(binding.value):
            readers[variable].append(binding)
    for variable in relax.analysis.free_vars(module["main"].body.body):
        readers[variable].append(None)
    return readers


def is_flat(module: tvm.IRModule) -> bool:
    """Return True if ``main`` is one straight line of pure bindings, which :class:`Rewriter` takes."""
    return all(isinstance(block, relax.DataflowBlock) for block in module["main"].body.blocks)


def static_shape(value: relax.Expr) -> tuple[int, ...] | None:
    """Return the static extents of a tensor; None where one is open, or *value* is no tensor."""
    values = getattr(getattr(value.struct_info, "shape", None), "values", None)
    if values is None or any(not hasattr(extent, "value") for extent in values):
        return None
    return tuple(map(int, values))


def resized(call: relax.Call, data: relax.Expr, layout: str) -> Any:
    """Repeat the ``resize2d`` of *call* on *data*, its tensor in another layout."""
    attrs = call.attrs
    return relax.op.image.resize2d(
        data,
        call.args[1],
        roi=[float(edge) for edge in attrs.roi],
        layout=layout,
        method=attrs.method,
        coordinate_transformation_mode=attrs.coordinate_transformation_mode,
        rounding_method=attrs.rounding_method,
        cubic_alpha=float(attrs.cubic_alpha),
        cubic_exclude=int(attrs.cubic_exclude),
        extrapolation_value=float(attrs.extrapolation_value),
    )


def bind_params(module: tvm.IRModule, params: Mapping[str, tvm.runtime.Tensor]) -> tvm.IRModule:
    """Bind the parameters of the Relax *module* as constants of ``main``."""
    return relax.transform.BindParams("main", dict(params))(module)


class ConstantLifter(Rewriter):
    """Rewriter of the constants that kernels read to parameters of ``main``."""

    def __init__(self, module: tvm.IRModule, params: Mapping[str, tvm.runtime.Tensor]) -> None:
        super().__init__(module)
        self.names = {digest(tensor): name for name, tensor in params.items()}
        """Digest of a tensor to its name in the imported model."""
        self.packed_names = {packed_digest(tensor): name for name, tensor in params.items()}
        """Names like :attr:`names`, for a tensor that was packed."""
        self.lifted: dict[str, tuple[relax.Var, tvm.runtime.Tensor]] = {}
        """Digest to the new parameter and its value."""

    def constant(self, constant: relax.Constant) -> relax.Var:
        key = digest(constant.data)
        if key not in self.lifted:
            packed = packed_digest(constant.data)
            name = self.names.get(key) or (packed and self.packed_names.get(packed)) or "folded"
            self.lifted[key] = (relax.Var(self._unused(name), constant.struct_info), constant.data)
        return self.lifted[key][0]

    def params(self) -> list[relax.Var]:
        return [*super().params(), *(variable for variable, _ in self.lifted.values())]

    def _unused(self, name: str) -> str:
        """Return *name*, with a number behind it if it is another parameter's."""
        used = {variable.name_hint for variable, _ in self.lifted.values()}
        numbered = (f"{name}_{count}" for count in itertools.count())
        return next(free for free in itertools.chain([name], numbered) if free not in used)


def lift_constants(
    module: tvm.IRModule, params: Mapping[str, tvm.runtime.Tensor]
) -> tuple[tvm.IRModule, dict[str, tvm.runtime.Tensor]]:
    """Make parameters of the constants that kernels of the flat, legalized *module* read.

    Returns the module, whose ``main`` takes its inputs and then the parameters, and these by name. A weight
    keeps its name in *params*, packed or not; results of folding are ``folded``, ``folded_0``, …
    """
    lifter = ConstantLifter(module, params)
    rewritten = lifter.run()
    return rewritten, {variable.name_hint: value for variable, value in lifter.lifted.values()}


def digest(tensor: tvm.runtime.Tensor) -> str:
    """Hash the shape, type and values of *tensor*."""
    array = tensor.numpy()
    return hashlib.sha256(f"{array.shape}{array.dtype}".encode() + array.tobytes()).hexdigest()


def packed_digest(tensor: tvm.runtime.Tensor) -> tuple[str, int] | None:
    """Return a key for type and values of *tensor* that packing keeps, or None if all are 0."""
    array = tensor.numpy()
    if not array.any():
        return None
    words = np.ascontiguousarray(array).reshape(-1).view(f"u{array.itemsize}")
    total = 0
    for start in range(0, words.size, IN_CACHE):
        mixed = words[start : start + IN_CACHE].astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(32)
        total += int((mixed * mixed).sum())
    return str(array.dtype), total
