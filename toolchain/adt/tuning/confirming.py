"""Measure the fastest candidate of a task and the untuned schedule once more, before one replaces the other.

The smallest of many noisy times is smaller than what that candidate takes on the average, so that a
candidate which is no faster would be found faster some day. What counts is a second measurement, with
more repeats, of both. It also brings back what they computed: a candidate that computes something else
(compilers and drivers err) is never used.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from adt.tuning.jobs import Timing
from adt.tuning.ranking import CONFIRMED
from adt.tuning.records import BASELINE
from adt.tuning.task_progress import TaskProgress

if TYPE_CHECKING:
    from adt.tuning.tasks import Task

ROUNDS = 2
"""Times that each is measured again; both wait in one queue, so that they take turns."""
REPEATS = 3
"""Of a second measurement, at least."""
LEADERS = 5
"""Candidates of a task that turn out to be slower than they seemed, one after another, at most."""


@dataclass(frozen=True)
class Scheduled:
    """A candidate that was measured before, ready to be built again."""

    module: str
    """TVM's JSON."""
    outputs: int
    """How many of the last arguments it computes."""


def unconfirmed(progress: TaskProgress) -> list[str]:
    """Traces that must be measured once more to say which is faster; none when that is said, or no matter."""
    best, baseline = progress.best, progress.baseline
    if best is None or baseline is None or baseline.failure is not None or best.time >= baseline.time:
        return []
    if progress.confirmed_leaders >= LEADERS:
        return []
    again = [best.trace] if not best.options.get(CONFIRMED) else []
    if not baseline.options.get(CONFIRMED) or (again and progress.right is None):
        again = [BASELINE, *again]
    return again


def timing_again(timing: Timing) -> Timing:
    """How they are timed then."""
    repeat = max(timing.repeat, REPEATS)
    return dataclasses.replace(timing, repeat=repeat, timeout=timing.timeout * repeat / timing.repeat)


def scheduled(task: Task, trace: str) -> Scheduled:
    """The task's module as *trace* schedules it; takes TVM, for the search's thread.

    Raises:
        TraceError: the trace does not apply.
    """
    import tvm

    from adt.model.tuning.traces import apply_trace
    from adt.tuning.agreeing import written

    module = task.baseline if trace == BASELINE else str(tvm.ir.save_json(apply_trace(task.module, trace)))
    return Scheduled(module, written(task.module))
