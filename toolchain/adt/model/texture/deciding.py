"""Who decides about a schedule: the library, or a search that starts where the library would be.

Schedules are written once. Where they have a choice they ask a :class:`Decider` and say
what they would take: compiling takes that (:class:`Settled`); tuning samples it, with that
as the first decision (:mod:`adt.tuning.sampling`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class Decider(Protocol):
    """Answers what a schedule leaves open."""

    def tile(self, schedule: Any, loop: Any, wanted: Sequence[int], most: int) -> Sequence[Any]:
        """Extents of the loops that *loop* is split into, from the outermost on, whose product is its extent.

        Args:
            wanted: what the library would take; the first may be None, for what is left.
            most: the last one, at most.
        """

    def unroll(self, schedule: Any, loop: Any, wanted: int) -> None:
        """Unroll *loop*, and loops inside of it, up to *wanted* statements."""


class Settled:
    """Takes what the library would."""

    def tile(self, _schedule: Any, _loop: Any, wanted: Sequence[int], _most: int) -> Sequence[Any]:
        """*wanted*."""
        return wanted

    def unroll(self, schedule: Any, loop: Any, wanted: int) -> None:
        """As TVM's own rules have it: marks that its lowering reads."""
        schedule.annotate(loop, "pragma_auto_unroll_max_step", wanted)
        schedule.annotate(loop, "pragma_unroll_explicit", 1)
