"""Extents of a convolution or matrix product, whatever the layout, the schedule and what follows it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tvm import tirx

from adt.compiler.ir.nodes import tir_nodes
from adt.compiler.passes.layout.blocks import ceil_blocks
from adt.package.reports import LANES

SPATIAL, REDUCE = 0, 2  # TVM's kinds of block iterators
WEIGHT_AXES = 4  # number of axes of a blocked weight: blocks, taps, input channels, lanes


@dataclass(frozen=True)
class Signature:
    """One convolution or matrix product."""

    dtype: str
    """Type of the data."""
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
    """Make the signature of a convolution by ``(O, I/groups, kernel…)`` to ``(N, O, spatial…)``."""
    window = list(zip(weight[2:], output[2:], strict=True))
    taps = tuple(size for size, extent in window if size > 1 and extent > 1)
    axes = [(output[0], 1), *zip(output[2:], strides, strict=True)]
    positions, steps = (tuple(pair[part] for pair in axes if pair[0] > 1) for part in (0, 1))
    if positions and not taps and all(step == 1 for step in steps):
        positions, steps = (math.prod(positions),), (1,)
    return Signature(
        dtype,
        ceil_blocks(weight[0]) * LANES,
        positions,
        channels=weight[1] * math.prod(size for size, extent in window if extent == 1),
        taps=taps,
        strides=steps,
        grouped=groups > 1,
    )


def product(dtype: str, rows: Sequence[int], inputs: int, outputs: int) -> Signature:
    """Make the signature of a product by constants; *rows* are the result's extents before *outputs*."""
    return convolution(dtype, (outputs, inputs), (math.prod(rows), outputs), (), 1)


def reduces(block: tirx.SBlock) -> bool:
    """Return True if a TIR block accumulates."""
    return any(int(axis.iter_type) != SPATIAL for axis in block.iter_vars)


def variables_of(indices: Sequence[tirx.PrimExpr]) -> set[tirx.Var]:
    return {variable for index in indices for variable in tir_nodes(index, tirx.Var)}
