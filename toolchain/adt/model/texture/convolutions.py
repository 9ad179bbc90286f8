"""Convolutions on blocked tensors: which, and their weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from adt.model.texture import blocks, signature
from adt.model.texture.blocks import FLOATS, LANES, Window
from adt.model.texture.choice import Choice, Moves
from adt.model.texture.report import Convolution
from adt.model.texture.rewriter import ELEMENTWISE, static_shape
from adt.model.texture.walk import Inlined, Walk, can_block, size_of

FUSED_WITH_PACKING = ELEMENTWISE | {
    "relax.concat",
    "relax.image.resize2d",
    "relax.nn.pad",
    "relax.permute_dims",
    "relax.strided_slice",
}
"""Operators that move or compute single elements: a kernel of theirs can write the packed form, too."""


def convolution(walk: Walk, variable: Any, call: Any) -> bool:
    """A blocked convolution of a blocked tensor, or of one with fewer channels than a texel has."""
    data, weight = call.args
    attrs = call.attrs
    groups = int(attrs.groups)
    reason = obstacle(data, weight, attrs, groups)
    shape, output = static_shape(weight), static_shape(variable)
    macs = 0
    if shape and output:
        macs = math.prod(output) * math.prod(shape[1:])
    chosen = Choice(False, reason)
    if shape and output and not reason:
        computes = signature.convolution(data.struct_info.dtype, shape, output, attrs.strides, groups)
        chosen = walk.chooser.choose(computes, shape[0], _moves(walk, data, variable))
    walk.operators.append(Convolution(variable.name_hint, shape or (), groups, macs, *chosen.told))
    if not chosen.textures:
        return False
    window = window_of(shape[2:], attrs)  # type: ignore[index]  # no obstacle: the shape is known
    while data in walk.unpadded:
        data, before, after = walk.unpadded[data]
        window = window.widened(before, after)
    out_dtype = variable.struct_info.dtype
    read = _read(walk, data, window)
    walk.blocked[variable] = walk.emit(
        lambda *tensors: blocks.convolution(
            read.expression(*tensors[:-1]), tensors[-1], window, groups, out_dtype
        ),
        *read.sources,
        packed_weight(weight, groups),
        name="conv_texels",
    )
    return True


def _read(walk: Walk, data: Any, window: Window) -> Inlined:
    """What a convolution with this window reads of *data*."""
    inlined = walk.inlined.get(data)
    if inlined is not None and (inlined.moves or math.prod(window.kernel) == 1):
        return inlined
    return Inlined((walk.blocks_of(data) if can_block(data) else walk.copy(data),), lambda x: x, moves=True)


def window_of(kernel: Sequence[int], attrs: Any) -> Window:
    """The window of a convolution or pool with these attributes."""
    rank = len(attrs.strides)
    padding = [int(extent) for extent in attrs.padding]
    if len(padding) == rank:
        padding *= 2
    return Window(
        kernel=tuple(int(size) for size in kernel),
        strides=tuple(int(step) for step in attrs.strides),
        before=tuple(padding[:rank]),
        after=tuple(padding[rank:]),
        dilation=tuple(int(spread) for spread in attrs.dilation),
    )


def _moves(walk: Walk, data: Any, made: Any) -> Moves:
    """What the forms that the neighbours have cost an operator that makes *made* of *data*."""
    blocked = data in walk.blocked
    fused = walk.made_by.get(data) in FUSED_WITH_PACKING
    return Moves(
        pack=size_of(data) if not blocked and can_block(data) and not fused else 0,
        unpack=size_of(data) if blocked and data not in walk.values else 0,
        output=size_of(made),
    )


def obstacle(data: Any, weight: Any, attrs: Any, groups: int) -> str:
    """Why a convolution cannot be blocked; empty if it can."""
    from tvm import relax

    shape = static_shape(weight)
    if shape is None or static_shape(data) is None:
        return "its shapes are not static"
    if not isinstance(weight, relax.Constant):
        return "its weight is computed by the model"
    if not str(attrs.data_layout).startswith("NC") or not str(attrs.kernel_layout).startswith("OI"):
        return f"its layout is {attrs.data_layout}/{attrs.kernel_layout}"
    if data.struct_info.dtype not in FLOATS:
        return f"it computes in {data.struct_info.dtype}"
    outputs, inputs = shape[0], shape[1] * groups
    if outputs < LANES:
        return f"its {outputs} output channels do not fill a texel"
    depthwise = groups == inputs == outputs
    if groups > 1 and not depthwise and (outputs // groups) % LANES:
        return f"its {groups} groups of {outputs // groups} output channels share texels"
    return ""


def packed_weight(weight: Any, groups: int) -> Any:
    """The constant *weight* ``(O, I/groups, kernel…)``, as the blocked convolution reads it."""
    import numpy as np
    from tvm import relax

    array = weight.data.numpy()
    outputs, inputs = array.shape[:2]
    packed = blocks.packed(array.reshape(outputs, inputs, -1), axis=0)  # (ceil(O/4), I/groups, taps, 4)
    if groups == outputs:  # depthwise: the only groups of one output channel
        packed = packed.reshape(1, packed.shape[0], *packed.shape[2:])
    else:
        packed = packed.swapaxes(1, 2)
    return relax.const(np.ascontiguousarray(packed), weight.struct_info.dtype)
