"""The schedules among which a kernel is tuned that a rule for CPUs schedules: what the rule leaves open.

Each is that rule's, with other decisions, and finished as without tuning: the first one is what compiling
takes without records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm

from adt.compiler.passes.cpu.decisions import Chosen
from adt.compiler.passes.cpu.schedules import TILED, finished, schedule_of
from adt.compiler.passes.cpu.vectors import Vectors, vectors_of
from adt.compiler.passes.precision.half import HALF
from adt.compiler.passes.records.traces import trace_text
from adt.tuning.candidates import Candidate


@dataclass(frozen=True)
class Point:
    """One schedule of a space."""

    candidate: Candidate
    ways: Mapping[str, Sequence[object]]
    """The ways in which its rule could do each thing."""


class CpuSpace:
    """The schedules of one kernel."""

    def __init__(self, function: Any, vectors: Vectors) -> None:
        """Take *function*, the unscheduled PrimFunc of a workload."""
        self._function = function
        self._vectors = vectors

    def point(self, places: Mapping[str, int]) -> Point | None:
        """The schedule that does things in the ways of these *places*, in others by the first; None: none
        does."""
        chosen = Chosen(places)
        schedule = schedule_of(self._function, self._vectors, chosen, rules=TILED)
        if schedule is None or any(place >= len(chosen.ways.get(what, ())) for what, place in places.items()):
            return None
        trace = trace_text(schedule.trace)
        module = tvm.IRModule({"main": finished(schedule)})
        return Point(Candidate(trace, str(tvm.ir.save_json(module))), chosen.ways)


def cpu_space(function: Any, target: Any) -> CpuSpace | None:
    """The space of the unscheduled PrimFunc *function* for TVM's *target*; None: no rule leaves anything
    open, and the kernel is tuned as TVM does."""
    if str(target.kind.name) != "llvm":
        return None
    half = any(str(buffer.dtype) == HALF for buffer in function.buffer_map.values())
    space = CpuSpace(function, vectors_of(target, half=half))
    usual = space.point({})
    return space if usual and any(len(ways) > 1 for ways in usual.ways.values()) else None
