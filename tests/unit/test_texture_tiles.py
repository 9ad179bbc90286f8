"""The cost model that decides what a work-item of a convolution computes."""

import dataclasses
import math

import pytest

from adt.compiler.passes.gpu.tiles import PARTS, STATEMENTS, Sums, Tile, cost, ranked_groups, ranked_tiles
from adt.compiler.passes.scheduling import divisors
from adt.compiler.targets.gpu import ANY_ADRENO, Gpu, gpu_of

DEEP = Sums(1, 128, 7, 7, 128, 4, 3, 3, (1, 1), texels=True, grouped=False)
"""3 x 3 of 512 channels on 7 x 7: few texels, long sums."""
WIDE = Sums(1, 24, 112, 112, 4, 4, 1, 1, (1, 1), texels=True, grouped=False)
"""1 x 1 from 16 to 96 channels on 112 x 112: many texels, short sums."""
DEPTHWISE = Sums(1, 36, 56, 56, 1, 1, 3, 3, (1, 1), texels=True, grouped=False)
FIRST = Sums(1, 16, 112, 112, 1, 3, 7, 7, (2, 2), texels=False, grouped=False)
DENSE = Sums(1, 250, 1, 1, 320, 4, 1, 1, (1, 1), texels=True, grouped=False)
EVERY = (DEEP, WIDE, DEPTHWISE, FIRST, DENSE)


def chosen(computes: Sums, **gpu: int) -> Tile:
    return ranked_tiles(computes, dataclasses.replace(ANY_ADRENO, **gpu))[0]  # type: ignore[arg-type]


def work_items(sums: Sums, tile: Tile) -> int:
    return sums.images * sums.depth * sums.height * sums.width // tile.sums * tile.parts


@pytest.mark.parametrize("name", ["", "Adreno (TM) 610", "Adreno (TM) 730", "FD830"])
@pytest.mark.parametrize("sums", EVERY)
def test_a_tile_divides_the_output_and_fits_the_gpu(sums: Sums, name: str) -> None:
    gpu = gpu_of(name, {})
    best, *others = ranked_tiles(sums, gpu)
    groups = ranked_groups(sums, best, gpu)

    assert groups[0] == best.group and len(set(groups)) == len(groups)
    for tile in (best, *others, *(dataclasses.replace(best, group=group) for group in groups)):
        check_fit(sums, tile, gpu)


def check_fit(sums: Sums, tile: Tile, gpu: Gpu) -> None:
    assert sums.width % (tile.wide * tile.group[0]) == 0
    assert sums.height % (tile.high * tile.group[1]) == 0
    assert sums.depth % (tile.deep * tile.group[2]) == 0
    assert sums.fours % tile.parts == 0
    assert tile.items <= gpu.work_group
    assert tile.sums <= gpu.sums
    assert tile.parts == 1 or tile.items * tile.sums * 16 <= gpu.local_bytes


def test_sums_are_shared_where_there_are_few_texels_and_only_there() -> None:
    assert chosen(DEEP).parts > 1
    assert chosen(DENSE).parts > 1
    assert chosen(WIDE).parts == 1
    assert chosen(DEPTHWISE).parts == 1


def test_a_gpu_without_local_memory_shares_none() -> None:
    assert chosen(DEEP, local_bytes=0).parts == 1


def test_a_larger_gpu_gets_more_work_items() -> None:
    few, many = (work_items(WIDE, chosen(WIDE, items=items)) for items in (512, 65536))

    assert few < many


def test_a_work_item_takes_several_texels_where_there_are_enough() -> None:
    tile = chosen(WIDE)

    assert tile.sums >= 4
    alone = dataclasses.replace(tile, wide=1, high=1, deep=1)
    assert cost(WIDE, tile, ANY_ADRENO) < cost(WIDE, alone, ANY_ADRENO)


def test_few_registers_make_small_tiles() -> None:
    assert chosen(WIDE, sums=2).sums <= 2


def test_only_one_pixel_has_more_parts_than_a_window() -> None:
    assert all(chosen(sums).parts in (1, *PARTS) for sums in (DEEP, WIDE))
    assert chosen(DENSE).parts > max(PARTS)


def test_groups_of_channels_are_not_mixed_in_a_tile() -> None:
    assert chosen(dataclasses.replace(WIDE, grouped=True)).deep == 1


def test_a_partly_filled_wave_counts_whole() -> None:
    full = Tile(1, 1, 1, (56, 1, 1), 1)
    other = dataclasses.replace(full, group=(28, 1, 1))

    assert cost(WIDE, other, ANY_ADRENO) > cost(WIDE, full, ANY_ADRENO)


@pytest.mark.parametrize("sums", EVERY)
def test_a_search_may_share_sums_or_not(sums: Sums) -> None:
    assert {tile.parts > 1 for tile in ranked_tiles(sums, ANY_ADRENO)} == {False, sums.fours > 1}


def test_the_statements_of_an_iteration_are_bounded() -> None:
    window = dataclasses.replace(DEEP, columns=11, rows=11)
    tile = chosen(window)

    assert 4 * 11 * (tile.sums + tile.deep) <= STATEMENTS


def test_divisors() -> None:
    assert divisors(12, 8) == [1, 2, 3, 4, 6]
    assert divisors(13, 8) == [1]
    assert divisors(3, 8) == [1, 3]
    assert all(math.gcd(size, 56) == size for size in divisors(56, 56))


@pytest.mark.parametrize(("wide", "registers"), [(1, 6), (8, 20)])
def test_the_fewer_registers_the_more_work_items_fit(wide: int, registers: int) -> None:
    """Count a tile's sums, as many texels of the input, and four of weights, on a GPU with 5 for sums."""
    gpu = dataclasses.replace(ANY_ADRENO, sums=5, items=64)
    tile = Tile(wide, 1, 1, (16, 4, 1), 1)

    alone = cost(WIDE, tile, dataclasses.replace(gpu, items=1 << 40))
    together = cost(WIDE, tile, gpu)

    room = work_items(WIDE, tile) / (together / alone - 1)
    assert room == pytest.approx(4 * 64 / (registers / 5), rel=0.01)


def test_narrow_convolutions_keep_a_gpu_busy() -> None:
    """Tile 1 x 1 from 16 to 16 channels: little to re-use, many texels."""
    narrow = Sums(1, 4, 112, 112, 4, 4, 1, 1, (1, 1), texels=True, grouped=False)

    assert work_items(narrow, chosen(narrow)) >= 2 * ANY_ADRENO.items
