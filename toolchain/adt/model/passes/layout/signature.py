"""What a convolution or matrix product computes, whatever the layout, the schedule and what follows it.

By this a convolution of a model is found among kernels that were measured: those of
textures and those of buffers, whose tensors have other shapes, and which have other
operators in the same kernel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from adt.model.passes.layout.blocks import LANES, ceil_blocks
from adt.model.passes.nodes import tir_nodes

SPATIAL, REDUCE = 0, 2
"""TVM's kinds of block iterators."""
WEIGHT_AXES = 4
"""Of a blocked weight: blocks, taps, input channels, lanes."""


@dataclass(frozen=True)
class Signature:
    """One convolution or matrix product."""

    dtype: str
    """Of the data."""
    outputs: int
    """Output channels, rounded up to whole texels."""
    positions: tuple[int, ...]
    """Batch, height, width of the output; those of 1 are left out, and a convolution of points has one extent
    for all, whatever their order: it is a matrix product."""
    channels: int
    """Input channels that an output channel is the sum of, times the window's extents along axes where
    it stands still: there they are the same to a kernel."""
    taps: tuple[int, ...]
    """Height and width of the window; left out are those of 1, and those along axes where it stands still."""
    strides: tuple[int, ...]
    """One for each of :attr:`positions`; the batch's is 1."""
    grouped: bool
    """Output channels read different input channels: groups, or depthwise."""

    @property
    def macs(self) -> int:
        """Multiplications with addition, those of lanes to spare too."""
        return self.outputs * math.prod(self.positions) * self.channels * math.prod(self.taps)


def convolution(
    dtype: str, weight: Sequence[int], output: Sequence[int], strides: Sequence[int], groups: int
) -> Signature:
    """The signature of a convolution.

    Args:
        weight: its shape, ``(O, I/groups, kernel…)``.
        output: the result's, ``(N, O, spatial…)``.
        strides: one for each spatial axis.
    """
    axes = [(output[0], 1), *zip(output[2:], strides, strict=True)]
    extents = [(extent, stride) for extent, stride in axes if extent > 1]
    window = list(zip(weight[2:], output[2:], strict=True))
    taps = tuple(size for size, extent in window if size > 1 and extent > 1)
    return Signature(
        dtype,
        ceil_blocks(weight[0]) * LANES,
        channels=weight[1] * math.prod(size for size, extent in window if extent == 1),
        taps=taps,
        grouped=groups > 1,
        **_over(extents, taps),
    )


def product(dtype: str, rows: Sequence[int], inputs: int, outputs: int) -> Signature:
    """The signature of a product by a matrix of constants.

    Args:
        rows: the extents of the result but the last one, which is *outputs*.
    """
    extents = [(extent, 1) for extent in rows if extent > 1]
    return Signature(
        dtype, ceil_blocks(outputs) * LANES, channels=inputs, taps=(), grouped=False, **_over(extents, ())
    )


def _over(positions: Sequence[tuple[int, int]], taps: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """The positions and strides of a signature, for extents above 1 with their strides."""
    if positions and not taps and all(stride == 1 for _, stride in positions):
        return {"positions": (math.prod(extent for extent, _ in positions),), "strides": (1,)}
    return {
        "positions": tuple(extent for extent, _ in positions),
        "strides": tuple(stride for _, stride in positions),
    }


@dataclass(frozen=True)
class KernelSignature:
    """The convolution or matrix product of a kernel."""

    computes: Signature
    blocked: bool
    """Four output channels are computed together, as textures want it."""


def signature_of(function: Any) -> KernelSignature | None:
    """The one convolution or matrix product in a kernel; None where there is none, or two.

    None, too, where a blocked weight is in another order than
    :func:`adt.model.passes.layout.blocks.convolution` wants it: no compile makes such a kernel any more.

    Args:
        function: a PrimFunc that is not scheduled.
    """
    from tvm import tirx

    candidates = (_product_of(block) for block in tir_nodes(function.body, tirx.SBlock))
    products = [product for product in candidates if product is not None]
    return products[0] if len(products) == 1 else None


def _product_of(block: Any) -> KernelSignature | None:
    """What a block computes that adds up products of two tensors' elements."""
    from tvm import tirx

    store = block.body
    sums = [axis for axis in block.iter_vars if int(axis.iter_type) == REDUCE]
    if not sums or not isinstance(store, tirx.BufferStore) or not isinstance(store.value, tirx.Add):
        return None
    times = store.value.b
    if not isinstance(times, tirx.Mul):
        return None
    data, weight = _load(times.a), _load(times.b)
    if data is None or weight is None:
        return None
    return _kernel_signature(block, sums, data, weight)


def _kernel_signature(block: Any, sums: Sequence[Any], data: Any, weight: Any) -> KernelSignature | None:
    extent = {axis.var: int(axis.dom.extent) for axis in block.iter_vars}
    places = [axis.var for axis in block.iter_vars if int(axis.iter_type) != REDUCE]
    of_data, of_weight = variables_of(data.indices), variables_of(weight.indices)
    channel_places = [place for place in places if place in of_weight]
    blocked = len(channel_places) == 2  # blocks, and lanes
    if blocked and len(weight.indices) != WEIGHT_AXES:
        return None
    positions = [place for place in places if place not in of_weight and extent[place] > 1]
    # A tap is summed over at the index that a position is at, too: the window slides.
    sliding = [uses for index in data.indices if (uses := variables_of([index])) & set(positions)]
    at = set().union(*sliding)
    taps = [axis.var for axis in sums if axis.var in at and extent[axis.var] > 1]
    channels = [axis.var for axis in sums if axis.var not in at]
    sizes = tuple(extent[tap] for tap in taps)
    computes = Signature(
        str(data.buffer.dtype),
        ceil_blocks(math.prod(extent[place] for place in channel_places)) * LANES,
        channels=math.prod(extent[axis] for axis in channels),
        taps=sizes,
        grouped=any(place in of_data for place in channel_places),
        **_over([(extent[place], _stride(data, place)) for place in positions], sizes),
    )
    return KernelSignature(computes, blocked)


def _load(expression: Any) -> Any | None:
    """The only element that *expression* reads: itself, cast, or zero in the padding."""
    from tvm import tirx

    loads = tir_nodes(expression, tirx.BufferLoad)
    return loads[0] if len(loads) == 1 else None


def reduces(block: Any) -> bool:
    """Whether a TIR block accumulates."""
    return any(int(axis.iter_type) != SPATIAL for axis in block.iter_vars)


def variables_of(indices: Sequence[Any]) -> set[Any]:
    from tvm import tirx

    return {variable for index in indices for variable in tir_nodes(index, tirx.Var)}


def _stride(data: Any, place: Any) -> int:
    """By how much the window moves over *data* from one position along *place* to the next."""
    from tvm import arith

    for index in data.indices:
        if place in variables_of([index]):
            linear = arith.detect_linear_equation(index, [place])
            return int(linear[0]) if linear else 1
    return 1
