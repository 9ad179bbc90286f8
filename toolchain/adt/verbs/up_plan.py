"""Plan and progress of :func:`adt.up`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Step:
    """One finished step of :func:`adt.up`."""

    name: str
    note: str
    """Description of what it did, or that it reused what was there."""
    seconds: float


@dataclass(frozen=True)
class UpPlan:
    """Plan of :func:`adt.up`, resolved before its first step."""

    model: Path
    inputs: Mapping[str, list[int]]
    """The fixed shape of each input; an open batch dimension is 1 unless ``shapes`` says otherwise."""
    platform: str
    target: str
    device: str
    """Serial of the device; empty: a virtual device will be started."""
    reason: str
    """Reason for this device and this platform."""
    tvm_source: str
    """The TVM source tree that was asked for, or the providers that will be tried."""
    max_abs: float
    max_rel: float
