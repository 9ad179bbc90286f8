"""Records of measurements: a workload, the device, the schedule, and the durations; and their lines of JSON.

Lines, with a checksum, are what databases exchange, and what each row of one holds. The first names format
and version. Each other line is one JSON object, ``{"kind":K,"crc":"8 hex digits","data":D}``, where D is
written canonically (sorted keys, no spaces, ASCII) and the crc is CRC-32 of K's bytes, then D's.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import statistics
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

from adt.errors import PackageError
from adt.limits import parse_json

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


@dataclass(frozen=True)
class Record:
    """One candidate, built and measured, or failed."""

    workload: str
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
    """Return the record in the middle of one candidate's, of two the faster; None: it is not to run.

    Where it was measured again to confirm it, only these measurements count: the fastest of many first times
    is always one that luck helped.
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


def best_records(records: Iterable[Record], *, untuned: bool = False) -> dict[str, Record]:
    """Map each workload to the record of its fastest candidate, or of its untuned schedule."""
    fastest: dict[str, Record] = {}
    for record in _typical_records(records, untuned=untuned):
        if record.workload not in fastest or record.time < fastest[record.workload].time:
            fastest[record.workload] = record
    return fastest


def fastest_candidates(records: Iterable[Record], keep: int) -> set[CandidateKey]:
    """Return the *keep* fastest candidates of each workload of one context."""
    ran: dict[str, list[tuple[float, str]]] = {}
    for record in _typical_records(records):
        ran.setdefault(record.workload, []).append((record.time, record.trace))
    return {(workload, trace) for workload, times in ran.items() for _, trace in sorted(times)[:keep]}


def quarantined_candidates(records: Iterable[Record]) -> set[CandidateKey]:
    """Return the candidates of one context that are not to run again."""
    return {(r.workload, r.trace) for r in records if r.failure is not None and r.failure.quarantined}


WORKLOAD, RECORD = "workload", "record"
"""Kinds of entries; others are of a later adt, and stay as they are."""
LINES = "records.jsonl"
"""Name of the file of lines in a published archive."""
VERSION = 1
HEADER = b'{"format":"adt.tuning-records","version":%d}\n' % VERSION


@dataclass(frozen=True)
class Entry:
    """A kernel or a result that is whole, or what a later adt has."""

    number: int
    """Number of its line, from 1, or of its row."""
    kind: str
    data: Mapping[str, Any]


Row = tuple[str, int, str]
"""Kind, checksum, and data as canonical JSON."""


@dataclass(frozen=True)
class Damage:
    """Fault of an entry that is not whole."""

    number: int
    """Number of its line or row; 0: the fault is the file's."""
    reason: str
    unfinished: bool = False
    """True if a file of lines ends in it."""


def row(kind: str, data: Mapping[str, Any]) -> Row:
    """Make a database's row from *data*; ValueError for what JSON cannot hold: NaN, infinity, an object."""
    body = json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return kind, _checksum(kind.encode(), body.encode()), body


def line(row: Row) -> bytes:
    kind, checksum, body = row
    return f'{{"kind":"{kind}","crc":"{checksum:08x}","data":{body}}}\n'.encode()


def _checksum(kind: bytes, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(kind))


def entry(number: int, kind: object, checksum: object, body: object) -> Entry | Damage:
    """Parse the entry of a row, or of the parts of a line."""
    if isinstance(kind, bytes) and isinstance(body, bytes) and checksum == _checksum(kind, body):
        try:
            data = json.loads(body)
            if isinstance(data, dict):
                return Entry(number, kind.decode("ascii"), data)
        except (ValueError, RecursionError):
            pass
    return Damage(number, "it is no entry, or its checksum is wrong")


def scan(path: Path) -> Iterator[Entry | Damage]:
    """Yield everything in the file *path*, in order; a missing first line counts as damage."""
    number = 0
    with path.open("rb") as file:
        for number, text in enumerate(file, 1):
            if not text.endswith(b"\n"):
                yield Damage(number, "it is not finished", unfinished=True)
            elif number > 1 or not _is_header(text, path):
                if number == 1:
                    yield Damage(1, "the line that names the format is missing")
                yield _line_entry(text, number)
    if number == 0:
        yield Damage(1, "it is empty", unfinished=True)


def _is_header(text: bytes, path: Path) -> bool:
    header: Any = None
    with contextlib.suppress(ValueError):
        header = parse_json(text)
    if not isinstance(header, dict) or header.get("format") != "adt.tuning-records":
        return False
    if (version := header.get("version")) != VERSION:
        raise PackageError(
            f"{path} has version {version!r:.20} of its format; this adt reads {VERSION}",
            remedy="Use the adt that wrote it, or a newer one.",
        )
    return True


_KIND, _CRC, _DATA = b'{"kind":"', b'","crc":"', b'","data":'


def _line_entry(text: bytes, number: int) -> Entry | Damage:
    # Lines are as `line` writes them: the checksum is taken of the bytes as they are, before they are parsed.
    start = text.find(_CRC, len(_KIND), 40)
    digits = text[start + len(_CRC) :][:8]
    kind, body = text[len(_KIND) : start], text[start + len(_CRC) + 8 + len(_DATA) : -2]
    if start < 0 or text != b"%s%s%s%s%s%s}\n" % (_KIND, kind, _CRC, digits, _DATA, body):
        return entry(number, None, None, None)
    return entry(number, kind, int(digits, 16) if set(digits) <= set(b"0123456789abcdef") else None, body)


Number = (int, float)


def workload_row(workload: Workload) -> Row:
    return row(WORKLOAD, vars(workload))


def record_row(record: Record) -> Row:
    """Make the row of *record*; ValueError for times that are no numbers, or neither times nor a failure."""
    data = vars(record) | {
        "context": dict(vars(record.context)),
        "seconds": list(record.seconds),
        "failure": dict(vars(record.failure)) if record.failure else None,
        "on": dict(vars(record.on)) if record.on else None,
    }
    record_of(data, {})
    return row(RECORD, data)


def workload_of(data: Mapping[str, Any]) -> Workload:
    """Read the workload that :func:`workload_row` wrote; ValueError for a wrong field."""
    return Workload(*(_field(data, name, str) for name in ("id", "structural_hash", "tvm", "module")))


def record_of(data: Mapping[str, Any], contexts: dict[Context, Context]) -> Record:
    """Read the record that :func:`record_row` wrote; equal contexts become one object of *contexts*."""
    values = _field(data, "context", dict)
    context = Context(*(_field(values, name, str) for name in ("target", "tvm", "device", "driver")))
    seconds = _field(data, "seconds", list)
    if not all(isinstance(value, Number) and isfinite(value) and value >= 0 for value in seconds):
        raise ValueError("`seconds` are no times")
    failure = data.get("failure")
    if (failure is None) == (not seconds):
        raise ValueError("a record has either `seconds` or a `failure`")
    on = data.get("on")
    return Record(
        workload=_field(data, "workload", str),
        context=contexts.setdefault(context, context),
        task=_field(data, "task", str),
        trace=_field(data, "trace", str),
        seconds=tuple(float(value) for value in seconds),
        failure=None if failure is None else Failure(*(_field(failure, n, str) for n in ("kind", "message"))),
        on=None if on is None else _measured_on(on),
        run=_field(data, "run", str),
        at=float(_field(data, "at", Number)),
        options=_field(data, "options", dict),
    )


def _measured_on(data: Any) -> MeasuredOn:
    celsius = None if data.get("celsius") is None else float(_field(data, "celsius", Number))
    return MeasuredOn(
        _field(data, "name", str), _field(data, "label", str), celsius, _field(data, "emulated", bool)
    )


def _field(data: Any, name: str, kind: Any) -> Any:
    value = data.get(name) if isinstance(data, dict) else None
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"`{name}` is missing or of another kind")
    return value
