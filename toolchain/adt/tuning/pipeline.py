"""Candidates on their way: built, measured, compared with the untuned schedule, and recorded."""

from __future__ import annotations

import dataclasses
import itertools
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from adt.compiler.passes.records.arguments import Argument, array_of
from adt.numerics import REORDERED, gaps
from adt.tuning.candidates import (
    BuildJob,
    BuildOutcome,
    MeasureJob,
    Measurement,
    MeasureOutcome,
    Timing,
    TuningOptions,
)
from adt.tuning.records import BASELINE, CONFIRMED, Context, Failure, Record
from adt.tuning.task_progress import TaskProgress

if TYPE_CHECKING:
    from adt.tuning.database.store import Database
    from adt.tuning.fleet.builders import Builders

LOSSES = 3
"""After so many devices that left while they measured a candidate, it is its fault."""
BUILD_AHEAD = 2
"""Candidates that each builder has or waits for."""
TAKE_SECONDS = 0.5
"""Seconds for which a device waits for a candidate."""
CONFIRM_ROUNDS = 2
"""Times that a candidate is measured again to confirm it; all wait in one queue, so that they take turns."""
CONFIRM_REPEATS = 3
"""Least number of repeats of such a measurement."""


@dataclass
class CandidateJob:
    id: int
    progress: TaskProgress
    trace: str
    module: str
    confirms: bool
    rounds: int
    compares: bool
    """Results of the kernel are downloaded, for comparison."""
    losses: int = 0


@dataclass(frozen=True)
class Completion:
    """A candidate that is done, for this round."""

    job: CandidateJob
    failure: Failure | None
    outcome: MeasureOutcome | None


def confirmation_timing(timing: Timing) -> Timing:
    """Return how candidates are timed that are confirmed."""
    repeat = max(timing.repeat, CONFIRM_REPEATS)
    return dataclasses.replace(timing, repeat=repeat, timeout=timing.timeout * repeat / timing.repeat)


class MeasureQueue:
    """Candidates for the devices, in the order in which they were built. For any thread.

    Where measuring is exclusive, either searches and builders work, or devices measure all that is ready.
    """

    def __init__(self, *, exclusive: bool) -> None:
        self._exclusive = exclusive
        self._changed = threading.Condition()
        self._waiting: deque[MeasureJob] = deque()
        self._taken: set[int] = set()
        self._measuring = not exclusive
        self._closed = False

    def put(self, job: MeasureJob, *, first: bool = False) -> None:
        """Add *job*; at the front if it is one that a device gave back."""
        with self._changed:
            (self._waiting.appendleft if first else self._waiting.append)(job)
            self._changed.notify()

    def take(self) -> MeasureJob | None:
        """Return the next job, or None after half a second without one."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or (self._measuring and self._waiting), TAKE_SECONDS)
            if not self._measuring or not self._waiting or self._closed:
                return None
            job = self._waiting.popleft()
            self._taken.add(job.id)
            return job

    def give_back(self, job: int) -> None:
        """Mark a job as no longer taken: it is done, or given back."""
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
        """Return True if searching and building may begin something; end a phase once all is measured."""
        with self._changed:
            if self._exclusive and not self._waiting and not self._taken:
                self._measuring = False
            return not self._exclusive or not self._measuring

    def start_measuring(self) -> None:
        """Let devices measure what is ready: nothing is searched or built."""
        with self._changed:
            self._measuring = True
            self._changed.notify_all()


class Pipeline:
    """All candidates on their way; only the engine's thread uses it."""

    def __init__(
        self,
        options: TuningOptions,
        builders: Builders,
        measure_queue: MeasureQueue,
        done: Callable[[BuildOutcome], None],
    ) -> None:
        self._options = options
        self._builders = builders
        self._queue = measure_queue
        self._done = done
        self._numbers = itertools.count(1)
        self._backlog: deque[CandidateJob] = deque()
        self._building: dict[int, CandidateJob] = {}
        self._built: dict[int, tuple[CandidateJob, MeasureJob]] = {}
        self._comparison = OutputComparison()

    def add(self, progress: TaskProgress, trace: str, module: str, *, confirms: bool = False) -> None:
        """Have a candidate built and measured, untuned schedules before others.

        One that was measured before *confirms* its times by more of them, and its numbers are compared.
        """
        rounds = CONFIRM_ROUNDS if confirms else 1
        job = CandidateJob(next(self._numbers), progress, trace, module, confirms, rounds, confirms)
        (self._backlog.append if trace else self._backlog.appendleft)(job)

    def build(self, limit: int) -> None:
        """Give builders what they have room for, while fewer than *limit* candidates wait for a device."""
        most = BUILD_AHEAD * max(self._builders.workers, 1)
        while (
            self._backlog and len(self._building) < most and self._queue.waiting + len(self._building) < limit
        ):
            job = self._backlog.popleft()
            self._building[job.id] = job
            self._builders.submit(BuildJob(job.id, job.module, self._options.toolchain), self._done)

    def built(self, outcome: BuildOutcome) -> Iterator[Completion]:
        """Receive what a builder built, which waits for a device now; yield what is complete if it failed."""
        job = self._building.pop(outcome.id)
        if outcome.failure is not None:
            job.rounds = 1
            yield Completion(job, outcome.failure, None)
            if job.confirms and job.trace == BASELINE:
                yield from self._comparison.give_up(job.progress)
            return
        timing = self._options.timing
        task = job.progress.task
        measure_job = MeasureJob(
            id=outcome.id,
            task=task.name,
            library=outcome.library,
            arguments=task.arguments,
            device=self._options.toolchain.device,
            timing=confirmation_timing(timing) if job.confirms else timing,
            outputs=task.outputs if job.compares else 0,
        )
        job.module = ""  # large, and not needed any more
        self._built[job.id] = job, measure_job
        self._queue.put(measure_job)

    def measured(self, outcome: MeasureOutcome) -> Iterator[Completion]:
        """Receive what a device measured; yield what is complete, unless it waits for another device."""
        job, measure_job = self._built[outcome.id]
        if outcome.lost:
            job.losses += 1
            if job.losses < LOSSES:
                self._queue.put(measure_job, first=True)
                return
        del self._built[outcome.id]
        failure = outcome.failure
        if outcome.lost:
            failure = Failure("crash", f"{LOSSES} times the device left while it was measured")
        if failure is not None:
            job.rounds = 1
        elif job.rounds > 1:
            number = next(self._numbers)
            measure_job = dataclasses.replace(measure_job, id=number, outputs=0)
            again = dataclasses.replace(job, id=number, rounds=job.rounds - 1, compares=False, losses=0)
            self._built[number] = again, measure_job
            self._queue.put(measure_job)
        yield from self._comparison.check(Completion(job, failure, outcome))

    @property
    def pending(self) -> int:
        """Candidates that no device has yet."""
        return len(self._backlog) + len(self._building) + self._queue.waiting

    @property
    def building(self) -> int:
        """Candidates that builders have."""
        return len(self._building)

    @property
    def is_empty(self) -> bool:
        """Nothing is on its way."""
        return not (self._backlog or self._building or self._built)

    def activities(self) -> dict[TaskProgress, str]:
        """Return ``building`` or ``measuring`` for each task whose candidates are."""
        taken = self._queue.taken
        jobs = [*(job for job, _ in self._built.values()), *self._backlog, *self._building.values()]
        measuring = {job.progress: "measuring" for number, (job, _) in self._built.items() if number in taken}
        return {job.progress: "building" for job in jobs} | measuring


class OutputComparison:
    """Compares what candidates compute with the untuned schedule, and holds them until that has run.

    Compilers and drivers err: TVM 0.25 takes some index calculations for smaller than they are and leaves out
    the checks that keep them inside a tensor. Such a kernel is fast, and wrong.
    """

    def __init__(self) -> None:
        self._held: dict[TaskProgress, list[Completion]] = {}

    def check(self, completion: Completion) -> Iterator[Completion]:
        """Yield the completions that can be recorded now: this one, held ones, or none."""
        progress = completion.job.progress
        if not completion.job.compares:
            yield completion
        elif completion.job.trace == BASELINE:
            assert completion.outcome is not None
            progress.expected_outputs = completion.outcome.outputs if completion.failure is None else ()
            yield completion
            yield from map(_compare, self._held.pop(progress, ()))
        elif progress.expected_outputs is None and completion.failure is None:
            self._held.setdefault(progress, []).append(completion)
        else:
            yield _compare(completion)

    def give_up(self, progress: TaskProgress) -> list[Completion]:
        """Release what waits for numbers of the untuned schedule, which could not be built again."""
        progress.expected_outputs = ()
        return self._held.pop(progress, [])


def _compare(completion: Completion) -> Completion:
    """Compare *completion* with the reference, if there is one; fail it if the numbers are wrong."""
    progress, outcome = completion.job.progress, completion.outcome
    if completion.failure is None and progress.expected_outputs and outcome and outcome.outputs:
        reason = difference(progress.task.arguments, progress.expected_outputs, outcome.outputs)
        if reason is not None:
            return dataclasses.replace(completion, failure=Failure("wrong", reason))
    return completion


def difference(arguments: Sequence[Argument], untuned: Sequence[bytes], tuned: Sequence[bytes]) -> str | None:
    """Describe how the outputs, the last of *arguments*, differ from *untuned* ones; None if they do not."""
    outputs = arguments[len(arguments) - len(untuned) :]
    for number, (argument, reference, data) in enumerate(zip(outputs, untuned, tuned, strict=True), 1):
        dtype = argument.dtype
        if len(reference) != len(data):
            reason = f"{len(data)} bytes instead of {len(reference)}"
        elif dtype in REORDERED:
            reason = _float_difference(array_of(dtype, data), array_of(dtype, reference), REORDERED[dtype])
        else:
            reason = "" if reference == data else "they must be equal"
        if reason:
            which = f" in output {number} of {len(outputs)}" if len(outputs) > 1 else ""
            return f"it computes other numbers than the untuned schedule{which}: {reason}"
    return None


def _float_difference(got: Any, reference: Any, tolerance: float) -> str:
    pair = gaps(got, reference)
    odd = int((np.isfinite(pair.reference) & ~pair.finite).sum())
    if odd:
        return f"{odd} of {len(got)} are infinite or NaN"
    if not pair.comparable:
        return "infinities or NaNs in other places"
    if len(reference) and not pair.finite.any():
        return "nothing finite to compare: the untuned schedule gives only infinities or NaNs"
    relative = float(pair.gap.max(initial=0.0)) / max(pair.magnitude, float(np.finfo(np.float32).tiny))
    return f"off by {relative:.2g} of the largest, {tolerance:g} allowed" if relative > tolerance else ""


class Recorder:
    """Writes the records of one tuning; only the engine's thread uses it."""

    def __init__(
        self, options: TuningOptions, database: Database, on_record: Callable[[Record], None]
    ) -> None:
        self._options = options
        self._database = database
        self._on_record = on_record
        self.kept = 0
        self.failures: Counter[str] = Counter()

    def record(self, completions: Sequence[Completion], context: Context) -> None:
        """Write records of *completions*; their tasks and the caller get them unless that fails."""
        if not completions:
            return
        records = [self._record(completion, context) for completion in completions]
        self._database.add(records)
        self.kept += len(records)
        for completion, record in zip(completions, records, strict=True):
            if record.failure is not None:
                self.failures[record.failure.kind] += 1
            job, progress = completion.job, completion.job.progress
            progress.add_record(record)
            if not job.confirms and job.trace == BASELINE:
                progress.baseline_pending = False
            elif not job.confirms:
                progress.add_result(job.trace, record.failure or Measurement(record.seconds))
            elif job.rounds == 1:
                progress.confirming.discard(job.trace)
            self._on_record(record)

    def _record(self, completion: Completion, context: Context) -> Record:
        job, failure, outcome = completion.job, completion.failure, completion.outcome
        timing = confirmation_timing(self._options.timing) if job.confirms else self._options.timing
        options = {name: getattr(timing, name) for name in ("number", "repeat", "min_repeat_ms")}
        if outcome is not None:
            context = dataclasses.replace(context, device=outcome.device, driver=outcome.driver)
        return Record(
            workload=job.progress.workload,
            context=context,
            task=job.progress.task.name,
            trace=job.trace,
            seconds=() if outcome is None or failure is not None else outcome.seconds,
            failure=failure,
            on=None if outcome is None else outcome.on,
            run=self._options.run,
            at=time.time(),
            options=options | ({CONFIRMED: True} if job.confirms else {}),
        )
