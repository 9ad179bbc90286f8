"""Distribution of the texels of a kernel's output over work-groups, work-items and registers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from adt.compiler.passes.gpu.schedules import WORK_GROUP
from adt.compiler.passes.scheduling import NoSchedule, divisors
from adt.package.reports import LANES

MOST_TEXELS = (4, 2, 4)
"""Most texels that a work-item computes along x, y and the axis before them (channels); each fills four
registers."""


@dataclass(frozen=True)
class Axis:
    """The loops that one axis of the output was cut into."""

    groups: tuple[Any, ...]
    """Over work-groups, from the outermost on."""
    item: Any
    """Over work-items of a work-group."""
    register: Any
    """Over texels of one work-item."""


def sample_tiles(schedule: Any, loops: Sequence[Any], *, rounded: bool = False) -> tuple[Axis, ...]:
    """Cut *loops* into tiles and put them in order; nothing is bound yet. Returns x, y, z, if they exist.

    Args:
        loops: over texels; the last is x, the one before y, then z, and further ones are left whole.
        rounded: round x and y up where they are hard to divide; what is beyond their end is not stored.
    """
    others = list(loops)
    room = WORK_GROUP
    axes: list[Axis] = []
    for name, most in zip("xyz", MOST_TEXELS, strict=True):
        if not others:
            break
        loop = others.pop()
        extent = int(schedule.get(loop).extent)
        outside: tuple[Any, ...] = ()
        if rounded and name != "z" and (up := _rounded(extent)) != extent:
            beyond, loop = schedule.split(loop, [None, up])
            outside, extent = (beyond,), up
        first = divisors(extent, room)[-1]
        room //= first
        tile = schedule.sample_perfect_tile(loop, 3, most, decision=[extent // first, first, 1])
        group, item, register = schedule.split(loop, tile)
        axes.append(Axis((*outside, group), item, register))
    if rounded and all(len(axis.groups) == 1 for axis in axes):
        raise NoSchedule("it has no axis to round up")
    last = axes[-1]
    axes[-1] = Axis((*others, *last.groups), last.item, last.register)
    backwards = axes[::-1]
    schedule.reorder(
        *itertools.chain.from_iterable(axis.groups for axis in backwards),
        *(axis.item for axis in backwards),
        *(axis.register for axis in backwards),
    )
    return tuple(axes)


def bind_groups(schedule: Any, axes: Sequence[Axis]) -> Any:
    """Make work-groups of OpenCL of *axes*; returns the innermost loop over them."""
    groups = []
    for name, axis in zip("xyz", axes, strict=False):
        groups.append(schedule.fuse(*axis.groups) if len(axis.groups) > 1 else axis.groups[0])
        schedule.bind(groups[-1], f"blockIdx.{name}")
    return groups[0]


def bind_items(schedule: Any, *items: Any) -> None:
    """Make work-items of OpenCL of the loops *items*: along x, y and z."""
    for name, item in zip("xyz", items, strict=False):
        schedule.bind(item, f"threadIdx.{name}")


def accumulate(schedule: Any, reduction: Any, spatial: list[Any], reduce: list[Any]) -> None:
    """Order the loops of *reduction*: *reduce*, all texels unrolled, the lanes of each at once."""
    *texels, lane = spatial
    schedule.reorder(*reduce, *texels, lane)
    for loop in texels:
        schedule.unroll(loop)
    schedule.vectorize(lane)  # before the decomposition, after which it is refused
    schedule.decompose_reduction(reduction, reduce[0])


def _rounded(extent: int) -> int:
    """*extent*, or where it is hard to divide, the next multiple of four."""
    rest = extent
    for prime in (2, 3, 5, 7):
        while rest % prime == 0:
            rest //= prime
    return extent if rest == 1 else extent + -extent % LANES
