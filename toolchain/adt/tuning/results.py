"""State of a tuning while it runs, and its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from adt.compiler.targets.gpu import Gpu
from adt.host.document import FLAT, HIDDEN, form, in_document
from adt.tuning.records import Context


@dataclass(frozen=True)
class TaskStatus:
    """One kernel that is being tuned."""

    name: str
    weight: int
    """Calls of it in one run of the model."""
    flops: int | None
    """Operations of one call; None where they are not known."""
    state: str
    """``waiting``, ``searching``, ``building``, ``measuring``, ``done``, ``stopped`` (early) or
    ``exhausted``."""
    trials: int
    """Candidates that are done, failed ones too, those of earlier sessions of the same tuning too …"""
    planned: int
    """Number of trials planned; 0: the tasks share a number."""
    failed: int
    current: float | None
    """Seconds of one call: the last candidate that ran."""
    best: float | None
    """Seconds of one call: the fastest candidate, earlier records of the same workload too."""
    baseline: float | None
    """Seconds of one call: the untuned schedule."""

    def gflops(self, seconds: float | None) -> float | None:
        """Return the billion operations a second of a call that takes *seconds*."""
        return self.flops / seconds / 1e9 if self.flops and seconds else None


@dataclass(frozen=True)
class DeviceStatus:
    name: str
    """Its serial, or the server's address."""
    label: str
    state: str
    """``starting``, ``idle``, ``measuring``, ``restarting`` (its server), ``away``, ``out`` (of service,
    after failing again and again) or ``left``."""
    measured: int
    failed: int
    """Candidates that hung or crashed its server …"""
    restarts: int
    """Number of times that the worker was restarted."""
    celsius: float | None
    busy_seconds: float
    """In measurements."""
    note: str
    """Last fault; empty if there was none."""
    emulated: bool = False


@dataclass(frozen=True)
class Status:
    """Everything at one moment."""

    tasks: tuple[TaskStatus, ...]
    devices: tuple[DeviceStatus, ...]
    done: int
    """Trials …"""
    total: int
    """Number of trials in all."""
    kept: int
    """Records of this session that are safe on disk."""
    failures: Mapping[str, int]
    """Failed candidates by :attr:`adt.tuning.records.Failure.kind`."""
    building: int
    ready: int
    """Built, and waiting for a device."""
    elapsed: float
    left: float | None
    """Seconds, estimated; None: nothing is known yet."""


@dataclass(frozen=True)
class TunedTask:
    """One kernel, and what became of it."""

    name: str
    kernels: tuple[str, ...]
    """Kernels of the model that are the same one; *name* is the first."""
    calls: int
    """In one run of the model."""
    flops: int | None
    """Operations of one call; None where they are not known."""
    state: str
    """``done``, ``stopped`` (early), ``exhausted``, ``failed`` (*reason*), or how far it had come when the
    tuning was interrupted: ``waiting``, ``searching``, ``building``, ``measuring``."""
    reason: str
    """Reason why it could not be tuned; empty when it could."""
    trials: int
    """Candidates that were built and measured, in earlier sessions of the same tuning, too …"""
    failed: int
    baseline_ms: float | None
    """One call, scheduled as `adt compile` does without records."""
    best_ms: float | None
    """One call of the fastest candidate."""

    @property
    @in_document()
    def times_as_fast(self) -> float | None:
        """Baseline over best; None where one of them is not known."""
        return self.baseline_ms / self.best_ms if self.baseline_ms and self.best_ms else None

    @property
    def faster(self) -> bool:
        """A record is faster than the untuned schedule: compiling will take it."""
        return (self.times_as_fast or 0.0) > 1.0

    @property
    def tuned_ms(self) -> float | None:
        """One call as compiling with the records makes it: the faster one of the two."""
        known = [ms for ms in (self.baseline_ms, self.best_ms) if ms is not None]
        return min(known) if known else None


@dataclass(frozen=True)
class UntunableKernel:
    """A kernel, or another function that the model calls, that keeps its schedule; and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class QuarantinedCandidate:
    """A candidate that is never measured again."""

    task: str
    kind: str
    """``hang``, ``crash`` or ``wrong``."""
    message: str
    device: str
    """Name of the device on which it happened last."""
    label: str


@dataclass(frozen=True)
class TuningPlan:
    """Plan of a tuning, shown before it begins: tasks and devices."""

    model: Path
    platform: str
    target: str
    database: Path
    run: str
    where: str = field(metadata=HIDDEN)
    """Description of the devices that measure."""
    tasks: tuple[tuple[str, int, int | None], ...] = field(metadata=HIDDEN)
    """Name, calls in one run of the model, operations of one call (None: not known)."""
    untunable: tuple[UntunableKernel, ...]
    trials: int = field(metadata=HIDDEN)
    per_task: bool = field(metadata=HIDDEN)
    logs: Path
    """Directory of the tasks' logs."""
    compile_command: str = field(metadata=form("next"))
    """Command that compiles the model with the records."""


@dataclass(frozen=True)
class Figures:
    """Durations of a package's runs, in milliseconds."""

    mean_ms: float
    median_ms: float
    std_ms: float
    runs: int


@dataclass(frozen=True)
class Comparison:
    """The model with its records and without, taking turns on one machine."""

    place: str
    """The device's serial, or this machine; empty: none was at hand."""
    tuned_kernels: int
    total_kernels: int
    optimised: Figures | None
    """None where times do not count, or were not taken."""
    unoptimised: Figures | None
    ratio: tuple[float, float, float] | None
    """Speed-up of the optimised package: value, low and high end of the 95 % interval."""
    correct: bool | None
    """Both computed what the reference does; None: not compared."""
    reason: str
    """Reason why there are no times; empty when there are."""


@dataclass(frozen=True)
class GpuFit:
    """The row of a GPU that was fitted to measured times (:mod:`adt.tuning.fit`)."""

    gpu: Gpu
    before: Gpu
    """Row for which schedules were made until then."""
    kernels: int
    """Convolutions and products that were measured …"""
    schedules: int
    ordered: float
    """Share of the pairs of schedules of one kernel that the model of costs orders as their times are …"""
    ordered_before: float
    """Share with the row before."""


@dataclass(frozen=True)
class TuneResult:
    """Result of :func:`adt.tune`."""

    plan: TuningPlan = field(metadata=FLAT)
    context: Context | None
    """Conditions under which the records hold; None: no device was reached."""
    tasks: tuple[TunedTask, ...]
    devices: tuple[DeviceStatus, ...]
    quarantined: tuple[QuarantinedCandidate, ...]
    failures: Mapping[str, int]
    """Failed candidates by :attr:`adt.tuning.records.Failure.kind`."""
    done: int
    """Trials, those of earlier sessions of the same tuning, too …"""
    total: int
    """Number of trials in all."""
    kept: int
    """Records of this session that are safe on disk."""
    seconds: float
    interrupted: bool
    """It was asked to stop before the end; the same command goes on."""
    comparison: Comparison | None
    """None: not asked for."""
    fit: GpuFit | None = None
    """None: not asked for."""

    @property
    def finished_before(self) -> bool:
        """An earlier session did it all."""
        return not self.interrupted and not self.kept and self.done >= self.total

    @property
    @in_document()
    def emulated(self) -> bool:
        """Times were taken on an emulated device: they are no device's speed."""
        return any(device.emulated for device in self.devices)

    @property
    @in_document()
    def baseline_ms(self) -> float | None:
        """All calls of the tasks that have both times, untuned; None when there are none."""
        return self._sum([task.baseline_ms for task in self.tasks])

    @property
    @in_document()
    def tuned_ms(self) -> float | None:
        """Return the duration of the model with each kernel as fast as its best record, in milliseconds."""
        return self._sum([task.tuned_ms for task in self.tasks])

    def _sum(self, times: list[float | None]) -> float | None:
        known = [
            task.calls * ms
            for task, ms in zip(self.tasks, times, strict=True)
            if ms is not None and task.baseline_ms is not None
        ]
        return sum(known) if known else None
