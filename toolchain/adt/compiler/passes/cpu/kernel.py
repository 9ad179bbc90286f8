"""An unscheduled kernel as the rules for CPUs see it: its blocks, their loops, and what a thread is worth."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tvm import s_tir, tirx
from tvm.s_tir.schedule import LoopRV, SBlockRV

from adt.compiler.ir.nodes import tir_nodes
from adt.compiler.passes.layout.signature import REDUCE, reduces, variables_of
from adt.compiler.passes.scheduling import NoSchedule, divisors

WORTH_A_THREAD = 1 << 15
"""Multiply-adds, or elements, of a kernel from which on it is given to all threads: to start them takes
about as long as so many take one."""
UNROLLED_TAPS = 9
"""Taps of a window that are unrolled at most, where each is a vector of its own (depthwise, pools)."""
LONGEST_VECTOR = 16
"""Elements that one loop computes as a vector at most, whatever the registers."""
VECTORS_EACH = 4
"""Vectors of sums that a reduction along other axes keeps at once."""


class Kernel:
    """The blocks of an unscheduled kernel."""

    def __init__(self, schedule: s_tir.Schedule) -> None:
        self.schedule = schedule
        root = schedule.get_sblock("root")
        blocks = schedule.get_child_blocks(root)
        outputs = schedule.get_output_blocks(root)
        if len(outputs) != 1 or any(schedule.get_child_blocks(block) for block in blocks):
            raise NoSchedule("it has several outputs, or blocks in blocks")
        self.names = [schedule.get(block).name_hint for block in blocks]
        self.output = schedule.get(outputs[0]).name_hint
        self.sums = tuple(
            name for name, block in zip(self.names, blocks, strict=True) if reduces(schedule.get(block))
        )

    def store_apart(self, keep: Sequence[str]) -> tuple[SBlockRV, list[SBlockRV]]:
        """Inline all but *keep* and the output; return the store and the sums.

        They are apart so that sums stay in registers.
        """
        schedule = self.schedule
        for name in self.names:
            if name not in keep and name != self.output:
                schedule.compute_inline(schedule.get_sblock(name))
        sums = [schedule.get_sblock(name) for name in self.sums]
        if self.output in self.sums:
            return schedule.cache_write(schedule.get_sblock(self.output), 0, "global"), sums
        return schedule.get_sblock(self.output), sums


def extent_of(schedule: s_tir.Schedule, loop: LoopRV) -> int:
    return int(schedule.get(loop).extent)


def loops_of(schedule: s_tir.Schedule, block: SBlockRV) -> tuple[list[LoopRV], list[LoopRV]]:
    """Return the loops of *block* over places, and those that it accumulates over, outermost first."""
    loops, own = schedule.get_loops(block), schedule.get(block)
    if not loops:
        return [], []
    nests = [schedule.get(loop) for loop in loops]
    realizations = tir_nodes(nests[-1], tirx.SBlockRealize)  # the innermost has the fewest nodes
    (values,) = (node.iter_values for node in realizations if node.block.same_as(own))
    bound = zip(own.iter_vars, values, strict=True)
    reduced = variables_of([value for axis, value in bound if int(axis.iter_type) == REDUCE])
    places = [loop for loop, nest in zip(loops, nests, strict=True) if nest.loop_var not in reduced]
    return places, [loop for loop, nest in zip(loops, nests, strict=True) if nest.loop_var in reduced]


def reduce_loops(schedule: s_tir.Schedule, block: SBlockRV) -> list[LoopRV]:
    """Return the loops that *block* accumulates over, outermost first."""
    return loops_of(schedule, block)[1]


def spatial_loops(schedule: s_tir.Schedule, block: SBlockRV) -> list[LoopRV]:
    """Return the loops of *block* over places."""
    return loops_of(schedule, block)[0]


def work_of(schedule: s_tir.Schedule, block: SBlockRV) -> int:
    """Return how often *block* is computed."""
    return math.prod(int(iterator.dom.extent) for iterator in schedule.get(block).iter_vars)


def parallel(schedule: s_tir.Schedule, loops: Sequence[LoopRV], work: int) -> LoopRV:
    """Give *loops* to all threads, as one, if it is worth it; the innermost of what they are then."""
    if work < WORTH_A_THREAD:
        return loops[-1]
    spread = schedule.fuse(*loops)
    schedule.parallel(spread)
    return spread


def partition(schedule: s_tir.Schedule, loop: LoopRV) -> None:
    """Have *loop* computed in parts without conditions on it: tiles, borders, parts of concatenations.

    TVM fails to where indices have 64 bits: there the conditions stay.
    """
    if can_partition(schedule, loop):
        schedule.annotate(loop, "pragma_loop_partition_hint", 1)


def can_partition(schedule: s_tir.Schedule, loop: LoopRV) -> bool:
    """Return True if conditions on *loop* go where it is partitioned."""
    return str(schedule.get(loop).loop_var.dtype) == "int32"


def vector_width(extent: int, lanes: int) -> int:
    """Return how many of *extent* places one vector instruction or some of them take; 1: none."""
    for width in (size for size in (16, 8, 4) if size <= lanes):
        if extent % width == 0:
            return width * max(divisors(extent // width, VECTORS_EACH))
    return lanes if extent > 2 * lanes else 1
