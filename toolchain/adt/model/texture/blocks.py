"""Operators on blocked tensors, as tensor expressions.

A blocked tensor holds the channels of ``(N, C, spatial…)`` in blocks of four:
``(N, ceil(C/4), spatial…, 4)``. The last axis is one texel of an image. Lanes beyond
the last channel hold anything, and nothing that computes a channel reads them.
Weights of a convolution ``(O, I, kernel…)`` become ``(ceil(O/4), I, kernel…, 4)``.

TVM's own convolutions for this layout know neither groups nor another
accumulator type, and pad in a kernel of their own; these pad where they read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

LANES = 4
"""Channels in a texel."""


@dataclass(frozen=True)
class Window:
    """The window that a convolution or a pool slides over the spatial axes; one number per axis."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    before: tuple[int, ...]
    """Padding at the low end."""
    after: tuple[int, ...]
    """Padding at the high end."""
    dilation: tuple[int, ...]

    def extents(self, inputs: Sequence[int]) -> tuple[int, ...]:
        """Output extents for the input extents *inputs*."""
        return tuple(
            (extent + low + high - (size - 1) * spread - 1) // stride + 1
            for extent, size, stride, low, high, spread in zip(
                inputs, self.kernel, self.strides, self.before, self.after, self.dilation, strict=True
            )
        )


def ceil_blocks(channels: int) -> int:
    """How many blocks hold *channels*."""
    return -(-channels // LANES)


def pack(x: Any) -> Any:
    """``(N, C, …)`` to ``(N, ceil(C/4), …, 4)``."""
    from tvm import te, tirx

    batch, channels, *spatial = x.shape

    last = int(channels) - 1

    def value(n: Any, c: Any, *at: Any) -> Any:
        channel = c * LANES + at[-1]
        # A condition on the lane could not be computed as a vector; reading the last one again can.
        return x(n, channel if (last + 1) % LANES == 0 else tirx.min(channel, last), *at[:-1])

    return te.compute((batch, ceil_blocks(last + 1), *spatial, LANES), value, name="pack_texels")


def unpack(x: Any, channels: int) -> Any:
    """``(N, ceil(C/4), …, 4)`` to ``(N, C, …)``."""
    from tvm import te

    batch, _blocks, *spatial, _lanes = x.shape
    return te.compute(
        (batch, channels, *spatial),
        lambda n, c, *at: x(n, c // LANES, *at, c % LANES),
        name="unpack_texels",
    )


def convolution(x: Any, weight: Any, window: Window, groups: int, out_dtype: str) -> Any:
    """A convolution with a blocked weight, blocked; accumulates in *out_dtype*.

    Args:
        x: the data, blocked or plain (which its rank tells).
        groups: each group's output channels are whole blocks, or the convolution is
            depthwise: only then all lanes of an output texel read the same input
            channel, or each its own.
    """
    from tvm import te, tirx

    out_blocks, group_inputs, *kernel, _ = weight.shape
    blocked = len(x.shape) == len(weight.shape)
    spatial = [int(extent) for extent in (x.shape[2:-1] if blocked else x.shape[2:])]
    extents = window.extents(spatial)
    depthwise = groups > 1 and int(group_inputs) == 1 and groups > (int(out_blocks) - 1) * LANES
    channel = te.reduce_axis((0, group_inputs), "channel")
    taps = [te.reduce_axis((0, size), f"tap{axis}") for axis, size in enumerate(kernel)]

    def value(n: Any, block: Any, position: Sequence[Any], lane: Any) -> Any:
        if depthwise and blocked:
            return padded(lambda *at: x(n, block, *at, lane), position, taps, window, spatial, x.dtype)
        if depthwise:
            source = tirx.min(block * LANES + lane, groups - 1)
        else:
            source = channel if groups == 1 else block // (out_blocks // groups) * group_inputs + channel
        if blocked:
            read = lambda *at: x(n, source // LANES, *at, source % LANES)  # noqa: E731
        else:
            read = lambda *at: x(n, source, *at)  # noqa: E731
        return padded(read, position, taps, window, spatial, x.dtype)

    return te.compute(
        (x.shape[0], out_blocks, *extents, LANES),
        lambda n, block, *at: te.sum(
            value(n, block, at[:-1], at[-1]).astype(out_dtype)
            * weight(block, channel, *taps, at[-1]).astype(out_dtype),
            axis=[channel, *taps],
        ),
        name="conv_texels",
    )


def pool(x: Any, window: Window, kind: str, count_padding: bool) -> Any:
    """The *kind* (``max`` or ``avg``) of the values in each window, blocked."""
    from tvm import te, tirx

    batch, blocks, *axes, _ = x.shape
    spatial = [int(extent) for extent in axes]
    shape = (batch, blocks, *window.extents(spatial), LANES)
    taps = [te.reduce_axis((0, size), f"tap{axis}") for axis, size in enumerate(window.kernel)]

    def value(n: Any, c: Any, at: Sequence[Any], outside: Any = None) -> Any:
        read = lambda *place: x(n, c, *place, at[-1])  # noqa: E731
        return padded(read, at[:-1], taps, window, spatial, x.dtype, outside)

    if kind == "max":
        lowest = te.min_value(x.dtype)
        return te.compute(
            shape,
            lambda n, c, *at: te.max(value(n, c, at, lowest), axis=taps),
            name="max_texels",
        )
    accumulated = "float32"
    total = te.compute(
        shape,
        lambda n, c, *at: te.sum(value(n, c, at).astype(accumulated), axis=taps),
        name="sum_texels",
    )

    def mean(n: Any, c: Any, *at: Any) -> Any:
        count: Any = 1
        for axis, position in enumerate(at[:-1]):
            first = position * window.strides[axis] - window.before[axis]
            if count_padding or not (window.before[axis] or window.after[axis]):
                count = count * window.kernel[axis]
            else:
                last = tirx.min(first + window.kernel[axis], int(spatial[axis]))
                count = count * tirx.max(last - tirx.max(first, 0), 1)
        return (total(n, c, *at) / tirx.Cast(accumulated, count)).astype(x.dtype)

    return te.compute(shape, mean, name="mean_texels")


def padded(
    read: Callable[..., Any],
    position: Sequence[Any],
    taps: Sequence[Any],
    window: Window,
    spatial: Sequence[int],
    dtype: str,
    outside: Any = None,
) -> Any:
    """What *read* gives under a window's tap; *outside* (by default 0) in the padding."""
    from tvm import te, tirx

    at = [
        place * stride + tap * spread - low
        for place, stride, tap, spread, low in zip(
            position, window.strides, taps, window.dilation, window.before, strict=True
        )
    ]
    inside = []
    for index, extent, low, high in zip(at, spatial, window.before, window.after, strict=True):
        if low:
            inside.append(index >= 0)
        if low or high:
            inside.append(index < extent)
    if not inside:
        return read(*at)
    return tirx.if_then_else(te.all(*inside), read(*at), tirx.const(0, dtype) if outside is None else outside)
