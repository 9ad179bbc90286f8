"""Requests to the searches of the tasks, in the one thread that searches, and reports to them."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import tvm
from tvm import tirx

from adt.tuning.candidates import Candidate, CandidateResult, Measurement, NoSpace
from adt.tuning.records import BASELINE, Record
from adt.tuning.task_progress import Batch, TaskProgress

if TYPE_CHECKING:
    from adt.tuning.search.task_search import Searches
    from adt.tuning.tasks import Task

log = logging.getLogger("adt.tune")

STALE_BATCHES = 3
"""Batches in a row with nothing new in them, after which a search is exhausted."""


@dataclass(frozen=True)
class Proposal:
    """A search is done."""

    progress: TaskProgress
    requested: int
    candidates: Sequence[Candidate] | Exception | None


@dataclass(frozen=True)
class ScheduledModule:
    """A candidate that was measured before, ready to be built again."""

    module: str
    """TVM's JSON."""
    outputs: int
    """Number of the last arguments that are outputs."""


@dataclass(frozen=True)
class Reschedule:
    """A candidate that was measured before is scheduled again."""

    progress: TaskProgress
    trace: str
    module: ScheduledModule | Exception


@dataclass(frozen=True)
class SearchFailure:
    """A search failed on a report."""

    progress: TaskProgress
    error: Exception


SearchEvent: TypeAlias = Proposal | Reschedule | SearchFailure


class SearchThread:
    """Runs actions one after another: the searches share TVM's state and the cost model."""

    def __init__(self) -> None:
        self._actions: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._closed = threading.Event()
        # A daemon: the second ctrl-C does not wait for TVM to come back from a search.
        self._thread = threading.Thread(target=self._run, name="adt-search", daemon=True)
        self._thread.start()

    def submit(self, action: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Call *action* some time, then *done* with its result or the exception that it raised."""

        def run() -> None:
            try:
                result = action()
            except Exception as error:
                log.debug("a search failed", exc_info=True)
                result = error
            done(result)

        self._actions.put(run)

    def close(self, timeout: float | None) -> None:
        """Drop what did not begin; wait until what runs is done, at most *timeout* seconds."""
        self._closed.set()
        self._actions.put(None)
        self._thread.join(timeout)

    def _run(self) -> None:
        while (action := self._actions.get()) is not None:
            if not self._closed.is_set():
                action()


class Proposals:
    """The searches of all tasks; but for what runs in their thread, only the engine's thread uses it."""

    def __init__(self, searches: Searches, thread: SearchThread, done: Callable[[SearchEvent], None]) -> None:
        self._searches = searches
        self._thread = thread
        self._done = done
        self._known: dict[TaskProgress, tuple[Sequence[Record], Sequence[Record]]] = {}
        self._stale: dict[TaskProgress, int] = {}

    def begin(self, progress: TaskProgress, known: Sequence[Record], elsewhere: Sequence[Record]) -> None:
        """Begin with the records of the task's workload: in this context, and in others."""
        self._known[progress] = known, elsewhere

    def request(self, progress: TaskProgress, count: int) -> None:
        """Search *count* candidates; a :class:`Proposal` comes."""

        def search() -> Sequence[Candidate] | None:
            if progress.search is None:
                known, elsewhere = self._known[progress]
                progress.search = self._searches.search(progress.task, known=known, elsewhere=elsewhere)
                self._known[progress] = (), ()
            return progress.search.next_batch(count)

        progress.searching += 1
        progress.requested += count
        self._thread.submit(search, lambda answer: self._done(Proposal(progress, count, answer)))

    def reschedule(self, progress: TaskProgress, trace: str) -> None:
        """Schedule a candidate that was measured before; a :class:`Reschedule` comes."""
        progress.searching += 1
        self._thread.submit(
            lambda: schedule(progress.task, trace),
            lambda answer: self._done(Reschedule(progress, trace, answer)),
        )

    def report(self, progress: TaskProgress, results: Sequence[CandidateResult]) -> None:
        """Report the task's oldest batch to its search."""
        search = progress.search
        assert search is not None

        def done(answer: object) -> None:
            if isinstance(answer, Exception):
                self._done(SearchFailure(progress, answer))

        self._thread.submit(lambda: search.report(results), done)

    def accept(self, proposal: Proposal) -> Sequence[Candidate]:
        """Return the new candidates of a search; the task ends if there was none. Known ones have results."""
        progress, candidates = proposal.progress, proposal.candidates
        progress.searching -= 1
        progress.requested -= proposal.requested
        if isinstance(candidates, NoSpace):
            progress.end("exhausted", str(candidates))
            return ()
        if isinstance(candidates, Exception):
            self.fail(progress, candidates)
            return ()
        if not candidates:
            progress.end("exhausted", "" if progress.trials else "the search proposes nothing")
            return ()
        batch = Batch(tuple(candidates))
        new = {}
        for candidate in batch.candidates:
            record = progress.record_of(candidate.trace)
            if record is None:
                new[candidate.trace] = candidate
            else:
                batch.results[candidate.trace] = record.failure or Measurement(record.seconds)
        progress.batches.append(batch)
        self._stale[progress] = 0 if new else self._stale.get(progress, 0) + 1
        if self._stale[progress] >= STALE_BATCHES:
            progress.end("exhausted", "the search proposes what is known already")
        return tuple(new.values())

    def fail(self, progress: TaskProgress, error: Exception) -> None:
        """End a task whose search raised *error*."""
        lines = str(error).strip().splitlines()
        last = lines[-1].strip() if lines else ""
        reason = f"its search failed: {type(error).__name__}: {last}".rstrip(": ")
        if not progress.end_state:
            log.warning("%s: %s", progress.task.name, reason)
        progress.end("exhausted", reason)


def schedule(task: Task, trace: str) -> ScheduledModule:
    """Schedule the task's module as in *trace*; takes TVM, for the search's thread."""
    from adt.compiler.passes.records.schedules import schedule_by_record

    module = (
        task.baseline if trace == BASELINE else str(tvm.ir.save_json(schedule_by_record(task.module, trace)))
    )
    return ScheduledModule(module, count_outputs(task.module))


def count_outputs(module: Any) -> int:
    """Count the last arguments of the workload *module* (``{"main": PrimFunc}``) that are outputs."""
    function = module["main"]
    stored: set[Any] = set()

    def visit(node: Any) -> None:
        if isinstance(node, tirx.BufferStore):
            stored.add(node.buffer)

    tirx.stmt_functor.post_order_visit(function.body, visit)
    count = 0
    for parameter in reversed(list(function.params)):
        buffer = function.buffer_map.get(parameter)
        if buffer is None or not any(buffer.same_as(other) for other in stored):
            break
        count += 1
    return count
