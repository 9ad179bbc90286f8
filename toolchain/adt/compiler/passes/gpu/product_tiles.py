"""Tiles of matrix products in plain buffers, chosen by a model of their costs.

The model is that of :mod:`adt.compiler.passes.gpu.tiles`, whose constants mean the same here: a work-item
keeps a tile of sums in registers, rows by vectors of columns, and where there are few sums, work-items share
each of them. What differs is what is read: a matrix whose rows are of an odd length is read number by number.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from adt.compiler.passes.gpu.tiles import ADD, MEET, MORE_ROOM, PARTS_OF_A_PIXEL, READ, START, STEP, WRITE
from adt.compiler.passes.layout.blocks import ceil_blocks
from adt.compiler.targets.gpu import Gpu
from adt.package.reports import LANES

MOST_ROWS, MOST_VECTORS = 8, 4
"""Most rows and vectors of a work-item."""
EXCHANGED = 4 << 10
"""Bytes of parts of a vector's sums that a group puts into local memory even where that is main memory."""
LINE = 64
"""Bytes that memory gives at once: neighbouring work-items are to use all of them."""


@dataclass(frozen=True)
class Product:
    """Product of a kernel: for each of a batch a matrix of sums of a number of terms."""

    batch: int
    rows: int
    columns: int
    terms: int
    left_by_terms: bool
    """Four terms of the left operand are one read."""
    right_by_terms: bool
    """Four terms of the right operand are …"""
    right_by_columns: bool
    """True if the right operand is read by four columns."""
    lanes: int
    """Columns that are computed at once."""
    unit: int
    """Terms of one iteration."""
    bytes: int = 4
    """Bytes of a number of the right operand."""


@dataclass(frozen=True)
class ProductTile:
    """Work of one work-item and one work-group."""

    wide: int
    """Rows of a work-item."""
    deep: int
    """Vectors of columns of a work-item."""
    down: int
    across: int
    """Work-items of a work-group along rows and columns."""
    parts: int
    """Work-items that share each sum."""

    @property
    def items(self) -> int:
        """Work-items of a work-group."""
        return self.down * self.across * self.parts


def best_product_tile(product: Product, gpu: Gpu) -> ProductTile:
    """The tile that costs least on *gpu*; of those that cost the same, the one whose group reads least."""
    return min(_tiles(product, gpu), key=lambda tile: (cost(product, tile, gpu), _group_reads(product, tile)))


def cost(product: Product, tile: ProductTile, gpu: Gpu) -> float:
    """Return the cost of *tile*, in multiply-adds of four lanes of one work-item."""
    unit, lanes = product.unit, product.lanes
    columns = tile.deep * lanes
    reads = tile.wide * (unit / LANES if product.left_by_terms else unit)
    if product.right_by_columns:
        reads += tile.deep * unit
    else:
        reads += columns * (unit / LANES if product.right_by_terms else unit)
    sums = tile.wide * tile.deep
    work = reads * READ + unit * sums + STEP
    item = product.terms / unit / tile.parts * work + WRITE * sums + START
    if tile.parts > 1:
        item += MEET + ADD * tile.parts * sums
    groups = product.batch * math.prod(_groups(product, tile))
    waves = math.ceil(tile.items / gpu.wave) * gpu.wave
    used = (sums * lanes + tile.wide * unit + columns * unit) / LANES / gpu.sums
    room = gpu.items * MORE_ROOM / min(max(used, 1), MORE_ROOM)
    return item * (1 + groups * waves / room)


def _groups(product: Product, tile: ProductTile) -> tuple[int, int]:
    """Work-groups along rows and columns."""
    return (
        ceil_blocks(product.rows, tile.wide * tile.down),
        ceil_blocks(product.columns, tile.deep * tile.across * product.lanes),
    )


def _group_reads(product: Product, tile: ProductTile) -> int:
    """Rows and columns that a work-group reads for one term."""
    return tile.wide * tile.down + tile.deep * tile.across * product.lanes


def _tiles(product: Product, gpu: Gpu) -> Iterator[ProductTile]:
    vectors = product.columns // product.lanes
    steps = product.terms // product.unit
    counts = [1]
    if gpu.local_bytes or product.rows == 1:
        counts += [count for count in PARTS_OF_A_PIXEL if steps % count == 0]
    # As many neighbours as read a whole line together, where they read along columns.
    line = 1 if product.right_by_terms else max(1, LINE // (product.lanes * product.bytes))
    for wide, deep, parts in itertools.product(powers(MOST_ROWS), powers(MOST_VECTORS), counts):
        if wide >= 2 * product.rows or deep >= 2 * vectors or wide * deep > gpu.sums:
            continue
        columns = _power_over(ceil_blocks(vectors, deep))
        for most in {gpu.wave, gpu.work_group}:
            for across in powers(min(most // parts, columns)):
                if across < min(line, columns) and parts > 1:
                    continue
                down = min(most // parts // across, _power_over(ceil_blocks(product.rows, wide)))
                tile = ProductTile(wide, deep, down, across, parts)
                local = 0 if parts == 1 else tile.items * wide * deep * product.lanes * 4
                if local <= max(gpu.local_bytes, EXCHANGED):
                    yield tile


def powers(most: int) -> list[int]:
    """Powers of two from 1 up to *most*."""
    return [1 << power for power in range(most.bit_length())]


def _power_over(extent: int) -> int:
    """The smallest power of two that is not below *extent*."""
    return 1 << (extent - 1).bit_length()
