"""Operators on blocked tensors, as tensor expressions.

A blocked tensor holds the channels of ``(N, C, spatial…)`` in blocks of four: ``(N, ceil(C/4), spatial…,
4)``. The last axis is one texel of an image. Lanes beyond the last channel hold anything, and nothing that
computes a channel reads them. Weights of a convolution ``(O, I/groups, kernel…)`` become ``(ceil(O/4), taps,
I/groups, 4)``, those of a depthwise one ``(1, ceil(C/4), taps, 4)``: an array of images, too, of which a
texel holds what four output channels multiply with one input value. The kernel's axes are one, "taps".

TVM's own convolutions for this layout know neither groups nor another
accumulator type, and pad in a kernel of their own; these pad where they read.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import te, tirx

from adt.compiler.passes import words
from adt.package.reports import LANES

STAGE = "window_blocks"  # the block of a convolution that reads its input, and zeros for the border
WEIGHTS = "weight_blocks"  # the block of a product that makes floats of packed weights
LOOKUP = "adt.lookup"  # attribute of a kernel that looks up each element of a tensor in a table
RANKS = (3, 4, 5)  # numbers of axes of a plain tensor that is blocked
BYTES = ("int8", "uint8")
FLOATS = ("float32", "float16")  # types that an image can hold: four channels of either are one texel


@dataclass(frozen=True)
class Terms:
    """Terms that one instruction adds to each lane of sums of integers."""

    count: int
    """Products of as many neighbouring channels."""
    data: str
    """Types of what is multiplied."""
    weights: str
    steps: int = 1
    """Instructions for which channels come together."""
    rows: int = 1
    """Positions of a row for which they come together."""

    @property
    def channels(self) -> int:
        """Number of channels that come together."""
        return self.count * self.steps


@dataclass(frozen=True)
class Blocking:
    """Number of channels in one block, and the tensors that are worth it."""

    lanes: int
    """Channels of a block: those of a texel, or of a vector register."""
    least: int
    """Fewest channels of a tensor that is blocked."""
    rounds: bool
    """Rows that no tile divides are computed a little longer."""
    widens: bool = False
    """True if what a convolution multiplies gets the type of its sums before, weights by the compiler: a
    processor converts more slowly than it multiplies."""
    types: tuple[str, ...] = FLOATS
    """Types of tensors that are blocked."""
    terms: tuple[Terms, ...] = ()
    """Ways to compute sums of integers, where they are, the best first."""
    words: bool = False
    """True if words are multiplied of these: see :mod:`adt.compiler.passes.words`."""

    def count(self, channels: int) -> int:
        """Return the number of blocks that hold *channels*."""
        return ceil_blocks(channels, self.lanes)

    def terms_of(self, channels: int, row: int) -> Terms:
        """Return how sums over *channels* are computed, for a *row* of that many positions."""
        return next(
            terms
            for terms in self.terms
            if terms.rows == 1 or channels % terms.count == 0 == row % terms.rows
        )

    def rows_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape in rows of the plain *shape*: each row is a blocked tensor of one pixel."""
        return (math.prod(shape[:-1]), self.count(shape[-1]), 1, 1, self.lanes)


TEXELS = Blocking(LANES, least=LANES, rounds=True)


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
    border: int = 0
    """Value of the padding."""

    def extents(self, inputs: Sequence[int]) -> tuple[int, ...]:
        """Return the output extents for the input extents *inputs*."""
        return tuple(
            (extent + low + high - (size - 1) * spread - 1) // stride + 1
            for extent, size, stride, low, high, spread in zip(
                inputs, self.kernel, self.strides, self.before, self.after, self.dilation, strict=True
            )
        )

    def taps(self) -> tuple[list[tirx.IterVar], tirx.PrimExpr]:
        """Make the axes of the taps, and the number of a tap in the kernel."""
        axes = [te.reduce_axis((0, size), f"tap{axis}") for axis, size in enumerate(self.kernel)]
        number: tirx.PrimExpr = 0
        for size, axis in zip(self.kernel, axes, strict=True):
            number = number * size + axis
        return axes, number

    def places(self, at: Sequence[tirx.PrimExpr], taps: Sequence[tirx.PrimExpr]) -> list[tirx.PrimExpr]:
        """Return where in the input with its border the *taps* of the window *at* a position lie."""
        steps = zip(at, self.strides, taps, self.dilation, strict=True)
        return [place * stride + tap * spread for place, stride, tap, spread in steps]

    def widened(self, before: Sequence[int], after: Sequence[int]) -> Window:
        """Return the window over an input with that much more padding."""
        return replace(
            self,
            before=tuple(a + b for a, b in zip(self.before, before, strict=True)),
            after=tuple(a + b for a, b in zip(self.after, after, strict=True)),
        )


def ceil_blocks(channels: int, lanes: int = LANES) -> int:
    """Return the number of blocks of *lanes* that hold *channels*."""
    return -(-channels // lanes)


def merged_groups(groups: int, outputs: int, lanes: int) -> int:
    """Return how many of *groups* with *outputs* each are whole blocks together."""
    count = lanes // math.gcd(outputs, lanes)
    return count if groups % count == 0 else groups


def pack(x: te.Tensor, lanes: int = LANES) -> te.Tensor:
    """Pack ``(N, C, …)`` into ``(N, ceil(C/lanes), …, lanes)``."""
    batch, channels, *spatial = x.shape

    last = int(channels) - 1

    def value(n: tirx.PrimExpr, c: tirx.PrimExpr, *at: tirx.PrimExpr) -> tirx.PrimExpr:
        channel = c * lanes + at[-1]
        # A condition on the lane could not be computed as a vector; reading the last one again can.
        return x(n, channel if (last + 1) % lanes == 0 else tirx.min(channel, last), *at[:-1])

    return te.compute((batch, ceil_blocks(last + 1, lanes), *spatial, lanes), value, name="pack_blocks")


def unpack(x: te.Tensor, channels: int) -> te.Tensor:
    """Unpack ``(N, ceil(C/4), …, 4)`` into ``(N, C, …)``."""
    batch, _blocks, *spatial, lanes = x.shape
    return te.compute(
        (batch, channels, *spatial), lambda n, c, *at: x(n, c // lanes, *at, c % lanes), name="unpack_blocks"
    )


def packed(array: NDArray[np.generic], axis: int, lanes: int = LANES) -> NDArray[np.generic]:
    """Block the numpy *array*'s *axis*, with zeros in the lanes to spare; the lanes come last."""
    extent = array.shape[axis]
    count = ceil_blocks(extent, lanes)
    spare = [(0, count * lanes - extent if at == axis else 0) for at in range(array.ndim)]
    shape = (*array.shape[:axis], count, lanes, *array.shape[axis + 1 :])
    return np.ascontiguousarray(np.moveaxis(np.pad(array, spare).reshape(shape), axis + 1, -1))


def part(x: te.Tensor, first: int, count: int) -> te.Tensor:
    """Take *count* blocks of the blocked tensor *x*, from the block *first* on."""
    return te.compute(
        (x.shape[0], count, *x.shape[2:]), lambda n, c, *at: x(n, c + first, *at), name="part_blocks"
    )


def floats(x: te.Tensor) -> te.Tensor:
    """Convert the integers *x* to floats."""
    return te.compute(x.shape, lambda *at: x(*at).astype("float32"), name="float_blocks")


def lookup(table: te.Tensor, index: tirx.PrimExpr, dtype: str) -> te.Tensor:
    """Look up what *table* has at each element of *index*, as *dtype*."""
    return te.compute(index.shape, lambda *at: table[index(*at)].astype(dtype), name="lookup")


def extremes(rows: te.Tensor) -> te.Tensor:
    """Compute the greatest number of each of *rows*, and the least, negated: ``(2, rows)``."""
    term = te.reduce_axis((0, rows.shape[1]), "term")
    return te.compute(
        (2, rows.shape[0]),
        lambda sign, row: te.max(te.if_then_else(sign == 0, rows[row, term], -rows[row, term]), axis=term),
        name="extremes",
    )


def extreme(both: te.Tensor, place: int) -> te.Tensor:
    """Take the scalar at *place* of what :func:`extremes` gives of one row."""
    return te.compute((), lambda: -both[place] if place else both[place], name="extreme")


def scaled(x: te.Tensor, gate: te.Tensor) -> te.Tensor:
    """Multiply the blocked tensor *x* by *gate*, which has one pixel."""
    ones = (0,) * (len(x.shape) - 3)
    return te.compute(
        x.shape, lambda n, c, *at: x(n, c, *at) * gate(n, c, *ones, at[-1]), name="scaled_blocks"
    )


def interleaved(
    x: te.Tensor, blocks: int, groups: int, steps: Sequence[int], first: Sequence[int], shape: Sequence[int]
) -> te.Tensor:
    """Interleave the pixels of the blocked tensor *x*, whose blocks for each place in a step are adjacent.

    *shape* has the spatial extents of the result and *blocks* its blocks, of *groups*, whose parts in *x* are
    the places in a step: *steps* pixels for one of *x* along each axis, *first* the place of the first one.
    """
    each, places = blocks // groups, math.prod(steps)

    def value(n: tirx.PrimExpr, c: tirx.PrimExpr, *at: tirx.PrimExpr) -> tirx.PrimExpr:
        place, where = _place_in_step(at[:-1], steps, first)
        return x(n, (c // each * places + place) * each + c % each, *where, at[-1])

    return te.compute((x.shape[0], blocks, *shape, x.shape[-1]), value, name="interleaved_blocks")


def interleaved_channels(
    x: te.Tensor, channels: int, steps: Sequence[int], first: Sequence[int], shape: Sequence[int]
) -> Any:
    """Interleave as :func:`interleaved`, but plain, of so few *channels* that places share blocks."""
    lanes = int(x.shape[-1])

    def value(n: tirx.PrimExpr, c: tirx.PrimExpr, *at: tirx.PrimExpr) -> tirx.PrimExpr:
        place, where = _place_in_step(at, steps, first)
        channel = place * channels + c
        return x(n, channel // lanes, *where, channel % lanes)

    return te.compute((x.shape[0], channels, *shape), value, name="interleaved_channels")


def _place_in_step(
    at: Sequence[tirx.Var], steps: Sequence[int], first: Sequence[int]
) -> tuple[tirx.PrimExpr, list[tirx.PrimExpr]]:
    """Return the number of the pixel *at* in its step, and which step that is along each axis."""
    place: tirx.PrimExpr = 0
    for index, step, start in zip(at, steps, first, strict=True):
        place = place * step + (index + start) % step
    return place, [(index + start) // step for index, step, start in zip(at, steps, first, strict=True)]


def enlarged(x: te.Tensor, scales: Sequence[int]) -> te.Tensor:
    """Repeat each pixel of the blocked tensor *x* *scales* times along the spatial axes."""
    batch, count, *spatial, lanes = x.shape
    return te.compute(
        (batch, count, *(extent * scale for extent, scale in zip(spatial, scales, strict=True)), lanes),
        lambda n, c, *at: x(
            n, c, *(place // scale for place, scale in zip(at[:-1], scales, strict=True)), at[-1]
        ),
        name="enlarged_blocks",
    )


def convolution(
    x: te.Tensor,
    weight: te.Tensor,
    window: Window,
    groups: int,
    out_dtype: str,
    blocking: Blocking = TEXELS,
    multiply: Callable[[tirx.PrimExpr, tirx.PrimExpr], tirx.PrimExpr] = operator.mul,
) -> te.Tensor:
    """Convolve with a blocked weight to a blocked result; accumulates products by *multiply* in *out_dtype*.

    *x* is blocked or plain, which its rank tells; *weight* ``(ceil(O/4), taps, I/groups, 4)``, or of a
    depthwise convolution ``(1, ceil(C/4), taps, 4)``. Each group's output channels are whole blocks, unless
    it is depthwise: only so all lanes of an output texel read the same input channel, or each its own.
    """
    # A group's outputs are whole blocks: with a single one there is one group, or one for each channel.
    depthwise = groups > 1 and int(weight.shape[0]) == 1
    out_blocks, group_inputs = (weight.shape[1], 1) if depthwise else (weight.shape[0], weight.shape[2])
    blocked = len(x.shape) == len(window.kernel) + 3
    spatial = [int(extent) for extent in (x.shape[2:-1] if blocked else x.shape[2:])]
    extents = window.extents(spatial)
    computed = divisible(extents) if blocking.rounds else extents
    lanes = int(weight.shape[-1])
    channel = te.reduce_axis((0, group_inputs), "channel")
    taps, tap = window.taps()
    staged = _staged(x, window, computed, out_dtype if blocking.widens else x.dtype)

    def value(
        n: tirx.PrimExpr, block: tirx.PrimExpr, position: Sequence[tirx.Var], lane: tirx.PrimExpr
    ) -> tirx.PrimExpr:
        at = window.places(position, taps)
        if depthwise and blocked:
            return staged(n, block, *at, lane)
        if depthwise:
            source = tirx.min(block * lanes + lane, groups - 1)
        else:
            source = channel if groups == 1 else block // (out_blocks // groups) * group_inputs + channel
        return staged(n, source // lanes, *at, source % lanes) if blocked else staged(n, source, *at)

    def factor(block: tirx.PrimExpr, lane: tirx.PrimExpr) -> tirx.PrimExpr:
        return weight(channel, block, tap, lane) if depthwise else weight(block, tap, channel, lane)

    sums = te.compute(
        (x.shape[0], out_blocks, *computed, lanes),
        lambda n, block, *at: te.sum(
            multiply(
                value(n, block, at[:-1], at[-1]).astype(out_dtype), factor(block, at[-1]).astype(out_dtype)
            ),
            axis=[channel, *taps],
        ),
        name="conv_blocks",
    )
    if computed == extents:
        return sums
    # The cut is computed where it is read.
    return te.compute((x.shape[0], out_blocks, *extents, lanes), lambda *at: sums(*at), name="cut_blocks")


def convolution_of_terms(x: te.Tensor, weight: te.Tensor, window: Window, terms: Terms) -> te.Tensor:
    """Convolve blocked integers in int32 by ``(ceil(O/L), taps, I/terms, L, terms)``, zero-padded."""
    lanes, wide = int(weight.shape[-2]), int(x.shape[-1])
    extents = window.extents([int(extent) for extent in x.shape[2:-1]])
    channel = te.reduce_axis((0, weight.shape[2]), "channel")
    taps, tap = window.taps()
    term = te.reduce_axis((0, terms.count), "term")
    staged = _staged(x, window, extents, terms.data)

    def product(n: tirx.PrimExpr, block: tirx.PrimExpr, *at: tirx.PrimExpr) -> tirx.PrimExpr:
        places = window.places(at[:-1], taps)
        value = staged(n, *_place_in_blocks(channel, term, terms.count, wide, places))
        return value.astype("int32") * weight(block, tap, channel, at[-1], term).astype("int32")

    return te.compute(
        (x.shape[0], weight.shape[0], *extents, lanes),
        lambda *at: te.sum(product(*at), axis=[channel, *taps, term]),
        name="conv_blocks",
    )


def convolution_of_words(x: te.Tensor, weight: te.Tensor, window: Window, blocking: Blocking) -> te.Tensor:
    """Convolve blocked integers in int32 by words ``(ceil(O/4), taps, ceil(I/4), 4)``, zero-padded."""
    read = te.compute(x.shape[:-1], lambda *at: words.word(lambda lane: x(*at, lane)), name="words")
    border = replace(window, border=words.repeated(window.border))
    return convolution(read, weight, border, 1, words.SUMS, blocking, words.dot)


def _place_in_blocks(
    group: tirx.PrimExpr, term: tirx.PrimExpr, count: int, lanes: int, places: Sequence[tirx.PrimExpr]
) -> tuple[Any, ...]:
    """Return where in blocks of *lanes* lanes the channel *term* of a *group* of *count* is."""
    if count > lanes:
        return (group * (count // lanes) + term // lanes, *places, term % lanes)
    each = lanes // count
    return (group // each, *places, group % each * count + term)


def is_convolution(function: tirx.PrimFunc) -> bool:
    """Return True if the unscheduled TIR *function* is a convolution on blocked tensors."""
    blocks = getattr(function.body.block, "alloc_buffers", ())
    return any(buffer.name.startswith(STAGE) for buffer in blocks)


def divisible(extents: Sequence[int]) -> tuple[int, ...]:
    """Round a row whose length (13, 17, 73, 149) allows one texel a work-item up to a multiple of four."""
    *others, row = extents
    hard = row > 2 * LANES and all(row % size for size in range(3, 2 * LANES + 1))
    return (*others, row + -row % LANES if hard else row)


def _staged(x: te.Tensor, window: Window, outputs: Sequence[int], dtype: str) -> te.Tensor:
    """Return *x* with its border, which the windows of *outputs* cover, as *dtype*: a stage for registers."""
    spatial = [int(extent) for extent in x.shape[2 : 2 + len(outputs)]]
    covered = [
        (extent - 1) * stride + (size - 1) * spread + 1
        for extent, size, stride, spread in zip(
            outputs, window.kernel, window.strides, window.dilation, strict=True
        )
    ]
    # What lies beyond the output's end may reach further than the border does.
    after = [
        max(high, covers - low - extent)
        for high, covers, low, extent in zip(window.after, covered, window.before, spatial, strict=True)
    ]
    ones = (1,) * len(spatial)
    border = Window(ones, ones, window.before, tuple(after), ones)
    outside = tirx.const(window.border, x.dtype)

    def value(n: tirx.PrimExpr, c: tirx.PrimExpr, *at: tirx.PrimExpr) -> tirx.PrimExpr:
        place, lane = at[: len(spatial)], at[len(spatial) :]
        read = lambda *where: x(n, c, *where, *lane)  # noqa: E731
        return padded(read, place, (0,) * len(spatial), border, spatial, outside).astype(dtype)

    return te.compute((*x.shape[:2], *covered, *x.shape[2 + len(outputs) :]), value, name=STAGE)


def pool(x: te.Tensor, window: Window, kind: str, count_padding: bool) -> te.Tensor:
    """Compute the *kind* (``max``, ``avg`` or EXTREMUM) of the values in each window, blocked."""
    batch, blocks, *axes, lanes = x.shape
    spatial = [int(extent) for extent in axes]
    shape = (batch, blocks, *window.extents(spatial), lanes)
    taps, _ = window.taps()

    def value(
        n: tirx.PrimExpr, c: tirx.PrimExpr, at: Sequence[tirx.PrimExpr], outside: tirx.PrimExpr
    ) -> tirx.PrimExpr:
        read = lambda *place: x(n, c, *place, at[-1])  # noqa: E731
        return padded(read, at[:-1], taps, window, spatial, outside)

    if kind != "avg":
        lowest = te.min_value(x.dtype)
        return te.compute(
            shape, lambda n, c, *at: te.max(value(n, c, at, lowest), axis=taps), name=f"{kind}_blocks"
        )
    zero = tirx.const(0, x.dtype)
    total = te.compute(
        shape, lambda n, c, *at: te.sum(value(n, c, at, zero).astype("float32"), axis=taps), name="sum_blocks"
    )

    def mean(n: tirx.PrimExpr, c: tirx.PrimExpr, *at: tirx.PrimExpr) -> tirx.PrimExpr:
        count: tirx.PrimExpr = 1
        for axis, position in enumerate(at[:-1]):
            first = position * window.strides[axis] - window.before[axis]
            if count_padding or not (window.before[axis] or window.after[axis]):
                count = count * window.kernel[axis]
            else:
                last = tirx.min(first + window.kernel[axis], int(spatial[axis]))
                count = count * tirx.max(last - tirx.max(first, 0), 1)
        return (total(n, c, *at) / tirx.Cast("float32", count)).astype(x.dtype)

    return te.compute(shape, mean, name="mean_blocks")


def padded(
    read: Callable[..., tirx.PrimExpr],
    position: Sequence[tirx.Var],
    taps: Sequence[tirx.PrimExpr],
    window: Window,
    spatial: Sequence[int],
    outside: tirx.PrimExpr,
) -> tirx.PrimExpr:
    """Return what *read* gives under a window's tap; *outside* in the padding."""
    at = [place - low for place, low in zip(window.places(position, taps), window.before, strict=True)]
    inside = []
    for index, extent, low, high in zip(at, spatial, window.before, window.after, strict=True):
        if low:
            inside.append(index >= 0)
        if low or high:
            inside.append(index < extent)
    if not inside:
        return read(*at)
    return tirx.if_then_else(te.all(*inside), read(*at), outside)
