"""Devices that measure: they come and go, hang and crash, and none holds up the others. All servers are real."""

import contextlib
import os
import queue
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

import adt
from adt.bundle.bundle import TargetBundle
from adt.compiler.passes.records.arguments import Argument
from adt.options.sections import PortRange
from adt.rpc import board, server, tracker, wire
from adt.tuning.candidates import MeasureJob, MeasureOutcome, Timing
from adt.tuning.fleet import fleet as fleets
from adt.tuning.fleet.fleet import Fleet
from adt.tuning.fleet.sources import LocalSource, SerialSource, TrackerSource
from adt.tuning.results import DeviceStatus
from support.devices.fixtures import Rack as VirtualRack
from support.devices.fixtures import rack as virtual_rack  # noqa: F401
from support.devices.ports import free_port, free_span
from support.standins.candidates import ROLE, candidate
from support.waiting import wait_for

ARGUMENTS = (Argument((16,), "float32"), Argument((4,), "int64"))
TIMING = Timing(number=1, repeat=2, min_repeat_ms=0, timeout=2.0)
KEY = "rack"
CROSS = "aarch64-linux-gnu-gcc"
SECONDS = 120.0
"""For what must happen at all."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Report a hang after three seconds."""
    monkeypatch.setattr(fleets, "SLACK_SECONDS", 1.0)


@dataclass
class Engine:
    """Source of a fleet's jobs, which takes their results and gives lost ones again."""

    jobs: queue.SimpleQueue[MeasureJob] = field(default_factory=queue.SimpleQueue)
    submitted: dict[int, MeasureJob] = field(default_factory=dict)
    outcomes: list[MeasureOutcome] = field(default_factory=list)
    filler: tuple[bytes, ...] = ()
    """Any of them is given when there is nothing else, so that nobody is without work."""

    def give(self, *libraries: bytes) -> None:
        for library in libraries:
            job = MeasureJob(len(self.submitted), "kernel", library, ARGUMENTS, "cpu", TIMING)
            self.submitted[job.id] = job
            self.jobs.put(job)

    def take(self) -> MeasureJob | None:
        with contextlib.suppress(queue.Empty):
            if not self.filler:
                return self.jobs.get(timeout=0.2)
            if self.jobs.empty():
                self.give(random.choice(self.filler))  # in turns a server might never get one of them
            return self.jobs.get_nowait()
        return None

    def done(self, outcome: MeasureOutcome) -> None:
        self.outcomes.append(outcome)
        if outcome.lost:
            self.jobs.put(self.submitted[outcome.id])

    @property
    def results(self) -> dict[int, MeasureOutcome]:
        return {outcome.id: outcome for outcome in self.outcomes if not outcome.lost}

    def finish(self) -> dict[int, MeasureOutcome]:
        self.filler = ()
        wait_for(lambda: len(self.results) == len(self.submitted))
        identifiers = [outcome.id for outcome in self.outcomes if not outcome.lost]
        assert sorted(identifiers) == sorted(set(identifiers)), "a job came back twice"
        return self.results


def device(fleet: Fleet, name: str) -> DeviceStatus:
    return next(status for status in fleet.devices() if status.name == name)


def servers_below() -> list[psutil.Process]:
    """Return measuring processes and servers that this process started."""
    children = psutil.Process().children(recursive=True)
    return [child for child in children if {"tvm_rpc", "adt.tuning.fleet.measure_child"} & set(_words(child))]


def _words(process: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.Error):
        return [Path(word).name for word in process.cmdline()]
    return []


def identity(fleet: Fleet) -> tuple[str, str]:
    wait_for(lambda: fleet.identity() is not None)
    return fleet.identity() or ("", "")


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    before = {process.pid for process in servers_below()}
    yield
    assert [process for process in servers_below() if process.pid not in before] == []


def test_this_machine_measures_and_names_what_hung_crashed_and_failed(
    host_bundle: TargetBundle, tmp_path: Path
) -> None:
    engine = Engine()
    with contextlib.closing(Fleet(LocalSource(host_bundle), "cpu")) as fleet:
        fleet.start(engine.take, engine.done)
        processor, driver = identity(fleet)
        assert processor and driver == ""
        good = candidate(tmp_path)
        engine.give(
            good, candidate(tmp_path, "crash"), good, b"no library", candidate(tmp_path, "hang"), good
        )
        results = engine.finish()
        (status,) = fleet.devices()
    kinds = {number: outcome.failure.kind for number, outcome in results.items() if outcome.failure}
    assert kinds == {1: "crash", 3: "run", 4: "hang"}
    assert all(0.002 <= second < 1 for number in (0, 2, 5) for second in results[number].seconds)
    assert [len(results[number].seconds) for number in (0, 2, 5)] == [TIMING.repeat] * 3
    assert "adt-tune-3-" in results[3].failure.message
    assert {(outcome.device, outcome.driver, outcome.on.name) for outcome in results.values()} == {
        (processor, "", "this machine")
    }
    assert (status.measured, status.failed, status.restarts, status.emulated) == (4, 2, 2, False)
    assert fleet.live() == 0


def test_ending_lets_what_measures_finish_and_gives_the_rest_back(
    host_bundle: TargetBundle, tmp_path: Path
) -> None:
    engine = Engine()
    fleet = Fleet(LocalSource(host_bundle), "cpu")
    fleet.start(engine.take, engine.done)
    identity(fleet)
    engine.give(candidate(tmp_path, seconds=0.2), candidate(tmp_path))
    wait_for(lambda: fleet.devices()[0].state == "measuring")
    fleet.close(grace=30)
    assert [(outcome.id, bool(outcome.seconds)) for outcome in engine.outcomes] == [(0, True)]
    fleet.close()
    fleet = Fleet(LocalSource(host_bundle), "cpu")
    engine = Engine()
    engine.give(candidate(tmp_path, "hang"))
    fleet.start(engine.take, engine.done)
    wait_for(lambda: fleet.devices() and fleet.devices()[0].state == "measuring")
    fleet.close()
    assert [(outcome.id, outcome.lost) for outcome in engine.outcomes] == [(0, True)]


HANGING = """
import sys, time
from pathlib import Path
from adt.bundle.bundle import load_bundle
from adt.tuning.fleet.fleet import Fleet
from adt.tuning.candidates import MeasureJob, Timing
from adt.tuning.fleet.sources import LocalSource
fleet = Fleet(LocalSource(load_bundle(Path(sys.argv[1]))), "cpu")
job = MeasureJob(1, "kernel", Path(sys.argv[2]).read_bytes(), (), "cpu", Timing(timeout=1000))
fleet.start(lambda: job, print)
while not any(one.state == "measuring" for one in fleet.devices()):
    time.sleep(0.05)
time.sleep(0.5)
print("measuring", flush=True)
"""


def test_a_killed_tuning_leaves_no_process_and_no_file(
    host_bundle: TargetBundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "hangs.so"
    library.write_bytes(candidate(tmp_path, "hang"))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    words = [sys.executable, "-c", HANGING, host_bundle.path, library]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as killed:
        assert killed.stdout is not None and killed.stdout.readline() == "measuring\n"
        family = psutil.Process(killed.pid).children(recursive=True)
        assert {"tvm_rpc", "adt.tuning.fleet.measure_child"} <= {
            word for process in family for word in _words(process)
        }
        assert list(scratch.iterdir())
        killed.kill()
    ended, alive = psutil.wait_procs(family, timeout=SECONDS)
    assert ended and alive == []
    assert list(scratch.iterdir()) == []


# a tracker's servers ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tracker_address() -> Iterator[str]:
    port = free_span(2)
    started = tracker.start(PortRange(port, port + 1))
    yield started.address
    tracker.stop()


@dataclass
class Rack:
    """Servers of this machine that are registered with a tracker."""

    bundle: TargetBundle
    tracker: str
    stack: contextlib.ExitStack
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def serve(self, role: str = "", key: str = KEY) -> str:
        """Start one; its address."""
        port = free_port()
        words = board.arguments(key=key, port=port, tracker=self.tracker)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(ROLE, role)
            child = self.stack.enter_context(board.run_server(self.bundle, words, output=subprocess.DEVNULL))
        address = f"127.0.0.1:{port}"
        wait_for(lambda: address in {registered.address for registered in wire.summary(self.tracker).servers})
        self.running[address] = child
        return address

    def kill(self, address: str) -> None:
        os.killpg(self.running[address].pid, signal.SIGKILL)
        self.running[address].wait()


@pytest.fixture
def rack(host_bundle: TargetBundle, tracker_address: str) -> Iterator[Rack]:
    with contextlib.ExitStack() as stack:
        yield Rack(host_bundle, tracker_address, stack)
    wait_for(lambda: wire.summary(tracker_address).servers == ())


def test_a_server_that_hangs_one_that_crashes_and_one_that_leaves_stall_nobody(
    rack: Rack, tmp_path: Path
) -> None:
    good, hangs, crashes = rack.serve(), rack.serve("hangs"), rack.serve("crashes")
    leaves = rack.serve("leaves")
    actions = ("", "", "crash@crashes", "hang@hangs", "")
    engine = Engine(filler=tuple(candidate(tmp_path, does, seconds=0.05) for does in actions))
    with contextlib.closing(Fleet(TrackerSource(rack.tracker, KEY), "cpu")) as fleet:
        fleet.start(engine.take, engine.done)
        assert identity(fleet) == (KEY, "")
        wait_for(lambda: leaves in {status.name for status in fleet.devices() if status.state == "measuring"})
        rack.kill(leaves)
        wait_for(lambda: device(fleet, hangs).failed)
        wait_for(lambda: device(fleet, crashes).failed)
        wait_for(lambda: device(fleet, leaves).state == "left")
        joined = rack.serve()
        wait_for(lambda: joined in {status.name for status in fleet.devices() if status.measured})
        results = engine.finish()
        there = {status.name: status for status in fleet.devices()}
    # but for one that had failed elsewhere and was just tried on the server that left
    assert all(leaves in outcome.failure.message for outcome in results.values() if outcome.failure)
    assert sum(outcome.failure is not None for outcome in results.values()) <= 1
    assert there[good].measured and not there[good].failed
    assert there[hangs].failed and "hang" in there[hangs].note
    assert set(there) == {good, hangs, crashes, leaves, joined}


def test_a_candidate_that_crashes_every_server_is_tried_on_two(rack: Rack, tmp_path: Path) -> None:
    names = {rack.serve(), rack.serve(), rack.serve()}
    engine = Engine()
    engine.give(candidate(tmp_path, "crash"), *[candidate(tmp_path, seconds=0.05)] * 6)
    with contextlib.closing(Fleet(TrackerSource(rack.tracker, KEY), "cpu")) as fleet:
        fleet.start(engine.take, engine.done)
        results = engine.finish()
        failed = {status.name for status in fleet.devices() if status.failed}
    failure = results[0].failure
    assert failure and failure.kind == "crash" and failure.quarantined
    assert len(failed) == 2 and failed < names and all(name in failure.message for name in failed)
    assert [number for number, outcome in results.items() if outcome.failure] == [0]


@pytest.mark.nightly
def test_a_candidate_that_ends_tvms_own_servers_ends_no_more_than_two(
    tracker_address: str, tmp_path: Path
) -> None:
    engine = Engine()
    usual = candidate(tmp_path, seconds=0.05)
    engine.give(*[usual] * 6, candidate(tmp_path, "crash"), *[usual] * 20)
    servers = []
    try:
        for port in (free_port(), free_port(), free_port()):
            words = ["--host", "127.0.0.1", "--port", port, "--port-end", port + 1, "--key", KEY]
            words += ["--tracker", tracker_address, "--custom-addr", "127.0.0.1"]
            command = [sys.executable, "-m", "tvm.exec.rpc_server", *map(str, words)]
            servers.append(subprocess.Popen(command, start_new_session=True))
        wait_for(lambda: wire.summary(tracker_address).queue(KEY).free == 3)
        with contextlib.closing(Fleet(TrackerSource(tracker_address, KEY), "cpu")) as fleet:
            fleet.start(engine.take, engine.done)
            results = engine.finish()
            assert wire.summary(tracker_address).queue(KEY).total == 1
        assert [number for number, outcome in results.items() if outcome.failure] == [6]
        failure = results[6].failure
        assert failure and failure.kind == "crash" and failure.message.count("127.0.0.1:") == 2
    finally:
        for process in servers:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


# devices behind adb -------------------------------------------------------------------------------


@pytest.mark.nightly
def test_a_device_is_waited_for_served_and_followed_when_it_leaves_and_returns(
    virtual_rack: VirtualRack,  # noqa: F811
    tmp_path: Path,
) -> None:
    bundle = adt.build_target(platform="linux-aarch64").bundle
    virtual_device = virtual_rack.boot("one")
    port = int(virtual_device.serial.rpartition(":")[2])
    virtual_rack.kill("one")
    engine = Engine()
    usual = candidate(tmp_path, compiler=CROSS)
    engine.give(usual, *[candidate(tmp_path, does, compiler=CROSS) for does in ("crash", "hang")], usual)
    first = free_span(20)
    ports = PortRange(first, first + 19)
    with contextlib.closing(Fleet(SerialSource([virtual_device.serial], bundle, ports), "cpu")) as fleet:
        fleet.start(engine.take, engine.done)
        wait_for(lambda: [each.state for each in fleet.devices()] == ["away"])
        assert fleet.identity() is None and fleet.live() == 0
        virtual_rack.boot("one", port=port)
        results = engine.finish()
        assert {number: each.failure and each.failure.kind for number, each in results.items()} == {
            0: None,
            1: "crash",
            2: "hang",
            3: None,
        }
        assert all(each.on.emulated and each.on.name == virtual_device.serial for each in results.values())
        engine.give(*[candidate(tmp_path, seconds=0.5, compiler=CROSS)] * 3)
        wait_for(lambda: device(fleet, virtual_device.serial).state == "measuring")
        virtual_rack.kill("one")
        wait_for(lambda: device(fleet, virtual_device.serial).state == "away")
        virtual_rack.boot("one", port=port)
        results = engine.finish()
        assert [number for number, each in results.items() if each.failure] == [1, 2]
        assert fleet.identity() == (results[0].device, "")
    assert server.statuses() == ()
    virtual_rack.stop("one")
