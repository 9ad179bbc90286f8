"""Drive a tuning: searches propose, builders compile, devices measure, all at once; the database keeps it.

One thread coordinates, the caller's. It never waits for a single candidate, task or device: what is
proposed, built or measured comes as an event, is kept, and makes room for what is next. A result is
told to the search, and shown, after it is safe on disk.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from adt.errors import DiskError
from adt.tuning.candidates import Built, Outcome
from adt.tuning.pipeline import Judge, Keeper, Ready, Work, Works
from adt.tuning.plan import Builders, Done, Fleet, Observer, Plan, Records, Result, Searches, Take
from adt.tuning.proposals import LEADERS, Answer, Proposals, Proposed, Rescheduled, SearchThread, unconfirmed
from adt.tuning.records import BASELINE, Context, Failure
from adt.tuning.results import Status
from adt.tuning.search.allocation import batch_size, choose, scarce
from adt.tuning.task_progress import TaskProgress

if TYPE_CHECKING:
    from adt.tuning.tasks import Task

log = logging.getLogger("adt.tune")

TICK = 0.25
"""Seconds between two looks at the devices."""


def tune(
    plan: Plan,
    tasks: Sequence[Task],
    *,
    searches: Searches,
    builders: Builders,
    fleet: Callable[[Take, Done], Fleet],
    database: Records,
    observer: Observer | None = None,
    stop: threading.Event | None = None,
) -> Result:
    """Tune *tasks* until the plan's trials are done, nothing is left to try, or *stop* is set.

    The builders and the fleet are closed when this returns or raises, whatever happened.

    Args:
        fleet: begins to measure with what it is given, :meth:`adt.tuning.fleet.fleet.Fleet.start`.
        database: open for writing; it stays open.
        stop: when set, nothing new begins, what is being measured may finish for a while, all is kept.

    Raises:
        DiskError: the database or a directory for temporary files cannot be written; what was shown as kept
            is.
    """
    return _Engine(plan, tasks, searches, builders, database, observer or Observer(), stop).run(fleet)


class _Engine:
    """The state of one tuning."""

    def __init__(
        self,
        plan: Plan,
        tasks: Sequence[Task],
        searches: Searches,
        builders: Builders,
        database: Records,
        observer: Observer,
        stop: threading.Event | None,
    ) -> None:
        self._plan = plan
        self._builders = builders
        self._database = database
        self._keeper = Keeper(plan, database, observer)
        self._judge = Judge()
        self._stop = stop or threading.Event()
        self._events: queue.SimpleQueue[Answer | Built | Outcome] = queue.SimpleQueue()
        self._ready = Ready(exclusive=plan.exclusive)
        self._thread = SearchThread()
        self._proposals = Proposals(searches, self._thread, self._events.put)
        self._works = Works(plan, builders, self._ready, self._events.put)
        self._tasks = [TaskProgress(task, database.workload_id(task.module), plan) for task in tasks]
        self._display = Display(plan, self._tasks, self._works, self._ready, self._keeper, observer)
        self._fleet: Fleet | None = None
        self._context: Context | None = None
        self._alone_since: float | None = None

    def run(self, start: Callable[[Take, Done], Fleet]) -> Result:
        ended = "stopped"
        try:
            self._fleet = start(self._ready.take, self._measured)
            ended = self._until(lambda: self._identify())
            if self._context is not None and ended == "finished":
                self._load(self._context)
                ended = self._until(lambda: self._advance())
            self._finish()
        finally:
            self._ready.close()
            if self._fleet is not None:
                self._fleet.close(0.0)
            self._builders.close()
            self._thread.close(0.0)
        status = self._display.last(self._fleet)
        return Result(
            ended=ended,
            context=self._context,
            tasks=tuple(progress.outcome() for progress in self._tasks),
            devices=self._fleet.devices(),
            status=status,
            failures=dict(self._keeper.failures),
            quarantined=tuple(record for progress in self._tasks for record in progress.quarantined()),
        )

    def _until(self, done: Callable[[], bool]) -> str:
        """Handle what comes until *done*; how that ended."""
        assert self._fleet is not None
        while not done():
            if self._stop.is_set():
                return "stopped"
            if self._alone() > self._plan.wait:
                return "no device"
            self._handle(self._next(TICK))
            self._display.show(self._fleet)
        return "finished"

    def _finish(self) -> None:
        """End gently: what is being measured may finish, and is kept."""
        assert self._fleet is not None
        self._ready.close()
        self._builders.close()
        self._fleet.close(self._plan.grace, leaving=self._stop.is_set())
        self._handle(self._next(0))
        self._thread.close(None)

    def _measured(self, outcome: Outcome) -> None:
        """From any thread: a device is done with a candidate."""
        self._ready.back(outcome.id)
        self._events.put(outcome)

    def _next(self, patience: float) -> list[Answer | Built | Outcome]:
        """All events that came; waits at most *patience* seconds for the first one."""
        events: list[Answer | Built | Outcome] = []
        try:
            events.append(self._events.get(timeout=patience) if patience else self._events.get_nowait())
            while True:
                events.append(self._events.get_nowait())
        except queue.Empty:
            return events

    def _alone(self) -> float:
        """Seconds since there was a device."""
        assert self._fleet is not None
        now = time.monotonic()
        if self._fleet.live():
            self._alone_since = None
            return 0.0
        if self._alone_since is None:
            self._alone_since = now
        return now - self._alone_since

    def _identify(self) -> bool:
        """Whether it is known what measures."""
        assert self._fleet is not None
        identity = self._fleet.identity()
        if identity is not None:
            self._context = Context(self._plan.target, self._plan.tvm, *identity)
        return self._context is not None

    def _load(self, context: Context) -> None:
        """Go on from what the database knows, and have measured what is to be compared with."""
        others = [
            other
            for other in self._database.contexts()
            if other != context and (other.target, other.tvm) == (context.target, context.tvm)
        ]
        for progress in self._tasks:
            known = self._database.records(context, progress.workload)
            for record in known:
                progress.absorb(record)
            elsewhere = [
                record for other in others for record in self._database.records(other, progress.workload)
            ]
            self._proposals.begin(progress, known, elsewhere)
            baseline = progress.baseline
            if baseline is None or (baseline.failure is not None and not baseline.failure.quarantined):
                progress.baseline_pending = True
                self._works.add(progress, BASELINE, progress.task.baseline)
            progress.consider()
        self._display.resumed()

    @property
    def _trials(self) -> int:
        return sum(progress.trials for progress in self._tasks)

    def _advance(self) -> bool:
        """Begin whatever can begin; whether all is done."""
        assert self._fleet is not None
        batch = batch_size(self._plan.batch, self._fleet.live())
        enough = batch if self._plan.exclusive else 3 * self._fleet.live() + 2
        if self._ready.may_work():
            self._ask(batch, enough)
            self._confirm()
            self._works.build(enough)
            if not self._works.building and not any(progress.searching for progress in self._tasks):
                self._ready.measure()
        return self._works.all_done and all(progress.over for progress in self._tasks)

    def _ask(self, batch: int, enough: int) -> None:
        """Search candidates ahead of builders and devices, for the tasks that promise most."""
        total = self._plan.total(len(self._tasks))
        out = sum(progress.out for progress in self._tasks)
        if not self._plan.per_task and self._trials + out >= total:
            for progress in self._tasks:
                untried = not (progress.trials or progress.out)
                reason = "no trial was left for it: other tasks had more to gain" if untried else ""
                progress.end("done", reason)
        while True:
            searched = sum(progress.asked for progress in self._tasks)
            if self._works.pending + searched >= enough + self._builders.workers:
                return
            standings = [progress.standing() for progress in self._tasks]
            left = total - self._trials - sum(each.out for each in standings)
            if scarce(standings, batch, left) and any(progress.baseline_pending for progress in self._tasks):
                return
            chosen = choose(standings, batch, left)
            if chosen is None:
                return
            index, count = chosen
            self._proposals.ask(self._tasks[index], count)

    def _confirm(self) -> None:
        """Measure the fastest candidates once more, of tasks that have ended."""
        for progress in self._tasks:
            if not progress.over or progress.confirming or progress.baseline_pending:
                continue
            for trace in unconfirmed(progress):
                progress.confirming.add(trace)
                self._proposals.again(progress, trace)

    def _handle(self, events: Sequence[Answer | Built | Outcome]) -> None:
        """Take in what came; what is to be kept is kept at once, before anything else is made of it."""
        made: list[tuple[Work, Failure | None, Outcome | None]] = []
        for event in events:
            if isinstance(event, Built):
                if event.disk is not None:
                    continue
                failed = self._works.built(event)
                if failed is not None:
                    made.append((*failed, None))
                    if failed[0].again and failed[0].trace == BASELINE:
                        made += self._judge.give_up(failed[0].progress)
            elif isinstance(event, Outcome):
                done = self._works.measured(event)
                if done is not None:
                    made += self._judge.judge(*done, event)
            elif isinstance(event, Proposed):
                for candidate in self._proposals.take(event):
                    self._works.add(event.progress, candidate.trace, candidate.module)
            elif isinstance(event, Rescheduled):
                self._rescheduled(event)
            else:
                self._proposals.failed(event.progress, event.why)
        if self._context is not None:
            self._keeper.keep(made, self._context)
        for event in events:
            if isinstance(event, Built) and event.disk is not None:
                what, remedy, details = event.disk
                raise DiskError(what, remedy=remedy, details=details)
        for progress in self._tasks:
            for results in progress.complete():
                self._proposals.tell(progress, results)

    def _rescheduled(self, event: Rescheduled) -> None:
        progress = event.progress
        progress.searching -= 1
        if isinstance(event.answer, Exception):
            log.warning("%s cannot be measured again: %s", progress.task.name, event.answer)
            progress.confirmed_leaders = LEADERS
            progress.confirming.discard(event.trace)
        else:
            self._works.confirm(progress, event.trace, event.answer)


OFTEN = 0.25
"""Seconds between two reports."""


class Display:
    """Makes a :class:`Status` of the parts of a tuning; only the engine's thread uses it."""

    def __init__(
        self,
        plan: Plan,
        tasks: Sequence[TaskProgress],
        works: Works,
        ready: Ready,
        keeper: Keeper,
        observer: Observer,
    ) -> None:
        self._plan = plan
        self._tasks = tasks
        self._works = works
        self._ready = ready
        self._keeper = keeper
        self._observer = observer
        self._began = time.monotonic()
        self._shown = 0.0
        self._earlier = 0

    def resumed(self) -> None:
        """Trials that are done by now are those of earlier sessions: no guide to how fast it goes."""
        self._earlier = sum(progress.trials for progress in self._tasks)

    def show(self, fleet: Fleet) -> None:
        """Report, unless that was done just now."""
        now = time.monotonic()
        if self._observer.status is not None and now - self._shown >= OFTEN:
            self._shown = now
            self._observer.status(self.status(fleet))

    def last(self, fleet: Fleet) -> Status:
        """Report how it ended."""
        status = self.status(fleet)
        if self._observer.status is not None:
            self._observer.status(status)
        return status

    def status(self, fleet: Fleet) -> Status:
        """How it stands."""
        activities = self._works.activities()
        for progress in self._tasks:
            progress.activity = activities.get(progress, "searching" if progress.searching else "waiting")
        elapsed = time.monotonic() - self._began
        done = sum(progress.trials for progress in self._tasks)
        total = self._plan.total(len(self._tasks))
        session = done - self._earlier
        return Status(
            tasks=tuple(progress.status() for progress in self._tasks),
            devices=fleet.devices(),
            done=done,
            total=total,
            kept=self._keeper.kept,
            failures=dict(self._keeper.failures),
            building=self._works.building,
            ready=self._ready.waiting,
            elapsed=elapsed,
            left=max(total - done, 0) * elapsed / session if session else None,
        )
