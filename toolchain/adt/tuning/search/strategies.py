"""Where candidates come from: TVM's search strategies, and traces that others found.

TVM's own scheduler of tasks asks a strategy for a batch and waits for its results. Here
a batch is asked for whenever one is wanted: TVM's strategies keep nothing of a batch
until its results come; what they learn they read from the database and the cost model.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from adt.tuning.search.replay import candidate, replayed

EVOLUTIONARY, RANDOM, REPLAY = "evolutionary", "random", "replay"
STRATEGIES = (EVOLUTIONARY, RANDOM, REPLAY)
"""``evolutionary``: the fastest schedules so far are varied, and the cost model picks of the many;
``random``: decisions are drawn anew each time; ``replay``: nothing but what was found for the same kernels
on other devices is measured here."""

ENDLESS = 1 << 30
"""Trials: when to end is not the strategy's business."""
FEW = 64
"""Schedules in a space that are tried one by one."""
STEPS = 3
"""Changes of a good schedule, at most, that give one that is near."""
TRIES = 8
"""Schedules near a good one that are tried for each that is wanted: postprocessors refuse some."""


@dataclass(frozen=True)
class Evolution:
    """How much an evolutionary search tries for a batch.

    TVM's own numbers (512 schedules in 4 generations, whatever the batch) take 10 to 25 s for a
    convolution on two cores; a rack of phones would wait. Here the effort goes with the batch.
    """

    population: int
    """Schedules in each generation."""
    generations: int
    """After the first one."""
    fresh: int
    """At least so many of the first generation are drawn by chance."""
    by_chance: float
    """Share of the batch that is taken from these, whatever the cost model says of them."""
    measured: float
    """Share of the first generation that are the fastest so far."""

    @staticmethod
    def of(batch: int, *, led: bool = False) -> Evolution:
        """For *batch* candidates at a time.

        Args:
            led: the search began with good decisions: most of what is drawn by chance is worse.
        """
        population = min(512, max(16, 2 * batch))
        fresh = max(4, population // 4)
        return Evolution(population, 2, fresh, max(0.05, 1.01 / max(batch, 8)), 0.75 if led else 0.25)


def evolutionary(effort: Evolution) -> Any:
    """TVM's evolutionary search."""
    from tvm.s_tir import meta_schedule as ms

    return ms.search_strategy.EvolutionarySearch(
        population_size=effort.population,
        init_measured_ratio=effort.measured,
        init_min_unmeasured=effort.fresh,
        max_fail_count=10,
        genetic_num_iters=effort.generations,
        eps_greedy=effort.by_chance,
    )


def random_draws() -> Any:
    """TVM's search that draws all decisions by chance."""
    from tvm.s_tir import meta_schedule as ms

    return ms.search_strategy.ReplayTrace()


def choices(schedules: Sequence[Any], most: int) -> list[Any] | None:
    """All traces that the open decisions of TVM's *schedules* give; None: they are more than *most*, or not
    choices of a list.

    Elementwise kernels have a few tens: to try them one by one is quicker than to search among them.
    """
    traces, count = [], 0
    for schedule in schedules:
        trace = schedule.trace.simplified(remove_postproc=True)
        open_ones = [step for step in trace.insts if step.kind.name.startswith("Sample")]
        if any(step.kind.name != "SampleCategorical" for step in open_ones):
            return None
        sizes = [len(step.attrs[0]) for step in open_ones]
        count += math.prod(sizes)
        if count > most:
            return None
        for decisions in itertools.product(*map(range, sizes)):
            decided = trace
            for step, decision in zip(open_ones, decisions, strict=True):
                decided = decided.with_decision(step, decision, remove_postproc=True)
            traces.append(decided)
    return traces


class OneByOne:
    """Proposes each of *traces* once that the postprocessors take, in an order that the seed decides."""

    def __init__(self, module: Any, traces: Sequence[Any], postprocs: Sequence[Any], seed: int) -> None:
        self._module = module
        self._postprocs = postprocs
        self._left = list(traces)
        random.Random(seed).shuffle(self._left)

    def propose(self, count: int) -> list[Any] | None:
        """At most *count* of TVM's MeasureCandidates; None: there are no more."""
        made: list[Any] = []
        while self._left and len(made) < count:
            schedule = replayed(self._module, self._left.pop(), self._postprocs)
            if schedule is not None:
                made.append(candidate(schedule))
        return made or None


class Around:
    """Proposes the decisions that TVM's *schedules* have, and then some that are a few steps from them."""

    def __init__(self, module: Any, schedules: Sequence[Any], postprocs: Sequence[Any], seed: int) -> None:
        self._module = module
        self._postprocs = postprocs
        self._traces = [schedule.trace.simplified(remove_postproc=True) for schedule in schedules]
        self._random = random.Random(seed)

    def propose(self, count: int) -> list[Any]:
        """At most *count* of TVM's MeasureCandidates."""
        made: list[Any] = []
        for attempt in range(TRIES * count):
            if len(made) == count:
                break
            trace = self._traces[attempt % len(self._traces)]
            if attempt >= len(self._traces):
                for _ in range(self._random.randint(1, STEPS)):
                    trace = one_step(trace, self._random)
            schedule = replayed(self._module, trace, self._postprocs)
            if schedule is not None:
                made.append(candidate(schedule))
        return made


def one_step(trace: Any, chance: random.Random) -> Any:
    """TVM's *trace* with one decision changed a little: a factor of a tile moved, or another choice."""
    open_ones = [step for step in trace.insts if step in trace.decisions]
    step = chance.choice(open_ones)
    decision = trace.decisions[step]
    if step.kind.name != "SamplePerfectTile":
        return trace.with_decision(step, chance.randrange(len(step.attrs[0])), remove_postproc=True)
    tile, most = [int(extent) for extent in decision], int(step.attrs[1])
    source, target = chance.sample(range(len(tile)), 2)
    factors = [size for size in (2, 3, 5, 7) if tile[source] % size == 0] or [tile[source]]
    factor = chance.choice(factors)
    tile[source] //= factor
    tile[target] *= factor
    return trace if tile[-1] > most else trace.with_decision(step, tile, remove_postproc=True)


class Upstream:
    """One of TVM's own strategies, started: *context* is its TuneContext."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def propose(self, count: int) -> list[Any] | None:
        """Some of TVM's MeasureCandidates, maybe none this time, as many as it was started for."""
        proposed = self._context.generate_measure_candidates()
        return None if proposed is None else list(proposed)
