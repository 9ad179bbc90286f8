"""A candidate on its way: what is proposed, built and measured; and the options of a tuning."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from typing import Any, TypeAlias

from adt.compiler.cuda_code import CudaCode
from adt.compiler.passes.records.arguments import Argument
from adt.options.sections import Settings
from adt.tuning.records import Failure, MeasuredOn


@dataclass(frozen=True)
class Toolchain:
    """Way in which candidates become libraries; the same for all of one tuning."""

    target: dict[str, Any]
    """TVM's target dictionary, with its host."""
    device: str
    alignment: int
    """Bytes to which the device's runtime aligns tensors."""
    textures: bool
    """Some kernels use images: adt's TIR pipeline for them is used."""
    opt_level: int
    compiler: str
    link_options: tuple[str, ...]
    cuda: CudaCode | None
    """Form of kernels for CUDA; None for other targets."""


@dataclass(frozen=True)
class BuildJob:
    id: int
    module: str
    toolchain: Toolchain


@dataclass(frozen=True)
class BuildOutcome:
    """The outcome of a :class:`BuildJob`: a library or a failure."""

    id: int
    library: bytes
    """Content of mod.so; empty for a failure."""
    failure: Failure | None
    seconds: float
    disk: tuple[str, str, str] | None = None
    """A disk is full, which is no fault of the candidate and ends the tuning: what, remedy and details."""


LEAST_REPEATS = 3


@dataclass(frozen=True)
class Timing:
    """Parameters of TVM's time evaluator."""

    number: int = 1
    repeat: int = 1
    min_repeat_ms: int = 10
    """A repeat takes at least so long: more calls are made."""
    timeout: float = 10.0
    """Seconds for loading and timing one candidate; after that it counts as hung."""

    def repeats_of(self, seconds: float) -> int:
        """Return the number of repeats of a kernel of *seconds*: of a slow one :data:`LEAST_REPEATS`."""
        shortest = max(self.min_repeat_ms / 1000, 1e-9)
        fitting = math.ceil(self.repeat * shortest / max(self.number * seconds, shortest))
        return min(self.repeat, max(fitting, LEAST_REPEATS))


@dataclass(frozen=True)
class MeasureJob:
    """One library to time."""

    id: int
    task: str
    library: bytes
    arguments: tuple[Argument, ...]
    device: str
    timing: Timing
    outputs: int = 0
    """Bring back so many of the last arguments, computed from the same inputs on every device."""


@dataclass(frozen=True)
class MeasureOutcome:
    """The outcome of a :class:`MeasureJob` on one device."""

    id: int
    seconds: tuple[float, ...]
    """Duration of one call in each repeat; empty for a failure."""
    failure: Failure | None
    lost: bool
    """The device went away, or its server could not be reached: nothing is known of the candidate."""
    on: MeasuredOn
    device: str
    """As in :attr:`adt.tuning.records.Context.device`."""
    driver: str
    outputs: tuple[bytes, ...] = ()
    """As they lie in memory; empty unless they were asked for."""


@dataclass(frozen=True)
class Candidate:
    """One schedule of a kernel that was not measured yet."""

    trace: str
    """Trace as a record keeps it (:func:`adt.compiler.passes.records.traces.trace_text`)."""
    module: str
    """TVM's JSON of the scheduled IRModule ``{"main": PrimFunc}``: what is built."""


@dataclass(frozen=True)
class Measurement:
    """A candidate ran."""

    seconds: tuple[float, ...]
    """Duration of one call in each repeat."""


CandidateResult: TypeAlias = Measurement | Failure | None
"""The result of a candidate; None: nothing is known, the device left."""


class NoSpace(Exception):
    """There is nothing to search: TVM finds no schedule of a kernel that could be varied; and why."""


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
"""Settings of [tune] that decide what is proposed and how it is measured; with more trials it goes on."""


@dataclass(frozen=True)
class TuningOptions:
    run: str
    """Identifier of the tuning: its records count towards its trials, in the context that measures."""
    target: str
    tvm: str
    toolchain: Toolchain
    timing: Timing
    trials: int
    """Candidates, those of earlier sessions too; untuned schedules do not count."""
    per_task: bool = False
    """Trials are a number for each task; else for all together, more where more is to be gained."""
    early_stopping: int = 0
    """A task ends after so many candidates without a gain of more than 1 %; 0: never."""
    exclusive: bool = False
    """This machine measures: nothing is searched or built meanwhile."""
    wait: float = 600.0
    """Seconds without any device after which the tuning ends."""
    grace: float = 0.5
    """Seconds that measurements may take to finish when the tuning is stopped."""

    def total_trials(self, tasks: int) -> int:
        """Return the number of trials of all *tasks* tasks together."""
        return self.trials * (tasks if self.per_task else 1)


def run_id(model_sha256: str, settings: Settings, target: str, tvm: str) -> str:
    """Return the digest (32 hex digits) of what makes a tuning the same one, whichever devices measure."""
    facts = {
        "model": model_sha256,
        "target": target,
        "tvm": tvm,
        "compile": {name: getattr(settings.compile, name) for name in KERNEL_SETTINGS},
        "tune": {name: getattr(settings.tune, name) for name in SEARCH_SETTINGS},
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]
