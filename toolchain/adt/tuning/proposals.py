"""Requests to the searches of the tasks, in the one thread that searches, and reports to them."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import tvm

from adt.errors import last_line
from adt.tuning.candidates import Candidate, CandidateResult, Measurement, NoSpace
from adt.tuning.pipeline import Pipeline
from adt.tuning.records import BASELINE, Record
from adt.tuning.task_progress import Batch, TaskProgress

if TYPE_CHECKING:
    from adt.tuning.search.task_search import Searches
    from adt.tuning.tasks import Task

log = logging.getLogger("adt.tune")

STALE_BATCHES = 3
"""Batches in a row with nothing new in them, after which a search is exhausted."""


class Proposals:
    """The searches of all tasks, in one thread: they share TVM's state and the cost model.

    All methods are for the engine's thread, in which *post* has the functions called that it gets.
    """

    def __init__(
        self, searches: Searches, pipeline: Pipeline, post: Callable[[Callable[[], None]], None]
    ) -> None:
        self._searches = searches
        self._pipeline = pipeline
        self._post = post
        self._known: dict[TaskProgress, tuple[Sequence[Record], Sequence[Record]]] = {}
        self._stale: dict[TaskProgress, int] = {}
        self._actions: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._closed = threading.Event()
        # A daemon: the second ctrl-C does not wait for TVM to come back from a search.
        self._thread = threading.Thread(target=self._run, name="adt-search", daemon=True)
        self._thread.start()

    def begin(self, progress: TaskProgress, known: Sequence[Record], elsewhere: Sequence[Record]) -> None:
        """Begin with the records of the task's workload: in this context, and in others."""
        self._known[progress] = known, elsewhere

    def request(self, progress: TaskProgress, count: int) -> None:
        """Search *count* candidates; those that are new go into the pipeline."""

        def search() -> Sequence[Candidate] | None:
            if progress.search is None:
                known, elsewhere = self._known[progress]
                progress.search = self._searches.search(progress.task, known=known, elsewhere=elsewhere)
                del self._known[progress]
            return progress.search.next_batch(count)

        progress.searching += 1
        progress.requested += count
        self._submit(search, partial(self._proposed, progress, count))

    def confirm(self, progress: TaskProgress, trace: str) -> None:
        """Schedule a candidate that was measured before; it goes into the pipeline to be confirmed."""
        progress.searching += 1
        progress.confirming.add(trace)
        self._submit(lambda: schedule(progress.task, trace), partial(self._rescheduled, progress, trace))

    def report(self, progress: TaskProgress, results: Sequence[CandidateResult]) -> None:
        """Report the task's oldest batch to its search."""
        search = progress.search
        assert search is not None
        self._submit(lambda: search.report(results), partial(self._reported, progress))

    def close(self, timeout: float | None) -> None:
        """Drop what did not begin; wait until what runs is done, at most *timeout* seconds."""
        self._closed.set()
        self._actions.put(None)
        self._thread.join(timeout)

    def _run(self) -> None:
        while (action := self._actions.get()) is not None:
            if not self._closed.is_set():
                action()

    def _submit(self, action: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Call *action* in the searches' thread, then *done* with its result or the exception it raised."""

        def run() -> None:
            try:
                result = action()
            except Exception as error:
                log.debug("a search failed", exc_info=True)
                result = error
            self._post(partial(done, result))

        self._actions.put(run)

    def _proposed(
        self, progress: TaskProgress, requested: int, proposal: Sequence[Candidate] | Exception | None
    ) -> None:
        """Take in a search's *proposal*; the task ends if there is none. Known candidates have results."""
        progress.searching -= 1
        progress.requested -= requested
        if isinstance(proposal, NoSpace):
            progress.end("exhausted", str(proposal))
        elif isinstance(proposal, Exception):
            self._fail(progress, proposal)
        elif not proposal:
            progress.end("exhausted", "" if progress.trials else "the search proposes nothing")
        else:
            self._add(progress, proposal)

    def _add(self, progress: TaskProgress, candidates: Sequence[Candidate]) -> None:
        batch = Batch(tuple(candidates))
        new = {}
        for candidate in candidates:
            record = progress.record_of(candidate.trace)
            if record is None:
                new[candidate.trace] = candidate
            else:
                batch.results[candidate.trace] = record.failure or Measurement(record.seconds)
        progress.batches.append(batch)
        self._stale[progress] = 0 if new else self._stale.get(progress, 0) + 1
        if self._stale[progress] >= STALE_BATCHES:
            progress.end("exhausted", "the search proposes what is known already")
        for candidate in new.values():
            self._pipeline.add(progress, candidate.trace, candidate.module)

    def _rescheduled(self, progress: TaskProgress, trace: str, module: str | Exception) -> None:
        progress.searching -= 1
        if isinstance(module, Exception):
            log.warning("%s cannot be measured again: %s", progress.task.name, module)
            progress.can_confirm = False
            progress.confirming.discard(trace)
        else:
            self._pipeline.add(progress, trace, module, confirms=True)

    def _reported(self, progress: TaskProgress, error: Exception | None) -> None:
        if error is not None:
            self._fail(progress, error)

    def _fail(self, progress: TaskProgress, error: Exception) -> None:
        """End a task whose search raised *error*."""
        reason = f"its search failed: {type(error).__name__}: {last_line(error)}"
        if not progress.end_state:
            log.warning("%s: %s", progress.task.name, reason)
        progress.end("exhausted", reason)


def schedule(task: Task, trace: str) -> str:
    """Return TVM's JSON of the task's module scheduled as in *trace*; takes TVM, for the searches' thread."""
    from adt.compiler.passes.records.schedules import schedule_by_record

    if trace == BASELINE:
        return task.baseline
    return str(tvm.ir.save_json(schedule_by_record(task.module, trace)))
