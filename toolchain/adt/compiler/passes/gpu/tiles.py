"""Tiles of convolutions and of matrix products, the work of a work-item, chosen by a model of their costs.

A larger tile of sums reads less for each multiplication, and leaves fewer work-items, of which a GPU needs
thousands to be busy. Where there are too few, several share each sum. The model is the one of a machine with
room for so many work-items at a time:

    time = cost of one work-item x (1 + work-items / room)

so that few work-items cost what one costs (its chain of reads), many what they cost together. The room is
``Gpu.items`` for work-items with many registers, and up to four times that for those with few. The constants
are round numbers near those that chose best among 2,000 random schedules of the convolutions of ResNet-18 and
MobileNet-v2, timed on an NVIDIA H200: that is one GPU, and no Adreno. Of the schedules of a convolution they
choose one that took 1.26 times as long as the fastest (geometric mean).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from adt.compiler.passes.layout.blocks import ceil_blocks
from adt.compiler.passes.scheduling import divisors
from adt.compiler.targets.gpu import Gpu
from adt.package.reports import LANES

READ = 4
"""Cost of reading a texel (or as much of a buffer), in multiply-adds of four lanes, which cost 1."""
STEP = 4
"""Cost of one iteration of the loops: a row of the window, for four channels."""
WRITE = 8
"""Cost of what follows each sum: epilogue and store."""
START = 50
"""Cost of a work-item's start."""
MEET = 30
"""Cost of a barrier, where parts are put together."""
ADD = 2
"""Cost of adding one part to a sum."""

MORE_ROOM = 4
"""Times :attr:`Gpu.items <adt.compiler.targets.gpu.Gpu.items>` that a GPU holds of work-items with no more
registers than ``Gpu.sums``; of those with four times as many it holds ``Gpu.items``."""

MOST_WIDE = 8
"""Texels of a row that one work-item computes."""
HEIGHTS, DEPTHS = (1, 2), (1, 2, 4)
"""Rows and blocks of channels."""
PARTS = (2, 4, 8, 16)
"""Work-items that share a sum."""
PARTS_OF_A_PIXEL = (*PARTS, 32, 64)
"""Numbers of parts where the output has one pixel: other work-items of its work-group would share no
weights."""
DEEPEST = 64
"""Work-items of a work-group in depth, at most: NVIDIA's GPUs launch no more along z."""
STATEMENTS = 256
"""Most statements of one iteration: drivers compile for seconds what is longer."""
MOST_FOURS = 4
"""Fours of channels in one iteration."""
SHORT = 48
"""Statements of an iteration that is worth doubling."""
MOST_TRIED = 100
"""Tiles, and shapes of a work-group, among which a search chooses."""
MOST_ROWS, MOST_VECTORS = 8, 4
"""Most rows and vectors of a work-item."""
EXCHANGED = 4 << 10
"""Bytes of parts of a vector's sums that a group puts into local memory even where that is main memory."""
LINE = 64
"""Bytes that memory gives at once: neighbouring work-items are to use all of them."""


@dataclass(frozen=True)
class Sums:
    """The sums that a kernel computes."""

    images: int
    """Images of the batch, and of each its frames where three axes are convolved."""
    depth: int
    """Blocks of output channels."""
    height: int
    width: int
    """Texels of the output."""
    fours: int
    """Fours of input channels that each sum runs over; what is left of four counts as one."""
    lanes: int
    """Input channels that are read at once and used one after the other: 4, or 1 of a depthwise kernel."""
    rows: int
    columns: int
    """Columns of the window; rows of all its frames."""
    stride: tuple[int, int]
    """Down and across."""
    texels: bool
    """The input is blocked; else each lane is a read of its own."""
    grouped: bool
    """Blocks of output channels read different input channels, other than in a depthwise kernel."""
    matrix: bool = False
    """The row is the rows of a matrix, each an image of one pixel: weights are read for several of them."""
    words: bool = False
    """True if what counts as a channel is a word of four (:mod:`adt.compiler.passes.words`)."""

    @property
    def in_fours(self) -> bool:
        """True if the channels are whole fours, which can be cut into parts."""
        return (self.texels or self.words) and self.lanes == LANES

    @property
    def shares_input(self) -> bool:
        """True if neighbouring blocks of output channels read the same."""
        return not self.grouped and (self.lanes > 1 or self.words)


@dataclass(frozen=True)
class Tile:
    """Work of one work-item and one work-group."""

    wide: int
    high: int
    deep: int
    """Sums of a work-item: texels of a row, rows, blocks of channels."""
    group: tuple[int, int, int]
    """Work-items of a work-group across, down and in depth; the last is 1 where sums are shared."""
    parts: int
    """Work-items that share each sum."""

    @property
    def sums(self) -> int:
        """Number of sums that a work-item keeps."""
        return self.wide * self.high * self.deep

    @property
    def items(self) -> int:
        """Work-items of a work-group."""
        return math.prod(self.group) * self.parts


def ranked_tiles(sums: Sums, gpu: Gpu) -> list[Tile]:
    """Rank the tiles among which a search chooses, the cheapest on *gpu* first, which compiling takes."""
    return sorted(_tiles(sums, gpu), key=lambda tile: cost(sums, tile, gpu))[:MOST_TRIED]


def ranked_groups(sums: Sums, tile: Tile, gpu: Gpu) -> list[tuple[int, int, int]]:
    """Rank the shapes of a work-group of *tile*: its own, and then the others, the cheapest first."""
    room = gpu.work_group // tile.parts
    shapes = [
        (across, down, far)
        for across in divisors(sums.width // tile.wide, room)
        for down in divisors(sums.height // tile.high, room // across)
        for far in divisors(sums.depth // tile.deep, min(room // across // down, DEEPEST))
        if (tile.parts == 1 or far == 1) and (across, down, far) != tile.group
    ]
    tiles = [replace(tile, group=shape) for shape in shapes]
    fitting = sorted((each for each in tiles if _fits(sums, each, gpu)), key=lambda t: cost(sums, t, gpu))
    return [tile.group, *(each.group for each in fitting)][:MOST_TRIED]


def iterations(sums: Sums, tile: Tile) -> list[int]:
    """Return fours of channels that one iteration may take: what compiling takes, and then the others."""
    statements = sums.columns * sums.lanes * (tile.sums + tile.deep) + tile.wide
    counts = divisors(sums.fours // tile.parts, MOST_FOURS)
    usual = 2 if sums.rows == 1 and statements <= SHORT and 2 in counts else 1
    fitting = [count for count in counts if count * statements * sums.rows <= 2 * STATEMENTS]
    return [usual, *(count for count in fitting if count != usual)]


def cost(sums: Sums, tile: Tile, gpu: Gpu) -> float:
    """Return the cost of *tile*, in multiply-adds of one work-item."""
    reads = _input_reads(sums, tile) + _weight_reads(sums, tile)
    work = reads * READ + _multiplications(sums, tile) + STEP
    steps = sums.rows * sums.fours / tile.parts
    item = steps * work + WRITE * tile.sums + START
    if tile.parts > 1:
        item += MEET + ADD * tile.parts * tile.sums
    # A wave runs whole, however few of its work-items there are.
    waves = math.ceil(tile.items / gpu.wave) * gpu.wave / tile.items
    items = sums.images * sums.depth * sums.height * sums.width // tile.sums * tile.parts
    return item * (1 + items * waves / _room(tile.sums + _texels_held(sums, tile), gpu))


def _room(registers: float, gpu: Gpu) -> float:
    """Estimate the work-items that the GPU holds at a time: the fewer *registers* each has, the more."""
    return gpu.items * MORE_ROOM / min(max(registers / gpu.sums, 1), MORE_ROOM)


def _texels_held(sums: Sums, tile: Tile) -> int:
    """Count the texels of input and weights that are in registers at the same time."""
    return _input_reads(sums, tile) + sums.lanes * tile.deep


def _input_reads(sums: Sums, tile: Tile) -> int:
    """Count the reads of input for a row of the window: neighbouring texels are read once."""
    across = (tile.wide - 1) * sums.stride[1] + sums.columns
    down = (tile.high - 1) * sums.stride[0] + 1
    return across * down * (1 if sums.texels else sums.lanes)


def _weight_reads(sums: Sums, tile: Tile) -> int:
    return sums.lanes * tile.deep * sums.columns


def _multiplications(sums: Sums, tile: Tile) -> int:
    return sums.lanes * tile.sums * sums.columns


def _tiles(sums: Sums, gpu: Gpu) -> Iterator[Tile]:
    parts = [1]
    if sums.in_fours:
        counts = PARTS_OF_A_PIXEL if sums.height * sums.width == 1 else PARTS
        parts += [count for count in counts if sums.fours % count == 0]
    depths = [n for n in DEPTHS if sums.depth % n == 0] if sums.shares_input else [1]
    heights = [n for n in HEIGHTS if sums.height % n == 0]
    for wide, high, deep, count in itertools.product(divisors(sums.width, MOST_WIDE), heights, depths, parts):
        if wide * high * deep > gpu.sums:
            continue
        seen = set()
        for most in (gpu.wave, gpu.work_group):
            room = most // count
            if not room:
                continue
            across = divisors(sums.width // wide, room)[-1]
            down = divisors(sums.height // high, room // across)[-1]
            deepest = min(room // across // down, DEEPEST)
            far = 1 if count > 1 else divisors(sums.depth // deep, deepest)[-1]
            tile = Tile(wide, high, deep, (across, down, far), count)
            if tile not in seen and _fits(sums, tile, gpu):
                seen.add(tile)
                yield tile


def _fits(sums: Sums, tile: Tile, gpu: Gpu) -> bool:
    """Return True if registers, local memory and the driver have room for it."""
    statements = _input_reads(sums, tile) + _weight_reads(sums, tile) + _multiplications(sums, tile)
    registers = tile.sums + _texels_held(sums, tile)
    local = 0 if tile.parts == 1 else tile.items * tile.sums * 16
    smallest = tile.sums == 1
    return (smallest or (statements <= STATEMENTS and registers <= 3 * gpu.sums)) and local <= gpu.local_bytes


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
    """Return the tile that costs least on *gpu*; of equals, the one whose group reads least.

    A matrix whose rows are of an odd length is read number by number.
    """

    def order(tile: ProductTile) -> tuple[float, int]:
        read = tile.wide * tile.down + tile.deep * tile.across * product.lanes
        return product_cost(product, tile, gpu), read

    return min(_product_tiles(product, gpu), key=order)


def product_cost(product: Product, tile: ProductTile, gpu: Gpu) -> float:
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
    down = ceil_blocks(product.rows, tile.wide * tile.down)
    groups = product.batch * down * ceil_blocks(product.columns, columns * tile.across)
    waves = math.ceil(tile.items / gpu.wave) * gpu.wave
    registers = (sums * lanes + tile.wide * unit + columns * unit) / LANES
    return item * (1 + groups * waves / _room(registers, gpu))


def _product_tiles(product: Product, gpu: Gpu) -> Iterator[ProductTile]:
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
        columns = power_over(ceil_blocks(vectors, deep))
        for most in {gpu.wave, gpu.work_group}:
            for across in powers(min(most // parts, columns)):
                if across < min(line, columns) and parts > 1:
                    continue
                down = min(most // parts // across, power_over(ceil_blocks(product.rows, wide)))
                tile = ProductTile(wide, deep, down, across, parts)
                local = 0 if parts == 1 else tile.items * wide * deep * product.lanes * 4
                if local <= max(gpu.local_bytes, EXCHANGED):
                    yield tile


def powers(most: int) -> list[int]:
    """Return the powers of two from 1 up to *most*."""
    return [1 << power for power in range(most.bit_length())]


def power_over(extent: int) -> int:
    """Return the smallest power of two that is not below *extent*."""
    return 1 << (extent - 1).bit_length()
