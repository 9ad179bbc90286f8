"""Allocation of batches to tasks: the task from which the model gains most is next, as in Ansor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

BATCH = 16
"""Candidates of a batch, where little depends on it: the cost model learns after each."""
PER_DEVICE = 4
"""Least number of trials for each device."""
MIN_BATCH = 4
"""A batch of fewer candidates tells a search nothing."""
MAX_BATCHES = 2
"""Batches of one task that may be out: while one is measured, the next is searched and built."""
BACKWARD = 0.2
"""Weight of what the last batches gained, against what the next may gain."""
WINDOW = 3
"""Batches that are looked back at."""
MINOR = 0.005
"""Share of the model's time; a task with less waits until it promises more than another batch for others."""


@dataclass(frozen=True)
class Standing:
    """State of a task."""

    weight: int
    """Calls in one run of the model."""
    flops: int | None
    baseline: float | None
    """Seconds of one call; None: not measured yet, or failed."""
    history: tuple[float, ...]
    """Best seconds of one call after each batch; infinite while none ran."""
    trials: int
    """Candidates that are done …"""
    outstanding: int
    """Number of trials that are proposed and not done …"""
    batches: int
    """Number of their batches, the one that is being searched included."""
    limit: int | None
    """Candidates it may have; None: all share a number."""
    ended: bool
    """It gets no more."""

    @property
    def room(self) -> float:
        """Candidates that it may still get."""
        if self.ended:
            return 0
        return math.inf if self.limit is None else max(self.limit - self.trials - self.outstanding, 0)

    @property
    def fresh(self) -> bool:
        """It got nothing yet."""
        return self.trials + self.outstanding + self.batches == 0

    @property
    def seconds(self) -> float | None:
        """The time that the model would need for a call now; None: not known."""
        known = [time for time in (*self.history[-1:], self.baseline) if time is not None and time < math.inf]
        return min(known, default=None)


def batch_size(requested: int, devices: int) -> int:
    """Choose the candidates of a batch for *devices* devices; *requested* by the user, 0 for the best."""
    return requested or max(BATCH, PER_DEVICE * devices)


def choose(tasks: Sequence[Standing], batch: int, left: int) -> tuple[int, int] | None:
    """Choose the task for the next batch and its number of candidates; None: nothing for now.

    First every task gets one batch, the costliest first, but those that hardly count; a smaller one where
    there is little. Then, and from the start where there is too little for that, the most promising one
    gets it.

    Args:
        left: candidates that may still be proposed, for all tasks together.
    """
    able = [index for index, task in enumerate(tasks) if task.room > 0 and task.batches < MAX_BATCHES]
    if not able or left < 1:
        return None
    share = left // sum(task.room > 0 for task in tasks)
    if share >= MIN_BATCH:
        least = MINOR * sum(_time(task) for task in tasks if task.seconds is not None)
        fresh = [index for index in able if tasks[index].fresh]
        able = [index for index in fresh if _time(tasks[index]) >= least] or able
    size = min(batch, max(share, MIN_BATCH)) if is_scarce(tasks, batch, left) else batch
    index = max(able, key=lambda index: (*expected_gain(tasks[index], batch), -index))
    return index, int(min(size, tasks[index].room, left))


def _time(task: Standing) -> float:
    """Return the seconds of the task in one run of the model; infinite where that is not known."""
    return math.inf if task.seconds is None else task.weight * task.seconds


def is_scarce(tasks: Sequence[Standing], batch: int, left: int) -> bool:
    """Return True if *left* candidates give no full batch to every task that had none."""
    return left < batch * sum(task.room > 0 and task.fresh for task in tasks)


def expected_gain(task: Standing, batch: int) -> tuple[float, float]:
    """Estimate the seconds of a model's run that the next batch of *task* saves; its operations decide a tie.

    A mean of what the last batches saved, and of what the next would if the time went on falling to
    nothing in as many batches as there were: the longer a task was tuned, the less it promises.
    """
    operations = float(task.weight * (task.flops or 0))
    best = task.seconds
    if best is None:
        return 0.0, operations
    times = [time for time in task.history if time < math.inf]
    saved = (times[-1 - WINDOW] - times[-1]) / WINDOW if len(times) > WINDOW else 0.0
    batches = max((task.trials + task.outstanding) / batch, task.batches, 1.0)
    return task.weight * (BACKWARD * saved + (1 - BACKWARD) * best / batches), operations
