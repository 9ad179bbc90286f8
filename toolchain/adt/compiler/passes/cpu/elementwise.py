"""Kernels that reduce nothing: each element on its own, in lanes.

Loops stay as they are, since an index that is divided costs more than what most elements do; what chooses
among tensors or looks for a border chooses once for a part of a loop.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

import tvm
from tvm import arith, ir, s_tir, tirx
from tvm.s_tir.schedule import LoopRV, SBlockRV

from adt.compiler.ir.nodes import is_call, tir_nodes
from adt.compiler.passes.cpu.kernel import WORTH_A_THREAD, Kernel, extent_of, partition, vector_width
from adt.compiler.passes.cpu.vectors import Vectors
from adt.compiler.passes.layout.blocks import BYTES
from adt.compiler.passes.layout.signature import variables_of
from adt.compiler.passes.scheduling import Decisions, NoSchedule

VECTOR_TYPES = ("float32", "float16", "int32", "int64")
TASKS = 16
"""Parts that a kernel is given to threads in, where its outer loops have so many."""


def elements(schedule: s_tir.Schedule, vectors: Vectors, _decisions: Decisions) -> str:
    """Schedule a kernel without reductions: each element on its own, in lanes."""
    kernel = Kernel(schedule)
    if kernel.sums:
        raise NoSchedule("it has a reduction")
    store, _ = kernel.store_apart(keep=())
    if not schedule.get_loops(store):
        raise NoSchedule("it is a scalar")
    _split_choices(schedule, store)
    loops = schedule.get_loops(store)
    block = schedule.get(store)
    axes = [iterator.var for iterator in block.iter_vars]
    choices = _choices(block)
    count = math.prod(extent_of(schedule, loop) for loop in loops)
    dtype = str(block.writes[0].buffer.dtype)
    # LLVM gathers bytes better than TVM.
    in_lanes = dtype in VECTOR_TYPES or (dtype in BYTES and _lies_together(block))
    if in_lanes and len(loops) > 1 and _in_place(block):
        loops, choices = [schedule.fuse(*loops)], set()
    lanes = _blocked_axis(block.body, axes[: len(loops) - 1])
    *outer, last = loops
    inner = []
    if lanes is not None:  # all lanes of a block while what holds them is near
        place, size = lanes
        outer[place], lane = schedule.split(outer[place], [None, size])
        inner.append(lane)
    schedule.reorder(*outer, *inner, last)
    if in_lanes and len(axes) - 1 not in choices:
        last = _in_vectors(schedule, last, vectors)
    elif len(axes) - 1 in choices:
        partition(schedule, last)
    if outer:
        _in_tasks(schedule, outer, choices, spread=count >= WORTH_A_THREAD)
    elif count >= WORTH_A_THREAD:
        most = max(1, extent_of(schedule, last) * WORTH_A_THREAD // 4 // count)
        tasks, _ = schedule.split(last, [None, most])
        schedule.parallel(tasks)
    return "element by element"


def _in_vectors(schedule: s_tir.Schedule, last: LoopRV, vectors: Vectors) -> LoopRV:
    """Turn the loop *last* into vectors; return the loop of them, or *last* where there is none."""
    extent = extent_of(schedule, last)
    width = vector_width(extent, vectors.lanes)
    if width == 1:
        return last
    part, vector = schedule.split(last, [None, width])
    schedule.vectorize(vector)
    if extent % width:
        partition(schedule, part)
    return part


def _in_tasks(
    schedule: s_tir.Schedule, outer: Sequence[LoopRV], choices: Collection[int], *, spread: bool
) -> None:
    """Partition the loops *outer* at *choices*; with *spread*, give the first of them to all threads."""
    first: list[Any] = []
    tasks = 1
    for place, loop in enumerate(outer if spread else ()):
        chosen = place in choices
        if tasks >= TASKS or (chosen and tasks > 1):
            break
        alone = tasks == 1
        first.append(loop)
        tasks *= extent_of(schedule, loop)
        if chosen and tasks > 1:
            break
    for place in choices:
        if len(first) <= place < len(outer):
            partition(schedule, outer[place])
    if first:
        fused = schedule.fuse(*first)
        schedule.parallel(fused)
        if alone and len(first) - 1 in choices:
            partition(schedule, fused)


def _choices(block: tirx.SBlock) -> set[int]:
    """Return the axes on which it depends what is read: in a border, or of which tensor."""
    used = variables_of(_conditions(block))
    return {place for place, iterator in enumerate(block.iter_vars) if iterator.var in used}


def _split_choices(schedule: s_tir.Schedule, store: SBlockRV) -> None:
    """Split each axis that conditions divide (rows and columns in one, rolled windows).

    TVM makes wrong indices of one that is not split.
    """
    block = schedule.get(store)
    extents = {iterator.var: int(iterator.dom.extent) for iterator in block.iter_vars}
    sizes: dict[Any, int] = {}
    for part in tir_nodes(tirx.Evaluate(tirx.all(*_conditions(block), True)), tirx.FloorDiv | tirx.FloorMod):
        size = int(part.b) if isinstance(part.b, tirx.IntImm) else 0
        if part.a not in extents or not size or extents[part.a] % size or sizes.get(part.a, size) != size:
            raise NoSchedule(f"it is chosen by {part}")
        sizes[part.a] = size
    if not sizes:
        return
    by_place = [sizes.get(axis, 1) for axis in extents]

    def split(*places: tirx.PrimExpr) -> list[Any]:
        pairs = [(place // size, place % size) for place, size in zip(places, by_place, strict=True)]
        return [part for pair, size in zip(pairs, by_place, strict=True) for part in pair[: 1 + (size > 1)]]

    index_map = tirx.IndexMap.from_func(split, ndim=len(by_place), index_dtype=str(next(iter(sizes)).dtype))
    schedule.transform_block_layout(store, index_map)


def _conditions(block: tirx.SBlock) -> list[tirx.PrimExpr]:
    ranges, calls = _ranges(block), tir_nodes(block.body, tirx.Call)
    return [ranges.simplify(call.args[0]) for call in calls if is_call(call, "tirx.if_then_else")]


def _ranges(block: tirx.SBlock) -> tvm.arith.Analyzer:
    """Return TVM's analyzer, which knows the extents of the axes of *block*."""
    ranges = arith.Analyzer()
    for iterator in block.iter_vars:
        ranges.bind(iterator.var, ir.Range(0, iterator.dom.extent))
    return ranges


def _in_place(block: tirx.SBlock) -> bool:
    """Return True if each element is computed from those at its own place, and from scalars."""
    axes = [iterator.var for iterator in block.iter_vars]
    shape = list(map(int, block.writes[0].buffer.shape))
    return len(axes) == len(shape) and all(
        list(map(int, load.buffer.shape)) == shape
        and all(index.same_as(axis) for index, axis in zip(load.indices, axes, strict=True))
        for load in tir_nodes(block.body, tirx.BufferLoad)
        if load.indices
    )


def _lies_together(block: SBlockRV) -> bool:
    """Return True if neighbours along the last axis are computed from neighbours."""
    last, ranges = block.iter_vars[-1].var, _ranges(block)
    reads = [
        [ranges.simplify(index) for index in load.indices] for load in tir_nodes(block.body, tirx.BufferLoad)
    ]
    return all(read[-1].same_as(last) or last not in variables_of(read) for read in reads if read)


def _blocked_axis(body: tirx.BufferStore, axes: Sequence[tirx.Var]) -> tuple[int, int] | None:
    """Return the first axis whose lane in a block is the last index of a read, and the block's lanes."""
    for load in tir_nodes(body, tirx.BufferLoad):
        lane = load.indices[-1] if load.indices else None
        if isinstance(lane, tirx.FloorMod) and isinstance(lane.b, tirx.IntImm):
            for place, axis in enumerate(axes):
                if lane.a.same_as(axis):
                    return place, int(lane.b)
    return None
