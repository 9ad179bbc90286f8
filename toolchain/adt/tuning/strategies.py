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

from adt.tuning.replaying import candidate, replayed

EVOLUTIONARY, RANDOM, REPLAY = "evolutionary", "random", "replay"
STRATEGIES = (EVOLUTIONARY, RANDOM, REPLAY)
"""``evolutionary``: the fastest schedules so far are varied, and the cost model picks of the many;
``random``: decisions are drawn anew each time; ``replay``: nothing but what was found for the same kernels
on other devices is measured here."""

ENDLESS = 1 << 30
"""Trials: when to end is not the strategy's business."""
FEW = 64
"""Schedules in a space that are tried one by one."""


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

    @staticmethod
    def of(batch: int) -> Evolution:
        """For *batch* candidates at a time."""
        population = min(512, max(16, 2 * batch))
        return Evolution(population, 2, max(4, population // 4), max(0.05, 1.01 / max(batch, 8)))


def evolutionary(effort: Evolution) -> Any:
    """TVM's evolutionary search."""
    from tvm.s_tir import meta_schedule as ms

    return ms.search_strategy.EvolutionarySearch(
        population_size=effort.population,
        init_measured_ratio=0.25,
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


class Upstream:
    """One of TVM's own strategies, started: *context* is its TuneContext."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def propose(self, count: int) -> list[Any] | None:
        """Some of TVM's MeasureCandidates, maybe none this time, as many as it was started for."""
        proposed = self._context.generate_measure_candidates()
        return None if proposed is None else list(proposed)
