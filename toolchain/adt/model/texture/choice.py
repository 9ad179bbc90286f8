"""Texture or buffers, for each convolution and matrix product that could have either.

Where kernels of both forms were measured on the device that is compiled for (``adt tune``
for ``adreno`` and for ``adreno-buffer`` into one database), the times decide. A form that
its neighbours do not have costs a kernel that packs or unpacks a tensor, which is
counted with what such a kernel takes at least on that device.

Where nothing was measured, textures are taken: their kernels read four channels at once
and use each texel that they read again and again. Three cases are left out in which that
does not hold: a vector times a matrix; too many lanes of the output's texels would be to
spare; packing the input would move about as much as the convolution reads.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection
from dataclasses import dataclass

from adt.errors import ConfigError
from adt.model.targets.gpu import ANY_ADRENO, Gpu
from adt.model.texture.blocks import LANES
from adt.model.texture.measured import Measured, measured
from adt.model.texture.signature import Signature
from adt.model.tuning.tuning import Tuning
from adt.options.resolve import did_you_mean

CHOICES = ("auto", "always")
"""What the setting ``compile.texture_choice`` may be."""

CLEARLY = 1.1
"""By how much buffers must be faster, packing and unpacking included, to be taken: two measurements
of the same kernel differ by some percent."""
SLOWEST = 1.5
"""A kernel with textures is never taken that takes longer than this times its twin in buffers."""
LANES_USED = 2 / 3
"""Share of the lanes of an output's texels that must hold a channel."""
WORTH_PACKING = 2
"""The convolution reads this times as many texels, at least, as packing its input moves."""
LEAST_WORK = 40
"""Multiply-adds for each texel of input and output, from which on a convolution of points is taken whose
input could as well be plain. On an NVIDIA H200 the one of eight networks that has fewer (16 channels to 16)
took 1.8 times as long as its twin, and those of 43 to 57 took 0.9 to 1.4 times as long."""


@dataclass(frozen=True)
class Moves:
    """What the neighbours of a convolution cost, in bytes of the tensors that would be moved."""

    pack: int = 0
    """Of the input, if textures want it packed first."""
    unpack: int = 0
    """Of the input, if buffers want it unpacked first."""
    output: int = 0
    """Of the output, which is packed after a convolution in buffers."""


@dataclass(frozen=True)
class Choice:
    """What a convolution gets, and why."""

    textures: bool
    why: str

    @property
    def told(self) -> tuple[str, str]:
        """Why it is in buffers, and why it is in textures: one of them is empty."""
        return ("", self.why) if self.textures else (self.why, "")


@dataclass(frozen=True)
class Chooser:
    """How it is chosen."""

    always: bool = False
    """Textures wherever they can be."""
    measured: Measured | None = None
    """Times of the device that is compiled for."""
    gpu: Gpu = ANY_ADRENO

    def choose(self, computes: Signature, channels: int, moves: Moves) -> Choice:
        """What *computes* gets, of which both forms are possible.

        Args:
            channels: of the output, those that are not to spare.
            moves: what the neighbours cost.
        """
        if self.always:
            return Choice(True, "asked for (texture_choice)")
        if self.measured is not None:
            texture = self.measured.textures.get(computes)
            buffer = self.measured.buffers.get(computes)
            if texture is not None and buffer is not None:
                return _by_times(texture, buffer, moves, self.measured)
        return self._by_model(computes, channels, moves)

    def without(self, computed: Collection[Signature]) -> Chooser:
        """The same, if no record applies to buffers' kernels of *computed*."""
        assert self.measured is not None  # only then a record was counted on
        return dataclasses.replace(self, measured=self.measured.untuned_for(computed))

    def _by_model(self, computes: Signature, channels: int, moves: Moves) -> Choice:
        if channels < LANES_USED * computes.outputs:
            return Choice(False, f"{channels} output channels leave {computes.outputs - channels} lanes idle")
        if not computes.positions and not computes.grouped and not moves.unpack:
            return Choice(False, "each weight is used once, which no texture makes faster")
        reuse = multiply_adds_per_texel(computes, self.gpu)
        texel = LANES * (2 if computes.dtype == "float16" else 4)
        if computes.macs / reuse < WORTH_PACKING * 2 * moves.pack / texel:
            return Choice(False, "packing its input would move about as much as it reads")
        if not moves.unpack and (work := work_per_texel(computes)) < LEAST_WORK:
            return Choice(False, f"{work:.2g} multiply-adds for each texel that it moves")
        return Choice(True, f"up to {reuse:.2g} multiply-adds for each texel read")


ALWAYS = Chooser(always=True)
BY_MODEL = Chooser()
"""Nothing was measured, and nothing is known of the GPU but that it is an Adreno."""


def chooser(setting: str, gpu: Gpu, tuning: Tuning | None) -> Chooser:
    """How it is chosen with these settings, for this GPU, with these records.

    Raises:
        ConfigError: *setting* is none of CHOICES.
    """
    if setting not in CHOICES:
        raise ConfigError(
            f"texture_choice is {setting!r}, which is none of: {', '.join(CHOICES)}."
            + did_you_mean(setting, CHOICES),
            remedy="--texture-choice always puts all into textures that can be there; auto chooses.",
        )
    found = measured(tuning) if tuning is not None and setting == "auto" else None
    return Chooser(setting == "always", found, gpu)


def _by_times(texture: float, buffer: float, moves: Moves, measured: Measured) -> Choice:
    packed = texture + (measured.moving(moves.pack) if moves.pack else 0)
    plain = buffer + sum(measured.moving(size) for size in (moves.unpack, moves.output) if size)
    textures = plain * CLEARLY >= packed and texture <= SLOWEST * buffer
    mine, other = (texture, buffer) if textures else (buffer, texture)
    twin = "buffers" if textures else "textures"
    why = f"{mine / other:.2g} of the time in {twin} ({mine * 1e3:.3g} and {other * 1e3:.3g} ms"
    if textures and texture > buffer:
        why += f", and unpacking and packing take {(plain - buffer) * 1e3:.3g} ms at least"
    return Choice(textures, f"{why}, measured on {measured.device})")


def work_per_texel(computes: Signature) -> float:
    """Multiply-adds of a convolution of points for each texel of its input and output; of others no bound."""
    if computes.taps or computes.grouped:
        return math.inf
    return LANES * computes.channels * computes.outputs / (computes.channels + computes.outputs)


def multiply_adds_per_texel(computes: Signature, gpu: Gpu) -> float:
    """Of a kernel that keeps as many sums in registers as *gpu* allows: arithmetic for each texel it reads.

    A work-item has the sums of ``p`` neighbouring positions and ``b`` blocks of four output
    channels. For each four input channels under a tap it reads ``p`` texels of the input and
    ``4 * b`` of the weight, and multiplies ``16 * p * b`` times. A depthwise convolution reads a row
    of the input and one of the weight, and multiplies each of their lanes by its own.
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
