"""How a tuning stands, at one moment: what the live view, plain lines and the report show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


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
    """… of so many, as far as is known; 0: the tasks share a number."""
    failed: int
    current: float | None
    """Seconds of one call: the last candidate that ran."""
    best: float | None
    """Seconds of one call: the fastest candidate, earlier records of the same workload too."""
    baseline: float | None
    """Seconds of one call: the untuned schedule."""

    def gflops(self, seconds: float | None) -> float | None:
        """Billion operations a second at *seconds* for a call."""
        return self.flops / seconds / 1e9 if self.flops and seconds else None


@dataclass(frozen=True)
class DeviceStatus:
    """One device that measures."""

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
    """… and how often that was started again."""
    celsius: float | None
    busy_seconds: float
    """In measurements."""
    note: str
    """What last went wrong; empty for nothing."""
    emulated: bool = False


@dataclass(frozen=True)
class Status:
    """Everything at one moment."""

    tasks: tuple[TaskStatus, ...]
    devices: tuple[DeviceStatus, ...]
    done: int
    """Trials …"""
    total: int
    """… of so many."""
    kept: int
    """Records of this session that are safe on disk."""
    failures: Mapping[str, int]
    """Failed candidates by :attr:`adt.tuning.records.Failure.kind`."""
    building: int
    ready: int
    """Built, and waiting for a device."""
    elapsed: float
    """Seconds."""
    left: float | None
    """Seconds, estimated; None: nothing is known yet."""
