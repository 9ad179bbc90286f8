"""Tiles of sums for CPUs: they fit the registers, and are those that were measured as the fastest."""

import pytest

from adt.compiler.passes.cpu.tiles import Tile, best_tile
from adt.compiler.passes.cpu.vectors import Vectors, _cost

AVX512, AVX2, SSE = Vectors(16, 32), Vectors(8, 16), Vectors(4, 16)
NEON, ARMV7 = Vectors(4, 32, by_element=True), Vectors(4, 16, by_element=True)


@pytest.mark.parametrize(
    ("extents", "vectors", "tile"),
    [
        ((14, 14, 16), AVX512, Tile(7, 1, 2)),
        ((7, 7, 32), AVX512, Tile(7, 1, 2)),
        ((56, 56, 8), AVX2, Tile(3, 1, 4)),
        ((7, 7, 64), AVX2, Tile(3, 1, 4)),
        ((56, 56, 3), AVX2, Tile(4, 1, 3)),
        ((28, 28, 2), AVX2, Tile(6, 1, 2)),
        ((80, 80, 4), AVX512, Tile(7, 1, 2)),
        ((16, 16, 4), AVX512, Tile(6, 1, 2)),
        ((14, 14, 4), SSE, Tile(3, 1, 4)),
        ((56, 56, 16), NEON, Tile(8, 1, 2)),
        ((28, 28, 32), NEON, Tile(4, 1, 4)),
        ((3136, 1, 6), NEON, Tile(7, 1, 3)),
        ((56, 56, 16), ARMV7, Tile(2, 1, 2)),
    ],
)
def test_the_measured_ones(extents: tuple[int, int, int], vectors: Vectors, tile: Tile) -> None:
    assert best_tile(*extents, vectors) == tile


@pytest.mark.parametrize("vectors", [AVX512, AVX2, SSE, NEON, ARMV7])
def test_every_tile_fits(vectors: Vectors) -> None:
    for width in (*range(1, 40), 56, 97, 112):
        for height in (1, 7, 13, 56):
            for depth in (1, 2, 3, 5, 8, 63):
                tile = best_tile(width, height, depth, vectors)
                assert depth % tile.deep == 0
                positions = tile.wide * tile.high
                assert positions * tile.deep + min(positions, tile.deep) < vectors.registers
                assert tile.wide <= width and tile.high <= height


def test_lanes_that_idle_and_groups_that_share_blocks_cost() -> None:
    assert _cost(100, 8, 1, 8) == _cost(100, 8, 1, 16)
    assert _cost(100, 64, 1, 16) < _cost(100, 64, 1, 8)
    assert _cost(100, 16, 2, 8) == _cost(100, 16, 2, 16) == 2 * _cost(100, 16, 1, 16)
