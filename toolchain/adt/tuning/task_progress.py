"""Progress of one task: its records, its batches, its end; and a log with a line for each candidate."""

from __future__ import annotations

import contextlib
import logging
import math
import re
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from adt.tuning.candidates import Candidate, CandidateResult, TuningOptions
from adt.tuning.records import BASELINE, CONFIRMED, Failure, Record, typical_record
from adt.tuning.results import TaskStatus

if TYPE_CHECKING:
    from adt.tuning.search.task_search import TaskSearch, TileSearch
    from adt.tuning.tasks import Task


GAIN = 0.01
"""Less than this part is no gain: what differs by it is noise."""
HOPELESS = 32
"""After so many candidates, all of which failed, a task ends."""
LEADERS = 5
"""Candidates of a task that turn out to be slower than they seemed, one after another, at most."""


@dataclass
class Batch:
    """Candidates that the search waits for."""

    candidates: tuple[Candidate, ...]
    results: dict[str, CandidateResult] = field(default_factory=dict)

    @property
    def open(self) -> int:
        """Different candidates without a result."""
        return len({candidate.trace for candidate in self.candidates} - self.results.keys())


class TaskProgress:
    """One task; only the engine's thread uses it."""

    def __init__(self, task: Task, workload: str, options: TuningOptions) -> None:
        self.task = task
        self.workload = workload
        self.options = options
        self.search: TaskSearch | TileSearch | None = None
        self.searching = 0
        self.requested = 0
        self.batches: deque[Batch] = deque()
        self._records: dict[str, list[Record]] = {}
        self._typical: dict[str, Record | None] = {}
        self.baseline_pending = False
        self.trials = 0
        """Number of trials of this tuning, those of earlier sessions included."""
        self.failed = 0
        self.current: float | None = None
        self.history: list[float] = []
        self.end_state = ""
        """State in which it ended: ``done``, ``stopped``, ``exhausted``; empty before."""
        self.reason = ""
        """Reason why it ended; empty where that needs no explanation."""
        self.activity = "waiting"
        self.expected_outputs: tuple[bytes, ...] | None = None
        """Results of the untuned schedule; empty: they cannot be known, None: they are not known yet."""
        self.confirmed: set[str] = set()
        """Candidates that were measured again since the last trial."""
        self.can_confirm = True
        """False: one could not be scheduled again."""
        self.confirming: set[str] = set()
        self._last_gain = 0
        self._gained = math.inf
        self._last_failure: Failure | None = None

    @property
    def baseline(self) -> Record | None:
        """The untuned schedule's record, failed or not; None: not measured yet."""
        return self.record_of(BASELINE)

    @property
    def best(self) -> Record | None:
        """The fastest candidate, of earlier tunings too; None: none ran."""
        ran = [record for trace, record in self._typical.items() if record is not None and trace != BASELINE]
        return min(ran, key=lambda record: record.time, default=None)

    def record_of(self, trace: str) -> Record | None:
        """Return the record of a candidate; None: it is new."""
        records = self._records.get(trace)
        return (self._typical[trace] or records[-1]) if records else None

    @property
    def outstanding(self) -> int:
        """Candidates that are proposed and not done."""
        return sum(batch.open for batch in self.batches)

    def add_record(self, record: Record) -> None:
        """Take a record of this workload and context into account, an earlier one or a new one."""
        records = self._records.setdefault(record.trace, [])
        records.append(record)
        self._typical[record.trace] = typical_record(records)
        if record.run != self.options.run or record.trace == BASELINE:
            return
        if record.options.get(CONFIRMED):
            self.confirmed |= {record.trace} if record.failure is None else set()
            return
        self.confirmed.clear()
        self.trials += 1
        if record.failure is not None:
            self.failed += 1
            self._last_failure = record.failure
        else:
            self.current = record.time
        if record.time < self._gained * (1 - GAIN):
            self._gained = record.time
            self._last_gain = self.trials
        self.check_end()

    def add_result(self, trace: str, result: CandidateResult) -> None:
        """Store the result of an outstanding candidate, after :meth:`add_record` if it was recorded."""
        for batch in self.batches:
            if trace not in batch.results and any(each.trace == trace for each in batch.candidates):
                batch.results[trace] = result
                return

    def take_complete_batches(self) -> list[list[CandidateResult]]:
        """Take the oldest batches out that are complete; their results, for the search."""
        complete = []
        while self.batches and not self.batches[0].open:
            batch = self.batches.popleft()
            complete.append([batch.results[candidate.trace] for candidate in batch.candidates])
            best = self.best_seconds
            self.history.append(math.inf if best is None else best)
        return complete

    def unconfirmed(self) -> list[str]:
        """Return the traces to measure once more, to be sure which is faster; none where that is known."""
        best, baseline = self.best, self.baseline
        if best is None or baseline is None or baseline.failure is not None or best.time >= baseline.time:
            return []
        if not self.can_confirm or len(self.confirmed) >= LEADERS:
            return []
        traces = [best.trace] if not best.options.get(CONFIRMED) else []
        if not baseline.options.get(CONFIRMED) or (traces and self.expected_outputs is None):
            traces = [BASELINE, *traces]
        return traces

    def end(self, state: str, reason: str = "") -> None:
        """End the task: it gets no further batch; the first call decides."""
        if not self.end_state:
            self.end_state, self.reason = state, reason

    @property
    def is_over(self) -> bool:
        """It ended, and nothing of it is under way."""
        return bool(self.end_state) and not self.batches and not self.searching

    @property
    def state(self) -> str:
        """:attr:`adt.tuning.results.TaskStatus.state`."""
        return self.end_state if self.is_over and self.activity == "waiting" else self.activity

    @property
    def baseline_seconds(self) -> float | None:
        """Seconds of one call of the untuned schedule; None: not measured yet, or failed."""
        baseline = self.baseline
        return baseline.time if baseline is not None and baseline.failure is None else None

    @property
    def best_seconds(self) -> float | None:
        """Seconds of one call of the fastest candidate; None: none ran."""
        best = self.best
        return best.time if best is not None else None

    @property
    def seconds(self) -> float | None:
        """The time that the model would need for a call after the last batch; None: not known."""
        last = self.history[-1] if self.history else self.best_seconds
        known = [time for time in (last, self.baseline_seconds) if time is not None and time < math.inf]
        return min(known, default=None)

    @property
    def model_seconds(self) -> float:
        """Seconds of all its calls in one run of the model; infinite where that is not known."""
        return math.inf if self.seconds is None else self.task.weight * self.seconds

    @property
    def batches_out(self) -> int:
        """Number of its batches that are not done, those that are being searched included."""
        return len(self.batches) + self.searching

    @property
    def begun(self) -> int:
        """Number of candidates that are done, proposed, or being searched."""
        return self.trials + self.outstanding + self.requested

    @property
    def room(self) -> float:
        """Number of candidates that it may still get; infinite where all tasks share a number."""
        if self.end_state:
            return 0
        return max(self.options.trials - self.begun, 0) if self.options.per_task else math.inf

    @property
    def fresh(self) -> bool:
        """True if it got nothing yet."""
        return self.begun + self.batches_out == 0

    def status(self) -> TaskStatus:
        """Return the task's status for the view."""
        return TaskStatus(
            name=self.task.name,
            weight=self.task.weight,
            flops=self.task.flops,
            state=self.state,
            trials=self.trials,
            planned=self.options.trials if self.options.per_task else 0,
            failed=self.failed,
            current=self.current,
            best=self.best_seconds,
            baseline=self.baseline_seconds,
        )

    def quarantined(self) -> list[Record]:
        """List the candidates of this tuning that crashed or hung a server, or computed wrong numbers."""
        return [
            record
            for records in self._records.values()
            for record in records
            if record.run == self.options.run and record.failure is not None and record.failure.quarantined
        ]

    def check_end(self) -> None:
        """End it if it has had its trials, or more would be in vain."""
        options = self.options
        if options.per_task and self.trials >= options.trials:
            self.end("done")
        elif self.failed == self.trials >= HOPELESS and self._last_failure is not None:
            failure = self._last_failure
            last = f"{failure.kind}: {failure.message}"
            self.end("exhausted", f"all of {self.trials} candidates failed, the last one: {last}")
        elif options.early_stopping and self.trials - self._last_gain >= options.early_stopping:
            self.end("stopped", f"no gain of more than 1 % in {self.trials - self._last_gain} candidates")


log = logging.getLogger("adt.tune")

LONGEST = 80
"""Characters of a task's name in a file name."""


class TaskLogs:
    """The logs of one tuning, ``<database>/logs/<run>/<number>-<task>.log``; later sessions add to them."""

    def __init__(self, database: Path, run: str, tasks: Sequence[tuple[str, int | None]]) -> None:
        """Open a log for each of *tasks*: name, and operations of one call (None: not known), in order."""
        self.directory = database / "logs" / run[:16]
        self._numbers = {name: number for number, (name, _) in enumerate(tasks, start=1)}
        self._flops = dict(tasks)
        self._files: dict[str, TextIO] = {}
        self._best: dict[str, float] = {}
        self._broken = False

    def __enter__(self) -> TaskLogs:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            with contextlib.suppress(OSError):
                file.close()

    def add(self, record: Record) -> None:
        """Write the line of *record*."""
        if self._broken:
            return
        try:
            self._file(record.task).write(self._line(record) + "\n")
        except OSError as error:
            self._broken = True
            log.warning("the tasks' logs cannot be written (%s); the records are kept all the same", error)

    def path(self, task: str) -> Path:
        name = re.sub(r"[^A-Za-z0-9_.-]+", "_", task)[:LONGEST]
        return self.directory / f"{self._numbers.get(task, 0):03}-{name}.log"

    def _file(self, task: str) -> TextIO:
        if task not in self._files:
            path = self.path(task)
            path.parent.mkdir(parents=True, exist_ok=True)
            self._files[task] = path.open("a", encoding="utf-8", buffering=1)
        return self._files[task]

    def _line(self, record: Record) -> str:
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.at))
        what = "untuned" if record.trace == BASELINE else "candidate"
        where = record.on.name if record.on else "-"
        if record.on and record.on.celsius is not None:
            where += f" {record.on.celsius:.1f} °C"
        if record.failure is not None:
            message = " ".join(record.failure.message.split())
            return f"{when} {what} {where} {record.failure.kind}: {message}"
        if record.on and record.on.emulated:
            return f"{when} {what} {where} ran (emulated: no device's speed)"
        best = min(record.time, self._best.get(record.task, record.time))
        self._best[record.task] = best
        flops = self._flops.get(record.task)
        speed = f" {flops / record.time / 1e9:.2f} GFLOPS" if flops and record.time > 0 else ""
        return f"{when} {what} {where} {1e3 * record.time:.6g} ms{speed}, best {1e3 * best:.6g} ms"


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


def choose(tasks: Sequence[TaskProgress], batch: int, left: int) -> tuple[int, int] | None:
    """Choose the task for the next batch, and its number of candidates, of *left* ones; None: none now.

    Every task that counts gets one batch first, the costliest first, smaller ones where there is little.
    Then, and where there is too little for that, the most promising one gets it.
    """
    able = [index for index, task in enumerate(tasks) if task.room > 0 and task.batches_out < MAX_BATCHES]
    if not able or left < 1:
        return None
    share = left // sum(task.room > 0 for task in tasks)
    if share >= MIN_BATCH:
        least = MINOR * sum(task.model_seconds for task in tasks if task.seconds is not None)
        fresh = [index for index in able if tasks[index].fresh]
        able = [index for index in fresh if tasks[index].model_seconds >= least] or able
    size = min(batch, max(share, MIN_BATCH)) if is_scarce(tasks, batch, left) else batch
    index = max(able, key=lambda index: (*expected_gain(tasks[index], batch), -index))
    return index, int(min(size, tasks[index].room, left))


def is_scarce(tasks: Sequence[TaskProgress], batch: int, left: int) -> bool:
    """Return True if *left* candidates give no full batch to every task that had none."""
    return left < batch * sum(task.room > 0 and task.fresh for task in tasks)


def expected_gain(progress: TaskProgress, batch: int) -> tuple[float, float]:
    """Estimate the seconds of a model's run that the next batch of *progress* saves; operations decide a tie.

    A mean of what the last batches saved, and of what the next would if the time went on falling to nothing
    in as many batches as there were.
    """
    weight = progress.task.weight
    operations = float(weight * (progress.task.flops or 0))
    best = progress.seconds
    if best is None:
        return 0.0, operations
    times = [time for time in progress.history if time < math.inf]
    saved = (times[-1 - WINDOW] - times[-1]) / WINDOW if len(times) > WINDOW else 0.0
    batches = max(progress.begun / batch, progress.batches_out, 1.0)
    return weight * (BACKWARD * saved + (1 - BACKWARD) * best / batches), operations
