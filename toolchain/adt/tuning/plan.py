"""What a tuning is to do, what it works with, and what came of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from adt.options.sections import Settings, TuneSettings
from adt.tuning import candidates
from adt.tuning.candidates import BuildJob, Built, MeasureJob, Outcome, Timing, Toolchain
from adt.tuning.records import Context, Record
from adt.tuning.results import DeviceStatus, Status

if TYPE_CHECKING:
    from adt.tuning.tasks import Task


@dataclass(frozen=True)
class Plan:
    """What a tuning is to do."""

    run: str
    """Which tuning it is: records of the same one count towards its trials, in the context that measures."""
    target: str
    """:attr:`adt.tuning.records.Context.target`."""
    tvm: str
    """:attr:`adt.tuning.records.Context.tvm`."""
    toolchain: Toolchain
    timing: Timing
    trials: int
    """Candidates, those of earlier sessions too; untuned schedules do not count."""
    per_task: bool = False
    """So many of each task; else of all together, more where more is to be gained."""
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

    def total(self, tasks: int) -> int:
        """Trials of all *tasks* tasks together."""
        return self.trials * (tasks if self.per_task else 1)


class Search(Protocol):
    """Proposes candidates for one task (:class:`adt.tuning.search.task_search.TaskSearch`)."""

    def next_batch(self, count: int) -> Sequence[candidates.Candidate] | None:
        """At most *count* candidates that were not measured yet; None: there are no more.

        It may be called again before the earlier ones are reported.
        """
        ...

    def report(self, results: Sequence[candidates.Result]) -> None:
        """What came of the candidates of the oldest batch that was not reported yet, in its order."""
        ...


class Searches(Protocol):
    """Begins searches; like :class:`adt.tuning.search.task_search.Searches`, for one thread at a time."""

    def search(
        self,
        task: Any,
        *,
        known: Sequence[Record] = (),
        elsewhere: Sequence[Record] = (),
    ) -> Search:
        """A search for *task*.

        Args:
            known: records of its workload in this context.
            elsewhere: … and in other contexts of the same target and TVM.

        Raises:
            NoSpace: there is nothing to search.
        """
        ...


class Builders(Protocol):
    """Compile candidates, several at once."""

    @property
    def workers(self) -> int:
        """How many at once, at present."""
        ...

    def submit(self, job: BuildJob, done: Callable[[Built], None]) -> None:
        """Compile *job* some time, then call *done* in some thread: once, unless closed before."""
        ...

    def close(self) -> None:
        """Give up what is being compiled and end every process; idempotent."""
        ...


Take: TypeAlias = Callable[[], MeasureJob | None]
"""The next candidate to measure, or None after half a second without one."""
Done: TypeAlias = Callable[[Outcome], None]
"""For each candidate that was taken, once."""


class Fleet(Protocol):
    """Measures candidates on as many devices as there are (:class:`adt.tuning.fleet.fleet.Fleet`)."""

    def identity(self) -> tuple[str, str] | None:
        """The context's device and driver, which all devices share; None before the first told."""
        ...

    def live(self) -> int:
        """Devices that measure, or could."""
        ...

    def devices(self) -> tuple[DeviceStatus, ...]:
        """All that were seen."""
        ...

    def close(self, grace: float, *, leaving: bool = False) -> None:
        """End after what is being measured finished, or *grace* seconds; idempotent.

        Args:
            leaving: somebody waits for our end: no device is waited for.
        """
        ...


class Records(Protocol):
    """What is needed of :class:`adt.tuning.database.store.Database`, open for writing."""

    def workload_id(self, module: Any) -> str:
        """:attr:`Workload.id` of an equal workload; it is added if there is none."""
        ...

    def contexts(self) -> Sequence[Context]:
        """Those that there are records of."""
        ...

    def records(self, context: Context | None = None, workload: str | None = None) -> Sequence[Record]:
        """All, or those of a context, a workload, in the order in which they came."""
        ...

    def add(self, records: Sequence[Record]) -> None:
        """Keep *records*: they are safe on disk when this returns.

        Raises:
            DiskError: they are not.
        """
        ...


@dataclass(frozen=True)
class Observer:
    """Who is told what happens, in the engine's thread."""

    status: Callable[[Status], None] | None = None
    """Several times a second, and once at the end."""
    record: Callable[[Record], None] | None = None
    """For each record, once it is safe on disk."""


@dataclass(frozen=True)
class TaskResult:
    """What came of one task."""

    task: Task
    workload: str
    state: str
    """:attr:`adt.tuning.results.TaskStatus.state`."""
    trials: int
    """Of this tuning, those of earlier sessions too."""
    failed: int
    baseline: Record | None
    """The untuned schedule, failed or not; None: it was not measured."""
    best: Record | None
    """The fastest candidate, of earlier tunings too; None: none ran."""
    reason: str
    """Why there is no more; empty where that needs no explanation."""

    @property
    def ratio(self) -> float | None:
        """Untuned over best time; None where one is missing."""
        if self.best is None or self.baseline is None or self.baseline.failure is not None:
            return None
        return self.baseline.time / self.best.time


@dataclass(frozen=True)
class Result:
    """What came of a tuning."""

    ended: str
    """``finished``, ``stopped`` or ``no device``."""
    context: Context | None
    """None: no device ever told what it is."""
    tasks: tuple[TaskResult, ...]
    devices: tuple[DeviceStatus, ...]
    status: Status
    """The last one."""
    failures: Mapping[str, int]
    """Failed candidates of this session, by kind."""
    quarantined: tuple[Record, ...]
    """Candidates of this tuning that crashed or hung a server."""


KERNELS = ("shapes", "opt_level", "precision", "keep_float32", "offload", "texture_choice")
"""Settings of [compile] that decide which kernels a model has; the target comes in by its key."""
SEARCH = ("per_task", "tuner", "cost_model", "seed", "number", "repeat", "min_repeat_ms")
"""Settings of [tune] that decide what is proposed, and how it is measured. The number of trials is none of
them: with more the same tuning goes on."""


def run_id(model_sha256: str, settings: Settings, target: str, tvm: str) -> str:
    """The digest (32 hex digits) of what makes a tuning the same one, whichever devices measure.

    Args:
        model_sha256: of the model's file (:func:`adt.model.package.model_store.model_sha256`).
        target: :func:`adt.model.tuning.key.target_key`.
        tvm: TVM's version, three numbers.
    """
    facts = {
        "model": model_sha256,
        "target": target,
        "tvm": tvm,
        "compile": {name: getattr(settings.compile, name) for name in KERNELS},
        "tune": search_facts(settings.tune),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]


def search_facts(settings: TuneSettings) -> dict[str, Any]:
    """The part of [tune] that decides what is proposed, and how it is measured."""
    return {name: getattr(settings, name) for name in SEARCH}
