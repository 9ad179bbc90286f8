"""The searches for the fast schedules of one kernel: what to measure next, given what was measured.

A :class:`TileSearch` changes one decision of adt's rule at a time. It begins with what the rule decides, and
tries the change that promises most, by the order of its ways and by what it brought for other kernels.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import logging
import math
import random
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import tvm
import tvm_ffi
from tvm import ir
from tvm.s_tir import meta_schedule as ms

from adt.compiler.passes.records import traces
from adt.compiler.passes.records.schedules import schedule_by_record
from adt.compiler.passes.records.traces import TraceError
from adt.tuning.candidates import Candidate, CandidateResult, Measurement
from adt.tuning.records import Record
from adt.tuning.search.design_space import design_space, rule_space
from adt.tuning.search.strategies import (
    ENDLESS,
    EVOLUTIONARY,
    FEW,
    REPLAY,
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

if TYPE_CHECKING:
    from adt.tuning.search.design_space import RuleSpace
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
        self.target = tvm.target.Target(target)
        self.options = options
        name = options.cost_model if options.strategy == EVOLUTIONARY else "none"
        self.model = cost_model(name, options.seed)
        self.effects = Effects()

    def search(
        self, task: Task, *, known: Sequence[Record] = (), elsewhere: Sequence[Record] = ()
    ) -> TaskSearch | TileSearch:
        """Start the search for *task*, from the *known* records of its workload in this context.

        Those of *elsewhere*, other contexts with the same target, are measured here first.
        """
        if space := rule_space(task.module["main"], self.target):
            return TileSearch(self, task, space, known, elsewhere)
        return TaskSearch(self, task, known, elsewhere)


class TaskSearch:
    """The search for one kernel: batches go out, their results come back in the same order."""

    def __init__(
        self, searches: Searches, task: Task, known: Sequence[Record], elsewhere: Sequence[Record]
    ) -> None:
        self._name = task.name
        self._module = task.module
        self._target, self._options, self._model = searches.target, searches.options, searches.model
        self._database = ms.database.MemoryDatabase()
        self._workload = self._database.commit_workload(task.module)
        self._schedules, self._generator = design_space(
            task.module, self._target, seed=self._seed("space"), logger=_DebugLogger()
        )
        self._postprocs = list(self._generator.postprocs)
        self._rounds: Iterator[Sequence[Any]] | None = None
        self._context = ms.TuneContext(task.module, target=self._target, task_name=task.name, num_threads=1)
        self._elsewhere = by_promise(elsewhere)
        self._seen = {record.trace for record in known}
        self._modules: set[Any] = set()
        self._spare: deque[tuple[Candidate, Any]] = deque()
        self._outstanding: deque[list[Any]] = deque()
        self._learn(known)

    def next_batch(self, count: int) -> tuple[Candidate, ...] | None:
        """Choose at most *count* new candidates; None: no more. Results of the last may still be out."""
        self._borrow(count)
        if self._rounds is None:
            self._rounds = self._propose(count)
        fruitless = 0
        while len(self._spare) < count and fruitless < MAX_FRUITLESS:
            proposed = next(self._rounds, None)
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

    def _propose(self, count: int) -> Iterator[Sequence[Any]]:
        """Yield TVM's candidates, some at a time, maybe none; batches will have some *count* of them.

        TVM's strategies learn from the database and the cost model; they are notified of nothing.
        """
        if self._options.strategy == REPLAY:
            return
        few = enumerate_traces(self._schedules, FEW)
        if few is not None:
            random.Random(self._seed("order")).shuffle(few)
            schedules = (replay(self._module, trace, self._postprocs) for trace in reversed(few))
            candidates = (measure_candidate(schedule) for schedule in schedules if schedule is not None)
            while batch := list(itertools.islice(candidates, count)):
                yield batch
            return
        evolves = self._options.strategy == EVOLUTIONARY
        context = ms.TuneContext(
            self._module,
            target=self._target,
            space_generator=self._generator,
            search_strategy=evolutionary(count) if evolves else ms.search_strategy.ReplayTrace(),
            task_name=self._name,
            rand_state=self._seed("search"),
            num_threads=1,  # with more, the order in which they run decides, too
            logger=_DebugLogger(),
        )
        model = as_tvm(self._model) if evolves else None
        context.pre_tuning(ENDLESS, count, self._schedules, self._database, model)
        while (proposed := context.generate_measure_candidates()) is not None:
            yield list(proposed)

    def _borrow(self, count: int) -> None:
        """Queue what was fast on other devices: half a batch of it, and with ``replay`` a whole one."""
        room = count if self._options.strategy == REPLAY else max(1, count // 2)
        for record in self._elsewhere:
            recorded = recorded_schedule(self._module, record.trace)
            schedule = recorded and replay(self._module, recorded.trace, self._postprocs)
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


LATER = 0.003
"""Expected loss of an alternative over the one before it: logarithm of a time."""
FAILED = 1.0
"""Logarithm of what a change is said to cost with which nothing ran."""
STARTS = 3
"""Number of fastest schedules of which one thing is changed."""
FRUITLESS = 200
"""Schedules in a row that cannot be, or are known, after which a space counts as exhausted."""

Change = tuple[str, str]
"""Decision, and its alternative."""
Places = tuple[tuple[str, int], ...]
"""Decisions that differ from the first alternative, and the index of the one taken."""


class Effects:
    """Effects of changes in all kernels of a tuning: logarithms of the factors of their times."""

    def __init__(self) -> None:
        self._sums: dict[Change, tuple[float, int]] = {}

    def add(self, change: Change, effect: float) -> None:
        """Learn that *change* multiplied a time by e to the power of *effect*."""
        total, count = self._sums.get(change, (0.0, 0))
        self._sums[change] = total + effect, count + 1

    def expect(self, change: Change, place: int) -> float:
        """Return the expected effect of *change* to *place*, as if one more kernel agreed with the rules."""
        total, count = self._sums.get(change, (0.0, 0))
        return (total + LATER * place) / (count + 1)


@dataclass
class Trial:
    """A schedule that is or was measured."""

    places: Places
    ways: Mapping[str, Sequence[object]] = field(default_factory=dict)
    parent: Trial | None = None
    change: Change | None = None
    """Decision in which it differs from *parent*."""
    seconds: float | None = None
    """Infinite: it failed; None: not known."""


class TileSearch:
    """The search for one kernel: batches go out, their results come back in the same order."""

    def __init__(
        self,
        searches: Searches,
        task: Task,
        space: RuleSpace,
        known: Sequence[Record],
        elsewhere: Sequence[Record],
    ) -> None:
        self._task = task
        self._space = space
        self._effects, self._strategy = searches.effects, searches.options.strategy
        self._known = {record.trace: record for record in known}
        self._elsewhere = by_promise(elsewhere)
        self._seen: set[str] = set()
        self._tried: set[Places] = set()
        self._trials: list[Trial] = []
        self._outstanding: deque[list[Trial]] = deque()
        digest = hashlib.sha256(f"{searches.options.seed}:{task.name}".encode()).digest()
        self._random = random.Random(int.from_bytes(digest[:8], "big"))

    def next_batch(self, count: int) -> tuple[Candidate, ...] | None:
        """Choose at most *count* new candidates; None: no more. Results of the last may still be out."""
        room = count if self._strategy == REPLAY else max(1, count // 2)
        batch = [(candidate, Trial(())) for candidate in itertools.islice(self._borrow(), room)]
        fruitless = 0
        while len(batch) < count and fruitless < FRUITLESS and self._strategy != REPLAY:
            trial = self._next_trial()
            if trial is None:
                break
            candidate = self._candidate(trial)
            fruitless = 0 if candidate else fruitless + 1
            if candidate:
                batch.append((candidate, trial))
        if not batch:
            return None
        self._outstanding.append([trial for _, trial in batch])
        return tuple(candidate for candidate, _ in batch)

    def report(self, results: Sequence[CandidateResult]) -> None:
        """Take the results of the oldest batch that was not reported, in its order."""
        for trial, result in zip(self._outstanding.popleft(), results, strict=True):
            if result is not None:
                self._learn(trial, min(result.seconds) if isinstance(result, Measurement) else math.inf)

    def _candidate(self, trial: Trial) -> Candidate | None:
        """Return the candidate of *trial*; None: there is no such schedule, or it is known."""
        self._tried.add(trial.places)
        point = self._space.point(dict(trial.places))
        if point is None:
            return None
        trial.ways = point.ways
        self._trials.append(trial)
        trace = point.candidate.trace
        if trace in self._known:
            self._learn(trial, self._known[trace].time)
        if trace in self._known or trace in self._seen:
            return None
        self._seen.add(trace)
        return point.candidate

    def _learn(self, trial: Trial, seconds: float) -> None:
        trial.seconds = seconds
        before = trial.parent.seconds if trial.parent else None
        if trial.change and before is not None and before < math.inf:
            effect = math.log(seconds / before) if seconds < math.inf else FAILED
            self._effects.add(trial.change, effect)

    def _next_trial(self) -> Trial | None:
        """Return the next schedule to try; None: all near ones were."""
        if () not in self._tried:
            return Trial(())
        if self._strategy != EVOLUTIONARY:
            ways = self._trials[0].ways if self._trials else {}
            places = [(what, self._random.randrange(len(several))) for what, several in sorted(ways.items())]
            return Trial(tuple((what, place) for what, place in places if place)) if ways else None
        ran = [trial for trial in self._trials if trial.seconds is not None and trial.seconds < math.inf]
        starts = sorted(ran, key=lambda trial: trial.seconds or 0.0)[:STARTS] or self._trials[:1]
        tries = [
            (math.log((start.seconds or 1.0) / (starts[0].seconds or 1.0)) + expected, trial)
            for start in starts
            for trial, expected in self._changes(start)
        ]
        return min(tries, key=itemgetter(0), default=(0.0, None))[1]

    def _changes(self, start: Trial) -> Iterator[tuple[Trial, float]]:
        """Yield the trials that differ from *start* in one decision, and what they may bring."""
        places = dict(start.places)
        for what, ways in start.ways.items():
            now = self._effects.expect((what, str(ways[places.get(what, 0)])), 0) if what in places else 0.0
            for place, way in enumerate(ways):
                other = {**places, what: place}
                key = tuple(sorted((name, at) for name, at in other.items() if at))
                if key not in self._tried:
                    change = (what, str(way))
                    yield Trial(key, {}, start, change), self._effects.expect(change, place) - now

    def _borrow(self) -> Iterator[Candidate]:
        """Yield candidates that were fast on other devices, and are not known."""
        for record in self._elsewhere:
            if record.trace not in self._known and record.trace not in self._seen:
                with contextlib.suppress(TraceError):
                    module = schedule_by_record(self._task.module, record.trace)
                    self._seen.add(record.trace)
                    yield Candidate(record.trace, str(ir.save_json(module)))
