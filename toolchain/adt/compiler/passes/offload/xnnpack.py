"""Rules of XNNPACK: convolutions, dense layers, what stands between them, in float32, float16 or int8.

The runtime is adt's own (``cmake_presets/src/xnnpack_runtime.cc``), and so is what becomes of the matches
(:mod:`adt.compiler.passes.offload.xnnpack_graph`); the reasons below are what XNNPACK itself refuses or
computes otherwise. Models stay in NCHW: the runtime transposes tensors of four dimensions at the edges of a
subgraph.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax import transform
from tvm.relax.dpl import is_const, is_op, wildcard
from tvm.relax.expr_functor import PyExprMutator, mutator

from adt.compiler.ir.nodes import operator_name, relax_nodes
from adt.compiler.passes.offload.rules import Check, Rules, fixed
from adt.compiler.passes.offload.weights import fold_weights, weights_of

CONV2D, DENSE, ADD = "relax.nn.conv2d", "relax.matmul", "relax.add"
QUANTIZE, DEQUANTIZE = "relax.quantize", "relax.dequantize"
LAYERS = (CONV2D, DENSE)  # operators that have weights
RANK = 4  # number of axes of the tensors whose dimensions the runtime puts in another order
LARGEST_RESCALING = 256.0
"""XNNPACK's limit of (scale of the input × scale of the weights / scale of the output), not included."""
ONE_SCALE = "adt's runtime of XNNPACK takes tensors in int8 or uint8 of one scale"
ADD_RATIOS = (2.0**-10, 2.0**8)
"""XNNPACK's limits of (scale of an operand / scale of the sum), the upper one not included."""


@dataclass(frozen=True)
class Xnnpack(Rules):
    """XNNPACK, by adt's runtime."""

    half: bool = False
    """Arm's CPU that code is for computes in half precision, and so does XNNPACK there."""

    def prepare(self, module: tvm.IRModule, params: Mapping[str, tvm.runtime.Tensor]) -> tvm.IRModule:
        """Bind the weights and fold batch norms; give each user of a dequantized tensor one of its own."""
        if not any(operator_name(call) == DEQUANTIZE for call in relax_nodes(module["main"], relax.Call)):
            return fold_weights(module, params)
        module = transform.BindParams("main", weights_of(module, params))(module)
        return transform.Normalize()(_own_dequantizations(module))

    def objection(self, name: str, calls: list[relax.Call]) -> str:
        """See :meth:`adt.compiler.passes.offload.rules.Rules.objection`."""
        if name == "xnnpack.convert":
            return _convert(calls[0])
        core = next((call for call in calls if operator_name(call) in LAYERS), None)
        if core is None:
            core = next(call for call in calls if operator_name(call) in _CHECKS)
        quantized = any(operator_name(call) in (QUANTIZE, DEQUANTIZE) for call in calls)
        taken = ("float32", "float16") if self.half and not quantized else ("float32",)
        reasons = (_types(calls, taken), _CHECKS[operator_name(core)](core))
        return next(filter(None, reasons), "") or _bias(core, calls) or _scales(core, calls)


def rules(*, half: bool, **_options: bool) -> Xnnpack:
    """Return the rules; TVM has the code generator from then on."""
    from adt.compiler.passes.offload.xnnpack_graph import generate

    tvm.register_global_func("relax.ext.xnnpack", generate, override=True)
    return Xnnpack(_patterns(), "xnnpack", frozenset(), weights_inside=True, half=half)


def _patterns() -> list[Any]:
    """Longer ones first: TVM takes the first that matches."""

    def activated(value: relax.dpl.DFPattern) -> list[relax.dpl.DFPattern]:
        return [
            is_op("relax.minimum")(is_op("relax.maximum")(value, is_const()), is_const()),
            is_op("relax.clip")(value, wildcard(), wildcard()),
            is_op("relax.nn.relu")(value),
            value,
        ]

    def dequantized(value: relax.dpl.DFPattern) -> relax.dpl.DFPattern:
        return is_op(DEQUANTIZE)(value, is_const(), is_const())

    def quantized(value: relax.dpl.DFPattern) -> relax.dpl.DFPattern:
        return is_op(QUANTIZE)(value, is_const(), is_const())

    layers = {"xnnpack.conv2d": CONV2D, "xnnpack.dense": DENSE}
    others = {
        "xnnpack.max_pool2d": "relax.nn.max_pool2d",
        "xnnpack.avg_pool2d": "relax.nn.avg_pool2d",
        "xnnpack.mean": "relax.mean",
    }
    patterns: list[tuple[str, Any]] = []
    for name, operator in layers.items():
        whole = is_op(operator)(dequantized(wildcard()), dequantized(is_const()))
        bias = dequantized(is_const())
        for value in (
            is_op(ADD)(whole, is_op("relax.reshape")(bias, wildcard())),
            is_op(ADD)(whole, bias),
            whole,
        ):
            patterns += [(name, quantized(last)) for last in activated(value)]
    for last in activated(is_op(ADD)(dequantized(wildcard()), dequantized(wildcard()))):
        patterns.append(("xnnpack.add", quantized(last)))
    for name, operator in others.items():
        patterns.append((name, quantized(is_op(operator)(dequantized(wildcard())))))
    patterns.append(
        ("xnnpack.reshape", quantized(is_op("relax.reshape")(dequantized(wildcard()), wildcard())))
    )
    for name, operator in layers.items():
        real = is_op(operator)(wildcard(), is_const())
        for value in (is_op(ADD)(real, is_const()), real):
            patterns += [(name, last) for last in activated(value)]
    patterns += [("xnnpack.add", last) for last in activated(is_op(ADD)(wildcard(), wildcard()))]
    patterns += [(name, is_op(operator)(wildcard())) for name, operator in others.items()]
    patterns.append(("xnnpack.reshape", is_op("relax.reshape")(wildcard(), wildcard())))
    patterns += [("xnnpack.convert", quantized(wildcard())), ("xnnpack.convert", dequantized(wildcard()))]
    return [(name, pattern, {}, None) for name, pattern in patterns]


def _own_dequantizations(module: tvm.IRModule) -> tvm.IRModule:
    """*module* where each call has dequantized operands of its own: a match must not give away its inside."""
    dequantizations = {
        binding.var: binding.value
        for block in module["main"].body.blocks
        for binding in block.bindings
        if operator_name(binding.value) == DEQUANTIZE
    }

    @mutator
    class Own(PyExprMutator):  # type: ignore[misc]
        def visit_call_(self, call: relax.Call) -> relax.Expr:
            arguments = []
            for argument in call.args:
                source = dequantizations.get(argument) if isinstance(argument, relax.Var) else None
                if source is None:
                    arguments.append(self.visit_expr(argument))
                else:
                    copy = relax.Call(source.op, [*map(self.visit_expr, source.args)], source.attrs)
                    arguments.append(self.builder_.emit(copy))
            return relax.Call(call.op, arguments, call.attrs, call.sinfo_args)

    own = Own(module)
    own.builder_.update_func(module.get_global_var("main"), own.visit_expr(module["main"]))
    return relax.transform.DeadCodeElimination(["main"])(own.builder_.get())


def _shape(expression: relax.Expr) -> list[int]:
    return [int(extent) for extent in expression.struct_info.shape]


def _types(calls: list[relax.Call], taken: tuple[str, ...]) -> str:
    """*taken*: the types of numbers that are no integers; a match has one of them."""
    types = set()
    for call in calls:
        infos = [argument.struct_info for argument in call.args if not isinstance(argument, relax.ShapeExpr)]
        infos = [info for info in (*infos, call.struct_info) if isinstance(info, relax.TensorStructInfo)]
        if not all(fixed(info) for info in infos):
            return "XNNPACK's tensors have fixed dimensions"
        if operator_name(call) not in (QUANTIZE, DEQUANTIZE):
            types |= {str(info.dtype) for info in infos}
    if types <= {taken[0]} or types <= {taken[-1]}:
        return ""
    names = ", ".join(sorted(types - {"float32"}))
    return f"adt's runtime of XNNPACK computes in {', '.join(taken)} and int8, not in {names}"


def _conv2d(call: relax.Call) -> str:
    layouts = str(call.attrs.data_layout), str(call.attrs.kernel_layout), str(call.attrs.out_layout)
    if layouts not in (("NCHW", "OIHW", "NCHW"), ("NCHW", "OIHW", "")):
        return "adt's runtime of XNNPACK takes convolutions in NCHW"
    return ""


def _dense(call: relax.Call) -> str:
    if call.args[0].struct_info.ndim in (0, 1, RANK) or call.args[1].struct_info.ndim != 2:
        return "adt's runtime of XNNPACK takes products of two or three dimensions with a matrix of weights"
    return ""


def _add(call: relax.Call) -> str:
    first, second = call.args
    if call.struct_info.ndim != RANK or _shape(first) != _shape(second):
        return "adt's runtime of XNNPACK adds two pictures of one shape"
    return ""


def _window(call: relax.Call) -> str:
    if str(call.attrs.layout) != "NCHW":
        return "adt's runtime of XNNPACK takes pools in NCHW"
    size = [int(extent) for extent in call.attrs.pool_size]
    strides = [int(step) for step in call.attrs.strides]
    if size == [1, 1] or strides[0] > size[0] or strides[1] > size[1]:
        return "XNNPACK has no pools of one element, nor such as leave elements out"
    if bool(call.attrs.ceil_mode):
        return "XNNPACK's pools end with the last whole window (ceil_mode)"
    return ""


def _max_pool(call: relax.Call) -> str:
    if [int(step) for step in call.attrs.dilation] != [1, 1] and any(map(int, call.attrs.padding)):
        return "XNNPACK fills the padding of a dilated pool with elements of other windows"
    return _window(call)


def _avg_pool(call: relax.Call) -> str:
    if [int(step) for step in call.attrs.dilation] != [1, 1]:
        return "XNNPACK's averages have no dilation"
    if bool(call.attrs.count_include_pad) and any(map(int, call.attrs.padding)):
        return "XNNPACK leaves padding out of averages"
    return _window(call)


def _mean(call: relax.Call) -> str:
    axes = call.attrs.axis
    if (
        call.args[0].struct_info.ndim != RANK
        or axes is None
        or sorted(int(axis) % RANK for axis in axes) != [2, 3]
    ):
        return "adt's runtime of XNNPACK averages over height and width"
    return "" if bool(call.attrs.keepdims) else "adt's runtime of XNNPACK keeps the dimensions of averages"


def _reshape(call: relax.Call) -> str:
    shape = _shape(call.args[0])
    if len(shape) != RANK or shape[2:] != [1, 1] or _shape(call) != shape[:2]:
        return "adt's runtime of XNNPACK makes a vector of one element for each channel"
    return ""


_CHECKS: dict[str, Check] = {
    CONV2D: _conv2d,
    DENSE: _dense,
    ADD: _add,
    "relax.nn.max_pool2d": _max_pool,
    "relax.nn.avg_pool2d": _avg_pool,
    "relax.mean": _mean,
    "relax.reshape": _reshape,
}


def _bias(core: relax.Call, calls: list[relax.Call]) -> str:
    """Check that a layer adds one value for each of its channels."""
    added = next((call for call in calls if operator_name(call) == ADD), None)
    if operator_name(core) not in LAYERS or added is None:
        return ""
    shape = _shape(core)
    axis = 1 if operator_name(core) == CONV2D else len(shape) - 1
    whole = [extent if i == axis else 1 for i, extent in enumerate(shape)]
    bias = _shape(added.args[1])
    if bias != whole and not (bias == shape[-1:] and operator_name(core) == DENSE):
        return "XNNPACK's layers add one value for each channel"
    return ""


def _scales(core: relax.Call, calls: list[relax.Call]) -> str:
    """XNNPACK's limits on scales and zero points of integers."""
    last = next((call for call in calls if operator_name(call) == QUANTIZE), None)
    if last is None:
        return ""
    weights: list[relax.Expr] = []
    tensors: list[Any] = []
    for call in calls:
        if operator_name(call) == DEQUANTIZE:
            (weights if isinstance(call.args[0], relax.Constant) else tensors).append(call)
    types = [str(call.args[0].struct_info.dtype) for call in tensors] + [str(last.struct_info.dtype)]
    if set(types) - {"int8", "uint8"} or any(_array(call.args[1]).size != 1 for call in (*tensors, last)):
        return ONE_SCALE
    out = float(_array(last.args[1]))
    ratios = [float(_array(call.args[1])) / out for call in tensors]
    name = operator_name(core)
    if name in LAYERS:
        return _layer_scales(name, weights, float(_array(tensors[0].args[1])), out)
    if name == ADD:
        if not all(ADD_RATIOS[0] <= ratio < ADD_RATIOS[1] for ratio in ratios):
            return "XNNPACK does not add integers of scales that far apart"
    elif name in ("relax.nn.max_pool2d", "relax.reshape"):
        if ratios != [1.0] or int(_array(tensors[0].args[2])) != int(_array(last.args[2])):
            return "XNNPACK's integers keep their scale there"
    elif name == "relax.nn.avg_pool2d":
        return "XNNPACK's averages of windows are float32"
    return ""


def _layer_scales(name: str, weights: list[relax.Expr], scale: float, out: float) -> str:
    """Check the scales of filters and bias of a layer, whose input and output have *scale* and *out*."""
    for call in weights:
        if str(call.args[0].struct_info.dtype) not in ("int8", "int32") or _array(call.args[2]).any():
            return "XNNPACK's weights are int8 around zero, and what it adds int32"
    filters = next((call for call in weights if call.args[0].struct_info.ndim > 1), None)
    if filters is None or str(filters.args[0].struct_info.dtype) != "int8":
        return "XNNPACK's weights are int8 around zero, and what it adds int32"
    steps = _array(filters.args[1]).ravel()
    if steps.size > 1 and int(filters.attrs.axis) != (0 if name == CONV2D else 1):
        return "XNNPACK's weights have a scale for each channel of the output"
    if (steps * scale / out).max() >= LARGEST_RESCALING:
        return f"XNNPACK does not scale sums up by {LARGEST_RESCALING:g} or more"
    for call in weights:
        if call.args[0].struct_info.ndim == 1 and not np.allclose(
            _array(call.args[1]).ravel(), steps * scale, rtol=1e-4
        ):
            return "XNNPACK adds integers in the scale of the input times that of the weights"
    return ""


def _convert(call: relax.Call) -> str:
    if isinstance(call.args[0], relax.Constant):
        return "a constant is no work for XNNPACK"
    integers = call if operator_name(call) == QUANTIZE else call.args[0]
    if str(integers.struct_info.dtype) not in ("int8", "uint8") or _array(call.args[1]).size != 1:
        return ONE_SCALE
    if integers.struct_info.ndim not in (2, RANK):
        return "adt's runtime of XNNPACK converts pictures and vectors"
    return _types([call], ("float32",))


def _array(constant: relax.Constant) -> Any:
    return constant.data.numpy()
