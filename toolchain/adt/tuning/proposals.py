"""Ask the searches of the tasks for candidates, in their thread, and tell them what came of those."""

from __future__ import annotations

import dataclasses
import logging
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from adt.tuning import candidates
from adt.tuning.candidates import Timing
from adt.tuning.plan import Searches
from adt.tuning.records import BASELINE, CONFIRMED, Record
from adt.tuning.task_progress import Batch, TaskProgress

if TYPE_CHECKING:
    from adt.tuning.tasks import Task

log = logging.getLogger("adt.tune")

STALE = 3
"""Batches in a row with nothing new in them, after which a search is exhausted."""


@dataclass(frozen=True)
class Proposed:
    """A search is done."""

    progress: TaskProgress
    asked: int
    """Candidates that were asked for."""
    answer: Sequence[candidates.Candidate] | Exception | None


@dataclass(frozen=True)
class Rescheduled:
    """A candidate that was measured before is scheduled again."""

    progress: TaskProgress
    trace: str
    answer: Scheduled | Exception


@dataclass(frozen=True)
class Untold:
    """A search did not take what it was told."""

    progress: TaskProgress
    why: Exception


Answer: TypeAlias = Proposed | Rescheduled | Untold


class Proposals:
    """The searches of all tasks; but for what runs in their thread, only the engine's thread uses it."""

    def __init__(self, searches: Searches, thread: SearchThread, done: Callable[[Answer], None]) -> None:
        self._searches = searches
        self._thread = thread
        self._done = done
        self._known: dict[TaskProgress, tuple[Sequence[Record], Sequence[Record]]] = {}
        self._stale: dict[TaskProgress, int] = {}

    def begin(self, progress: TaskProgress, known: Sequence[Record], elsewhere: Sequence[Record]) -> None:
        """Records of the task's workload: in this context, and in others."""
        self._known[progress] = known, elsewhere

    def ask(self, progress: TaskProgress, count: int) -> None:
        """Search *count* candidates; a :class:`Proposed` comes."""

        def search() -> Sequence[candidates.Candidate] | None:
            if progress.search is None:
                known, elsewhere = self._known[progress]
                progress.search = self._searches.search(progress.task, known=known, elsewhere=elsewhere)
                self._known[progress] = (), ()
            return progress.search.next_batch(count)

        progress.searching += 1
        progress.asked += count
        self._thread.do(search, lambda answer: self._done(Proposed(progress, count, answer)))

    def again(self, progress: TaskProgress, trace: str) -> None:
        """Schedule a candidate that was measured before; a :class:`Rescheduled` comes."""
        progress.searching += 1
        self._thread.do(
            lambda: scheduled(progress.task, trace),
            lambda answer: self._done(Rescheduled(progress, trace, answer)),
        )

    def tell(self, progress: TaskProgress, results: Sequence[candidates.Result]) -> None:
        """Report the task's oldest batch to its search."""
        search = progress.search
        assert search is not None
        self._thread.do(lambda: search.report(results), lambda answer: self._told(progress, answer))

    def take(self, proposed: Proposed) -> Sequence[candidates.Candidate]:
        """The new candidates of a search; known ones are answered. The task ends if there was none."""
        progress, answer = proposed.progress, proposed.answer
        progress.searching -= 1
        progress.asked -= proposed.asked
        if isinstance(answer, candidates.NoSpace):
            progress.end("exhausted", answer.reason)
            return ()
        if isinstance(answer, Exception):
            self.failed(progress, answer)
            return ()
        if not answer:
            progress.end("exhausted", "" if progress.trials else "the search proposes nothing")
            return ()
        batch = Batch(tuple(answer))
        new = {}
        for candidate in batch.candidates:
            record = progress.known(candidate.trace)
            if record is None:
                new[candidate.trace] = candidate
            else:
                batch.results[candidate.trace] = record.failure or candidates.Measured(record.seconds)
        progress.batches.append(batch)
        self._stale[progress] = 0 if new else self._stale.get(progress, 0) + 1
        if self._stale[progress] >= STALE:
            progress.end("exhausted", "the search proposes what is known already")
        return tuple(new.values())

    def _told(self, progress: TaskProgress, answer: object) -> None:
        if isinstance(answer, Exception):
            self._done(Untold(progress, answer))

    def failed(self, progress: TaskProgress, why: Exception) -> None:
        """End a task whose search raised *why*."""
        lines = str(why).strip().splitlines()
        reason = f"its search failed: {type(why).__name__}: {lines[-1].strip() if lines else ''}".rstrip(": ")
        if not progress.ended:
            log.warning("%s: %s", progress.task.name, reason)
        progress.end("exhausted", reason)


class SearchThread:
    """Runs what it is given, one after another."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._given_up = threading.Event()
        # A daemon: the second ctrl-C does not wait for TVM to come back from a search.
        self._thread = threading.Thread(target=self._run, name="adt-search", daemon=True)
        self._thread.start()

    def do(self, action: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Call *action* some time, then *done* with its result or the exception that it raised."""

        def work() -> None:
            try:
                result = action()
            except Exception as why:
                log.debug("a search failed", exc_info=True)
                result = why
            done(result)

        self._work.put(work)

    def close(self, timeout: float | None) -> None:
        """Give up what did not begin; wait until what runs is done, at most *timeout* seconds."""
        self._given_up.set()
        self._work.put(None)
        self._thread.join(timeout)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            if not self._given_up.is_set():
                work()


ROUNDS = 2
"""Times that each is measured again; both wait in one queue, so that they take turns."""
REPEATS = 3
"""Of a second measurement, at least."""
LEADERS = 5
"""Candidates of a task that turn out to be slower than they seemed, one after another, at most."""


@dataclass(frozen=True)
class Scheduled:
    """A candidate that was measured before, ready to be built again."""

    module: str
    """TVM's JSON."""
    outputs: int
    """How many of the last arguments it computes."""


def unconfirmed(progress: TaskProgress) -> list[str]:
    """Traces that must be measured once more to say which is faster; none when that is said, or no matter."""
    best, baseline = progress.best, progress.baseline
    if best is None or baseline is None or baseline.failure is not None or best.time >= baseline.time:
        return []
    if progress.confirmed_leaders >= LEADERS:
        return []
    again = [best.trace] if not best.options.get(CONFIRMED) else []
    if not baseline.options.get(CONFIRMED) or (again and progress.right is None):
        again = [BASELINE, *again]
    return again


def timing_again(timing: Timing) -> Timing:
    """How they are timed then."""
    repeat = max(timing.repeat, REPEATS)
    return dataclasses.replace(timing, repeat=repeat, timeout=timing.timeout * repeat / timing.repeat)


def scheduled(task: Task, trace: str) -> Scheduled:
    """The task's module as *trace* schedules it; takes TVM, for the search's thread.

    Raises:
        TraceError: the trace does not apply.
    """
    import tvm

    from adt.model.tuning.traces import apply_trace
    from adt.tuning.correctness import written

    module = task.baseline if trace == BASELINE else str(tvm.ir.save_json(apply_trace(task.module, trace)))
    return Scheduled(module, written(task.module))
