"""Whether candidates that are measured again compute what the untuned schedule computes."""

from __future__ import annotations

from collections.abc import Iterator

from adt.tuning.agreeing import disagreement
from adt.tuning.jobs import Outcome
from adt.tuning.records import BASELINE, Failure
from adt.tuning.task_progress import TaskProgress
from adt.tuning.works import Work

Measured = tuple[Work, Failure | None, Outcome]


class Judge:
    """Holds a candidate's measurement until there is one of the untuned schedule to compare it with."""

    def __init__(self) -> None:
        self._held: dict[TaskProgress, list[Measured]] = {}

    def judge(self, work: Work, failure: Failure | None, outcome: Outcome) -> Iterator[Measured]:
        """The measurements that can be kept now: this one, held ones, or none."""
        progress = work.progress
        if not work.compare:
            yield work, failure, outcome
        elif work.trace == BASELINE:
            progress.right = outcome.outputs if failure is None else ()
            yield work, failure, outcome
            for held in self._held.pop(progress, ()):
                yield _compared(*held)
        elif progress.right is None and failure is None:
            self._held.setdefault(progress, []).append((work, failure, outcome))
        else:
            yield _compared(work, failure, outcome)

    def give_up(self, progress: TaskProgress) -> Iterator[Measured]:
        """There will be no measurement of the untuned schedule: it could not be built again."""
        progress.right = ()
        yield from self._held.pop(progress, ())


def _compared(work: Work, failure: Failure | None, outcome: Outcome) -> Measured:
    """The measurement, a failure if the numbers are wrong; without anything to compare it is as it is."""
    right = work.progress.right
    if failure is None and right and outcome.outputs:
        wrong = disagreement(work.progress.task.arguments, right, outcome.outputs)
        failure = Failure("wrong", wrong) if wrong is not None else None
    return work, failure, outcome
