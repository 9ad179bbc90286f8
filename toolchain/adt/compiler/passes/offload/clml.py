"""Rules of CLML: what TVM's runtime for it computes rightly, of what TVM's patterns would hand to it.

The patterns and the runtime (``clml_runtime.cc``) are not in step. The runtime drops
a fused clip, takes grouped convolutions for plain ones, ignores a pool's dilation and
a padding's value; other operators it refuses when the model starts, on the device.
No CLML device was there to try it: the rules follow from reading the runtime.
"""

from __future__ import annotations

from collections.abc import Mapping

import tvm
from tvm import relax
from tvm.relax import transform
from tvm.relax.backend.adreno.clml import AppendReshapeToBNRewriterPass, clml_pattern_table

from adt.compiler.ir.nodes import operator_name, relax_nodes
from adt.compiler.passes.offload.rules import (
    CONV2D,
    Constraints,
    Rules,
    averages_no_padding,
    fixed,
    has_whole_windows,
    in_nchw,
    mixed_types,
    repeated,
    shape_of,
    tensors_of,
    undilated,
    unmet,
)
from adt.compiler.passes.offload.weights import weights_of

RANK = 4  # CLML's tensors have four dimensions


def rules(*, foreign: frozenset[str], **_options: bool) -> Rules:
    """Return the rules of the installed TVM, whose code generator reads some attributes from memory."""
    misread = foreign & {"relax.attrs.BatchNormAttrs", "relax.attrs.PadAttrs"}
    patterns = clml_pattern_table()
    return Rules(patterns, "openclml", objection, _prepare, weights_inside=True, misread=misread)


def _prepare(module: tvm.IRModule, params: Mapping[str, tvm.runtime.Tensor]) -> tvm.IRModule:
    """Bind the weights, fold batch norms, lay convolutions out as NCHW."""
    calls = relax_nodes(module["main"], relax.Call)
    # TVM's layout pass fails on some models (reshapes to computed shapes, slices), and most need none.
    laid_out = all(in_nchw(call) for call in calls if operator_name(call) == CONV2D)
    passes = [
        transform.BindParams("main", weights_of(module, params)),
        *([] if laid_out else [transform.ConvertLayout({CONV2D: ["NCHW", "OIHW"]})]),
        transform.Normalize(),
        transform.FoldBatchnormToConv2D(),
        AppendReshapeToBNRewriterPass(),
        transform.FoldConstant(),
    ]
    return tvm.transform.Sequential(passes)(module)


def objection(name: str, calls: list[relax.Call]) -> str:
    """Return why CLML must not compute the match of the pattern *name*; empty: it may."""
    parts = name.removeprefix("openclml.").split(".")
    if "clip" in parts:
        return "CLML's runtime in TVM has no clip"
    if "pad" in parts:
        return "CLML's runtime in TVM ignores how a padding is filled"
    if "conv2d_transpose" in parts:
        return "CLML's runtime in TVM ignores output padding and groups of a transposed convolution"
    reasons = (_types(call) or unmet(call, _CONSTRAINTS.get(operator_name(call), {})) for call in calls)
    return next(filter(None, reasons), "")


def _types(call: relax.Call) -> str:
    shapes = (a for a in call.args if isinstance(a.struct_info, relax.ShapeStructInfo))
    if not all(isinstance(shape, relax.ShapeExpr) for shape in shapes):
        return "CLML's tensors have fixed dimensions"
    if reason := mixed_types("CLML", call):
        return reason
    if not all(0 < info.ndim <= RANK for info in tensors_of(call)):
        return f"CLML's tensors have one to {RANK} dimensions, and it repeats no scalars"
    return "" if all(map(fixed, tensors_of(call))) else "CLML's tensors have fixed dimensions"


def _adds_by_channel(call: relax.Call) -> bool:
    """Return True if what is added is no constant, or has all elements or one for each channel."""
    whole, other = shape_of(call), call.args[1]
    by_channel = [1, *whole[1:2], *[1] * (len(whole) - 2)]
    return not isinstance(other, relax.Constant) or shape_of(other) in (whole, by_channel)


# TVM's generator lists a subgraph's constants behind its tensors, and a tensor once.
_BINARY: Constraints = {
    "CLML's subgraphs in TVM hold an operand that comes twice only once": lambda call: not repeated(call),
    "CLML's subgraphs in TVM have a constant as the second operand": lambda call: (
        not isinstance(call.args[0], relax.Constant)
    ),
}
_POOL: Constraints = {
    "CLML's runtime in TVM ignores a pool's dilation": undilated,
    "CLML's runtime in TVM ignores ceil_mode": has_whole_windows,
    "CLML's runtime in TVM computes in NCHW": in_nchw,
}
_CONSTRAINTS: dict[str, Constraints] = {
    CONV2D: {
        "CLML's runtime in TVM takes no grouped convolution": lambda call: int(call.attrs.groups) == 1,
        "CLML's convolutions have constant weights": lambda call: isinstance(call.args[1], relax.Constant),
    },
    "relax.add": {
        **_BINARY,
        "CLML adds a constant of the tensor's shape, or with one value for each channel": _adds_by_channel,
    },
    **{f"relax.{name}": _BINARY for name in ("subtract", "multiply", "divide", "maximum", "minimum")},
    "relax.nn.max_pool2d": _POOL,
    "relax.nn.avg_pool2d": {
        "CLML's runtime in TVM leaves padding out of averages": averages_no_padding,
        **_POOL,
    },
    "relax.mean": {
        "CLML's global average keeps its dimensions": lambda call: (
            bool(call.attrs.keepdims) and len(shape_of(call.args[0])) == RANK
        ),
        "CLML's runtime in TVM swaps height and width of a global average": lambda call: (
            shape_of(call.args[0])[2] == shape_of(call.args[0])[3]
        ),
    },
    "relax.nn.softmax": {
        "CLML's softmax runs over the channels of a matrix": lambda call: (
            len(shape_of(call.args[0])) == 2 and int(call.attrs.axis) in (-1, 1)
        )
    },
}
