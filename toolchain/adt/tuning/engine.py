"""Drive a tuning: searches propose, builders compile, devices measure, all at once; the database keeps it.

One thread coordinates, the caller's, and waits for no single candidate, task or device. The search and the
caller get a result after it is safe on disk.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from adt.errors import DiskError
from adt.tuning.candidates import BuildOutcome, MeasureOutcome, TuningOptions
from adt.tuning.pipeline import Completion, MeasureQueue, Pipeline, Recorder
from adt.tuning.proposals import Proposals
from adt.tuning.records import BASELINE, Context, Record
from adt.tuning.results import Status
from adt.tuning.task_progress import BATCH, PER_DEVICE, TaskProgress, choose, is_scarce

if TYPE_CHECKING:
    from adt.tuning.database.store import Database
    from adt.tuning.fleet.builders import Builders
    from adt.tuning.fleet.fleet import Done, Fleet, Take
    from adt.tuning.search.task_search import Searches
    from adt.tuning.tasks import Task

TICK = 0.25
"""Seconds between two looks at the devices."""
STATUS_SECONDS = 0.25
"""Seconds between two reports."""

Event = Callable[[], Iterable[Completion] | None]
"""A proposal, build or measurement as the function that takes it in; returns the trials that it completes."""


@dataclass(frozen=True)
class EngineResult:
    ended: str
    """``finished``, ``stopped`` or ``no device``."""
    context: Context | None
    """None: no device ever said what it is."""
    tasks: tuple[TaskProgress, ...]
    status: Status
    quarantined: tuple[Record, ...]
    """Candidates of this tuning that crashed or hung a server, or computed wrong numbers."""


class Engine:
    """One tuning of *tasks*. When *stop* is set nothing new begins; all is kept.

    *on_status* is called several times a second; *on_record* with each record, once it is safe on disk.
    """

    _fleet: Fleet

    def __init__(
        self,
        options: TuningOptions,
        tasks: Sequence[Task],
        *,
        searches: Searches,
        builders: Builders,
        database: Database,
        on_status: Callable[[Status], None],
        on_record: Callable[[Record], None],
        stop: threading.Event,
    ) -> None:
        self._options = options
        self._builders = builders
        self._database = database
        self._on_status = on_status
        self._recorder = Recorder(options, database, on_record)
        self._stop = stop
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._queue = MeasureQueue(exclusive=options.exclusive)
        self._pipeline = Pipeline(
            options, builders, self._queue, lambda outcome: self._events.put(partial(self._built, outcome))
        )
        self._proposals = Proposals(searches, self._pipeline, self._events.put)
        self._tasks = [TaskProgress(task, database.workload_id(task.module), options) for task in tasks]
        self._context: Context | None = None
        self._began = self._last_live = time.monotonic()
        self._reported = 0.0
        self._earlier_trials = 0
        self._disk_error: DiskError | None = None

    def run(self, start: Callable[[Take, Done], Fleet]) -> EngineResult:
        """Tune until all trials are done, nothing is left to try, or it is to stop; then close all parts."""
        with ExitStack() as parts:
            parts.callback(self._proposals.close, 0.0)
            parts.callback(self._builders.close)
            self._fleet = start(self._queue.take, self._measured)
            parts.callback(self._fleet.close, 0.0)
            parts.callback(self._queue.close)
            ended = self._handle_events_until(self._identify)
            if self._context is not None and ended == "finished":
                self._load(self._context)
                ended = self._handle_events_until(self._advance)
            self._finish()
        status = self._status()
        self._on_status(status)
        return EngineResult(
            ended=ended,
            context=self._context,
            tasks=tuple(self._tasks),
            status=status,
            quarantined=tuple(record for progress in self._tasks for record in progress.quarantined()),
        )

    def _handle_events_until(self, done: Callable[[], bool]) -> str:
        """Handle events until *done*; how that ended."""
        while not done():
            if self._stop.is_set():
                return "stopped"
            if self._alone_seconds() > self._options.wait:
                return "no device"
            self._handle(self._next_events(TICK))
            if time.monotonic() - self._reported >= STATUS_SECONDS:
                self._reported = time.monotonic()
                self._on_status(self._status())
        return "finished"

    def _finish(self) -> None:
        """End gently: what is being measured may finish, and is kept."""
        self._queue.close()
        self._builders.close()
        self._fleet.close(self._options.grace, leaving=self._stop.is_set())
        self._handle(self._next_events(0))
        self._proposals.close(None)

    def _measured(self, outcome: MeasureOutcome) -> None:
        """Queue what a device has measured; called from any thread."""
        self._queue.give_back(outcome.id)
        self._events.put(partial(self._pipeline.measured, outcome))

    def _next_events(self, timeout: float) -> list[Event]:
        """Collect all events that came; wait at most *timeout* seconds for the first one."""
        events: list[Event] = []
        with suppress(queue.Empty):
            events.append(self._events.get(bool(timeout), timeout))
            while True:
                events.append(self._events.get_nowait())
        return events

    def _alone_seconds(self) -> float:
        """Return the seconds since there was a device."""
        now = time.monotonic()
        if self._fleet.live():
            self._last_live = now
        return now - self._last_live

    def _identify(self) -> bool:
        """Return True once it is known which device measures."""
        identity = self._fleet.identity()
        if identity is not None:
            self._context = Context(self._options.target, self._options.tvm, *identity)
        return self._context is not None

    def _load(self, context: Context) -> None:
        """Resume from the database's records, and have the untuned schedules measured where they were not."""
        others = [
            other
            for other in self._database.contexts()
            if other != context and (other.target, other.tvm) == (context.target, context.tvm)
        ]
        for progress in self._tasks:
            known = self._database.records(context, progress.workload)
            for record in known:
                progress.add_record(record)
            elsewhere = [
                record for other in others for record in self._database.records(other, progress.workload)
            ]
            self._proposals.begin(progress, known, elsewhere)
            baseline = progress.baseline
            if baseline is None or (baseline.failure is not None and not baseline.failure.quarantined):
                progress.baseline_pending = True
                self._pipeline.add(progress, BASELINE, progress.task.baseline)
            progress.check_end()
        self._earlier_trials = self._trials

    @property
    def _trials(self) -> int:
        return sum(progress.trials for progress in self._tasks)

    def _advance(self) -> bool:
        """Begin whatever can begin; whether all is done."""
        batch = max(BATCH, PER_DEVICE * self._fleet.live())
        enough = batch if self._options.exclusive else 3 * self._fleet.live() + 2
        if self._queue.may_work():
            self._propose(batch, enough)
            self._confirm()
            self._pipeline.build(enough)
            if not self._pipeline.building and not any(progress.searching for progress in self._tasks):
                self._queue.start_measuring()
        return self._pipeline.is_empty and all(progress.is_over for progress in self._tasks)

    def _propose(self, batch: int, enough: int) -> None:
        """Search candidates ahead of builders and devices, for the tasks that promise most."""
        total = self._options.total_trials(len(self._tasks))
        outstanding = sum(progress.outstanding for progress in self._tasks)
        if not self._options.per_task and self._trials + outstanding >= total:
            for progress in self._tasks:
                untried = not (progress.trials or progress.outstanding)
                reason = "no trial was left for it: other tasks had more to gain" if untried else ""
                progress.end("done", reason)
        while True:
            requested = sum(progress.requested for progress in self._tasks)
            if self._pipeline.pending + requested >= enough + self._builders.workers:
                return
            left = total - sum(progress.begun for progress in self._tasks)
            if is_scarce(self._tasks, batch, left) and any(task.baseline_pending for task in self._tasks):
                return
            choice = choose(self._tasks, batch, left)
            if choice is None:
                return
            index, count = choice
            self._proposals.request(self._tasks[index], count)

    def _confirm(self) -> None:
        """Measure the fastest candidates once more, of tasks that have ended."""
        for progress in self._tasks:
            if progress.is_over and not progress.confirming and not progress.baseline_pending:
                for trace in progress.unconfirmed():
                    self._proposals.confirm(progress, trace)

    def _handle(self, events: Sequence[Event]) -> None:
        """Take in *events*; what is complete is recorded at once, before anything else is made of it."""
        completions = [completion for event in events for completion in event() or ()]
        if self._context is not None:
            self._recorder.record(completions, self._context)
        if self._disk_error is not None:
            raise self._disk_error
        for progress in self._tasks:
            for results in progress.take_complete_batches():
                self._proposals.report(progress, results)

    def _built(self, outcome: BuildOutcome) -> Iterable[Completion]:
        """Return the trials that a build completes: none if it succeeded."""
        if outcome.disk is None:
            return self._pipeline.built(outcome)
        what, remedy, details = outcome.disk
        self._disk_error = DiskError(what, remedy=remedy, details=details)
        return ()

    def _status(self) -> Status:
        activities = self._pipeline.activities()
        for progress in self._tasks:
            progress.activity = activities.get(progress, "searching" if progress.searching else "waiting")
        elapsed = time.monotonic() - self._began
        done = self._trials
        total = self._options.total_trials(len(self._tasks))
        session = done - self._earlier_trials  # trials of earlier sessions do not tell how fast this one is
        return Status(
            tasks=tuple(progress.status() for progress in self._tasks),
            devices=self._fleet.devices(),
            done=done,
            total=total,
            kept=self._recorder.kept,
            failures=dict(self._recorder.failures),
            building=self._pipeline.building,
            ready=self._queue.waiting,
            elapsed=elapsed,
            left=max(total - done, 0) * elapsed / session if session else None,
        )
