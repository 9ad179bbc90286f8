"""Tuning: the records that apply to one compile."""

from __future__ import annotations

from dataclasses import dataclass

from adt.compiler.targets.gpu import Gpu


@dataclass(frozen=True)
class TunedKernel:
    """The fastest known schedule of one workload."""

    workload: str
    """TVM's JSON of what :func:`adt.compiler.passes.records.workload.workload` gives."""
    trace: str
    """Text of :func:`adt.compiler.passes.records.traces.trace_text`."""
    seconds: float
    """Duration of one call with that schedule …"""
    baseline: float | None
    """Duration with the schedule that the kernel gets without records; None: it was not measured."""

    @property
    def faster(self) -> bool:
        """The record is to be applied: nothing is known that is faster."""
        return self.baseline is None or self.seconds < self.baseline


@dataclass(frozen=True)
class Tuning:
    """The records of one device, for one target and version of TVM."""

    kernels: tuple[TunedKernel, ...]
    digest: str
    """Digest (sha256) over everything of it that decides a package's bytes."""
    device: str
    """Device on which the records were taken."""
    driver: str
    """Version of its GPU's driver; empty for a CPU."""
    emulated: bool = False
    """The times are no device's speed."""
    gpu: Gpu | None = None
    """The row that was fitted to that device; None: none was."""
