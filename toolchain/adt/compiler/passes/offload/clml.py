"""Rules of CLML: what TVM's runtime for it computes rightly, of what TVM's patterns would hand to it.

The patterns and the runtime (``clml_runtime.cc``) are not in step. The runtime drops
a fused clip, takes grouped convolutions for plain ones, ignores a pool's dilation and
a padding's value; other operators it refuses when the model starts, on the device.
No CLML device was there to try it: the rules follow from reading the runtime.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax
from tvm.relax import transform
from tvm.relax.backend.adreno.clml import AppendReshapeToBNRewriterPass, clml_pattern_table

from adt.compiler.ir.nodes import operator_name, relax_nodes
from adt.compiler.passes.offload.rules import Check, Rules, first_objection, fixed, repeated
from adt.compiler.passes.offload.weights import weights_of

TYPES = ("float32", "float16")
CONV2D = "relax.nn.conv2d"
BINARY = ("subtract", "multiply", "divide", "maximum", "minimum")
LAYOUTS = ("NCHW", "OIHW")
RANK = 4  # CLML's tensors have four dimensions


@dataclass(frozen=True)
class Clml(Rules):
    """TVM's CLML runtime."""

    def prepare(self, module: tvm.IRModule, params: Mapping[str, tvm.runtime.Tensor]) -> Any:
        """Bind the weights, fold batch norms, lay convolutions out as NCHW."""
        main = module["main"]
        # TVM's layout pass fails on some models (reshapes to computed shapes, slices), and most need none.
        layouts = [transform.ConvertLayout({CONV2D: list(LAYOUTS)})] if _other_layouts(main) else []
        passes = [
            transform.BindParams("main", weights_of(module, params)),
            *layouts,
            transform.Normalize(),
            transform.FoldBatchnormToConv2D(),
            AppendReshapeToBNRewriterPass(),
            transform.FoldConstant(),
        ]
        return tvm.transform.Sequential(passes)(module)

    def objection(self, name: str, calls: list[relax.Call]) -> str:
        """See :meth:`adt.compiler.passes.offload.rules.Rules.objection`."""
        parts = name.removeprefix("openclml.").split(".")
        if "clip" in parts:
            return "CLML's runtime in TVM has no clip"
        if "pad" in parts:
            return "CLML's runtime in TVM ignores how a padding is filled"
        if "conv2d_transpose" in parts:
            return "CLML's runtime in TVM ignores output padding and groups of a transposed convolution"
        return first_objection(calls, _types, _CHECKS)


def rules(**_options: bool) -> Clml:
    """Return the rules of the installed TVM."""
    read = frozenset({"relax.attrs.BatchNormAttrs", "relax.attrs.PadAttrs"})
    return Clml(clml_pattern_table(), "openclml", read, weights_inside=True)


def _other_layouts(function: relax.Function) -> bool:
    """Return True if a convolution of *function* is laid out in another way than CLML's."""
    return any(
        (str(call.attrs.data_layout), str(call.attrs.kernel_layout)) != LAYOUTS
        for call in relax_nodes(function, relax.Call)
        if operator_name(call) == CONV2D
    )


def _types(call: relax.Call) -> str:
    if any(
        isinstance(argument.struct_info, relax.ShapeStructInfo) and not isinstance(argument, relax.ShapeExpr)
        for argument in call.args
    ):
        return "CLML's tensors have fixed dimensions"
    infos = [argument.struct_info for argument in call.args if not isinstance(argument, relax.ShapeExpr)]
    infos = [info for info in infos if isinstance(info, relax.TensorStructInfo)]
    if isinstance(call.struct_info, relax.TensorStructInfo):
        infos.append(call.struct_info)
    types = {str(info.dtype) for info in infos}
    if len(types) != 1 or not types <= set(TYPES):
        return f"CLML computes in one of {' and '.join(TYPES)}, not in {', '.join(sorted(types))}"
    if any(info.ndim > RANK or info.ndim == 0 for info in infos):
        return f"CLML's tensors have one to {RANK} dimensions, and it repeats no scalars"
    if not all(fixed(info) for info in infos):
        return "CLML's tensors have fixed dimensions"
    return ""


def _conv2d(call: relax.Call) -> str:
    if int(call.attrs.groups) != 1:
        return "CLML's runtime in TVM takes no grouped convolution"
    if not isinstance(call.args[1], relax.Constant):
        return "CLML's convolutions have constant weights"
    return ""


def _binary(call: relax.Call) -> str:
    """TVM's generator lists a subgraph's constants behind its tensors, and a tensor once."""
    if repeated(call):
        return "CLML's subgraphs in TVM hold an operand that comes twice only once"
    if isinstance(call.args[0], relax.Constant):
        return "CLML's subgraphs in TVM have a constant as the second operand"
    return ""


def _add(call: relax.Call) -> str:
    """A bias has one value for each channel; anything else of one element is no tensor to CLML."""
    if reason := _binary(call):
        return reason
    other = call.args[1]
    if isinstance(other, relax.Constant):
        shape = [int(extent) for extent in other.struct_info.shape]
        whole = [int(extent) for extent in call.struct_info.shape]
        if shape not in (whole, [1, *whole[1:2], *[1] * (len(whole) - 2)]):
            return "CLML adds a constant of the tensor's shape, or with one value for each channel"
    return ""


def _max_pool(call: relax.Call) -> str:
    if [int(step) for step in call.attrs.dilation] != [1, 1]:
        return "CLML's runtime in TVM ignores a pool's dilation"
    if bool(call.attrs.ceil_mode):
        return "CLML's runtime in TVM ignores ceil_mode"
    return _layout(call)


def _avg_pool(call: relax.Call) -> str:
    if bool(call.attrs.count_include_pad) and any(int(pad) for pad in call.attrs.padding):
        return "CLML's runtime in TVM leaves padding out of averages"
    return _max_pool(call)


def _layout(call: relax.Call) -> str:
    return "" if str(call.attrs.layout) == "NCHW" else "CLML's runtime in TVM computes in NCHW"


def _mean(call: relax.Call) -> str:
    shape = [int(extent) for extent in call.args[0].struct_info.shape]
    if not bool(call.attrs.keepdims) or len(shape) != RANK:
        return "CLML's global average keeps its dimensions"
    if shape[2] != shape[3]:
        return "CLML's runtime in TVM swaps height and width of a global average"
    return ""


def _softmax(call: relax.Call) -> str:
    shape = call.args[0].struct_info.shape
    if len(shape) != 2 or int(call.attrs.axis) not in (-1, 1):
        return "CLML's softmax runs over the channels of a matrix"
    return ""


_CHECKS: dict[str, Check] = {
    CONV2D: _conv2d,
    "relax.add": _add,
    **dict.fromkeys((f"relax.{name}" for name in BINARY), _binary),
    "relax.nn.max_pool2d": _max_pool,
    "relax.nn.avg_pool2d": _avg_pool,
    "relax.mean": _mean,
    "relax.nn.softmax": _softmax,
}
