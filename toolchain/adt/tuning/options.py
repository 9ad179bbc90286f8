"""Options of a tuning, and the digest that identifies it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from adt.options.sections import Settings
from adt.tuning.candidates import Timing, Toolchain

KERNEL_SETTINGS = (
    "shapes",
    "opt_level",
    "precision",
    "keep_float32",
    "half_only",
    "offload",
    "texture_choice",
)
"""Settings of [compile] that decide which kernels a model has; the target comes in by its key."""
SEARCH_SETTINGS = ("per_task", "tuner", "cost_model", "seed", "number", "repeat", "min_repeat_ms")
"""Settings of [tune] that decide what is proposed, and how it is measured. The number of trials is none of
them: with more the same tuning goes on."""


@dataclass(frozen=True)
class TuningOptions:
    run: str
    """Identifier of the tuning: its records count towards its trials, in the context that measures."""
    target: str
    """:attr:`adt.tuning.records.Context.target`."""
    tvm: str
    """:attr:`adt.tuning.records.Context.tvm`."""
    toolchain: Toolchain
    timing: Timing
    trials: int
    """Candidates, those of earlier sessions too; untuned schedules do not count."""
    per_task: bool = False
    """Trials are a number for each task; else for all together, more where more is to be gained."""
    early_stopping: int = 0
    """A task ends after so many candidates without a gain of more than 1 %; 0: never."""
    batch: int = 0
    """Candidates that the search proposes at once; 0: 16, or 4 for each device."""
    exclusive: bool = False
    """This machine measures: nothing is searched or built meanwhile."""
    wait: float = 600.0
    """Seconds without any device after which the tuning ends."""
    grace: float = 0.5
    """Seconds that measurements may take to finish when the tuning is stopped."""

    def total_trials(self, tasks: int) -> int:
        """Return the trials of all *tasks* tasks together."""
        return self.trials * (tasks if self.per_task else 1)


def run_id(model_sha256: str, settings: Settings, target: str, tvm: str) -> str:
    """Return the digest (32 hex digits) of what makes a tuning the same one, whichever devices measure.

    *target* is from :func:`adt.compiler.passes.records.key.target_key`, *tvm* TVM's version of three numbers.
    """
    facts = {
        "model": model_sha256,
        "target": target,
        "tvm": tvm,
        "compile": {name: getattr(settings.compile, name) for name in KERNEL_SETTINGS},
        "tune": {name: getattr(settings.tune, name) for name in SEARCH_SETTINGS},
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]
