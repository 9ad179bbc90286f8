"""Rules of XNNPACK: convolutions, dense layers, what stands between them, in float32, float16 or int8.

The runtime is adt's own (``cmake_presets/src/xnnpack_runtime.cc``), and so is what becomes of the matches
(:mod:`adt.compiler.passes.offload.xnnpack_graph`); the reasons below are what XNNPACK itself refuses or
computes otherwise. Models stay in NCHW: the runtime transposes tensors of four dimensions at the edges of a
subgraph.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax import transform
from tvm.relax.dpl import is_const, is_op, wildcard
from tvm.relax.expr_functor import PyExprMutator, mutator

from adt.compiler.ir.nodes import operator_name, relax_nodes
from adt.compiler.ir.rewriter import bindings_of
from adt.compiler.passes.offload.json_graph import register
from adt.compiler.passes.offload.rules import (
    CONV2D,
    Constraints,
    Rules,
    averages_no_padding,
    fixed,
    has_whole_windows,
    in_nchw,
    shape_of,
    tensors_of,
    undilated,
    unmet,
)
from adt.compiler.passes.offload.weights import fold_weights, weights_of
from adt.compiler.passes.offload.xnnpack_graph import CORES, write_graph

DENSE, ADD = "relax.matmul", "relax.add"
QUANTIZE, DEQUANTIZE = "relax.quantize", "relax.dequantize"
LAYERS = (CONV2D, DENSE)  # operators that have weights
RANK = 4  # number of axes of the tensors whose dimensions the runtime puts in another order
LARGEST_RESCALING = 256.0
"""XNNPACK's limit of (scale of the input × scale of the weights / scale of the output), not included."""
ONE_SCALE = "adt's runtime of XNNPACK takes tensors in int8 or uint8 of one scale"
ADD_RATIOS = (2.0**-10, 2.0**8)
"""XNNPACK's limits of (scale of an operand / scale of the sum), the upper one not included."""


def rules(*, half: bool, **_options: object) -> Rules:
    """Return the rules; TVM has the code generator from then on.

    With *half*, Arm's CPU that code is for computes in half precision, and so does XNNPACK there.
    """
    register("xnnpack", write_graph)
    return Rules(_patterns(), "xnnpack", partial(_objection, half), _prepare, weights_inside=True)


def _prepare(module: tvm.IRModule, params: Mapping[str, tvm.runtime.Tensor]) -> tvm.IRModule:
    """Bind the weights and fold batch norms; give each user of a dequantized tensor one of its own."""
    if not any(operator_name(call) == DEQUANTIZE for call in relax_nodes(module["main"], relax.Call)):
        return fold_weights(module, params)
    module = transform.BindParams("main", weights_of(module, params))(module)
    return transform.Normalize()(_own_dequantizations(module))


def _objection(half: bool, name: str, calls: list[relax.Call]) -> str:
    if name == "xnnpack.convert":
        return _convert(calls[0])
    core = next((call for call in calls if operator_name(call) in LAYERS), None)
    if core is None:
        core = next(call for call in calls if operator_name(call) in _CONSTRAINTS)
    quantized = any(operator_name(call) in (QUANTIZE, DEQUANTIZE) for call in calls)
    taken = ("float32", "float16") if half and not quantized else ("float32",)
    return (
        _types(calls, taken)
        or unmet(core, _CONSTRAINTS[operator_name(core)])
        or _bias(core, calls)
        or _scales(core, calls)
    )


def _patterns() -> list[Any]:
    """List the patterns, longer ones first: TVM takes the first that matches."""

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

    def real(value: relax.dpl.DFPattern) -> relax.dpl.DFPattern:
        return value

    reshape = is_op("relax.reshape")
    patterns: list[tuple[str, Any]] = []
    for read, written in ((dequantized, quantized), (real, real)):
        for operator in LAYERS:
            product, bias = is_op(operator)(read(wildcard()), read(is_const())), read(is_const())
            values = [is_op(ADD)(product, bias), product]
            if read is dequantized:
                values.insert(0, is_op(ADD)(product, reshape(bias, wildcard())))
            patterns += [(CORES[operator], written(last)) for value in values for last in activated(value)]
        total = is_op(ADD)(read(wildcard()), read(wildcard()))
        patterns += [("add", written(last)) for last in activated(total)]
        for operator in ("relax.nn.max_pool2d", "relax.nn.avg_pool2d", "relax.mean"):
            patterns.append((CORES[operator], written(is_op(operator)(read(wildcard())))))
        patterns.append(("reshape", written(reshape(read(wildcard()), wildcard()))))
    patterns += [("convert", quantized(wildcard())), ("convert", dequantized(wildcard()))]
    return [(f"xnnpack.{name}", pattern, {}, None) for name, pattern in patterns]


def _own_dequantizations(module: tvm.IRModule) -> tvm.IRModule:
    """Give each call dequantized operands of its own: a match must not give away its inside."""
    values = {binding.var: binding.value for binding in bindings_of(module)}

    @mutator
    class Own(PyExprMutator):  # type: ignore[misc]
        def visit_call_(self, call: relax.Call) -> relax.Expr:
            arguments = []
            for argument in call.args:
                source = values.get(argument, argument)
                if operator_name(source) == DEQUANTIZE:
                    copy = relax.Call(source.op, [*map(self.visit_expr, source.args)], source.attrs)
                    arguments.append(self.builder_.emit(copy))
                else:
                    arguments.append(self.visit_expr(argument))
            return relax.Call(call.op, arguments, call.attrs, call.sinfo_args)

    own = Own(module)
    own.builder_.update_func(module.get_global_var("main"), own.visit_expr(module["main"]))
    return relax.transform.DeadCodeElimination(["main"])(own.builder_.get())


def _types(calls: list[relax.Call], taken: tuple[str, ...]) -> str:
    """Check that a match has one of the types *taken* besides integers."""
    types = set()
    for call in calls:
        infos = tensors_of(call)
        if not all(map(fixed, infos)):
            return "XNNPACK's tensors have fixed dimensions"
        if operator_name(call) not in (QUANTIZE, DEQUANTIZE):
            types |= {str(info.dtype) for info in infos}
    if types <= {taken[0]} or types <= {taken[-1]}:
        return ""
    names = ", ".join(sorted(types - {"float32"}))
    return f"adt's runtime of XNNPACK computes in {', '.join(taken)} and int8, not in {names}"


def _dense(product: relax.Call) -> bool:
    data, weights = (argument.struct_info.ndim for argument in product.args)
    return data not in (0, 1, RANK) and weights == 2


def _leaves_nothing_out(pool: relax.Call) -> bool:
    size, strides = ([int(n) for n in numbers] for numbers in (pool.attrs.pool_size, pool.attrs.strides))
    return size != [1, 1] and strides[0] <= size[0] and strides[1] <= size[1]


def _averages_pictures(mean: relax.Call) -> bool:
    axes = mean.attrs.axis
    is_picture = mean.args[0].struct_info.ndim == RANK and axes is not None
    return is_picture and sorted(int(axis) % RANK for axis in axes) == [2, 3]


def _makes_a_vector(reshape: relax.Call) -> bool:
    shape = shape_of(reshape.args[0])
    return len(shape) == RANK and shape[2:] == [1, 1] and shape_of(reshape) == shape[:2]


_POOL: Constraints = {
    "adt's runtime of XNNPACK takes pools in NCHW": in_nchw,
    "XNNPACK has no pools of one element, nor such as leave elements out": _leaves_nothing_out,
    "XNNPACK's pools end with the last whole window (ceil_mode)": has_whole_windows,
}
_CONSTRAINTS: dict[str, Constraints] = {
    CONV2D: {"adt's runtime of XNNPACK takes convolutions in NCHW": in_nchw},
    DENSE: {
        "adt's runtime of XNNPACK takes products of two or three dimensions with a matrix of weights": _dense
    },
    ADD: {
        "adt's runtime of XNNPACK adds two pictures of one shape": lambda call: (
            call.struct_info.ndim == RANK and shape_of(call.args[0]) == shape_of(call.args[1])
        )
    },
    "relax.nn.max_pool2d": {
        "XNNPACK fills the padding of a dilated pool with elements of other windows": lambda pool: (
            undilated(pool) or not any(map(int, pool.attrs.padding))
        ),
        **_POOL,
    },
    "relax.nn.avg_pool2d": {
        "XNNPACK's averages have no dilation": undilated,
        "XNNPACK leaves padding out of averages": averages_no_padding,
        **_POOL,
    },
    "relax.mean": {
        "adt's runtime of XNNPACK averages over height and width": _averages_pictures,
        "adt's runtime of XNNPACK keeps the dimensions of averages": lambda mean: bool(mean.attrs.keepdims),
    },
    "relax.reshape": {
        "adt's runtime of XNNPACK makes a vector of one element for each channel": _makes_a_vector
    },
}


def _bias(core: relax.Call, calls: list[relax.Call]) -> str:
    """Check that a layer adds one value for each of its channels."""
    added = next((call for call in calls if operator_name(call) == ADD), None)
    if operator_name(core) not in LAYERS or added is None:
        return ""
    shape = shape_of(core)
    if operator_name(core) == CONV2D:
        by_channel = [[1, shape[1], 1, 1]]
    else:
        by_channel = [shape[-1:], [*[1] * (len(shape) - 1), shape[-1]]]
    return "" if shape_of(added.args[1]) in by_channel else "XNNPACK's layers add one value for each channel"


def _scales(core: relax.Call, calls: list[relax.Call]) -> str:
    """Check XNNPACK's limits on scales and zero points of integers."""
    last = next((call for call in calls if operator_name(call) == QUANTIZE), None)
    if last is None:
        return ""
    read = [call for call in calls if operator_name(call) == DEQUANTIZE]
    weights = [call for call in read if isinstance(call.args[0], relax.Constant)]
    tensors = [call for call in read if not isinstance(call.args[0], relax.Constant)]
    types = {str(last.struct_info.dtype), *(str(call.args[0].struct_info.dtype) for call in tensors)}
    if types - {"int8", "uint8"} or any(_array(call.args[1]).size != 1 for call in (*tensors, last)):
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
    filters = next((call for call in weights if call.args[0].struct_info.ndim > 1), None)
    types = {str(call.args[0].struct_info.dtype) for call in weights}
    if (
        filters is None
        or str(filters.args[0].struct_info.dtype) != "int8"
        or types - {"int8", "int32"}
        or any(_array(call.args[2]).any() for call in weights)
    ):
        return "XNNPACK's weights are int8 around zero, and what it adds int32"
    steps = _array(filters.args[1]).ravel()
    if steps.size > 1 and int(filters.attrs.axis) != (0 if name == CONV2D else 1):
        return "XNNPACK's weights have a scale for each channel of the output"
    if (steps * scale / out).max() >= LARGEST_RESCALING:
        return f"XNNPACK does not scale sums up by {LARGEST_RESCALING:g} or more"
    biases = [_array(call.args[1]).ravel() for call in weights if call.args[0].struct_info.ndim == 1]
    if not all(np.allclose(bias, steps * scale, rtol=1e-4) for bias in biases):
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
