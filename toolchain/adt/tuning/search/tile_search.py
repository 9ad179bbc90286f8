"""The search among the decisions of adt's rule for one kernel: one thing at a time is done otherwise.

Such spaces are small, and their rules order the ways of doing a thing by what they promise. So the search
begins with what the rules decide, and goes on from the fastest so far: it tries the change that promises
most. What a change brought for other kernels tells what it may bring here.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tvm import ir

from adt.compiler.passes.records.schedules import schedule_by_record
from adt.compiler.passes.records.traces import TraceError
from adt.tuning.candidates import Candidate, CandidateResult, Measurement
from adt.tuning.records import Record
from adt.tuning.search.strategies import EVOLUTIONARY, REPLAY, SearchOptions, by_promise

if TYPE_CHECKING:
    from adt.tuning.search.design_space import RuleSpace
    from adt.tuning.tasks import Task

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
        task: Task,
        space: RuleSpace,
        effects: Effects,
        options: SearchOptions,
        known: Sequence[Record],
        elsewhere: Sequence[Record],
    ) -> None:
        """Take the arguments of :meth:`adt.tuning.search.task_search.Searches.search`."""
        self._task = task
        self._space = space
        self._effects = effects
        self._strategy = options.strategy
        self._known = {record.trace: record for record in known}
        self._elsewhere = by_promise(elsewhere)
        self._seen: set[str] = set()
        self._tried: set[Places] = set()
        self._trials: list[Trial] = []
        self._outstanding: deque[list[Trial]] = deque()
        digest = hashlib.sha256(f"{options.seed}:{task.name}".encode()).digest()
        self._random = random.Random(int.from_bytes(digest[:8], "big"))

    def next_batch(self, count: int) -> tuple[Candidate, ...] | None:
        """Choose at most *count* new candidates; None: no more. Results of the last may still be out."""
        if count < 1:
            raise ValueError("a batch has at least one candidate")
        batch: list[tuple[Candidate, Trial]] = []
        room = count if self._strategy == REPLAY else max(1, count // 2)
        batch += [(candidate, Trial(())) for candidate in self._borrow(room)]
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
            record = self._known[trace]
            self._learn(trial, math.inf if record.failure else min(record.seconds))
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
        best: Trial | None = None
        least = math.inf
        for start in starts:
            slower = math.log((start.seconds or 1.0) / (starts[0].seconds or 1.0))
            for trial, expected in self._changes(start):
                if slower + expected < least:
                    best, least = trial, slower + expected
        return best

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

    def _borrow(self, room: int) -> Iterator[Candidate]:
        """Yield candidates that were fast on other devices, at most *room* of them."""

        for record in self._elsewhere if room else ():
            if record.trace in self._known or record.trace in self._seen:
                continue
            try:
                module = schedule_by_record(self._task.module, record.trace)
            except TraceError:
                continue
            self._seen.add(record.trace)
            yield Candidate(record.trace, str(ir.save_json(module)))
            room -= 1
            if not room:
                return
