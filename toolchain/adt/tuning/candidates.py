"""What a search proposes, and what it is told of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from adt.tuning.records import Failure


@dataclass(frozen=True)
class Candidate:
    """One schedule of a kernel that was not measured yet."""

    trace: str
    """How it came about: what a record keeps (:func:`adt.model.tuning.traces.trace_text`)."""
    module: str
    """TVM's JSON of the scheduled IRModule ``{"main": PrimFunc}``: what is built."""


@dataclass(frozen=True)
class Measured:
    """A candidate ran."""

    seconds: tuple[float, ...]
    """Of one call, for each repeat."""


Result: TypeAlias = Measured | Failure | None
"""What came of a candidate; None: nothing is known, the device left."""


class NoSpace(Exception):
    """There is nothing to search: TVM finds no schedule of a kernel that could be varied."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
