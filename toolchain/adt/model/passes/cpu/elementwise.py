"""Kernels that reduce nothing: each element on its own, in lanes."""

from __future__ import annotations

import math
from typing import Any

from adt.model.passes.cpu.kernel import (
    WORTH_A_THREAD,
    Kernel,
    NoSchedule,
    extent_of,
    vector_width,
)
from adt.model.passes.cpu.vectors import Vectors

VECTOR_TYPES = ("float32", "float16", "int32", "int64")


def elements(schedule: Any, vectors: Vectors) -> None:
    """No reduction: each element on its own, in lanes.

    Raises:
        NoSchedule: it has a reduction, or no loops.
    """
    kernel = Kernel(schedule)
    if kernel.sums:
        raise NoSchedule("it has a reduction")
    store, _ = kernel.store_apart(keep=())
    loops = schedule.get_loops(store)
    if not loops:
        raise NoSchedule("it is a scalar")
    extents = [extent_of(schedule, loop) for loop in loops]
    count = math.prod(extents)
    dtype = str(schedule.get(store).writes[0].buffer.dtype)
    width = vector_width(extents[-1], vectors.lanes) if dtype in VECTOR_TYPES else 1
    *outer, last = loops
    if width == 1 and count % vectors.lanes == 0 and dtype in VECTOR_TYPES:
        outer, last, width = [], schedule.fuse(*loops), vectors.lanes
    if width > 1:
        part, vector = schedule.split(last, [None, width])
        schedule.vectorize(vector)
        outer = [*outer, part]
    else:
        outer = loops
    if count >= WORTH_A_THREAD:
        spread = schedule.fuse(*outer)
        tasks, _ = schedule.split(spread, [None, max(1, WORTH_A_THREAD // 4 // width)])
        schedule.parallel(tasks)
