"""Tiles of convolutions and products: the sums that are kept in registers at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from adt.compiler.passes.cpu.vectors import Vectors
from adt.compiler.passes.dot import SUMS
from adt.compiler.passes.precision.half import HALF

LEAST_SUMS = 8
"""Multiply-adds that must be under way: two units of a latency of four."""
MOST_PIXELS = 16
"""Positions of a tile: more are more code, and no faster."""
MOST_TRIED = 100
"""Tiles among which a search chooses."""
RAGGED, RAGGED_BY_ELEMENT = 1.02, 1.4
"""Cost of a row that tiles do not divide: the code of a second tile. On Arm, where that was not timed, as
much as conditions cost."""
FEW = 16
"""Registers beside which the values of the positions have no room: each is read for every multiply-add.
Where there are more, LLVM keeps them, and spills when they are too many (14×2 on AVX-512: half the speed)."""
MOST_HALVES = 12
"""Positions of a tile in half precision: fmla takes an element of registers 0 to 15 only."""
STACK = 1024
"""Bytes from which on TVM has a tile in allocated memory, and LLVM not in registers: 4×4, 8×2 on AVX-512."""
PRODUCTS = 9
"""Registers of products on their way to the sums, and of what is multiplied: LLVM spills on an A53 with 8."""
MOVED = 0.6
"""Cost of a position whose data are brought into lanes by instructions of their own, which take the units
that multiply."""
FEW_SUMS = 12
"""Sums in so few registers: with more LLVM spills (7×2, 14×1 on AVX2)."""


@dataclass(frozen=True)
class Tile:
    """The sums of a tile: positions along a row and of rows, blocks of output channels."""

    wide: int
    high: int
    deep: int


def best_tile(width: int, height: int, depth: int, vectors: Vectors, each: int = 1) -> Tile:
    """Choose the tile with the cheapest multiply-add.

    *width* and *height* are the output's positions, *depth* its blocks of channels; a block of sums takes
    *each* registers. Each step loads ``deep`` vectors of weights and one value for each position; loads
    beyond the multiply-adds wait for one another. On a Sapphire Rapids 7×2, 6×2 and 5×3 sums reach 93 to
    99 % of the peak with AVX-512, with AVX2 3×4, 4×3, 6×2 and 2×6 some 90 to 97 %, 5×2 and 2×5 90 %, 12×1
    and 4×2 86 %. What is left of a row is a tile of its own, without conditions.
    """
    fitting = [
        tile
        for tile in _tiles(width, height, depth, MOST_PIXELS, vectors)
        if height % tile.high == 0 and _fits(tile.wide * tile.high, tile.deep * each, vectors)
    ]
    return min(fitting, key=lambda tile: _cost(tile, width, height, vectors, each), default=Tile(1, 1, 1))


def ranked_tiles(width: int, height: int, depth: int, vectors: Vectors, each: int = 1) -> tuple[Tile, ...]:
    """Rank the tiles that a search may try: LLVM may need fewer registers than the model thinks."""
    best = best_tile(width, height, depth, vectors, each)
    fitting = [
        tile
        for tile in _tiles(width, height, depth, vectors.registers, vectors)
        if (tile.wide * tile.high + 1) * tile.deep * each < vectors.registers and tile != best
    ]
    return best, *sorted(fitting, key=lambda tile: _cost(tile, width, height, vectors, each))[:MOST_TRIED]


def _tiles(width: int, height: int, depth: int, most: int, vectors: Vectors) -> Iterator[Tile]:
    """Yield all tiles of at most *most* positions; of integers those that divide the output: a condition
    would be part of what one instruction is to compute."""
    whole = vectors.dtype == SUMS
    rows = vectors.dots[0].rows if whole else 1
    for deep in range(1, min(depth, 6) + 1):
        if depth % deep:
            continue
        for wide in range(1, min(width, most) + 1):
            for high in range(1, min(height, 4, most // wide) + 1):
                if not whole or wide % rows == width % wide == 0 == height % high:
                    yield Tile(wide, high, deep)


def _cost(tile: Tile, width: int, height: int, vectors: Vectors, each: int) -> float:
    """Return the cost of a multiply-add, in those of a tile that has no other costs."""
    loaded = tile.deep * each
    beside, below = width % tile.wide, height % tile.high
    steps = width // tile.wide * _step(tile.wide * tile.high, loaded, vectors)
    steps += _step(beside * tile.high, loaded, vectors) if beside else 0
    cost = steps / (width * tile.high * loaded) + 0.02 * (tile.high > 1)
    for rest in (beside, below):
        if rest:
            cost *= RAGGED_BY_ELEMENT if vectors.by_element else RAGGED
    return cost


def _fits(pixels: int, deep: int, vectors: Vectors) -> bool:
    """Return True if LLVM keeps the sums, and what they are multiplied from, in registers."""
    sums = pixels * deep
    if sums * vectors.lanes * 4 >= STACK:
        return False
    if vectors.registers > FEW:
        if vectors.dtype == HALF and pixels > MOST_HALVES:
            return False
        if vectors.has_products and sums + 2 * deep + PRODUCTS > vectors.registers:
            return False
        return sums + deep + pixels <= vectors.registers
    if vectors.by_element:
        return sums + 4 * deep + pixels <= vectors.registers  # for armv7 four channels are loaded ahead
    return sums <= FEW_SUMS


def _step(pixels: int, deep: int, vectors: Vectors) -> float:
    """Return the time of a step of *pixels* positions and *deep* blocks of channels, in multiply-adds."""
    sums = pixels * deep
    if vectors.registers <= FEW and not vectors.by_element:
        return max(sums + 0.25 * max(0, FEW_SUMS - sums), LEAST_SUMS) + 0.1 * (pixels + deep)
    loads = max(0, pixels + deep - sums)
    moved = MOVED if vectors.moves_data else 0.1
    return max(sums, LEAST_SUMS) + 0.5 * loads + moved * pixels + 0.3 * deep + 1
