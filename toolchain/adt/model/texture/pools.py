"""Pooling of blocked tensors."""

from __future__ import annotations

import math
from typing import Any

from adt.model.texture import blocks
from adt.model.texture.blocks import Window
from adt.model.texture.convolutions import window_of
from adt.model.texture.rewriter import static_shape
from adt.model.texture.walk import Rule, Walk, rows_shape


def pool(kind: str) -> Rule:
    """The rule for pools that give the *kind* (``max`` or ``avg``) of each window."""

    def rule(walk: Walk, variable: Any, call: Any) -> bool:
        (data,) = call.args
        attrs, output, shape = call.attrs, static_shape(variable), static_shape(data)
        if data not in walk.blocked or not str(attrs.layout).startswith("NC") or not output or not shape:
            return False
        window = window_of(attrs.pool_size, attrs)
        missing = tuple(
            (wanted - extent) * stride
            for wanted, extent, stride in zip(
                output[2:], window.extents(shape[2:]), window.strides, strict=True
            )
        )
        count_padding = kind == "avg" and bool(attrs.count_include_pad)
        if any(missing):  # ceil_mode: the last window reaches beyond the padding
            if count_padding:
                return False
            after = tuple(high + more for high, more in zip(window.after, missing, strict=True))
            window = Window(window.kernel, window.strides, window.before, after, window.dilation)
        if kind == "avg" and any(spread != 1 for spread in window.dilation):
            return False
        walk.blocked[variable] = _pooled(walk, data, window, kind, count_padding)
        return True

    return rule


def adaptive_pool(walk: Walk, variable: Any, call: Any) -> bool:
    """Adaptive averages whose windows are all of one size."""
    (data,) = call.args
    shape, output = static_shape(data), static_shape(variable)
    if data not in walk.blocked or shape is None or output is None or call.attrs.layout != "NCHW":
        return False
    if any(extent % wanted for extent, wanted in zip(shape[2:], output[2:], strict=True)):
        return False
    sizes = tuple(extent // wanted for extent, wanted in zip(shape[2:], output[2:], strict=True))
    walk.blocked[variable] = _pooled(walk, data, _tiles(sizes), "avg", False)
    return True


def global_pool(kind: str) -> Rule:
    """The rule for a mean or maximum over all spatial axes, whether it keeps them or not."""

    def rule(walk: Walk, variable: Any, call: Any) -> bool:
        (data,) = call.args
        shape, output = static_shape(data), static_shape(variable)
        if data not in walk.blocked or shape is None or output is None or call.attrs.axis is None:
            return False
        if {int(axis) % len(shape) for axis in call.attrs.axis} != set(range(2, len(shape))):
            return False
        made = _pooled(walk, data, _tiles(shape[2:]), kind, False)
        if len(output) == len(shape):
            walk.blocked[variable] = made
        else:
            walk.rows[variable] = walk.reshaped(made, rows_shape(shape[:2]))
        return True

    return rule


def _tiles(sizes: tuple[int, ...]) -> Window:
    """Windows of these *sizes*, one next to the other."""
    zeros, ones = (0,) * len(sizes), (1,) * len(sizes)
    return Window(sizes, sizes, zeros, zeros, ones)


def _pooled(walk: Walk, data: Any, window: Window, kind: str, count_padding: bool) -> Any:
    whole = math.prod(window.extents((static_shape(data) or ())[2:])) == 1
    return walk.emit(
        lambda x: blocks.pool(x, window, kind, count_padding),
        walk.blocks_of(data),
        name=f"global_{kind}_pool_texels" if whole else f"{kind}_pool_texels",
    )
