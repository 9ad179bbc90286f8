"""Candidates on their way: built, measured, compared with the untuned schedule, and recorded."""

from __future__ import annotations

import dataclasses
import itertools
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from adt.tuning.candidates import BuildJob, Built, Measured, MeasureJob, Outcome
from adt.tuning.correctness import disagreement
from adt.tuning.plan import Builders, Observer, Plan, Records
from adt.tuning.proposals import ROUNDS, Scheduled, timing_again
from adt.tuning.records import BASELINE, CONFIRMED, Context, Failure, Record
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


PATIENCE = 0.5
"""Seconds that a device waits for a candidate at once."""


class Ready:
    """Candidates for the devices, in the order in which they were built. For any thread.

    Where measuring is exclusive, one of two phases is on: the machine works (searches, builds), and
    devices get nothing; or it measures what is ready, and nobody else works until all of that is done.
    """

    def __init__(self, *, exclusive: bool) -> None:
        self._exclusive = exclusive
        self._changed = threading.Condition()
        self._waiting: deque[MeasureJob] = deque()
        self._taken: set[int] = set()
        self._measure = not exclusive
        self._closed = False

    def put(self, job: MeasureJob, *, first: bool = False) -> None:
        """Add *job*; at the front if it is one that a device gave back."""
        with self._changed:
            (self._waiting.appendleft if first else self._waiting.append)(job)
            self._changed.notify()

    def take(self) -> MeasureJob | None:
        """The next job, or None after half a second without one."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or (self._measure and self._waiting), PATIENCE)
            if not self._measure or not self._waiting or self._closed:
                return None
            job = self._waiting.popleft()
            self._taken.add(job.id)
            return job

    def back(self, job: int) -> None:
        """A job that was taken is done, or given back."""
        with self._changed:
            self._taken.discard(job)

    def close(self) -> None:
        """Give out nothing more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @property
    def waiting(self) -> int:
        """Jobs that no device took yet."""
        return len(self._waiting)

    @property
    def taken(self) -> frozenset[int]:
        """Jobs that are being measured."""
        with self._changed:
            return frozenset(self._taken)

    def may_work(self) -> bool:
        """Whether searching and building may begin something; ends a phase in which all is measured."""
        with self._changed:
            if self._exclusive and not self._waiting and not self._taken:
                self._measure = False
            return not self._exclusive or not self._measure

    def measure(self) -> None:
        """Nobody works: let devices measure what is ready."""
        with self._changed:
            self._measure = True
            self._changed.notify_all()


Measurement = tuple[Work, Failure | None, Outcome]


class Judge:
    """Holds a candidate's measurement until there is one of the untuned schedule to compare it with."""

    def __init__(self) -> None:
        self._held: dict[TaskProgress, list[Measurement]] = {}

    def judge(self, work: Work, failure: Failure | None, outcome: Outcome) -> Iterator[Measurement]:
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

    def give_up(self, progress: TaskProgress) -> Iterator[Measurement]:
        """There will be no measurement of the untuned schedule: it could not be built again."""
        progress.right = ()
        yield from self._held.pop(progress, ())


def _compared(work: Work, failure: Failure | None, outcome: Outcome) -> Measurement:
    """The measurement, a failure if the numbers are wrong; without anything to compare it is as it is."""
    right = work.progress.right
    if failure is None and right and outcome.outputs:
        wrong = disagreement(work.progress.task.arguments, right, outcome.outputs)
        failure = Failure("wrong", wrong) if wrong is not None else None
    return work, failure, outcome


Made: TypeAlias = tuple[Work, Failure | None, Outcome | None]
"""A candidate, its failure if it failed, and its measurement; None where it could not be built."""


class Keeper:
    """Writes the records of one tuning; only the engine's thread uses it."""

    def __init__(self, plan: Plan, database: Records, observer: Observer) -> None:
        self._plan = plan
        self._database = database
        self._observer = observer
        self.kept = 0
        """Records of this session."""
        self.failures: Counter[str] = Counter()
        """Failed candidates of this session, by kind."""

    def keep(self, made: Sequence[Made], context: Context) -> None:
        """Write what came of candidates; then their tasks, the searches and the observer are told.

        Args:
            context: the tuning's.

        Raises:
            DiskError: it could not be written, and nobody was told.
        """
        if not made:
            return
        records = [self._record(*each, context) for each in made]
        self._database.add(records)
        self.kept += len(records)
        for (work, _, _), record in zip(made, records, strict=True):
            if record.failure is not None:
                self.failures[record.failure.kind] += 1
            _tell(work, record)
            if self._observer.record is not None:
                self._observer.record(record)

    def _record(
        self, work: Work, failure: Failure | None, outcome: Outcome | None, context: Context
    ) -> Record:
        timing = timing_again(self._plan.timing) if work.again else self._plan.timing
        options = {name: getattr(timing, name) for name in ("number", "repeat", "min_repeat_ms")}
        if outcome is not None:
            context = dataclasses.replace(context, device=outcome.device, driver=outcome.driver)
        return Record(
            workload=work.progress.workload,
            context=context,
            task=work.progress.task.name,
            trace=work.trace,
            seconds=() if outcome is None or failure is not None else outcome.seconds,
            failure=failure,
            on=None if outcome is None else outcome.on,
            run=self._plan.run,
            at=time.time(),
            options=options | ({CONFIRMED: True} if work.again else {}),
        )


def _tell(work: Work, record: Record) -> None:
    """Tell the candidate's task what became of it."""
    progress = work.progress
    progress.absorb(record)
    if work.again:
        if work.last:
            progress.confirming.discard(work.trace)
            progress.confirmed_leaders += bool(work.trace and record.failure is None)
    elif work.trace == BASELINE:
        progress.baseline_pending = False
    else:
        progress.result(work.trace, record.failure or Measured(record.seconds))
