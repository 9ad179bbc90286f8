"""Workers and their fleet, with made-up devices and a made-up measuring process: no TVM, no sockets."""

import contextlib
import dataclasses
import queue
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest

from adt.errors import AdtError, DeviceError, TrackerError
from adt.host.child import ChildDied, ChildHung
from adt.rpc.wire import Target
from adt.tuning.candidates import MeasureJob, MeasureOutcome, Timing
from adt.tuning.fleet import fleet as fleets
from adt.tuning.fleet import roster
from adt.tuning.fleet.fleet import Fleet
from adt.tuning.fleet.measure_child import (
    Broken,
    Connect,
    Connected,
    Disconnect,
    Done,
    Measure,
    Prepare,
    Refused,
    Timed,
)
from adt.tuning.fleet.sources import Hardware, Identity, Lease, NotNow, Presence, Sighting
from support.waiting import wait_for

SECONDS = 20.0


@dataclass
class Phones:
    """Devices that a test plugs in and out; what a candidate does to which is in its library's text."""

    names: list[str]
    dedicated: bool = True
    exclusive: bool = False
    kinds: dict[str, str] = field(default_factory=dict)
    trouble: AdtError | None = None
    refusal: Exception | None = None
    leased: list[str] = field(default_factory=list)
    free: queue.SimpleQueue[str] = field(default_factory=queue.SimpleQueue)

    def presence(self) -> Presence:
        if self.trouble:
            raise self.trouble
        slots = self.names if self.dedicated else [f"slot {number}" for number, _ in enumerate(self.names)]
        return tuple(slots), tuple(Sighting(name, "", there=True) for name in self.names)

    @contextlib.contextmanager
    def lease(self, slot: str, computes: str) -> Iterator[Lease]:
        if self.refusal:
            raise self.refusal
        name = slot
        if not self.dedicated:
            try:
                name = self.free.get_nowait()
            except queue.Empty:
                raise NotNow("all in use") from None
        self.leased.append(name)
        identity = Identity(self.kinds.get(name, "soc"), "")
        try:
            yield Lease(
                name, Hardware(f"phone {name}", False, identity), "key", Target(name, 1, ""),
                None if self.dedicated else 0.05,
                alive=lambda: name in self.names, celsius=lambda: 30.0,
            )  # fmt: skip
        finally:
            if not self.dedicated and name in self.names:
                self.free.put(name)


class MadeUpChild:
    """Does to the device it is connected to what the candidate's library says."""

    asked: ClassVar[list[Any]] = []
    connected: ClassVar[list[Connect]] = []
    unreachable: ClassVar[set[str]] = set()

    def __init__(self, _module: str, **_options: Any) -> None:
        self._device = ""
        self._closed = threading.Event()

    def ask(self, request: Any, timeout: float) -> Any:
        if self._closed.is_set():
            raise ChildDied("was closed")
        self.asked.append((self._device, request))
        if isinstance(request, Connect):
            self.connected.append(request)
            self._device = request.server.host
            return Refused("refused") if request.server.host in self.unreachable else Connected("GPU", "1.0")
        if isinstance(request, Measure):
            timed = self._measured(request.library.decode(), timeout)
            if not request.outputs:
                return timed
            return (
                Broken("over") if request.library == b"dies computing" else Timed(timed.seconds, (b"1", b"2"))
            )
        return Done()

    def _measured(self, text: str, timeout: float) -> Any:
        does, _, device = text.partition("@")
        if device and device != self._device:
            does = ""
        if does == "fails":
            return Refused("no memory")
        if does == "crashes":
            return Broken("the session is over")
        if does == "hangs":
            raise ChildHung(f"no answer within {timeout:g} s")
        if does == "waits":
            self._closed.wait(SECONDS)
            raise ChildDied("was closed")
        time.sleep(0.002)
        return Timed((0.001,))

    def close(self, _seconds: float = 0) -> None:
        self._closed.set()


@pytest.fixture(autouse=True)
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleets, "Child", MadeUpChild)
    monkeypatch.setattr(fleets, "PAUSES", (0.0, 0.01))
    monkeypatch.setattr(fleets, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(fleets, "IDLE_SECONDS", 0.002)
    monkeypatch.setattr(MadeUpChild, "asked", [])
    monkeypatch.setattr(MadeUpChild, "connected", [])
    monkeypatch.setattr(MadeUpChild, "unreachable", set())
    monkeypatch.setattr(fleets.wire, "try_server", lambda *_, **__: None)


class Engine:
    """Gives jobs and dedicated what came of them."""

    def __init__(self, *texts: str, timeout: float = 10.0) -> None:
        self.jobs = queue.SimpleQueue[MeasureJob]()
        self.outcomes: list[MeasureOutcome] = []
        self.count = 0
        self.give(*texts, timeout=timeout)

    def give(self, *texts: str, timeout: float = 10.0) -> None:
        for text in texts:
            self.jobs.put(MeasureJob(self.count, "conv", text.encode(), (), "cpu", Timing(timeout=timeout)))
            self.count += 1

    def take(self) -> MeasureJob | None:
        with contextlib.suppress(queue.Empty):
            return self.jobs.get_nowait()
        return None

    def finish(self) -> dict[int, MeasureOutcome]:
        wait_for(lambda: len(self.outcomes) >= self.count)
        assert sorted(outcome.id for outcome in self.outcomes) == list(range(self.count))
        return {outcome.id: outcome for outcome in self.outcomes}


def failures(results: dict[int, MeasureOutcome]) -> dict[int, str]:
    return {number: outcome.failure.kind for number, outcome in results.items() if outcome.failure}


@contextlib.contextmanager
def measuring(
    phones: Phones, engine: Engine | None = None, *, computes: str = "cpu", **options: Any
) -> Iterator[Fleet]:
    """Run a fleet of *phones* for *engine*, else with nothing to measure."""
    engine = engine or Engine()
    with contextlib.closing(Fleet(phones, computes, **options)) as fleet:
        yield fleet.start(engine.take, engine.outcomes.append)


def identity(fleet: Fleet) -> tuple[str, str] | None:
    wait_for(fleet.identity)
    return fleet.identity()


def status(fleet: Fleet, name: str) -> Any:
    return next(device for device in fleet.devices() if device.name == name)


def test_all_devices_measure_at_once_and_one_that_stalls_holds_up_nobody() -> None:
    engine = Engine("waits@a", *["usual"] * 20)
    with measuring(Phones(["a", "b", "c"]), engine) as fleet:
        assert identity(fleet) == ("soc", "")
        wait_for(lambda: fleet.live() == 3)
        wait_for(lambda: len(engine.outcomes) == 20 + (status(fleet, "a").state != "measuring"))
    results = engine.finish()
    assert all(
        outcome.on.celsius == 30.0 and outcome.on.label == f"phone {outcome.on.name}"
        for outcome in results.values()
    )
    assert failures(results) == {}
    assert len([outcome for outcome in results.values() if outcome.lost]) in (0, 1)


def test_a_failure_of_the_candidate_costs_a_session_and_no_server() -> None:
    phones, engine = Phones(["a"]), Engine("usual", "fails", "usual", "crashes", "usual", "hangs", "usual")
    with measuring(phones, engine) as fleet:
        assert failures(engine.finish()) == {1: "run", 3: "crash", 5: "hang"}
        device = status(fleet, "a")
    assert (device.measured, device.failed, device.state) == (5, 2, "idle")
    assert phones.leased == ["a", "a"]  # anew after the hang: the server is started again
    assert len(MadeUpChild.connected) == 4


def test_what_crashed_one_device_is_tried_on_the_other_only() -> None:
    engine = Engine()
    phones = Phones(["a", "b"])
    with measuring(phones, engine) as fleet:
        wait_for(lambda: fleet.live() == 2)
        engine.give("crashes@a", "hangs")
        results = engine.finish()
    assert failures(results) == {1: "hang"} and results[0].on.name == "b"
    tried = [
        device
        for device, asked in MadeUpChild.asked
        if isinstance(asked, Measure) and asked.library == b"hangs"
    ]
    assert sorted(tried) == ["a", "b"]


def test_what_a_device_was_lost_with_comes_back_lost() -> None:
    phones = Phones(["a"])
    engine = Engine("usual")
    with measuring(phones, engine) as fleet:
        engine.finish()
        phones.names.clear()
        engine.give("crashes")
        wait_for(lambda: len(engine.outcomes) == 2 or status(fleet, "a").state == "left")
        phones.names.append("a")
        results = engine.finish()
        wait_for(lambda: status(fleet, "a").state in ("idle", "measuring"))
    assert results[1].lost or failures(results) == {1: "crash"}  # it may have come back before it was tried


def test_devices_of_another_kind_are_refused() -> None:
    phones = Phones(["a"], kinds={"b": "other"})
    engine = Engine()
    with measuring(phones, engine) as fleet:
        assert identity(fleet) == ("soc", "")
        phones.names.append("b")
        wait_for(lambda: len(fleet.devices()) == 2 and status(fleet, "b").state == "out")
        assert status(fleet, "b").note == "it is other; this tuning is for soc"
        engine.give(*["usual"] * 5)
        assert {outcome.on.name for outcome in engine.finish().values()} == {"a"}
    with measuring(Phones(["a", "b"], kinds={"b": "other"}), kind=("other", "")) as fleet:
        assert identity(fleet) == ("other", "")
        wait_for(lambda: status(fleet, "a").state == "out")


def test_a_device_may_be_asked_for_without_its_driver() -> None:
    phones = Phones(["a", "b", "c"], kinds={"a": "other", "b": "GPU", "c": "GPU"})
    with measuring(phones, computes="opencl", kind=("GPU", "")) as fleet:
        assert identity(fleet) == ("GPU", "1.0")
        wait_for(lambda: status(fleet, "a").state == "out" and fleet.live() == 2)
        assert status(fleet, "a").note in (
            "it is other, driver 1.0; this tuning is for GPU",
            "it is other, driver 1.0; this tuning is for GPU, driver 1.0",
        )


def test_a_tracker_may_give_devices_of_another_kind_without_end() -> None:
    phones, engine = Phones(["a", "b", "c"], dedicated=False, kinds={"b": "other"}), Engine(*["usual"] * 100)
    for name in phones.names:
        phones.free.put(name)
    with measuring(phones, engine, kind=("soc", "")) as fleet:

        def is_out() -> bool:
            engine.give("usual")  # a worker asks for a device only while there is work
            return status(fleet, "b").state == "out"

        wait_for(is_out)
        results = engine.finish()
        assert status(fleet, "b").measured == 0
    assert {outcome.on.name for outcome in results.values()} == {"a", "c"}


def test_a_gpu_is_named_by_its_runtime_where_adb_does_not() -> None:
    phones = Phones(["a"])
    phones.kinds["a"] = ""
    with measuring(phones, computes="opencl") as fleet:
        assert identity(fleet) == ("GPU", "1.0")
    assert MadeUpChild.connected[0].device == "opencl"
    with measuring(phones) as fleet:
        assert identity(fleet) == ("key", "")


def test_servers_of_a_tracker_go_back_to_it_and_are_asked_for_only_when_there_is_work() -> None:
    phones, engine = Phones(["a", "b"], dedicated=False), Engine()
    for name in phones.names:
        phones.free.put(name)
    with measuring(phones, engine):
        wait_for(lambda: phones.free.qsize() == 2)
        count = len(phones.leased)
        engine.give(*["usual"] * 200)
        results = engine.finish()
        wait_for(lambda: phones.free.qsize() == 2)
    assert {outcome.on.name for outcome in results.values()} == {"a", "b"}
    assert len(phones.leased) > count + 2  # each goes back after a while, though there is work


def test_a_candidate_that_may_take_longer_gets_a_longer_session() -> None:
    engine = Engine("usual", timeout=10)
    engine.give("usual", timeout=100)
    with measuring(Phones(["a"]), engine):
        engine.finish()
    first, second = (child.seconds for child in MadeUpChild.connected)
    assert second >= fleets.RENEW_SECONDS + fleets.PREPARE_SECONDS + 100 > first


def test_outputs_are_brought_back_in_a_session_that_has_time_for_it() -> None:
    engine = Engine("usual", "usual", "dies computing", "usual")
    ask = {1: 2, 2: 2}

    def take() -> MeasureJob | None:
        job = engine.take()
        return job and dataclasses.replace(job, outputs=ask.get(job.id, 0))

    with contextlib.closing(Fleet(Phones(["a"]), "cpu")) as fleet:
        fleet.start(take, engine.outcomes.append)
        results = engine.finish()
    assert [results[number].outputs for number in (0, 1, 2, 3)] == [(), (b"1", b"2"), (), ()]
    assert failures(results) == {2: "crash"} and results[1].seconds and not results[2].seconds
    first, second, *_ = (child.seconds for child in MadeUpChild.connected)
    assert second > first


def test_a_device_out_of_reach_is_tried_again_and_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    MadeUpChild.unreachable.add("a")
    engine = Engine("usual", "usual")
    monkeypatch.setattr(roster, "FIRST_PAUSE", 0.2)
    with measuring(Phones(["a", "b"]), engine) as fleet:
        engine.finish()
        wait_for(lambda: status(fleet, "a").restarts >= 3)
        assert status(fleet, "a").note == "no session: refused"
        MadeUpChild.unreachable.clear()
        engine.give(*["usual"] * 5)
        wait_for(lambda: fleet.live() == 2)
        engine.finish()


def test_a_fault_of_ours_takes_no_other_device_along() -> None:
    phones = Phones(["a"], refusal=ZeroDivisionError("a fault"))
    engine = Engine("usual")
    with measuring(phones, engine) as fleet:
        wait_for(lambda: "ZeroDivisionError: a fault" in [device.note for device in fleet.devices()])
        phones.refusal = None
        engine.finish()


def test_a_job_comes_back_though_we_are_at_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    faults = iter([ZeroDivisionError("a fault")])

    def measured(measuring_worker: fleets.Worker, job: MeasureJob) -> Any:
        for fault in faults:
            raise fault
        return Timed((0.1,))

    monkeypatch.setattr(fleets.Worker, "_time", measured)
    engine = Engine("usual", "usual")
    with measuring(Phones(["a"]), engine):
        assert [outcome.lost for outcome in engine.finish().values()] == [True, False]


def test_at_the_end_every_job_comes_back_once_and_no_thread_stays() -> None:
    before = threading.active_count()
    engine = Engine("waits", "waits", "crashes@a")
    fleet = Fleet(Phones(["a", "b"]), "cpu")
    assert fleet.identity() is None
    fleet.start(engine.take, engine.outcomes.append)
    wait_for(lambda: [device.state for device in fleet.devices()] == ["measuring"] * 2)
    fleet.hold(engine.take() or pytest.fail("no job is left"))
    fleet.close(grace=0.05)
    fleet.close()
    assert all(outcome.lost and outcome.failure is None for outcome in engine.finish().values())
    assert fleet.live() == 0 and threading.active_count() == before
    assert MadeUpChild.asked and not any(isinstance(asked, Disconnect) for _, asked in MadeUpChild.asked[:2])
    assert any(isinstance(asked, Prepare) for _, asked in MadeUpChild.asked)


def test_a_device_that_cannot_be_had_says_why() -> None:
    refusal = DeviceError("the device says no", remedy="ask it")
    with measuring(Phones(["a"], refusal=refusal)) as fleet:
        wait_for(lambda: fleet.devices() and status(fleet, "a").state == "restarting")
        assert status(fleet, "a").note == "the device says no" and fleet.identity() is None
    phones = Phones(["a"])
    with measuring(phones) as fleet:
        wait_for(fleet.live)
        phones.trouble = TrackerError("no tracker runs", remedy="start one")
        wait_for(lambda: status(fleet, "a").state == "away")
