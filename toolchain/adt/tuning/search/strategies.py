"""Sources of candidates (TVM's search strategies, and lists of traces), and models that predict their times.

One model, gradient boosted trees, serves all kernels of a tuning. The trees are TVM's, with three things
mended: what is said before they have learned enough depends on the seed only; kernels of which nothing ran
yet teach nothing (TVM would rate their failures as the best there is); and where TVM cannot tell the features
of a schedule, chance rates it and the search goes on.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy
import tvm_ffi
from tvm import s_tir
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.cost_model.xgb_model import XGBConfig

from adt.compiler.passes.records import traces
from adt.host.extras import install_command, load
from adt.tuning.records import BASELINE, Record

log = logging.getLogger("adt.tune")

EVOLUTIONARY, RANDOM, REPLAY = "evolutionary", "random", "replay"
"""``evolutionary``: the fastest schedules so far are varied, and the cost model picks of the many;
``random``: decisions are drawn anew each time; ``replay``: nothing but what was found for the same kernels
on other devices is measured here."""


@dataclass(frozen=True)
class SearchOptions:
    strategy: str = EVOLUTIONARY
    cost_model: str = "auto"
    seed: int = 0
    """Seed: equal ones give equal candidates, with equal records and results."""


ENDLESS = 1 << 30
"""Trials: when to end is not the strategy's business."""
FEW = 64
"""Schedules in a space that are tried one by one."""


def evolutionary(batch: int) -> Any:
    """Return TVM's evolutionary search, with an effort that goes with the *batch*.

    TVM's own numbers (512 schedules in 4 generations) take 10 to 25 s for a convolution on two cores.
    """
    population = min(512, max(16, 2 * batch))
    return ms.search_strategy.EvolutionarySearch(
        population_size=population,
        init_measured_ratio=0.25,  # of the first generation, the fastest so far
        init_min_unmeasured=max(4, population // 4),  # drawn by chance
        max_fail_count=10,
        genetic_num_iters=2,  # after the first one
        eps_greedy=max(0.05, 1.01 / max(batch, 8)),  # share by chance, whatever the cost model says of them
    )


def enumerate_traces(schedules: Sequence[Any], most: int) -> list[Any] | None:
    """List all traces that TVM's *schedules* leave open; None: over *most*, or not choices of a list.

    Elementwise kernels have a few tens: to try them one by one is quicker than to search among them.
    """
    traces, count = [], 0
    for schedule in schedules:
        trace = schedule.trace.simplified(remove_postproc=True)
        samples = [step for step in trace.insts if step.kind.name.startswith("Sample")]
        if any(step.kind.name != "SampleCategorical" for step in samples):
            return None
        sizes = [len(step.attrs[0]) for step in samples]
        count += math.prod(sizes)
        if count > most:
            return None
        for decisions in itertools.product(*map(range, sizes)):
            decided = trace
            for step, decision in zip(samples, decisions, strict=True):
                decided = decided.with_decision(step, decision, remove_postproc=True)
            traces.append(decided)
    return traces


def replay(module: Any, trace: Any, postprocs: Sequence[Any]) -> Any | None:
    """Schedule the workload *module* by the decisions of TVM's *trace* for another device.

    None if it does not apply, or one of TVM's *postprocs* refuses it (the device has less local memory, say).
    """
    schedule = s_tir.Schedule(module, error_render_level="none")
    try:
        trace.apply_to_schedule(schedule, remove_postproc=True)
        schedule.enter_postproc()
        return schedule if all(postproc.apply(schedule) for postproc in postprocs) else None
    except Exception as error:  # TVM's errors have many classes
        log.debug("a trace does not apply: %s", error)
        return None


def measure_candidate(schedule: Any) -> Any:
    """Make TVM's MeasureCandidate of *schedule*."""
    arguments = ms.arg_info.ArgInfo.from_entry_func(schedule.mod, remove_preproc=True)
    return ms.MeasureCandidate(schedule, arguments)


def recorded_schedule(module: Any, trace: str) -> Any | None:
    """Apply the text *trace* to the workload *module*; None: it does not apply."""
    try:
        return traces.scheduled(module, trace)
    except traces.TraceError as error:
        log.debug("a recorded trace does not apply: %s", error)
        return None


def by_promise(records: Sequence[Record]) -> Iterator[Record]:
    """Yield the records of other devices that ran: the fastest of each device, then the second …

    Times of different devices are not compared; what hung a device, or computed wrong numbers, is left out.
    """
    refused = {record.trace for record in records if record.failure and record.failure.quarantined}
    ran = [
        record for record in records if record.failure is None and record.trace not in {BASELINE, *refused}
    ]
    ran.sort(key=lambda record: (str(record.context), record.time, record.trace))
    devices = [list(of) for _, of in itertools.groupby(ran, key=lambda record: str(record.context))]
    seen: set[str] = set()
    for rank in itertools.zip_longest(*devices):
        for record in rank:
            if record is not None and record.trace not in seen:
                seen.add(record.trace)
                yield record


def select_for_learning(records: Sequence[Record], most: int) -> list[Record]:
    """Select at most *most* records, the last of each trace: the fastest half, and evenly of the others."""
    tried = list({record.trace: record for record in records if record.trace != BASELINE}.values())
    tried.sort(key=lambda record: (record.time, record.trace))
    if len(tried) <= most:
        return tried
    best, rest = tried[: most // 2], tried[most // 2 :]
    count = most - len(best)
    return best + [rest[index * len(rest) // count] for index in range(count)]


WARM_UP = 64
"""Measurements, of all kernels together, before the trees are asked."""


def _has_xgboost() -> bool:
    try:
        import xgboost  # noqa: F401
    except ImportError:
        return False
    return True


def cost_model(name: str, seed: int) -> CostModel:
    """Make the model *name*; ``auto`` is ``xgb`` where XGBoost is, else ``none``."""
    if name == "auto" and not _has_xgboost():
        log.warning(
            "XGBoost is not usable here: the search is led by measured times alone, and finds less in as "
            "many trials; this brings it: %s",
            install_command(extra="tune"),
        )
        name = "none"
    if name == "none":
        return CostModel(seed)
    load("xgboost", "tune", "the cost model xgb")
    config = XGBConfig(seed=seed % (1 << 31), nthread=1)
    return CostModel(seed, ms.cost_model.XGBModel(config=config, num_warmup_samples=0))


class CostModel:
    """Rates schedules with TVM's XGBoost model *trees*; by chance without one, or where it knows nothing."""

    def __init__(self, seed: int, trees: Any = None) -> None:
        self._random = numpy.random.default_rng(seed)
        self._trees = trees
        self._learned = 0
        self._only_failed: dict[Any, tuple[list[Any], list[Any]]] = {}
        """Candidates tried of workloads of which nothing has run yet, and their results."""
        self._ran: set[Any] = set()

    def update(self, context: Any, candidates: Sequence[Any], results: Sequence[Any]) -> None:
        """Learn from measurements of the workload of *context* (a TuneContext)."""
        if self._trees is None:
            return
        workload = tvm_ffi.structural_hash(context.mod)
        if workload not in self._ran:
            examples = self._only_failed.setdefault(workload, ([], []))
            examples[0].extend(candidates)
            examples[1].extend(results)
            if not any(result.run_secs for result in results):
                return
            self._ran.add(workload)
            candidates, results = self._only_failed.pop(workload)
        try:
            self._trees.update(context, list(candidates), list(results))
        except Exception as error:  # TVM's feature extractor and XGBoost raise many classes
            log.debug("the cost model cannot learn from %s: %s", context.task_name, error)
            return
        self._learned += len(candidates)

    def predict(self, context: Any, candidates: Sequence[Any]) -> Any:
        """Return an array with a number ≥ 0 for each candidate: the higher, the faster."""
        if self._learned >= WARM_UP:
            try:
                return self._trees.predict(context, list(candidates))
            except Exception as error:  # as above
                log.debug("the cost model cannot rate schedules of %s: %s", context.task_name, error)
        return self._random.random(len(candidates))


def as_tvm(model: CostModel) -> Any:
    """Wrap *model* as a CostModel that TVM's search strategies take."""

    @derived_object
    class Bridge(ms.cost_model.PyCostModel):  # type: ignore[misc]
        def update(self, context: Any, candidates: Any, results: Any) -> None:
            model.update(context, candidates, results)

        def predict(self, context: Any, candidates: Any) -> Any:
            return model.predict(context, candidates)

    return Bridge()
