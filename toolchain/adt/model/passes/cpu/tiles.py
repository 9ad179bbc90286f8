"""How many sums of a convolution or product are kept in registers at once."""

from __future__ import annotations

from dataclasses import dataclass

from adt.model.passes.cpu.vectors import Vectors

LEAST_SUMS = 8
"""Multiply-adds that must be under way: two units of a latency of four."""
MOST_PIXELS = 16
"""Positions of a tile: more are more code, and no faster."""
FEW = 16
"""Registers beside which the values of the positions have no room: each is read for every multiply-add.
Where there are more, LLVM keeps them, and spills when they are too many (14×2 on AVX-512: half the speed)."""
RAGGED = 1.4
"""What a split costs that leaves a rest: each position asks whether it is there."""


@dataclass(frozen=True)
class Tile:
    """The sums of a tile: positions along a row and of rows, blocks of output channels."""

    wide: int
    high: int
    deep: int


def best_tile(width: int, height: int, depth: int, vectors: Vectors) -> Tile:
    """The tile by which a multiply-add takes least.

    Each step loads ``deep`` vectors of weights and one value for each position; loads beyond the
    multiply-adds wait for one another. On a Sapphire Rapids 7×2 and 4×4 sums reach 93 to 99 % of the peak
    with AVX-512, 14×1 and 4×2 some 93 to 99 % with AVX2.

    Args:
        width, height: positions of the output along both axes.
        depth: blocks of output channels.
    """
    best, least = Tile(1, 1, 1), float("inf")
    for deep in range(1, min(depth, 6) + 1):
        if depth % deep:
            continue
        for wide in range(1, min(width, MOST_PIXELS) + 1):
            for high in range(1, min(height, 4) + 1):
                pixels = wide * high
                sums = pixels * deep
                held = _held(pixels, deep, vectors)
                if sums + held > vectors.registers or pixels > MOST_PIXELS:
                    continue
                loads = max(0, pixels + deep - sums)
                cost = (max(sums, LEAST_SUMS) + 0.5 * loads + 0.1 * pixels + 0.3 * deep + 1) / sums
                cost = (cost + 0.02 * (high > 1)) * _waste(width, wide) * _waste(height, high)
                if cost < least:
                    best, least = Tile(wide, high, deep), cost
    return best


def _held(pixels: int, deep: int, vectors: Vectors) -> int:
    """Registers beside the sums: of the values of each position, and of weights."""
    if vectors.registers > FEW:
        return deep + pixels
    return 4 * deep + pixels if vectors.by_element else deep + 1  # for armv7 LLVM loads four channels ahead


def _waste(extent: int, size: int) -> float:
    """How much more than *extent* its parts of *size* compute."""
    rounded = -(-extent // size) * size
    return 1.0 if rounded == extent else RAGGED * rounded / extent
