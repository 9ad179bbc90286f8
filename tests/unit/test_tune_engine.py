"""The engine, with made-up searches, builders and devices."""

import dataclasses
import threading
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest

from adt.errors import DiskError
from adt.tuning.candidates import BuildOutcome, MeasureJob, Measurement, MeasureOutcome, NoSpace
from adt.tuning.engine import Engine, EngineResult
from adt.tuning.pipeline import CandidateJob, Completion, MeasureQueue, OutputComparison, confirmation_timing
from adt.tuning.records import BASELINE, Failure, MeasuredOn, Record
from adt.tuning.results import Status
from adt.tuning.task_progress import LEADERS, TaskProgress
from support.standins.tuning import (
    CONTEXT,
    FakeBuilders,
    FakeDatabase,
    FakeFleet,
    FakeSearch,
    FakeSearches,
    options,
    record,
    task,
    traces,
)


@pytest.fixture(autouse=True)
def scheduled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Apply a trace without TVM."""
    monkeypatch.setattr(
        "adt.tuning.proposals.schedule",
        lambda task, trace: f"{task.name}:{trace}",
    )


def seconds(_device: str, module: str) -> float:
    """Return 100 s for the untuned schedule, 50 - N s for candidate N."""
    trace = module.partition(":")[2]
    return 100.0 if trace == BASELINE else 50.0 - int(trace[1:])


class Bench:
    """One tuning with everything made up."""

    def __init__(self, **parts: Any) -> None:
        self.searches = parts.get("searches") or FakeSearches()
        self.builders = parts.get("builders") or FakeBuilders()
        self.fleet = parts.get("fleet") or FakeFleet(seconds)
        self.database = parts.get("database") or FakeDatabase()
        self.statuses: list[Status] = []
        self.on_status: Callable[[Status], None] = self.statuses.append
        self.recorded: list[Record] = []

    def tune(
        self,
        tasks: list[Any],
        stop: threading.Event | None = None,
        *,
        batch: int = 4,
        per_device: int = 0,
        **changes: Any,
    ) -> EngineResult:
        engine = Engine(
            options(**changes),
            tasks,
            searches=self.searches,
            builders=self.builders,
            database=self.database,
            on_status=self.on_status,
            on_record=self.recorded.append,
            stop=stop or threading.Event(),
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("adt.tuning.engine.BATCH", batch)
            patch.setattr("adt.tuning.engine.PER_DEVICE", per_device)
            return engine.run(self.fleet.start)


def test_one_task_to_its_end() -> None:
    bench = Bench()
    result = bench.tune([task("conv")], trials=10)
    assert result.ended == "finished" and result.context == CONTEXT
    [conv] = result.tasks
    assert (conv.state, conv.trials, conv.failed, conv.reason) == ("done", 10, 0, "")
    assert conv.baseline is not None and conv.baseline.time == 100.0
    assert conv.best is not None and conv.best.trace == "t9" and conv.best.time == 41
    search = bench.searches.by_task["conv"]
    assert search.sizes == [4, 4, 2] and search.threads == {"adt-search"}
    assert search.reported == [
        [Measurement((50.0 - n,)) for n in batch] for batch in ([0, 1, 2, 3], [4, 5, 6, 7], [8, 9])
    ]
    assert bench.recorded == bench.database.stored and traces(bench.recorded) == [f"t{n}" for n in range(10)]
    assert bench.recorded[0].trace == BASELINE, "the untuned schedule comes first"
    assert bench.builders.closed and not any(thread.is_alive() for thread in bench.fleet.threads)
    last = bench.statuses[-1]
    assert result.status.kept == len(bench.recorded) and last.total == 10


def test_batches_grow_with_the_devices() -> None:
    bench = Bench(fleet=FakeFleet(seconds, names=tuple("abcdefgh")))
    bench.tune([task("conv")], trials=64, per_device=4)
    assert bench.searches.by_task["conv"].sizes[0] == 32


def test_the_fastest_is_measured_once_more_with_more_repeats() -> None:
    noisy = {"t3": [1.0, 90.0], "t5": [40.0, 41.0]}

    def measure(device: str, module: str) -> float:
        times = noisy.get(module.partition(":")[2])
        return times.pop(0) if times else 100.0

    bench = Bench(fleet=FakeFleet(measure))
    [conv] = bench.tune([task("conv")], trials=8).tasks
    again = [each for each in bench.recorded if each.options.get("confirmed")]
    assert [each.trace for each in again] == ["", "t3", "", "t3", "t5", "t5"], (
        "in turns; t3 was fast only once"
    )
    assert all(len(each.seconds) == 3 and each.options["repeat"] == 3 for each in again)
    assert conv.best is not None and conv.best.trace == "t5" and conv.best.time == 41.0
    assert conv.trials == 8, "these are no trials"
    timings = {job.timing.timeout for _, job in bench.fleet.jobs if job.timing.repeat == 3}
    assert timings == {30.0}, "more repeats may take longer"


def test_nothing_is_measured_again_where_none_is_faster() -> None:
    bench = Bench(fleet=FakeFleet(lambda _, module: 1.0 if module[-1] == ":" else 2.0))
    bench.tune([task("conv")], trials=4)
    assert len(bench.recorded) == 5 and not any(each.options.get("confirmed") for each in bench.recorded)


@pytest.mark.parametrize("devices", [("a",), ("a", "b", "c")])
def test_what_computes_wrong_numbers_is_never_used(devices: tuple[str, ...]) -> None:
    fleet = FakeFleet(seconds, names=devices)
    fleet.emulated = True  # numbers are numbers
    fleet.computed = lambda module: b"wrong" if module in ("conv:t7", "conv:t6") else b"right"
    bench = Bench(fleet=fleet)
    result = bench.tune([task("conv")], trials=8)
    assert sorted(each.trace for each in result.quarantined) == ["t6", "t7"]
    assert result.status.failures == {"wrong": 2}
    assert all(each.failure and "other numbers" in each.failure.message for each in result.quarantined)
    [conv] = result.tasks
    assert conv.best is not None and (conv.best.trace, conv.failed) == ("t5", 0)
    compared = [job for _, job in fleet.jobs if job.outputs]
    assert len(compared) == 4, "the untuned schedule, t7, t6, t5"
    again = Bench(database=FakeDatabase(bench.database.stored))
    [conv] = again.tune([task("conv")], trials=8).tasks
    assert not again.recorded and conv.best is not None and conv.best.trace == "t5"


def test_a_later_session_compares_with_numbers_of_its_own() -> None:
    first = Bench()
    first.tune([task("conv")], trials=4)
    fleet = FakeFleet(seconds)
    fleet.computed = lambda module: b"wrong" if module == "conv:t7" else b"right"
    second = Bench(fleet=fleet, database=FakeDatabase(first.database.stored))
    [conv] = second.tune([task("conv")], trials=8).tasks
    assert conv.best is not None and conv.best.trace == "t6"


@pytest.mark.parametrize("how", ["build", "run"])
def test_without_numbers_of_the_untuned_schedule_its_time_still_counts(how: str) -> None:
    """Build and measure it once, and never again."""
    built: list[str] = []

    def broken(module: str) -> Failure | None:
        built.append(module)
        again = module == "conv:" and built.count("conv:") > 1
        return Failure("build", "out of memory") if how == "build" and again else None

    runs: list[str] = []

    def measure(device: str, module: str) -> float | Failure:
        runs.append(module)
        if how == "run" and module == "conv:" and runs.count("conv:") > 1:
            return Failure("run", "out of memory")
        return seconds(device, module)

    bench = Bench(builders=FakeBuilders(broken), fleet=FakeFleet(measure, names=("a", "b")))
    result = bench.tune([task("conv")], trials=4)
    assert result.ended == "finished" and not result.quarantined
    assert [e.trace for e in bench.recorded if e.options.get("confirmed") and not e.failure] == ["t3", "t3"]


def test_a_candidate_that_cannot_be_scheduled_again_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adt.tuning.proposals.schedule", Mock(side_effect=ValueError("does not apply")))
    assert Bench().tune([task("conv")]).ended == "finished"


def test_tasks_share_trials_by_what_they_promise() -> None:
    bench = Bench(fleet=FakeFleet(seconds, sleep=0.002))
    result = bench.tune(
        [task("small"), task("large", weight=50), task("middle", weight=5)], trials=80, batch=8
    )
    small, large, middle = result.tasks
    assert small.trials + large.trials + middle.trials == 80
    assert small.trials == 8, "one batch"
    assert large.trials > 2 * middle.trials


def test_trials_of_each_task() -> None:
    result = Bench().tune([task("one"), task("two", weight=9)], trials=6, per_task=True)
    assert [each.trials for each in result.tasks] == [6, 6]
    assert result.status.total == result.status.done == 12 and [
        each.planned for each in result.status.tasks
    ] == [6, 6]


def test_too_few_trials_go_to_the_costliest() -> None:
    times = {"a:": 1.0, "b:": 100.0, "c:": 10.0}
    bench = Bench(fleet=FakeFleet(lambda _, module: times.get(module, 0.5)))
    result = bench.tune([task("a"), task("b"), task("c")], trials=8)
    assert [each.trials for each in result.tasks] == [0, 8, 0]
    reason = "no trial was left for it: other tasks had more to gain"
    assert [each.reason for each in result.tasks] == [reason, "", reason]
    assert all(each.baseline is not None for each in result.tasks)


def test_a_task_ends_early_without_gain() -> None:
    bench = Bench(fleet=FakeFleet(lambda _, module: 5.0))
    [conv] = bench.tune([task("conv")], trials=1000, early_stopping=12).tasks
    assert conv.state == "stopped" and "no gain" in conv.reason
    assert 13 <= conv.trials <= 13 + 2 * 4


def test_the_same_tuning_goes_on_where_it_stopped() -> None:
    first = Bench()
    first.tune([task("conv")], trials=6)
    second = Bench(database=FakeDatabase(first.database.stored))
    [conv] = second.tune([task("conv")], trials=10).tasks
    assert conv.trials == 10 and traces(second.recorded) == ["t6", "t7", "t8", "t9"]
    assert {each.options.get("confirmed") for each in second.recorded if each.trace == BASELINE} == {True}, (
        "known"
    )
    third = Bench(database=FakeDatabase(second.database.stored))
    result = third.tune([task("conv")], trials=10)
    assert result.ended == "finished" and not third.recorded and not third.builders.jobs


def test_a_tuning_that_measured_many_again_is_finished_in_the_next_session() -> None:
    """Make all candidates seem fast at first, so that more than are measured again seem fastest."""
    measured: list[str] = []

    def measure(device: str, module: str) -> float:
        measured.append(module)
        return 100.0 if module[-1] == ":" else 90.0 if measured.count(module) > 1 else 1.0

    first = Bench(fleet=FakeFleet(measure))
    first.tune([task("conv")], trials=8)
    again = {each.trace for each in first.recorded if each.options.get("confirmed") and each.trace}
    assert len(again) == LEADERS
    second = Bench(database=FakeDatabase(first.database.stored), fleet=FakeFleet(measure))
    second.tune([task("conv")], trials=8)
    assert not second.recorded
    third = Bench(database=FakeDatabase(first.database.stored), fleet=FakeFleet(measure))
    third.tune([task("conv")], trials=9)
    assert len({each.trace for each in third.recorded if each.options.get("confirmed")} - {""}) == 4, (
        "after another trial they are"
    )


def test_records_of_other_tunings_are_known_but_no_trials() -> None:
    other = dataclasses.replace(CONTEXT, device="other GPU")
    foreign = dataclasses.replace(CONTEXT, target="other target")
    records = [
        dataclasses.replace(record("conv", "t0", 3.0, run="another"), options={"confirmed": True}),
        dataclasses.replace(record("conv", "t1", 2.0), context=other),
        dataclasses.replace(record("conv", "t2", 1.0), context=foreign),
    ]
    bench = Bench(database=FakeDatabase(records))
    [conv] = bench.tune([task("conv")], trials=4).tasks
    assert conv.trials == 4 and traces(bench.recorded) == ["t1", "t2", "t3", "t4"]
    assert conv.best is not None and conv.best.trace == "t0"
    assert bench.searches.elsewhere["conv"] == [records[1]]


def test_what_crashed_once_is_never_tried_again_even_if_proposed() -> None:
    crash = record("conv", "t1", failure=Failure("crash", "gone"), run="another")
    searches = FakeSearches()
    bench = Bench(database=FakeDatabase([crash]), searches=searches)
    make = searches.search
    searches.search = lambda task, **facts: make(task, **facts | {"known": ()})  # type: ignore[method-assign]
    bench.tune([task("conv")], trials=4)
    assert traces(bench.recorded) == ["t0", "t2", "t3", "t4"]
    assert searches.by_task["conv"].reported[0][1] == crash.failure


def test_a_task_that_cannot_be_searched_ends_with_its_reason() -> None:
    searches = FakeSearches(refused={"a": NoSpace("nothing varies"), "b": ValueError("oh\nno")})
    a, b, c = Bench(searches=searches).tune([task("a"), task("b"), task("c")], trials=9).tasks
    assert (a.state, a.reason) == ("exhausted", "nothing varies")
    assert b.reason == "its search failed: ValueError: no"
    assert c.trials == 9


def test_a_search_that_fails_when_told_ends_its_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeSearch, "report", lambda *_: 1 / 0)
    [conv] = Bench().tune([task("conv")], trials=1000).tasks
    assert conv.state == "exhausted" and "ZeroDivisionError" in conv.reason


def test_a_small_space_is_exhausted() -> None:
    [conv] = Bench(searches=FakeSearches(limit=7)).tune([task("conv")], trials=100).tasks
    assert (conv.state, conv.trials, conv.reason) == ("exhausted", 7, "")


def slow_down(monkeypatch: pytest.MonkeyPatch, busy: set[str]) -> None:
    """Let each search take 20 ms, in which *busy* has it."""
    propose = FakeSearch.next_batch

    def next_batch(search: FakeSearch, count: int) -> Any:
        busy.add("search")
        time.sleep(0.02)
        busy.discard("search")
        return propose(search, count)

    monkeypatch.setattr(FakeSearch, "next_batch", next_batch)


def test_no_task_gets_more_than_it_may_have_while_it_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Search two batches of a task at a time."""
    slow_down(monkeypatch, set())
    [conv] = Bench().tune([task("conv")], trials=10, per_task=True, batch=8).tasks
    assert conv.trials == 10


def test_a_task_that_only_fails_is_given_up_and_others_go_on() -> None:
    broken = FakeBuilders(lambda module: Failure("build", "no way") if module[:2] == "a:" else None)
    a, b = Bench(builders=broken).tune([task("a"), task("b")], trials=50, per_task=True).tasks
    assert a.state == "exhausted" and "build: no way" in a.reason and 32 <= a.trials == a.failed < 50
    assert a.baseline is not None and a.baseline.failure is not None and a.best is None
    assert b.trials == 50 and b.failed == 0


def test_failures_are_kept_counted_and_told() -> None:
    failures = {"t1": Failure("hang", "10 s"), "t2": Failure("run", "refused")}
    fleet = FakeFleet(lambda d, module: failures.get(module.partition(":")[2]) or seconds(d, module))
    bench = Bench(fleet=fleet)
    result = bench.tune([task("conv")], trials=4)
    assert result.status.failures == {"hang": 1, "run": 1} and result.tasks[0].failed == 2
    assert [each.trace for each in result.quarantined] == ["t1"] and result.quarantined[0].on is not None
    assert bench.searches.by_task["conv"].reported[0][1:3] == [failures["t1"], failures["t2"]]


def test_what_a_leaving_device_had_is_measured_elsewhere() -> None:
    losses = iter([None, None])
    fleet = FakeFleet(
        lambda d, module: next(losses, 7.0) if module == "conv:t2" else seconds(d, module), names=("a", "b")
    )
    bench = Bench(fleet=fleet)
    result = bench.tune([task("conv")], trials=4)
    assert not result.status.failures and next(e.seconds for e in bench.recorded if e.trace == "t2") == (7.0,)
    ids = [job.id for _, job in fleet.jobs if job.library == b"conv:t2" and job.timing.repeat == 1]
    assert len(ids) == 3 and len(set(ids)) == 1, "the fleet knows it again"


def test_what_takes_every_device_along_is_quarantined() -> None:
    fleet = FakeFleet(lambda d, module: None if module == "conv:t2" else seconds(d, module))
    result = Bench(fleet=fleet).tune([task("conv")], trials=4)
    assert [(each.trace, each.failure and each.failure.kind) for each in result.quarantined] == [
        ("t2", "crash")
    ]


def test_a_device_that_never_comes() -> None:
    fleet = FakeFleet(seconds)
    fleet.alive = False
    bench = Bench(fleet=fleet)
    result = bench.tune([task("conv")], wait=0.05)
    assert result.ended == "no device" and result.context is None and bench.builders.closed


def test_a_device_that_leaves_for_good_ends_it_with_all_kept() -> None:
    fleet = FakeFleet(seconds)

    def measure(device: str, module: str) -> float | None:
        fleet.alive = module != "conv:t5"
        if not fleet.alive:
            fleet.ended.set()
        return seconds(device, module) if fleet.alive else None

    fleet.measure = measure
    result = Bench(fleet=fleet).tune([task("conv")], trials=100, wait=0.05)
    assert result.ended == "no device" and result.tasks[0].trials == 5


def test_stopping_keeps_what_is_being_measured() -> None:
    stop = threading.Event()
    fleet = FakeFleet(seconds, sleep=0.05)

    def measure(device: str, module: str) -> float:
        if module == "conv:t3":
            stop.set()
            time.sleep(0.3)  # the engine notices meanwhile
        return seconds(device, module)

    fleet.measure = measure
    bench = Bench(fleet=fleet)
    result = bench.tune([task("conv")], trials=1000, stop=stop)
    assert result.ended == "stopped" and traces(bench.recorded) == ["t0", "t1", "t2", "t3"]
    assert fleet.graces[0] == 2.0 and bench.builders.closed


def test_interrupted_for_good_all_is_ended_at_once() -> None:
    fleet = FakeFleet(seconds, sleep=0.02)

    def interrupt(status: Status) -> None:
        if status.done:
            raise KeyboardInterrupt

    bench = Bench(fleet=fleet)
    bench.on_status = interrupt
    with pytest.raises(KeyboardInterrupt):
        bench.tune([task("conv")], trials=10_000)
    assert fleet.graces == [0.0] and bench.builders.closed


def test_nothing_is_shown_as_kept_that_is_not() -> None:
    bench = Bench()
    bench.database.broken = DiskError("full", remedy="…")
    with pytest.raises(DiskError):
        bench.tune([task("conv")])
    assert not bench.recorded and bench.builders.closed and not any(t.is_alive() for t in bench.fleet.threads)
    assert not bench.searches.by_task or not bench.searches.by_task["conv"].reported


def test_a_full_disk_is_no_candidates_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_builders: FakeBuilders, job: Any, done: Any) -> None:
        done(BuildOutcome(job.id, b"", None, 0.0, ("full", "…", "")))

    monkeypatch.setattr(FakeBuilders, "submit", full)
    bench = Bench()
    with pytest.raises(DiskError):
        bench.tune([task("conv")])
    assert bench.database.stored == [] and not bench.recorded and bench.builders.closed


def test_exclusive_measuring_is_never_beside_building_or_searching(monkeypatch: pytest.MonkeyPatch) -> None:
    busy: set[str] = set()
    slow_down(monkeypatch, busy)
    wrong: list[str] = []

    class Watched(FakeBuilders):
        def submit(self, job: Any, done: Any) -> None:
            busy.add("build")
            threading.Timer(
                0.01, lambda: (busy.discard("build"), FakeBuilders.submit(self, job, done))
            ).start()

    def measure(device: str, module: str) -> float:
        wrong.extend(busy)
        time.sleep(0.005)
        wrong.extend(busy)
        return seconds(device, module)

    bench = Bench(fleet=FakeFleet(measure), builders=Watched())
    result = bench.tune([task("a"), task("b")], trials=24, exclusive=True)
    assert result.ended == "finished" and sum(each.trials for each in result.tasks) == 24
    assert not wrong


def test_no_device_waits_for_one_task_or_another_device() -> None:
    """Simulate one slow device: the others do the work meanwhile."""

    def measure(device: str, module: str) -> float:
        time.sleep(0.15 if device == "slow" else 0.01)
        return seconds(device, module)

    fleet = FakeFleet(measure, names=("slow", "b", "c"))
    Bench(fleet=fleet).tune([task("one"), task("two")], trials=60)
    assert sum(name == "slow" for name, _ in fleet.jobs) <= 6


def test_few_candidates_wait_ready() -> None:
    """Build no further ahead than slow devices measure."""
    ahead: list[int] = []

    def measure(device: str, module: str) -> float:
        ahead.append(len(bench.builders.jobs) - len(fleet.jobs))
        return seconds(device, module)

    fleet = FakeFleet(measure, sleep=0.005)
    bench = Bench(fleet=fleet)
    bench.tune([task("conv")], trials=32, batch=32)
    assert 2 <= max(ahead) <= 5


def test_what_a_device_gave_back_comes_first() -> None:
    ready = MeasureQueue(exclusive=False)
    jobs = [MeasureJob(number, "conv", b"", (), "cpu", options().timing) for number in range(3)]
    for job in jobs[:2]:
        ready.put(job)
    ready.put(jobs[2], first=True)
    assert [ready.take(), ready.take(), ready.take()] == [jobs[2], jobs[0], jobs[1]]
    assert ready.taken == {0, 1, 2}


@pytest.mark.parametrize(("computed", "kind"), [(b"right", None), (b"wrong", "wrong")])
def test_a_candidate_measured_before_the_untuned_schedule_waits_for_its_numbers(
    computed: bytes, kind: str | None
) -> None:
    progress = TaskProgress(task("conv"), "conv", options())
    on = MeasuredOn("a", "A", None)

    def outcome(number: int, data: bytes) -> MeasureOutcome:
        return MeasureOutcome(number, (1.0,), None, False, on, "GPU", "1.0", (data,))

    comparison = OutputComparison()
    leader, untuned = (
        CandidateJob(n, progress, trace, "", True, 2, True) for n, trace in ((1, "t1"), (2, BASELINE))
    )
    computes = Completion(leader, None, outcome(1, computed))
    assert list(comparison.check(computes)) == []
    reference = Completion(untuned, None, outcome(2, b"right"))
    first, second = comparison.check(reference)
    assert first == reference and second.job is leader
    assert (second.failure.kind if second.failure else None) == kind
    [third] = comparison.check(computes)
    assert (third.failure.kind if third.failure else None) == kind


def test_timing_again_leaves_more_time() -> None:
    timing = dataclasses.replace(options().timing, repeat=10)
    assert confirmation_timing(timing) == timing
