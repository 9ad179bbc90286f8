"""Rules of cuDNN: convolutions, with a bias, a tensor that is added, and ReLU.

The runtime is adt's own (``cmake_presets/src/cuda/cudnn_runtime.cc``). cuDNN has one call for all of it,
which knows no other activation, and pads both sides of a picture alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from tvm import relax
from tvm.relax.dpl import is_const, is_op, wildcard

from adt.compiler.ir.nodes import operator_name
from adt.compiler.passes.offload.json_graph import Layer, register, write_layer
from adt.compiler.passes.offload.rules import (
    CONV2D,
    Constraints,
    Rules,
    in_nchw,
    mixed_types,
    repeated,
    shape_of,
    unmet,
)

ADD, RELU = "relax.add", "relax.nn.relu"


def rules(*, tf32: bool, **_options: object) -> Rules:
    """Return the rules and give TVM the code generator; *tf32*: float32 may be rounded to TF32."""
    register("cudnn", partial(write_layer, layer_of=partial(_layer, tf32=tf32)))
    return Rules(_patterns(), "cudnn", _objection, apart=True)


def _patterns() -> list[Any]:
    """List the patterns, longer ones first: TVM takes the first that matches."""
    plain = is_op(CONV2D)(wildcard(), wildcard())
    biased = is_op(ADD)(plain, is_const())
    sums = [is_op(ADD)(biased, wildcard()), is_op(ADD)(wildcard(), biased)]
    patterns = [
        *(("cudnn.conv2d_bias_add_relu", is_op(RELU)(total)) for total in sums),
        *(("cudnn.conv2d_bias_add", total) for total in sums),
        ("cudnn.conv2d_bias_relu", is_op(RELU)(biased)),
        ("cudnn.conv2d_bias", biased),
        ("cudnn.conv2d", plain),
    ]
    return [(name, pattern, {}, None) for name, pattern in patterns]


def _pads_alike(call: relax.Call) -> bool:
    top, left, bottom, right = map(int, call.attrs.padding)
    return (top, left) == (bottom, right)


_CONVOLUTION: Constraints = {
    "adt's runtime of cuDNN takes convolutions in NCHW": in_nchw,
    "cuDNN pads both sides of a picture alike": _pads_alike,
}


def _objection(name: str, calls: list[relax.Call]) -> str:
    """Check types, the convolution, and that a bias has one value for each channel, other terms one for each
    of the result."""
    core = next(call for call in calls if operator_name(call) == CONV2D)
    sums = [call for call in calls if operator_name(call) == ADD]
    types = next(filter(None, (mixed_types("cuDNN", call) for call in calls)), "")
    if reason := types or unmet(core, _CONVOLUTION):
        return reason
    shape = shape_of(core)
    if "bias" in name:
        bias, *sums = sums
        if shape_of(bias.args[1]) != [1, shape[1], 1, 1]:
            return "cuDNN's bias has one value for each channel"
    if any([*map(shape_of, call.args)] != [shape, shape] or repeated(call) for call in sums):
        return "cuDNN adds another tensor of the result's shape"
    return ""


def _layer(bindings: Sequence[relax.VarBinding], *, tf32: bool) -> Layer:
    """Describe the convolution, whose operands are x, weights, and the bias and the tensor that are added."""
    operands: list[relax.Expr] = []
    attributes: dict[str, Any] = {"relu": 0, "tf32": int(tf32)}
    result = None
    for binding in bindings:
        call = binding.value
        name = operator_name(call)
        if name == CONV2D:
            operands.extend(call.args)
            attributes["groups"] = int(call.attrs.groups)
            for key in ("strides", "padding", "dilation"):
                attributes[key] = [int(number) for number in getattr(call.attrs, key)]
        elif name == ADD:
            operands.append(call.args[call.args[0].same_as(result)])
        elif name == RELU:
            attributes["relu"] = 1
        result = binding.var
    return operands, attributes
