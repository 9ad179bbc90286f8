"""The search for the fast schedules of one kernel: what to measure next, given what was measured."""

from __future__ import annotations

import hashlib
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import tvm
import tvm_ffi
from tvm import ir
from tvm.s_tir import meta_schedule as ms

from adt.compiler.passes.records import traces
from adt.errors import ConfigError
from adt.tuning.candidates import Candidate, CandidateResult, Measurement
from adt.tuning.records import Record
from adt.tuning.search.design_space import design_space, rule_space
from adt.tuning.search.strategies import (
    ENDLESS,
    EVOLUTIONARY,
    FEW,
    REPLAY,
    STRATEGIES,
    Enumeration,
    RandomModel,
    SearchOptions,
    as_tvm,
    by_promise,
    cost_model,
    enumerate_traces,
    evolutionary,
    measure_candidate,
    recorded_schedule,
    replay,
    select_for_learning,
)
from adt.tuning.search.tile_search import Effects, TileSearch

if TYPE_CHECKING:
    from adt.tuning.tasks import Task

log = logging.getLogger("adt.tune")

MAX_LEARNED = 256
"""Earlier records of a kernel that are shown to the cost model: each takes milliseconds."""
MAX_FRUITLESS = 3
"""Rounds without anything new after which a kernel's schedules count as exhausted."""


class Searches:
    """The searches of one tuning, for one thread; what was learned of one kernel helps with the others."""

    def __init__(self, target: dict[str, Any], options: SearchOptions) -> None:
        """Prepare searches for *target*, TVM's dictionary, for a CPU with its ``num-cores``."""
        if options.strategy not in STRATEGIES:
            raise ConfigError(
                f"there is no way to search called {options.strategy!r}",
                remedy=f"Choose one of {', '.join(STRATEGIES)}; AutoTVM's ga is evolutionary with "
                "--cost-model none, its xgb the same with --cost-model xgb.",
            )
        self._target = target
        self._options = options
        name = options.cost_model if options.strategy == EVOLUTIONARY else "none"
        self._model = cost_model(name, seed=options.seed, threads=options.threads)
        self._effects = Effects()

    def search(
        self, task: Task, *, known: Sequence[Record] = (), elsewhere: Sequence[Record] = ()
    ) -> TaskSearch | TileSearch:
        """Start the search for *task*.

        Args:
            known: the records of its workload in the context that is tuned for, of whatever model: they
                are not proposed again, and the search starts from them.
            elsewhere: those of other contexts with the same target: the best are measured here first.
        """
        if space := rule_space(task.module["main"], tvm.target.Target(self._target)):
            return TileSearch(task, space, self._effects, self._options, known, elsewhere)
        return TaskSearch(task, self._target, self._options, self._model, known, elsewhere)


class TaskSearch:
    """The search for one kernel: batches go out, their results come back in the same order."""

    def __init__(
        self,
        task: Task,
        target: dict[str, Any],
        options: SearchOptions,
        model: RandomModel,
        known: Sequence[Record],
        elsewhere: Sequence[Record],
    ) -> None:
        """Take the arguments of :meth:`Searches.search`."""
        self._name = task.name
        self._module = task.module
        self._options = options
        self._model = model
        self._database = ms.database.MemoryDatabase()
        self._workload = self._database.commit_workload(task.module)
        self._target = tvm.target.Target(target)
        self._space = design_space(task.module, self._target, seed=self._seed("space"), logger=_DebugLogger())
        self._proposer: Callable[[int], Sequence[Any] | None] | None = None
        self._context = ms.TuneContext(
            task.module, target=self._target, task_name=task.name, num_threads=options.threads
        )
        self._elsewhere = by_promise(elsewhere)
        self._seen = {record.trace for record in known}
        self._modules: set[Any] = set()
        self._spare: deque[tuple[Candidate, Any]] = deque()
        self._outstanding: deque[list[Any]] = deque()
        self._learn(known)

    def next_batch(self, count: int) -> tuple[Candidate, ...] | None:
        """Choose at most *count* new candidates; None: no more. Results of the last may still be out."""
        if count < 1:
            raise ValueError("a batch has at least one candidate")
        fruitless = 0
        self._borrow(count)
        while len(self._spare) < count and fruitless < MAX_FRUITLESS:
            proposed = self._propose(count)
            if proposed is None:
                break
            fruitless = 0 if self._take(proposed) else fruitless + 1
        if not self._spare:
            return None
        batch = [self._spare.popleft() for _ in range(min(count, len(self._spare)))]
        self._outstanding.append([tvm_candidate for _, tvm_candidate in batch])
        return tuple(candidate for candidate, _ in batch)

    def report(self, results: Sequence[CandidateResult]) -> None:
        """Take the results of the oldest batch that was not reported, in its order."""
        batch = self._outstanding.popleft()
        self._teach(list(zip(batch, results, strict=True)))

    def _propose(self, count: int) -> list[Any] | None:
        """Choose some of TVM's candidates, maybe none this time; None: there will be no more."""
        if self._options.strategy == REPLAY:
            return None
        if self._proposer is None:
            few = enumerate_traces(self._space.schedules, FEW)
            if few is not None:
                seed = self._seed("order")
                self._proposer = Enumeration(self._module, few, self._space.postprocs, seed).propose
            else:
                context = self._start(count)
                self._proposer = lambda _: context.generate_measure_candidates()
        proposed = self._proposer(count)
        return None if proposed is None else list(proposed)

    def _start(self, count: int) -> Any:
        """Start a TuneContext with TVM's strategy, for batches of *count*.

        TVM's strategies count trials by what they are notified of, and only that: they are not.
        What they learn comes from the database and the cost model.
        """
        evolves = self._options.strategy == EVOLUTIONARY
        context = ms.TuneContext(
            self._module,
            target=self._target,
            space_generator=self._space.generator,
            search_strategy=evolutionary(count) if evolves else ms.search_strategy.ReplayTrace(),
            task_name=self._name,
            rand_state=self._seed("search"),
            num_threads=self._options.threads,
            logger=_DebugLogger(),
        )
        model = as_tvm(self._model) if evolves else None
        context.pre_tuning(ENDLESS, count, self._space.schedules, self._database, model)
        return context

    def _borrow(self, count: int) -> None:
        """Queue what was fast on other devices: half a batch of it, and with ``replay`` a whole one."""
        room = count if self._options.strategy == REPLAY else max(1, count // 2)
        for record in self._elsewhere:
            recorded = recorded_schedule(self._module, record.trace)
            schedule = recorded and replay(self._module, recorded.trace, self._space.postprocs)
            if schedule is not None:
                room -= self._take([measure_candidate(schedule)])
            if room <= 0:
                break

    def _take(self, proposed: Sequence[Any]) -> int:
        """Queue the new ones of *proposed*; returns how many these are."""
        new = 0
        for each in proposed:
            trace, identity = traces.trace_text(each.sch.trace), tvm_ffi.structural_hash(each.sch.mod)
            if trace in self._seen or identity in self._modules:
                continue
            self._seen.add(trace)
            self._modules.add(identity)
            self._spare.append((Candidate(trace, str(ir.save_json(each.sch.mod))), each))
            new += 1
        return new

    def _learn(self, known: Sequence[Record]) -> None:
        """Start from the earlier records of the workload."""
        examples: list[tuple[Any, CandidateResult]] = []
        for record in select_for_learning(known, MAX_LEARNED):
            schedule = recorded_schedule(self._module, record.trace)
            if schedule is not None:
                self._modules.add(tvm_ffi.structural_hash(schedule.mod))
                result = Measurement(record.seconds) if record.failure is None else record.failure
                examples.append((measure_candidate(schedule), result))
        self._teach(examples)

    def _teach(self, examples: Sequence[tuple[Any, CandidateResult]]) -> None:
        """Train the cost model, and add the fast ones to TVM's database, from which the search goes on."""
        known = [(candidate, result) for candidate, result in examples if result is not None]
        if not known:
            return
        results = []
        for candidate, result in known:
            if isinstance(result, Measurement):
                seconds = [float(value) for value in result.seconds]
                results.append(ms.runner.RunnerResult(seconds, None))
                self._database.commit_tuning_record(
                    ms.database.TuningRecord(
                        candidate.sch.trace, self._workload, seconds, self._target, candidate.args_info
                    )
                )
            else:
                results.append(ms.runner.RunnerResult(None, result.message or result.kind))
        self._model.update(self._context, [candidate for candidate, _ in known], results)

    def _seed(self, purpose: str) -> int:
        """Return a seed of TVM's, 1 … 2³¹ - 1."""
        text = f"{self._options.seed}:{purpose}:{self._name}"
        return 1 + int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") % ((1 << 31) - 1)


class _DebugLogger:
    """A logger for TVM's search that shows its steps at the debug level only."""

    def debug(self, text: str) -> None:
        log.debug("%s", text)

    info = warning = error = debug
