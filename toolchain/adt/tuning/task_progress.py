"""How far one task is: its records, its batches, when it ends."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from adt.tuning.candidates import Candidate, Result
from adt.tuning.plan import Plan, Search, TaskResult
from adt.tuning.records import BASELINE, CONFIRMED, Failure, Record, typical_record
from adt.tuning.results import TaskStatus
from adt.tuning.search.allocation import Standing

if TYPE_CHECKING:
    from adt.tuning.tasks import Task

GAIN = 0.01
"""Less than this part is no gain: what differs by it is noise."""
HOPELESS = 32
"""After so many candidates, all of which failed, a task ends."""


@dataclass
class Batch:
    """Candidates that the search waits for."""

    candidates: tuple[Candidate, ...]
    results: dict[str, Result] = field(default_factory=dict)
    """What came of each trace."""

    @property
    def open(self) -> int:
        """Different candidates without a result."""
        return len({each.trace for each in self.candidates} - self.results.keys())


class TaskProgress:
    """One task; only the engine's thread uses it."""

    def __init__(self, task: Task, workload: str, plan: Plan) -> None:
        self.task = task
        self.workload = workload
        self.plan = plan
        self.search: Search | None = None
        self.searching = 0
        """Batches that are being searched."""
        self.asked = 0
        """Candidates that are being searched."""
        self.batches: deque[Batch] = deque()
        self._records: dict[str, list[Record]] = {}
        """Of each trace, in this context."""
        self._typical: dict[str, Record | None] = {}
        """What they say."""
        self.baseline_pending = False
        self.trials = 0
        self.failed = 0
        self.current: float | None = None
        self.history: list[float] = []
        self.ended = ""
        """State in which it ended: ``done``, ``stopped``, ``exhausted``; empty before."""
        self.reason = ""
        self.activity = "waiting"
        self.outputs = 0
        """How many of the last arguments it computes; known once that matters."""
        self.right: tuple[bytes, ...] | None = None
        """What the untuned schedule computes; empty: that cannot be known, None: it is not known yet."""
        self.confirmed_leaders = 0
        """Candidates that were measured again in this session."""
        self.confirming: set[str] = set()
        """Traces that are being measured again."""
        self._last_gain = 0
        self._gained = math.inf
        self._last_failure: Failure | None = None

    @property
    def baseline(self) -> Record | None:
        """The untuned schedule's record; None: not measured yet."""
        return self.known(BASELINE)

    @property
    def best(self) -> Record | None:
        """The fastest candidate; None: none ran."""
        ran = [record for trace, record in self._typical.items() if record is not None and trace != BASELINE]
        return min(ran, key=lambda record: record.time, default=None)

    def known(self, trace: str) -> Record | None:
        """What is known of a candidate; None: it is new."""
        records = self._records.get(trace)
        return (self._typical[trace] or records[-1]) if records else None

    @property
    def out(self) -> int:
        """Candidates that are proposed and not done."""
        return sum(batch.open for batch in self.batches)

    def absorb(self, record: Record) -> None:
        """Take a record of this workload and context into account, an earlier one or a new one."""
        records = self._records.setdefault(record.trace, [])
        records.append(record)
        self._typical[record.trace] = typical_record(records)
        if record.run != self.plan.run or record.options.get(CONFIRMED) or record.trace == BASELINE:
            return
        self.trials += 1
        if record.failure is not None:
            self.failed += 1
            self._last_failure = record.failure
        else:
            self.current = record.time
        if record.time < self._gained * (1 - GAIN):
            self._gained = record.time
            self._last_gain = self.trials
        self.consider()

    def result(self, trace: str, result: Result) -> None:
        """What came of a candidate that is out; :meth:`absorb` was called before if it was recorded."""
        for batch in self.batches:
            if trace not in batch.results and any(each.trace == trace for each in batch.candidates):
                batch.results[trace] = result
                return

    def complete(self) -> list[list[Result]]:
        """Take the oldest batches out that are complete; their results, for the search."""
        done = []
        while self.batches and not self.batches[0].open:
            batch = self.batches.popleft()
            done.append([batch.results[each.trace] for each in batch.candidates])
            best = self.best
            self.history.append(best.time if best is not None else math.inf)
        return done

    def end(self, state: str, reason: str = "") -> None:
        """It gets no further batch; the first call decides."""
        if not self.ended:
            self.ended, self.reason = state, reason

    @property
    def over(self) -> bool:
        """It ended, and nothing of it is under way."""
        return bool(self.ended) and not self.batches and not self.searching

    def standing(self) -> Standing:
        """For the allocation."""
        baseline = self.baseline
        best = self.best
        return Standing(
            weight=self.task.weight,
            flops=self.task.flops,
            baseline=baseline.time if baseline is not None and not baseline.failure else None,
            history=tuple(self.history) or ((best.time,) if best is not None else ()),
            trials=self.trials,
            out=self.out + self.asked,
            batches_out=len(self.batches) + self.searching,
            limit=self.plan.trials if self.plan.per_task else None,
            over=bool(self.ended),
        )

    def status(self) -> TaskStatus:
        """For the view."""
        standing = self.standing()
        best = self.best
        return TaskStatus(
            name=self.task.name,
            weight=self.task.weight,
            flops=self.task.flops,
            state=self.ended if self.over and self.activity == "waiting" else self.activity,
            trials=self.trials,
            planned=self.plan.trials if self.plan.per_task else 0,
            failed=self.failed,
            current=self.current,
            best=best.time if best is not None else None,
            baseline=standing.baseline,
        )

    def outcome(self) -> TaskResult:
        """For the report."""
        return TaskResult(
            task=self.task,
            workload=self.workload,
            state=self.status().state,
            trials=self.trials,
            failed=self.failed,
            baseline=self.baseline,
            best=self.best,
            reason=self.reason,
        )

    def quarantined(self) -> list[Record]:
        """Candidates of this tuning that crashed or hung a server."""
        return [
            record
            for records in self._records.values()
            for record in records
            if record.run == self.plan.run and record.failure is not None and record.failure.quarantined
        ]

    def consider(self) -> None:
        """End it if it has what it may have, or more would be in vain."""
        plan = self.plan
        if plan.per_task and self.trials >= plan.trials:
            self.end("done")
        elif self.failed == self.trials >= HOPELESS and self._last_failure is not None:
            why = self._last_failure
            self.end(
                "exhausted",
                f"all of {self.trials} candidates failed, the last one: {why.kind}: {why.message}",
            )
        elif plan.early_stopping and self.trials - self._last_gain >= plan.early_stopping:
            self.end("stopped", f"no gain of more than 1 % in {self.trials - self._last_gain} candidates")
