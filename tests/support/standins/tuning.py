"""Made-up parts of a tuning: searches, builders, devices and a database that need no TVM."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from adt.tuning.candidates import (
    Argument,
    BuildJob,
    BuildOutcome,
    Candidate,
    CandidateResult,
    MeasureJob,
    MeasureOutcome,
    Timing,
    Toolchain,
    TuningOptions,
)
from adt.tuning.records import BASELINE, Context, Failure, MeasuredOn, Record
from adt.tuning.results import DeviceStatus

CONTEXT = Context("target", "0.25.0", "GPU", "1.0")
TOOLCHAIN = Toolchain({"kind": "llvm"}, "cpu", 64, False, 3, "g++", (), None)


def options(**changes: Any) -> TuningOptions:
    facts: dict[str, Any] = {
        "run": "run-1", "target": CONTEXT.target, "tvm": CONTEXT.tvm, "toolchain": TOOLCHAIN, "timing": Timing(),
        "trials": 8, "wait": 5.0, "grace": 2.0,
    }  # fmt: skip
    return TuningOptions(**facts | changes)


def task(name: str, *, weight: int = 1, flops: int | None = 1000) -> Any:
    """Return a :class:`adt.tuning.tasks.Task` whose module and workload are its name."""
    return SimpleNamespace(
        name=name,
        module=name,
        weight=weight,
        flops=flops,
        baseline=f"{name}:",
        arguments=(Argument((5,), "int8"),),
        outputs=1,
        kernels=(name,),
    )


def record(
    workload: str, trace: str, *seconds: float, failure: Failure | None = None, run: str = "run-1"
) -> Record:
    on = MeasuredOn("a", "A", None)
    return Record(workload, CONTEXT, workload, trace, seconds, failure, on, run, 0.0)


class FakeSearch:
    """Proposes ``t0``, ``t1``, …; *limit* of them."""

    def __init__(self, name: str, limit: int, known: Sequence[Record]) -> None:
        self.name = name
        self.limit = limit
        self.known = {each.trace for each in known}
        self.next = 0
        self.sizes: list[int] = []
        self.reported: list[list[CandidateResult]] = []
        self.threads: set[str] = set()

    def next_batch(self, count: int) -> Sequence[Candidate] | None:
        self.threads.add(threading.current_thread().name)
        batch: list[Candidate] = []
        while len(batch) < count and self.next < self.limit:
            trace = f"t{self.next}"
            self.next += 1
            if trace not in self.known:
                batch.append(Candidate(trace, f"{self.name}:{trace}"))
        self.sizes.append(len(batch))
        return batch or None

    def report(self, results: Sequence[CandidateResult]) -> None:
        self.reported.append(list(results))


class FakeSearches:
    """One :class:`FakeSearch` for each task; *refused*: what beginning one raises."""

    def __init__(self, limit: int = 10_000, refused: dict[str, Exception] | None = None) -> None:
        self.limit = limit
        self.refused = refused or {}
        self.by_task: dict[str, FakeSearch] = {}
        self.elsewhere: dict[str, Sequence[Record]] = {}

    def search(
        self,
        task: Any,
        *,
        known: Sequence[Record] = (),
        elsewhere: Sequence[Record] = (),
    ) -> FakeSearch:
        if task.name in self.refused:
            raise self.refused[task.name]
        self.elsewhere[task.name] = elsewhere
        self.by_task[task.name] = FakeSearch(task.name, self.limit, known)
        return self.by_task[task.name]


class FakeBuilders:
    """Builds at once; *broken*: modules that cannot be built, and how they fail."""

    workers = 2

    def __init__(self, broken: Callable[[str], Failure | None] = lambda module: None) -> None:
        self.broken = broken
        self.jobs: list[BuildJob] = []
        self.closed = False

    def submit(self, job: BuildJob, done: Callable[[BuildOutcome], None]) -> None:
        assert not self.closed
        self.jobs.append(job)
        failure = self.broken(job.module)
        done(BuildOutcome(job.id, b"" if failure else job.module.encode(), failure, 0.0))

    def close(self) -> None:
        self.closed = True


class FakeFleet:
    """Devices that are threads; *measure* gives the seconds of a module, or a failure, or None: lost."""

    def __init__(
        self,
        measure: Callable[[str, str], float | Failure | None],
        names: Sequence[str] = ("a",),
        *,
        sleep: float = 0.0,
    ) -> None:
        self.measure = measure
        self.names = names
        self.sleep = sleep
        self.emulated = False
        self.computed: Callable[[str], bytes] = lambda module: b"right"
        """Result of a module."""
        self.ended = threading.Event()
        self.jobs: list[tuple[str, MeasureJob]] = []
        self.graces: list[float] = []
        self.alive = True
        self.threads: list[threading.Thread] = []

    def start(
        self, take: Callable[[], MeasureJob | None], done: Callable[[MeasureOutcome], None]
    ) -> FakeFleet:
        self.threads = [threading.Thread(target=self.work, args=(name, take, done)) for name in self.names]
        for thread in self.threads:
            thread.start()
        return self

    def work(
        self, name: str, take: Callable[[], MeasureJob | None], done: Callable[[MeasureOutcome], None]
    ) -> None:
        on = MeasuredOn(name, name.upper(), None, self.emulated)
        while not self.ended.is_set():
            job = take()
            if job is None:
                continue
            self.jobs.append((name, job))
            time.sleep(self.sleep)
            result = self.measure(name, job.library.decode())
            failure = result if isinstance(result, Failure) else None
            seconds = (result,) * job.timing.repeat if isinstance(result, float) else ()
            outputs = (self.computed(job.library.decode()),) * job.outputs
            kind = CONTEXT.device, CONTEXT.driver
            done(MeasureOutcome(job.id, seconds, failure, result is None, on, *kind, outputs))

    def identity(self) -> tuple[str, str] | None:
        return (CONTEXT.device, CONTEXT.driver) if self.alive else None

    def live(self) -> int:
        return len(self.names) if self.alive else 0

    def devices(self) -> tuple[DeviceStatus, ...]:
        return tuple(DeviceStatus(name, name, "idle", 0, 0, 0, None, 0.0, "") for name in self.names)

    def close(self, grace: float, *, leaving: bool = False) -> None:
        self.graces.append(grace)
        self.ended.set()
        for thread in self.threads:
            thread.join()


class FakeDatabase:
    """Keeps records in a list; a workload's id is its module."""

    def __init__(self, records: Sequence[Record] = ()) -> None:
        self.stored = list(records)
        self.broken: Exception | None = None

    def workload_id(self, module: Any) -> str:
        return str(module)

    def contexts(self) -> Sequence[Context]:
        return list(dict.fromkeys(record.context for record in self.stored))

    def records(self, context: Context | None = None, workload: str | None = None) -> Sequence[Record]:
        return [
            record
            for record in self.stored
            if context in (None, record.context) and workload in (None, record.workload)
        ]

    def add(self, records: Sequence[Record]) -> None:
        if self.broken is not None:
            raise self.broken
        self.stored += records


def traces(results: Sequence[Record]) -> list[str]:
    """Return the traces of candidates that were measured the first time."""
    return [each.trace for each in results if each.trace != BASELINE and not each.options.get("confirmed")]
