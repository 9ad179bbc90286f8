"""Candidates on their way from the search to a device, each known by a number."""

from __future__ import annotations

import dataclasses
import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from adt.tuning.confirming import ROUNDS, Scheduled, timing_again
from adt.tuning.jobs import BuildJob, Built, MeasureJob, Outcome
from adt.tuning.plan import Builders, Plan
from adt.tuning.ready import Ready
from adt.tuning.records import Failure
from adt.tuning.task_progress import TaskProgress

LOSSES = 3
"""After so many devices that left while they measured a candidate, it is its fault."""
AHEAD = 2
"""Candidates that each builder has or waits for."""


@dataclass
class Work:
    """One candidate on its way."""

    id: int
    progress: TaskProgress
    trace: str
    """:data:`BASELINE` for the untuned schedule."""
    module: str
    again: bool
    """It was measured before, and is confirmed …"""
    rounds: int
    """… so many times from here on."""
    compare: bool
    """What it computes is brought back."""
    losses: int = 0

    @property
    def last(self) -> bool:
        """It is not measured after this."""
        return self.rounds == 1

    def again_as(self, number: int) -> Work:
        """For its next round."""
        return dataclasses.replace(self, id=number, rounds=self.rounds - 1, compare=False, losses=0)


class Works:
    """All candidates on their way; only the engine's thread uses it."""

    def __init__(self, plan: Plan, builders: Builders, ready: Ready, done: Callable[[Built], None]) -> None:
        self._plan = plan
        self._builders = builders
        self._ready = ready
        self._done = done
        self._numbers = itertools.count(1)
        self._backlog: deque[Work] = deque()
        self._building: dict[int, Work] = {}
        self._built: dict[int, tuple[Work, MeasureJob]] = {}

    def add(self, progress: TaskProgress, trace: str, module: str) -> None:
        """Have a candidate built and measured; untuned schedules come before others."""
        self._add(Work(next(self._numbers), progress, trace, module, False, 1, False))

    def confirm(self, progress: TaskProgress, trace: str, known: Scheduled) -> None:
        """Have a candidate that was measured before built, measured again, and its numbers compared."""
        progress.outputs = known.outputs
        self._add(Work(next(self._numbers), progress, trace, known.module, True, ROUNDS, True))

    def _add(self, work: Work) -> None:
        (self._backlog.append if work.trace else self._backlog.appendleft)(work)

    def build(self, limit: int) -> None:
        """Give builders what they have room for, while fewer than *limit* candidates wait for a device."""
        most = AHEAD * max(self._builders.workers, 1)
        while (
            self._backlog and len(self._building) < most and self._ready.waiting + len(self._building) < limit
        ):
            work = self._backlog.popleft()
            self._building[work.id] = work
            self._builders.submit(BuildJob(work.id, work.module, self._plan.toolchain), self._done)

    def built(self, built: Built) -> tuple[Work, Failure] | None:
        """A builder is done: the candidate waits for a device now, unless it failed, which is returned."""
        work = self._building.pop(built.id)
        if built.failure is not None:
            work.rounds = 1
            return work, built.failure
        timing = timing_again(self._plan.timing) if work.again else self._plan.timing
        task = work.progress.task
        job = MeasureJob(
            id=built.id,
            task=task.name,
            library=built.library,
            arguments=task.arguments,
            device=self._plan.toolchain.device,
            timing=timing,
            outputs=work.progress.outputs if work.compare else 0,
        )
        work.module = ""  # large, and not needed any more
        self._built[work.id] = work, job
        self._ready.put(job)
        return None

    def measured(self, outcome: Outcome) -> tuple[Work, Failure | None] | None:
        """A device is done: the candidate, and its failure if it failed; None: it waits for another one."""
        work, job = self._built[outcome.id]
        if outcome.lost:
            work.losses += 1
            if work.losses < LOSSES:
                self._ready.put(job, first=True)
                return None
        del self._built[outcome.id]
        failure = outcome.failure
        if outcome.lost:
            failure = Failure("crash", f"{LOSSES} times the device left while it was measured")
        if failure is not None:
            work.rounds = 1
        elif work.rounds > 1:
            number = next(self._numbers)
            job = dataclasses.replace(job, id=number, outputs=0)
            self._built[number] = work.again_as(number), job
            self._ready.put(job)
        return work, failure

    @property
    def pending(self) -> int:
        """Candidates that no device has yet."""
        return len(self._backlog) + len(self._building) + self._ready.waiting

    @property
    def building(self) -> int:
        """Candidates that builders have."""
        return len(self._building)

    @property
    def all_done(self) -> bool:
        """Nothing is on its way."""
        return not (self._backlog or self._building or self._built)

    def activities(self) -> dict[TaskProgress, str]:
        """What happens to candidates of each task that has some: ``building`` or ``measuring``."""
        found = {work.progress: "building" for work in (*self._backlog, *self._building.values())}
        taken = self._ready.taken
        measuring = {work.progress: "measuring" for id, (work, _) in self._built.items() if id in taken}
        ready = {work.progress: "building" for work, _ in self._built.values()}
        return ready | found | measuring
