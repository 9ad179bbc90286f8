"""Textures or buffers, for each convolution and matrix product that could have either.

Of a GPU without textures the choice is between blocked and plain channels, both in buffers.

Textures (or blocks) are taken where their kernels, which read four channels at once, use each texel
that they read again and again. Four cases are left out in which that does not hold: a vector times a
matrix; too many lanes of the output's texels would be to spare; packing the input would move about as
much as the convolution reads; a convolution of points does too little with what it moves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from adt.compiler.passes.layout.signature import Signature
from adt.compiler.passes.layout.walk import Choice, Moves
from adt.compiler.targets.gpu import ANY_ADRENO, Gpu
from adt.package.reports import LANES

LANES_USED = 2 / 3
"""Share of the lanes of an output's texels that must hold a channel."""
WORTH_PACKING = 2
"""The convolution reads this times as many texels, at least, as packing its input moves."""
LEAST_WORK = 40
"""Multiply-adds for each texel of input and output, from which on a convolution of points is taken whose
input could as well be plain. On an NVIDIA H200 the one of eight networks that has fewer (16 channels to 16)
took 1.8 times as long as its twin, and those of 43 to 57 took 0.9 to 1.4 times as long."""


@dataclass(frozen=True)
class TextureChooser:
    """Chooser by a model of what a kernel reads, unless it is told the answer."""

    setting: str = "auto"
    """``always``: textures wherever they can be; ``never``: the model is not walked at all."""
    gpu: Gpu = ANY_ADRENO

    def choose(self, computes: Signature, channels: int, moves: Moves) -> Choice:
        """See :data:`~adt.compiler.passes.layout.walk.Chooser`; blocked tensors are for textures."""
        if self.setting == "always":
            return Choice(True, "asked for (texture_choice)")
        if channels < LANES_USED * computes.outputs:
            return Choice(False, f"{channels} output channels leave {computes.outputs - channels} lanes idle")
        if not computes.positions and not computes.grouped and not moves.unpack:
            return Choice(False, "each weight is used once, which blocks make no faster")
        reuse = multiply_adds_per_texel(computes, self.gpu)
        texel = LANES * (2 if computes.dtype == "float16" else 4)
        if computes.macs / reuse < WORTH_PACKING * 2 * moves.pack / texel:
            return Choice(False, "packing its input would move about as much as it reads")
        if not moves.unpack and (work := work_per_texel(computes)) < LEAST_WORK:
            return Choice(False, f"{work:.2g} multiply-adds for each texel that it moves")
        return Choice(True, f"up to {reuse:.2g} multiply-adds for each texel read")


ALWAYS = TextureChooser("always")
BY_MODEL = TextureChooser()
"""Nothing is known of the GPU but that it is an Adreno."""


def work_per_texel(computes: Signature) -> float:
    """Count multiply-adds of a convolution of points for each texel; infinity for others."""
    if computes.taps or computes.grouped:
        return math.inf
    return LANES * computes.channels * computes.outputs / (computes.channels + computes.outputs)


def multiply_adds_per_texel(computes: Signature, gpu: Gpu) -> float:
    """Return the multiply-adds of a kernel for each texel read, with as many sums as *gpu* allows.

    A work-item sums ``p`` neighbouring positions and ``b`` blocks of four output channels. For each four
    input channels under a tap it reads ``p`` texels of input and ``4 * b`` of weight, and multiplies
    ``16 * p * b`` times. A depthwise one multiplies the lanes of a row of each.
    """
    width = computes.positions[-1] if computes.positions else 1
    if computes.grouped and computes.channels == 1:
        positions = min(gpu.sums, width, 4)
        stride = computes.strides[-1] if computes.strides else 1
        taps = computes.taps[-1] if computes.taps else 1
        return LANES * positions * taps / ((positions - 1) * stride + taps + taps)
    best = 1.0
    for positions in (1, 2, 4, 8):
        blocks = min(gpu.sums // positions, computes.outputs // LANES, 4)
        if blocks and positions <= max(1, math.prod(computes.positions)):
            best = max(best, LANES * LANES * positions * blocks / (positions + LANES * blocks))
    return best
