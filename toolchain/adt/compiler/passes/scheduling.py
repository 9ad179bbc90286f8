"""Parts that schedules for CPUs and for GPUs share: how a rule refuses a kernel, and how it decides.

A rule schedules a kernel. It asks :class:`Decisions` for each thing that it could do in several ways, and
names the ways, the one that compiling takes first; tuning tries the others.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from tvm import s_tir
from tvm.s_tir.schedule import LoopRV, _type_checker

from adt.errors import lines_of

# TVM compares the arguments of each call of a Schedule with their annotations, which it takes apart and
# writes out anew each time: a third of the time of scheduling. What these two functions return depends on
# nothing but the annotation.
for _of_annotation in ("_dispatcher", "_type2str"):
    setattr(_type_checker, _of_annotation, functools.cache(getattr(_type_checker, _of_annotation)))

Way = TypeVar("Way")


class NoSchedule(Exception):
    """A rule does not take a kernel; the message is the reason, for the report."""


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """Raise NoSchedule for what TVM's scheduling raises meanwhile."""
    try:
        yield
    except (RuntimeError, ValueError, TypeError) as error:  # TVM's own are of the first
        raise NoSchedule(f"TVM's scheduling refuses it: {lines_of(error)[0]:.160}") from error


class Decisions:
    """Decisions about what a schedule leaves open; without *places* those that are made without a search."""

    def __init__(self, places: Mapping[str, int] | None = None) -> None:
        self._places = places or {}
        self.ways: dict[str, Sequence[object]] = {}
        """The ways there are to do each thing."""

    def choose(self, what: str, ways: Sequence[Way]) -> Way:
        """Choose the way at the place of *what*, or the first; ValueError if there are fewer ways."""
        self.ways[what] = ways
        place = self._places.get(what, 0)
        if place >= len(ways):
            raise ValueError(f"there are {len(ways)} ways of {what}")
        return ways[place]


def unroll_all(
    schedule: s_tir.Schedule, loops: Iterable[LoopRV], lane: LoopRV | None = None, *, vector: bool = True
) -> None:
    """Unroll the *loops* of a tile; *lane*, if there is one, becomes a *vector*, or is unrolled, too."""
    for loop in loops:
        schedule.unroll(loop)
    if lane is not None:
        (schedule.vectorize if vector else schedule.unroll)(lane)


def divisors(extent: int, most: int) -> list[int]:
    """Return the divisors of *extent*, from 1 up to *most*, in order."""
    return [size for size in range(1, max(1, min(extent, most)) + 1) if extent % size == 0]
