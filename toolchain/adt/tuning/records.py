"""Records of measurements: a workload, the device, the schedule, and the durations."""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

BASELINE = ""
"""The trace of a kernel that is scheduled as `adt compile` does without records."""


@dataclass(frozen=True)
class Context:
    """Conditions under which a result holds: different contexts are never compared, nor applied."""

    target: str
    """Target of the generated code: :func:`adt.compiler.passes.records.key.target_key`."""
    tvm: str
    """TVM's version, three numbers: ``0.25.0``."""
    device: str
    """Name of the processor: of the GPU, or for a CPU of the system on chip."""
    driver: str
    """Version of the GPU's driver; empty for a CPU."""

    @property
    def place(self) -> str:
        """Device and driver, as ``--tuned-on`` takes them."""
        return f"{self.device}, {self.driver}" if self.driver else self.device


@dataclass(frozen=True)
class Workload:
    """One kernel before it is scheduled."""

    id: str
    """First 32 hex digits of the sha256 of *module*'s text, for files; equality is structural, see the
    database."""
    structural_hash: str
    """TVM's, decimal, as TVM *tvm* computed it."""
    tvm: str
    module: str
    """TVM's JSON of the IRModule ``{"main": PrimFunc}``; see :mod:`adt.compiler.passes.records.workload`."""

    @staticmethod
    def id_of(module: str) -> str:
        """Return the :attr:`id` of the workload with this text."""
        return hashlib.sha256(module.encode()).hexdigest()[:32]


@dataclass(frozen=True)
class Failure:
    """Reason why a candidate has no time."""

    kind: str
    """``build``, ``build-timeout``, ``build-crash``; ``run`` (the device refused it), ``hang`` (it took
    longer than allowed), ``crash`` (the server died of it), ``wrong`` (it computes other numbers than the
    untuned schedule). A device that left is no failure of a candidate."""
    message: str
    """Its last line, for people."""

    @property
    def quarantined(self) -> bool:
        """It kills or hangs a server, or computes wrong numbers: never to be measured or used again."""
        return self.kind in ("hang", "crash", "wrong")


@dataclass(frozen=True)
class MeasuredOn:
    """The circumstances of one measurement."""

    name: str
    """The device's serial, or the server's address."""
    label: str
    """Name of the device for people: ``Pixel 7``."""
    celsius: float | None
    """Its hottest thermal zone shortly before; None where it is not told."""
    emulated: bool = False
    """The times are no device's speed."""


@dataclass(frozen=True)
class Record:
    """One candidate, built and measured, or failed."""

    workload: str
    """:attr:`Workload.id`."""
    context: Context
    task: str
    """The kernel's name in the model that was tuned."""
    trace: str
    """TVM's trace as JSON (:mod:`adt.compiler.passes.records.traces`); :data:`BASELINE` without a record."""
    seconds: tuple[float, ...]
    """Duration of one call in each repeat; empty for a failure."""
    failure: Failure | None
    on: MeasuredOn | None
    """None: it was not measured (it could not be built), or came from MetaSchedule's files."""
    run: str
    """Its tuning (:attr:`adt.tuning.candidates.TuningOptions.run`), for resuming; empty for imports."""
    at: float
    """Seconds since the epoch."""
    options: dict[str, Any] = field(default_factory=dict)
    """Parameters of the measurement: number, repeat, min_repeat_ms."""

    @property
    def time(self) -> float:
        """Seconds of one call: the fastest repeat, for what else runs only adds; infinite for a failure."""
        return min(self.seconds, default=float("inf"))


CandidateKey = tuple[str, str]
"""A candidate of one context: its workload's id, and its trace."""


def by_candidate(records: Iterable[Record]) -> dict[CandidateKey, list[Record]]:
    """Group the records of one context by candidate, the untuned schedule under an empty trace."""
    groups: dict[CandidateKey, list[Record]] = {}
    for record in records:
        groups.setdefault((record.workload, record.trace), []).append(record)
    return groups


CONFIRMED = "confirmed"
"""Key of :attr:`Record.options`: a candidate that had been measured before was measured again, with care."""


def typical_record(records: Sequence[Record]) -> Record | None:
    """Return the record in the middle of one candidate's, of two the faster.

    Where it was measured again to confirm it, only these measurements count: the fastest of many
    first times is always one that luck helped.

    None when it never ran, when the last attempt to confirm it failed, and when it once killed or
    hung a server, or computed wrong numbers: it is not to run again.
    """
    if quarantined_candidates(records):
        return None
    if confirming := [record for record in records if record.options.get(CONFIRMED)]:
        records = confirming
        if records[-1].failure is not None:
            return None
    times = [record.time for record in records if record.seconds]
    if not times:
        return None
    middle = statistics.median_low(times)
    return next(record for record in reversed(records) if record.time == middle)


def _typical_records(records: Iterable[Record], *, untuned: bool = False) -> Iterator[Record]:
    """Yield the typical record of each candidate that ran, or of each workload's untuned schedule."""
    for (_, trace), measured in by_candidate(records).items():
        if (trace == BASELINE) == untuned and (record := typical_record(measured)):
            yield record


def best_records(records: Iterable[Record]) -> dict[str, Record]:
    """Map each workload to the record of its fastest candidate."""
    fastest: dict[str, Record] = {}
    for record in _typical_records(records):
        if record.workload not in fastest or record.time < fastest[record.workload].time:
            fastest[record.workload] = record
    return fastest


def baseline_records(records: Iterable[Record]) -> dict[str, Record]:
    """Map each workload to the record of its untuned schedule."""
    return {record.workload: record for record in _typical_records(records, untuned=True)}


def fastest_candidates(records: Iterable[Record], keep: int) -> set[CandidateKey]:
    """Return the *keep* fastest candidates of each workload of one context."""
    ran: dict[str, list[tuple[float, CandidateKey]]] = {}
    for record in _typical_records(records):
        key = record.workload, record.trace
        ran.setdefault(record.workload, []).append((record.time, key))
    return {key for times in ran.values() for _, key in sorted(times)[:keep]}


def quarantined_candidates(records: Iterable[Record]) -> set[CandidateKey]:
    """Return the candidates of one context that are not to run again."""
    return {(r.workload, r.trace) for r in records if r.failure is not None and r.failure.quarantined}
