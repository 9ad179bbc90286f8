"""Tell the observer how a tuning stands, now and then."""

from __future__ import annotations

import time
from collections.abc import Sequence

from adt.tuning.keeping import Keeper
from adt.tuning.plan import Fleet, Observer, Plan
from adt.tuning.ready import Ready
from adt.tuning.status import Status
from adt.tuning.task_progress import TaskProgress
from adt.tuning.works import Works

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
