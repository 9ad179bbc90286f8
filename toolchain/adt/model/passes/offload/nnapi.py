"""What TVM's NNAPI runtime computes rightly, of what TVM's NNAPI patterns would hand to it.

The patterns ask for operators' names only. The runtime (``nnapi_ops.cc``) ignores
dilation and swaps the strides of a convolution, and Android's NNAPI knows few types.
No Android device was there to try it: the rules follow from reading the runtime.
Weights stay parameters of the model: the runtime takes no constants.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from adt.model.passes.offload.rules import Check, Rules, first_objection, fixed, repeated

LEVEL_OF_API = 26
"""API level minus this is NNAPI's feature level …"""
HIGHEST_LEVEL = 5
"""… up to this; later levels came with updates of the device, not with Android's version."""
TYPES = ("float32", "float16", "int32")
RANK = 4


@dataclass(frozen=True)
class Nnapi(Rules):
    """TVM's NNAPI runtime."""

    def prepare(self, module: Any, params: Mapping[str, Any]) -> Any:
        """Compute what depends on constants alone."""
        from tvm.relax import transform

        return transform.FoldConstant()(module)

    def objection(self, name: str, calls: list[Any]) -> str:
        """See :meth:`adt.model.passes.offload.rules.Rules.objection`."""
        reason = first_objection(calls, _types, _CHECKS)
        return reason or (_bias(calls) if name == "nnapi.conv2d" else "")


def rules(api_level: int, _half: bool) -> Nnapi:
    """As of the installed TVM, for Android of *api_level*."""
    from tvm.relax.backend.contrib import nnapi
    from tvm.relax.backend.pattern_registry import get_patterns_with_prefix

    level = min(api_level - LEVEL_OF_API, HIGHEST_LEVEL)
    patterns = [
        (pattern.name, pattern.pattern, pattern.annotation_patterns, pattern.check)
        for pattern in get_patterns_with_prefix("nnapi")
        if nnapi.min_feature_level(pattern.name) <= level
    ]
    names = ("Conv2D", "Pool2D", "PermuteDims", "Astype", "Statistical")
    read = frozenset(f"relax.attrs.{name}Attrs" for name in names)
    return Nnapi(patterns, "nnapi", read, weights_inside=False)


def _types(call: Any) -> str:
    from tvm import relax

    infos = [info for info in (a.struct_info for a in call.args) if isinstance(info, relax.TensorStructInfo)]
    for info in (*infos, call.struct_info):
        if str(info.dtype) not in TYPES:
            return f"NNAPI computes in {', '.join(TYPES)}, not in {info.dtype}"
        if info.ndim > RANK:
            return f"NNAPI's tensors have up to {RANK} dimensions"
        if not fixed(info):
            return "NNAPI's tensors have fixed dimensions"
    if repeated(call):
        return "NNAPI's subgraphs in TVM hold an operand that comes twice only once"
    if call.op.name != "relax.astype" and len({str(info.dtype) for info in infos}) > 1:
        return "NNAPI does not mix types"
    return ""


def _window(call: Any) -> str:
    if [int(step) for step in call.attrs.dilation] != [1, 1]:
        return "NNAPI's runtime in TVM ignores dilation"
    strides = [int(step) for step in call.attrs.strides]
    if strides[0] != strides[1]:
        return "NNAPI's runtime in TVM swaps the strides of height and width"
    return ""


def _conv2d(call: Any) -> str:
    if str(call.attrs.data_layout) != "NCHW" or str(call.attrs.kernel_layout) != "OIHW":
        return "NNAPI's runtime in TVM computes in NCHW"
    if str(call.struct_info.dtype) != str(call.args[0].struct_info.dtype):
        return "NNAPI does not mix types"
    return _window(call)


def _max_pool(call: Any) -> str:
    if str(call.attrs.layout) != "NCHW":
        return "NNAPI's runtime in TVM computes in NCHW"
    size = [int(extent) for extent in call.attrs.pool_size]
    if size[0] != size[1]:
        return "NNAPI's runtime in TVM swaps height and width of a pool"
    if bool(call.attrs.ceil_mode):
        return "NNAPI's runtime in TVM ignores ceil_mode"
    return _window(call)


def _softmax(call: Any) -> str:
    if str(call.struct_info.dtype) != "float32" or int(call.attrs.axis) not in (
        -1,
        call.struct_info.ndim - 1,
    ):
        return "NNAPI's runtime in TVM has softmax in float32 over the last dimension"
    return ""


def _mean(call: Any) -> str:
    return "" if call.attrs.axis is not None else "NNAPI's runtime in TVM needs the dimensions of a mean"


def _bias(calls: list[Any]) -> str:
    """What is added must have one value for each channel: the runtime makes a vector of it."""
    added = next(call for call in calls if call.op.name == "relax.add")
    convolution = next(call for call in calls if call.op.name == "relax.nn.conv2d")
    channels = int(convolution.struct_info.shape[1])
    sizes = [[int(extent) for extent in argument.struct_info.shape] for argument in added.args]
    sizes.remove([int(extent) for extent in convolution.struct_info.shape])
    if sizes != [[1, channels, 1, 1]] or channels == 1:
        return "NNAPI's convolution adds one value for each channel"
    return ""


_CHECKS: dict[str, Check] = {
    "relax.nn.conv2d": _conv2d,
    "relax.nn.max_pool2d": _max_pool,
    "relax.nn.softmax": _softmax,
    "relax.mean": _mean,
}
