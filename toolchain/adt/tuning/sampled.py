"""The decider of a search: what a schedule leaves open is sampled, from what the library would take on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

UNROLL = (0, 64, 128, 256)
"""Statements up to which the loops of a kernel are unrolled, besides those that always are. A driver was
seen to compile for 20 s what 1024 give."""


class Sampled:
    """A :class:`adt.model.texture.deciding.Decider` of TVM's instructions that sample."""

    def tile(self, schedule: Any, loop: Any, wanted: Sequence[int], most: int) -> Sequence[Any]:
        """Any extents whose product is the loop's."""
        extent = int(schedule.get(loop).extent)
        first = [extent // math.prod(wanted[1:]), *wanted[1:]]
        tile: Sequence[Any] = schedule.sample_perfect_tile(loop, len(first), most, decision=first)
        return tile

    def unroll(self, schedule: Any, _loop: Any, wanted: int) -> None:
        """Of the whole kernel, by TVM's postprocessor."""
        sample_unrolling(schedule, wanted)


def sample_unrolling(schedule: Any, wanted: int) -> None:
    """How far TVM's postprocessor unrolls what accumulates; *wanted* of :data:`UNROLL` first."""
    steps = schedule.sample_categorical(
        UNROLL, [1 / len(UNROLL)] * len(UNROLL), decision=UNROLL.index(wanted)
    )
    schedule.annotate(schedule.get_sblock("root"), "meta_schedule.unroll_explicit", steps)
