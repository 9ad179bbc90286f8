"""Convolutions and products on blocked tensors: a tile of sums in registers, a lane for each output channel.

    parallel for tile:
        for block of 16 channels:  for tap:  for four in block:          # the sums of a tile
            for channel in 4:  for position in tile:  for deep:  sum[deep][position] += x * w[deep]
        store the tile, with all that is fused behind it

The tile is chosen by :mod:`adt.compiler.passes.cpu.tiles`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tvm import s_tir, tirx
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.tirx import IndexMap

from adt.compiler.ir.nodes import tir_nodes
from adt.compiler.passes.cpu.kernel import (
    LONGEST_VECTOR,
    UNROLLED_TAPS,
    Kernel,
    can_partition,
    extent_of,
    parallel,
    partition,
    reduce_loops,
    spatial_loops,
    work_of,
)
from adt.compiler.passes.cpu.tiles import FEW, LEAST_SUMS, best_tile, ranked_tiles
from adt.compiler.passes.cpu.vectors import Vectors
from adt.compiler.passes.dot import SUMS, Dot, intrinsic
from adt.compiler.passes.layout.blocks import STAGE, WEIGHTS
from adt.compiler.passes.layout.signature import WEIGHT_AXES, variables_of
from adt.compiler.passes.scheduling import Decisions, NoSchedule, divisors, unroll_all

DEPTHWISE_WIDE = 8
"""Positions along a row whose sums a depthwise convolution keeps at once, at most."""
EDGES, CHANNEL, ROWS = "edges", "channel", "rows"
"""Ways to have zeros around the data: none are kept, and the first and last positions look where they
read, which takes a third less than a copy, but LLVM spills on Arm; a copy of each channel; a copy of the
rows of each tile."""
ONCE = 4
"""Channels that a step without loops takes."""
TASKS = 8
"""Parts of a kernel that threads share at least."""
UNROLLED_BY_LLVM = 3
"""Steps of a loop over tiles, which LLVM unrolls where they are so few, and then spills on Arm: such a loop
is made one with the next outer one."""


def convolution(schedule: s_tir.Schedule, vectors: Vectors, decisions: Decisions) -> str:
    """Schedule a convolution or product on blocked tensors."""
    kernel = Kernel(schedule)
    stages = [name for name in kernel.names if name.startswith(STAGE)]
    if len(stages) != 1 or len(kernel.sums) != 1:
        raise NoSchedule("it is no convolution")
    packed = [name for name in kernel.names if name.startswith(WEIGHTS)]
    store, (sums,) = kernel.store_apart(keep=(*stages, *packed, *kernel.sums))
    stage = schedule.get_sblock(stages[0])
    weights = schedule.get_sblock(packed[0]) if packed else None
    by_element = vectors.by_element
    if dot := _dot_of(schedule, sums, vectors):
        vectors = replace(vectors, by_element=False, dtype=SUMS, dots=(dot,))
    widens = _widens(schedule, stage, len(schedule.get_loops(store)))
    whole = not vectors.by_element and _is_one_row(schedule, sums, stage, store)
    if whole and _divides(schedule, sums, vectors):
        _make_one_row(schedule, sums, store, stage if by_element else None)
    loops = schedule.get_loops(store)
    lanes = extent_of(schedule, loops[-1])
    if lanes > vectors.lanes or len(loops) < 4:
        raise NoSchedule("its last axis is no block")
    images, depth, *axes, lane = loops
    if _depthwise(schedule, sums):
        return _depthwise_loops(schedule, store, sums, stage, vectors, decisions)
    *rows, row = axes
    if extent_of(schedule, images) > 1 and math.prod(extent_of(schedule, axis) for axis in axes) == 1:
        images, row, rows = row, images, rows  # a product: each row of it is an image of one pixel
    column = rows[-1] if rows else schedule.add_unit_loop(row)
    width, height, blocks = (extent_of(schedule, axis) for axis in (row, column, depth))
    registers = vectors.registers_for(lanes, str(schedule.get(sums).writes[0].buffer.dtype))
    tiles = ranked_tiles(width, height, blocks, vectors, registers)
    # A tile of all rows makes floats of packed weights where it multiplies, which takes registers: of few
    # sums. For more rows a panel is made before.
    rows_together = width * height if weights else 0
    few = [
        tile
        for tile in sorted(tiles, key=lambda tile: -tile.deep)
        if tile.wide * tile.high == rows_together and rows_together * tile.deep <= LEAST_SUMS
    ]
    each = _in_word(schedule, weights) if weights else 0
    if few:
        schedule.compute_inline(weights)
    tile = decisions.choose("tile", few or tiles)
    border = _has_border(schedule, stage) or (dot is not None and widens)
    order = decisions.choose("order", _orders(1 if weights else width * height, blocks, border))
    read_there = None
    if not border and by_element and (dot or widens):
        read_there = stage
    elif not border:
        schedule.compute_inline(stage)
    elif not order.by_rows:
        _copy_with_border(schedule, stage)
    panel, deep = schedule.split(depth, [None, tile.deep])
    column_tile, high = schedule.split(column, [None, tile.high])
    row_tile, wide = schedule.split(row, [None, tile.wide])
    places = [*rows[:-1], column_tile, row_tile]
    places.insert(0 if order.inside is None else len(places) - order.inside, panel)
    outer = [images, *places]
    schedule.reorder(*outer, high, wide, deep, lane)
    unroll_all(schedule, (high, wide, deep), lane)
    work = work_of(schedule, sums)
    schedule.compute_at(sums, outer[-1], preserve_unit_loops=True)
    if dot:
        _accumulate_terms(schedule, sums, len(outer), dot, decisions, by_element=by_element)
    else:
        _accumulate(schedule, sums, len(outer), vectors, decisions, each if few else 0)
    if dot and by_element:
        _read_terms_by_vectors(schedule, sums, dot, read_there)
    elif by_element:
        _read_by_vectors(schedule, sums, vectors, read_there)
    unfinished = [
        outer.index(loop)
        for loop, extent, size in ((column_tile, height, tile.high), (row_tile, width, tile.wide))
        if extent % size
    ]
    for place in unfinished:
        partition(schedule, outer[place])
    spread = min(unfinished, default=len(outer))
    if weights and not few:
        _make_panel(schedule, weights, parallel(schedule, outer[: outer.index(panel) + 1], work), each)
    elif not order.by_rows:
        parallel(schedule, outer[:spread], work)
    elif spread > outer.index(column_tile):
        _copy_inside(schedule, stage, parallel(schedule, outer[: outer.index(column_tile) + 1], work))
    else:
        raise NoSchedule("the rows of a tile are not always as many")
    start = schedule.decompose_reduction(sums, reduce_loops(schedule, sums)[0])
    if dot:
        schedule.vectorize(schedule.get_loops(start)[-1])
        inside = 2 + len(dot.in_rows) + len(dot.in_steps)
        schedule.tensorize(schedule.get_loops(sums)[-inside], intrinsic(dot, lanes))
    return f"{tile.high}x{tile.wide} positions of {tile.deep} x {lanes} channels at once{order.words}"


@dataclass(frozen=True)
class Order:
    """Order in which tiles are computed."""

    inside: int | None = None
    """Number of the loops over tiles of rows and along a row that are inside of the one over blocks of
    output channels; None: all loops over positions."""
    by_rows: bool = False
    """The border is copied for the rows of a tile, before its blocks; else all of it at first."""
    words: str = ""


def _orders(positions: int, blocks: int, border: bool) -> list[Order]:
    """Return the orders of tiles, the usual first. For each, either weights or inputs are read again."""
    if positions == 1 or blocks == 1:
        return [Order()]
    inside = [Order(1, words=", rows before blocks"), Order(0, words=", tiles before blocks")]
    by_rows = [replace(order, by_rows=True, words=f"{order.words}, a border for each") for order in inside]
    return [Order(), *inside, *(by_rows if border else ())]


def _is_one_row(schedule: s_tir.Schedule, sums: SBlockRV, stage: SBlockRV, store: SBlockRV) -> bool:
    """Return True if each position is computed from what lies at its own: then all can be one row."""
    block = schedule.get(store)
    channels, *taps = (extent_of(schedule, loop) for loop in reduce_loops(schedule, sums))
    taps = taps[: len(taps) - _of_terms(schedule, sums)]
    before, after = (list(map(int, schedule.get(of).writes[0].buffer.shape)) for of in (stage, sums))
    if len(after) < 5 or math.prod(after[3:-1]) == 1 or before[2:-1] != after[2:-1]:
        return False
    if channels == 1 or math.prod(taps) != 1 or _has_border(schedule, stage):
        return False
    axes = [iterator.var for iterator in block.iter_vars][2:-1]
    reads = [
        [index for index in load.indices if variables_of([index]) & set(axes)]
        for load in tir_nodes(block.body, tirx.BufferLoad)
    ]
    return all(not read or read == axes for read in reads)


def _divides(schedule: s_tir.Schedule, sums: SBlockRV, vectors: Vectors) -> bool:
    """Return True if one row, a single task where tiles do not divide it, leaves work for several threads."""
    images, depth, *extents, _ = map(int, schedule.get(sums).writes[0].buffer.shape)
    positions = math.prod(extents)
    tile = best_tile(positions, 1, depth, vectors)
    return positions % tile.wide == 0 or images * depth // tile.deep >= TASKS


def _make_one_row(schedule: s_tir.Schedule, sums: SBlockRV, store: SBlockRV, stage: SBlockRV | None) -> None:
    """Make one axis of all spatial ones, also of *stage*: tiles divide 49 positions better than 7."""
    extents = [int(extent) for extent in schedule.get(sums).writes[0].buffer.shape[2:-1]]
    of_terms = _of_terms(schedule, sums)

    def flat(*axes: tirx.Var) -> list[tirx.PrimExpr]:
        place: Any = 0
        for extent, axis in zip(extents, axes[2:], strict=False):
            place = place * extent + axis
        others = axes[2 + len(extents) :]
        return [*axes[:2], place, *others[:2], *(others[-1:] if of_terms and len(others) > 1 else ())]

    def index_map(axes: int) -> tirx.IndexMap:
        return IndexMap.from_func(flat, ndim=axes, index_dtype=str(schedule.get(sums).iter_vars[0].var.dtype))

    stages = [stage] if stage else []
    for block in (*stages, sums):
        schedule.transform_layout(block, ("write", 0), index_map(len(extents) + 3))
    for block in (*stages, sums, store):
        schedule.transform_block_layout(block, index_map(len(schedule.get(block).iter_vars)))


def _in_word(schedule: s_tir.Schedule, weights: Any) -> int:
    """Return the number of neighbouring terms that one word of packed *weights* holds."""
    block = schedule.get(weights)
    return int(block.writes[0].buffer.shape[2]) // int(block.reads[0].buffer.shape[1])


def _make_panel(schedule: s_tir.Schedule, weights: Any, at: LoopRV, each: int) -> None:
    """Compute the floats of a panel of packed *weights* in the loop *at*, a word of each lane at once."""
    schedule.compute_at(weights, at, preserve_unit_loops=True)
    *_, term, lane = schedule.get_loops(weights)
    _, within = schedule.split(term, [None, each])
    schedule.unroll(within)
    schedule.vectorize(lane)


def _accumulate(
    schedule: s_tir.Schedule,
    sums: SBlockRV,
    depth: int,
    vectors: Vectors,
    decisions: Decisions,
    each: int = 0,
) -> None:
    """Arrange the loops of *sums* in *depth* others: blocks, taps, *each* channels (0: any), the tile."""
    *tile, lane = spatial_loops(schedule, sums)[depth:]
    channel, *windows = reduce_loops(schedule, sums)
    channels = extent_of(schedule, channel)
    size = max(each, ONCE if vectors.by_element else extent_of(schedule, lane))
    block, within = schedule.split(channel, [None, size if channels % size == 0 else channels])
    extent = extent_of(schedule, within)
    usual = each or (ONCE if extent % ONCE == 0 else extent if extent < ONCE else 1)
    others = [few for few in (1, 2, 4, 8, 16) if extent % few == 0 and few != usual]
    again, once = schedule.split(within, [None, decisions.choose("channels", [usual, *others])])
    taps = math.prod(extent_of(schedule, loop) for loop in windows)
    taps_first = decisions.choose(
        "taps first", (False, True)[: 2 if taps > 1 and not vectors.by_element else 1]
    )
    if not vectors.by_element:  # the fewest values stay in registers, of positions or of weights
        tile.sort(key=lambda loop: -extent_of(schedule, loop))
    schedule.reorder(*([*windows, block] if taps_first else [block, *windows]), again, once, *tile, lane)
    unroll_all(schedule, (once, *tile), lane)


def _of_terms(schedule: s_tir.Schedule, sums: SBlockRV) -> bool:
    """Return True if the weights of *sums* have an axis of terms: one instruction multiplies several."""
    return len(schedule.get(sums).reads[1].buffer.shape) > WEIGHT_AXES


def _dot_of(schedule: s_tir.Schedule, sums: SBlockRV, vectors: Vectors) -> Dot | None:
    """Return the instruction whose terms the weights have, if they have any."""
    if not _of_terms(schedule, sums):
        return None
    terms = int(schedule.get(sums).reads[1].buffer.shape[-1])
    return next((dot for dot in vectors.dots if dot.terms == terms), None)


def _accumulate_terms(
    schedule: s_tir.Schedule, sums: SBlockRV, depth: int, dot: Dot, decisions: Decisions, *, by_element: bool
) -> None:
    """Arrange loops as :func:`_accumulate`; innermost are lanes, steps and terms of an instruction."""
    *tile, lane = spatial_loops(schedule, sums)[depth:]
    channel, *windows, term = reduce_loops(schedule, sums)
    channel, *steps = schedule.split(channel, [None, *dot.in_steps])
    of_pixels = _is_of_pixels(schedule, sums)
    size = extent_of(schedule, lane) * (ONCE if by_element and of_pixels else 1)
    each = max(1, size // (dot.terms * dot.steps))
    channels = extent_of(schedule, channel)
    block, within = schedule.split(channel, [None, each if channels % each == 0 else channels])
    ways = [few for few in (4, 2, 1) if extent_of(schedule, within) % few == 0]
    again, once = schedule.split(within, [None, decisions.choose("channels", ways)])
    rows = []
    if dot.rows > 1:
        row = 0 if of_pixels else -1
        tile[row], *rows = schedule.split(tile[row], [None, dot.rows])
        few, lane = schedule.split(lane, [None, extent_of(schedule, lane) // dot.rows])
        tile.append(few)
    tile.sort(key=lambda loop: -extent_of(schedule, loop))
    schedule.reorder(block, *windows, again, once, *tile, *rows, lane, *steps, term)
    unroll_all(schedule, (once, *tile))


def _is_of_pixels(schedule: s_tir.Schedule, sums: SBlockRV) -> bool:
    """Return True if what *sums* read are images of one pixel, all of whose channels lie together."""
    return math.prod(map(int, schedule.get(sums).reads[0].buffer.shape[2:-1])) == 1


def _read_terms_by_vectors(
    schedule: s_tir.Schedule, sums: SBlockRV, dot: Dot, stage: SBlockRV | None
) -> None:
    """Read adjacent values, or compute them by *stage*, as vectors, of whose elements instructions take one.

    To load each value for all lanes takes a unit that multiplies.
    """
    _, *_windows, again, _once = reduce_loops(schedule, sums)[: -1 - len(dot.in_steps)]
    first = 1 if _is_of_pixels(schedule, sums) else -2
    reader = _by_rows(schedule, sums, dot, again) if dot.rows > 1 else sums
    tile = stage or schedule.cache_read(reader, 0, "global")
    schedule.compute_at(tile, again, preserve_unit_loops=True)
    loops = schedule.get_loops(tile)[-len(schedule.get(tile).writes[0].buffer.shape) :]
    unroll_all(schedule, loops[:first])
    schedule.vectorize(schedule.fuse(*loops[first:]))


def _by_rows(schedule: s_tir.Schedule, sums: SBlockRV, dot: Dot, again: Any) -> Any:
    """Have what an instruction takes and gives for several positions lie together; return the reader."""
    block = schedule.get(sums)
    shape = block.writes[0].buffer.shape
    spatial, axis = len(shape), 0 if _is_of_pixels(schedule, sums) else len(shape) - 2
    few = int(shape[-1]) // dot.rows

    def data(*at: LoopRV) -> list[Any]:
        places = [place for number, place in enumerate(at[: spatial - 1]) if number not in (1, axis)]
        return [*places, *at[spatial:-1], at[axis] // dot.rows, at[axis] % dot.rows, at[-1]]

    def result(*at: LoopRV) -> list[Any]:
        places = [*at[:axis], at[axis] // dot.rows, *at[axis + 1 : -1]]
        return [*places, at[-1] // few, at[axis] % dot.rows, at[-1] % few]

    def index_map(function: Callable[..., list[Any]], axes: int) -> Any:
        return IndexMap.from_func(function, ndim=axes, index_dtype=str(block.iter_vars[0].var.dtype))

    reader = schedule.reindex_cache_read(sums, 0, "global", index_map(data, len(block.iter_vars)))
    schedule.transform_layout(sums, ("write", 0), index_map(result, spatial))
    schedule.compute_at(reader, again, preserve_unit_loops=True)
    *loops, term = schedule.get_loops(reader)[2 - len(block.iter_vars) :]
    blocks, within = schedule.split(term, [None, ONCE])
    unroll_all(schedule, (*loops, blocks), within)
    return reader


def _read_by_vectors(
    schedule: s_tir.Schedule, sums: SBlockRV, vectors: Vectors, stage: SBlockRV | None
) -> None:
    """Read a position's adjacent channels into a vector first; *stage*, if it is given, computes them there.

    One at a time LLVM loads pairs of them ahead, and spills.
    """
    _, *windows, outside, channels = reduce_loops(schedule, sums)
    block = schedule.get(sums)
    shape = block.reads[0].buffer.shape
    blocked = len(shape) == len(block.writes[0].buffer.shape)
    together = blocked and int(shape[-1]) % extent_of(schedule, channels) == 0
    if together:
        tile = stage or schedule.cache_read(sums, 0, "global")
        schedule.compute_at(tile, outside, preserve_unit_loops=True)
        *positions, lane = schedule.get_loops(tile)[-len(shape) :]
        unroll_all(schedule, positions, lane)
    longest = math.inf if vectors.registers <= FEW else 0 if together else UNROLLED_BY_LLVM
    if windows and extent_of(schedule, windows[-1]) <= longest:
        schedule.fuse(*windows)


def _depthwise(schedule: s_tir.Schedule, sums: SBlockRV) -> bool:
    """Return True if each lane reads a channel of its own: the weight, read second, has the blocks second."""
    result = schedule.get(sums).writes[0].buffer.shape
    weight = schedule.get(sums).reads[1].buffer.shape
    channels = extent_of(schedule, reduce_loops(schedule, sums)[0])
    return channels == 1 == int(weight[0]) and int(weight[1]) == int(result[1])


def _depthwise_loops(
    schedule: s_tir.Schedule,
    store: SBlockRV,
    sums: SBlockRV,
    stage: SBlockRV,
    vectors: Vectors,
    decisions: Decisions,
) -> str:
    """Schedule a depthwise convolution: the taps of a few positions, one vector each."""
    images, depth, *rows, row, lane = schedule.get_loops(store)
    column = rows.pop() if rows else schedule.add_unit_loop(row)
    outer = [images, depth, *rows]
    lanes = extent_of(schedule, lane)
    width, height = extent_of(schedule, row), extent_of(schedule, column)
    each = vectors.registers_for(lanes, str(schedule.get(sums).writes[0].buffer.dtype))
    most = min(DEPTHWISE_WIDE, vectors.registers // 4) // each if vectors.by_element else DEPTHWISE_WIDE
    if most < 1:
        raise NoSchedule("a position takes too many registers")
    usual = max(divisors(width, most))
    sizes = [size for size in range(2, min(width, 2 * DEPTHWISE_WIDE) + 1) if size != usual]
    wide_size = decisions.choose("wide", [usual, *sizes])
    few_rows = [size for size in divisors(height, DEPTHWISE_WIDE) if size * wide_size < vectors.registers]
    high_size = decisions.choose("high", few_rows)
    borders = ("",)
    if _has_border(schedule, stage):
        edges = not vectors.by_element and can_partition(schedule, row)
        borders = (*([EDGES] if edges else ()), CHANNEL, *([ROWS] if height > 1 else ()))
    border = decisions.choose("border", borders)
    copied = border in (CHANNEL, ROWS)
    row_tile, wide = schedule.split(row, [None, wide_size])
    column_tile, high = schedule.split(column, [None, high_size])
    schedule.reorder(column_tile, row_tile, high, wide, lane)
    unroll_all(schedule, (high, wide), lane)
    work = work_of(schedule, sums)
    schedule.compute_at(sums, row_tile, preserve_unit_loops=True)
    at = len(outer) + 2
    reduce = reduce_loops(schedule, sums)
    spatial = spatial_loops(schedule, sums)[at:]
    schedule.reorder(*reduce, *spatial)
    taps = math.prod(extent_of(schedule, loop) for loop in reduce)
    unrolled = decisions.choose("taps", (taps <= UNROLLED_TAPS, taps > UNROLLED_TAPS))
    unroll_all(schedule, (*(reduce if unrolled else ()), *spatial[:-1]), spatial[-1])
    if width % wide_size or border == EDGES:
        partition(schedule, row_tile)
    elif copied and vectors.by_element and extent_of(schedule, row_tile) <= UNROLLED_BY_LLVM:
        column_tile = schedule.fuse(column_tile, row_tile)
    if copied:
        channel = parallel(schedule, outer[:2], work)
        _copy_inside(schedule, stage, column_tile if border == ROWS else channel)
    else:
        schedule.compute_inline(stage)
        if border == EDGES:
            partition(schedule, column_tile)
        parallel(schedule, outer if border == EDGES else [*outer, column_tile], work)
    schedule.decompose_reduction(sums, reduce_loops(schedule, sums)[0])
    rows = f"{high_size}x" if high_size > 1 else ""
    where = ", a border for each" if border == ROWS else ""
    return f"depthwise, {rows}{wide_size} positions of {lanes} channels at once{where}"


def _has_border(schedule: s_tir.Schedule, stage: SBlockRV) -> bool:
    """Return True if the window does not read the input itself: there are zeros around it."""
    value = schedule.get(stage).body.value
    return not isinstance(value.value if isinstance(value, tirx.Cast) else value, tirx.BufferLoad)


def _widens(schedule: s_tir.Schedule, stage: SBlockRV, axes: int) -> bool:
    """Return True if the window reads blocks of *axes* axes, in a wider type than the input's."""
    block = schedule.get(stage)
    types = {str(region.buffer.dtype) for region in (*block.reads, *block.writes)}
    return len(types) > 1 and len(block.writes[0].buffer.shape) == axes


def _copy_inside(schedule: s_tir.Schedule, stage: SBlockRV, at: LoopRV) -> None:
    schedule.compute_at(stage, at, preserve_unit_loops=True)
    last = schedule.get_loops(stage)[-1]
    if extent_of(schedule, last) <= LONGEST_VECTOR:
        schedule.vectorize(last)


def _copy_with_border(schedule: s_tir.Schedule, stage: SBlockRV) -> None:
    work = work_of(schedule, stage)
    *outer, last = schedule.get_loops(stage)
    if extent_of(schedule, last) <= LONGEST_VECTOR:
        schedule.vectorize(last)
    else:
        partition(schedule, last)
    parallel(schedule, outer[:-1], work)
