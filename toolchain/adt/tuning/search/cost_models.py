"""Prediction of a schedule's time before it is measured: gradient boosted trees, trained meanwhile.

One model serves all kernels of a tuning: what it learned of one convolution helps with the next one. The
trees are TVM's, with three things mended around them: what is said before they have learned enough depends on
the seed only; kernels of which nothing ran yet teach nothing (TVM would rate their failures as the best there
is); and where TVM cannot tell the features of a schedule, chance rates it and the search goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy
import tvm_ffi
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.cost_model.xgb_model import XGBConfig

from adt.errors import ConfigError
from adt.host.extras import install_command, load

log = logging.getLogger("adt.tune")

MODELS = ("auto", "xgb", "none")
WARM_UP = 64
"""Measurements, of all kernels together, before the trees are asked."""


def cost_model(name: str, *, seed: int, threads: int) -> RandomModel:
    """Make the model *name*, of :data:`MODELS`; ``auto`` is ``xgb`` where XGBoost is, else ``none``."""
    if name not in MODELS:
        raise ConfigError(f"there is no cost model {name!r}", remedy=f"Choose one of {', '.join(MODELS)}.")
    if name == "none" or (name == "auto" and not _is_installed()):
        return RandomModel(seed)
    load("xgboost", "tune", "the cost model xgb")
    config = XGBConfig(seed=seed % (1 << 31), nthread=threads)
    return TreeModel(ms.cost_model.XGBModel(config=config, num_warmup_samples=0), seed)


def _is_installed() -> bool:
    try:
        import xgboost  # noqa: F401
    except ImportError:
        log.warning(
            "XGBoost is not installed: the search is led by measured times alone, and finds less in as many "
            "trials; this brings it: %s",
            install_command(extra="tune"),
        )
        return False
    return True


class RandomModel:
    """Rates schedules by chance and learns nothing: the cost model ``none``.

    Candidates and results are TVM's, and one to one.
    """

    def __init__(self, seed: int) -> None:
        self._random = numpy.random.default_rng(seed)

    def update(self, context: Any, candidates: Sequence[Any], results: Sequence[Any]) -> None:
        """Learn from measurements of the workload of *context* (a TuneContext)."""

    def predict(self, context: Any, candidates: Sequence[Any]) -> Any:
        """Return an array with a number ≥ 0 for each candidate: the higher, the faster."""
        return self._random.random(len(candidates))


class TreeModel(RandomModel):
    """TVM's XGBoost model; chance rates what it knows nothing of."""

    def __init__(self, trees: Any, seed: int) -> None:
        super().__init__(seed)
        self._trees = trees
        self._learned = 0
        self._only_failed: dict[Any, tuple[list[Any], list[Any]]] = {}
        """Candidates tried of workloads of which nothing has run yet; None, once something ran."""
        self._ran: set[Any] = set()

    def update(self, context: Any, candidates: Sequence[Any], results: Sequence[Any]) -> None:
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
        if self._learned >= WARM_UP:
            try:
                return self._trees.predict(context, list(candidates))
            except Exception as error:  # as above
                log.debug("the cost model cannot rate schedules of %s: %s", context.task_name, error)
        return super().predict(context, candidates)


def as_tvm(model: RandomModel) -> Any:
    """Wrap *model* as a CostModel that TVM's search strategies take."""

    @derived_object
    class Bridge(ms.cost_model.PyCostModel):  # type: ignore[misc]
        def update(self, context: Any, candidates: Any, results: Any) -> None:
            model.update(context, candidates, results)

        def predict(self, context: Any, candidates: Any) -> Any:
            return model.predict(context, candidates)

    return Bridge()
