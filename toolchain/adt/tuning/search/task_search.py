"""The search for the fast schedules of one kernel: what to measure next, given what was measured."""

from __future__ import annotations

import hashlib
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from adt.errors import ConfigError
from adt.model.tuning.traces import trace_text
from adt.tuning.candidates import Candidate, Measured, Result
from adt.tuning.records import Record
from adt.tuning.search.cost_models import CostModel, as_tvm, cost_model
from adt.tuning.search.replay import by_merit, candidate, replayed, scheduled, worth_learning
from adt.tuning.search.strategies import (
    ENDLESS,
    EVOLUTIONARY,
    FEW,
    REPLAY,
    STRATEGIES,
    Around,
    Evolution,
    OneByOne,
    Upstream,
    choices,
    evolutionary,
    random_draws,
)
from adt.tuning.space.design_space import space

if TYPE_CHECKING:
    from adt.tuning.tasks import Task

log = logging.getLogger("adt.tune")

MOST_LEARNED = 256
"""Earlier records of a kernel that are shown to the cost model: each takes milliseconds."""
FRUITLESS = 3
"""Rounds without anything new after which a kernel's schedules count as exhausted."""


@dataclass(frozen=True)
class SearchOptions:
    """How schedules are searched."""

    strategy: str = EVOLUTIONARY
    """One of :data:`adt.tuning.search.strategies.STRATEGIES`."""
    cost_model: str = "auto"
    """One of :data:`adt.tuning.search.cost_models.MODELS`."""
    seed: int = 0
    """The same seed, records and results give the same candidates, with one thread."""
    threads: int = 1
    """On which TVM tries schedules; with more, the order in which they run decides, too."""


class Searches:
    """The searches of one tuning; what was learned of one kernel helps with the others.

    For one thread at a time.
    """

    def __init__(self, target: dict[str, Any], options: SearchOptions) -> None:
        """
        Args:
            target: TVM's dictionary, for a CPU with its ``num-cores``.

        Raises:
            ToolNotFound: the cost model's package is not installed.
            ConfigError: there is no such strategy or cost model.
        """
        if options.strategy not in STRATEGIES:
            raise ConfigError(
                f"there is no way to search called {options.strategy!r}",
                remedy=f"Choose one of {', '.join(STRATEGIES)}.",
            )
        self._target = target
        self._options = options
        name = options.cost_model if options.strategy == EVOLUTIONARY else "none"
        self._model = cost_model(name, seed=options.seed, threads=options.threads)

    def search(
        self, task: Task, *, known: Sequence[Record] = (), elsewhere: Sequence[Record] = ()
    ) -> TaskSearch:
        """The search for *task*.

        Args:
            known: the records of its workload in the context that is tuned for, of whatever model: they
                are not proposed again, and the search starts from them.
            elsewhere: those of other contexts with the same target: the best are measured here first.

        Raises:
            NoSpace: TVM has nothing to choose for it.
        """
        return TaskSearch(task, self._target, self._options, self._model, known=known, elsewhere=elsewhere)


class TaskSearch:
    """The search for one kernel: batches go out, their results come back in the same order."""

    def __init__(
        self,
        task: Task,
        target: dict[str, Any],
        options: SearchOptions,
        model: CostModel,
        *,
        known: Sequence[Record] = (),
        elsewhere: Sequence[Record] = (),
    ) -> None:
        """As :meth:`Searches.search`."""
        import tvm
        from tvm.s_tir import meta_schedule as ms

        self._name = task.name
        self._module = task.module
        self._options = options
        self._model = model
        self._database = ms.database.MemoryDatabase()
        self._workload = self._database.commit_workload(task.module)
        self._target = tvm.target.Target(target)
        self._space = space(task.module, self._target, seed=self._seed("space"), logger=_Debug())
        self._strategy: OneByOne | Upstream | None = None
        self._leads = self._led()
        self._context = ms.TuneContext(
            task.module, target=self._target, task_name=task.name, num_threads=options.threads
        )
        self._elsewhere = by_merit(elsewhere)
        self._seen = {record.trace for record in known}
        self._modules: set[Any] = set()
        self._spare: deque[tuple[Candidate, Any]] = deque()
        self._out: deque[list[Any]] = deque()
        self._learn(known)

    def next_batch(self, count: int) -> tuple[Candidate, ...] | None:
        """At most *count* candidates that were not proposed yet; None: there are no more.

        It may be called again before what came of the last batch is reported.
        """
        if count < 1:
            raise ValueError("a batch has at least one candidate")
        fruitless = 0
        self._borrow(count)
        while len(self._spare) < count and fruitless < FRUITLESS:
            proposed = self._propose(count)
            if proposed is None:
                break
            fruitless = 0 if self._take(proposed) else fruitless + 1
        if not self._spare:
            return None
        batch = [self._spare.popleft() for _ in range(min(count, len(self._spare)))]
        self._out.append([tvm_candidate for _, tvm_candidate in batch])
        return tuple(ours for ours, _ in batch)

    def report(self, results: Sequence[Result]) -> None:
        """What came of the oldest batch that was not reported, in its order."""
        batch = self._out.popleft()
        self._show([(tried, result) for tried, result in zip(batch, results, strict=True)])

    def _propose(self, count: int) -> list[Any] | None:
        """Some of TVM's candidates, maybe none this time; None: there will be no more."""
        if self._options.strategy == REPLAY:
            return None
        if self._leads is not None:
            leads, self._leads = self._leads, None
            return leads.propose(count)
        if self._strategy is None:
            few = choices(self._space.schedules, FEW)
            if few is not None:
                seed = self._seed("order")
                self._strategy = OneByOne(self._module, few, self._space.postprocs, seed)
            else:
                self._strategy = Upstream(self._started(count))
        return self._strategy.propose(count)

    def _led(self) -> Around | None:
        """What an evolutionary search begins with where the space's own decisions are good ones."""
        if not self._space.led or self._options.strategy != EVOLUTIONARY:
            return None
        return Around(self._module, self._space.schedules, self._space.postprocs, self._seed("leads"))

    def _started(self, count: int) -> Any:
        """A TuneContext with TVM's strategy, for batches of *count*.

        TVM's strategies count trials by what they are notified of, and only that: they are not.
        What they learn comes from the database and the cost model.
        """
        from tvm.s_tir import meta_schedule as ms

        evolves = self._options.strategy == EVOLUTIONARY
        context = ms.TuneContext(
            self._module,
            target=self._target,
            space_generator=self._space.generator,
            search_strategy=evolutionary(Evolution.of(count, led=self._space.led))
            if evolves
            else random_draws(),
            task_name=self._name,
            rand_state=self._seed("search"),
            num_threads=self._options.threads,
            logger=_Debug(),
        )
        model = as_tvm(self._model) if evolves else None
        context.pre_tuning(ENDLESS, count, self._space.schedules, self._database, model)
        return context

    def _borrow(self, count: int) -> None:
        """Queue what was fast on other devices: half a batch of it, and with ``replay`` a whole one."""
        room = count if self._options.strategy == REPLAY else max(1, count // 2)
        for record in self._elsewhere:
            there = scheduled(self._module, record.trace)
            here = there and replayed(self._module, there.trace, self._space.postprocs)
            if here is not None:
                room -= self._take([candidate(here)])
            if room <= 0:
                break

    def _take(self, proposed: Sequence[Any]) -> int:
        """Queue the new ones of *proposed*; returns how many these are."""
        import tvm_ffi
        from tvm import ir

        new = 0
        for one in proposed:
            trace, identity = trace_text(one.sch.trace), tvm_ffi.structural_hash(one.sch.mod)
            if trace in self._seen or identity in self._modules:
                continue
            self._seen.add(trace)
            self._modules.add(identity)
            self._spare.append((Candidate(trace, str(ir.save_json(one.sch.mod))), one))
            new += 1
        return new

    def _learn(self, known: Sequence[Record]) -> None:
        """Start from the earlier records of the workload."""
        import tvm_ffi

        shown: list[tuple[Any, Result]] = []
        for record in worth_learning(known, MOST_LEARNED):
            schedule = scheduled(self._module, record.trace)
            if schedule is not None:
                self._modules.add(tvm_ffi.structural_hash(schedule.mod))
                result = Measured(record.seconds) if record.failure is None else record.failure
                shown.append((candidate(schedule), result))
        self._show(shown)

    def _show(self, shown: Sequence[tuple[Any, Result]]) -> None:
        """Tell the cost model, and TVM's database of the fast ones, from which the search goes on."""
        from tvm.s_tir import meta_schedule as ms

        told = [(tried, result) for tried, result in shown if result is not None]
        if not told:
            return
        results = []
        for tried, result in told:
            if isinstance(result, Measured):
                seconds = [float(value) for value in result.seconds]
                results.append(ms.runner.RunnerResult(seconds, None))
                self._database.commit_tuning_record(
                    ms.database.TuningRecord(
                        tried.sch.trace, self._workload, seconds, self._target, tried.args_info
                    )
                )
            else:
                results.append(ms.runner.RunnerResult(None, result.message or result.kind))
        self._model.update(self._context, [tried for tried, _ in told], results)

    def _seed(self, purpose: str) -> int:
        """A seed of TVM's, 1 … 2³¹ - 1."""
        text = f"{self._options.seed}:{purpose}:{self._name}"
        return 1 + int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") % ((1 << 31) - 1)


class _Debug:
    """What TVM's search says of its steps: nothing to show unless everything is shown."""

    def debug(self, text: str) -> None:
        log.debug("%s", text)

    info = warning = error = debug
