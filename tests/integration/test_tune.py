"""`adt tune` as a user runs it: searched, measured, kept, interrupted, resumed, compiled, verified. All parts are real."""

import contextlib
import json
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import adt
from adt.bundle.bundle import TargetBundle
from adt.compiler.networks.builder import Network
from adt.errors import AdtError, Busy, ConfigError, MismatchError, NoDevice, TrackerError
from adt.options.sections import PortRange
from adt.rpc import board, tracker, wire
from adt.tuning.database.store import open_database
from adt.verbs import tune_places
from support.devices.fixtures import Rack
from support.devices.ports import free_port
from support.devices.programs import ADT, adt_json
from support.devices.programs import adt as run_adt
from support.waiting import wait_for

BAD_SERVER = Path(__file__).parents[1] / "support/standins/bad_rpc_server.py"
SECONDS = 120.0
"""For what must happen at all."""
QUICK = ("--tuner", "random", "--min-repeat-ms", "1", "--number", "1")


def small_network(path: Path) -> Path:
    net = Network((1, 8, 8, 8))
    x = net.relu(net.conv("x", 8))
    x = net.relu(net.conv(x, 16, 3, 2))
    return net.save(path, net.classifier(x, 4), (1, 4))


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_network(tmp_path_factory.mktemp("network") / "small.onnx")


def records(database: Path) -> list[dict[str, Any]]:
    """Return the records so far, as another program reads them."""
    if not (database / "records.sqlite").is_file():
        return []
    with contextlib.closing(sqlite3.connect(database / "records.sqlite")) as connection:
        rows = connection.execute("SELECT data FROM entries WHERE kind = 'record' ORDER BY number").fetchall()
    return [json.loads(data) for (data,) in rows]


@contextlib.contextmanager
def tuning(*words: object) -> Iterator[subprocess.Popen[str]]:
    command = [str(ADT), "tune", *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def family(process: subprocess.Popen[Any]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


@pytest.mark.parametrize(
    "end", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.nightly)], ids=["ctrl-c", "kill-9"]
)
def test_a_tuning_that_was_ended_goes_on_and_its_records_make_a_right_package(
    network: Path,
    host_bundle: TargetBundle,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    end: signal.Signals,
) -> None:
    database, scratch = tmp_path / "db", tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    words = (network, "--target", "host", "--trials", 8, *QUICK, "--builders", 1, "--db", database)
    with tuning(*words) as process:
        wait_for(lambda: len(records(database)) >= 3)
        children = family(process)
        process.send_signal(end)
        output, _ = process.communicate(timeout=SECONDS)
    before = records(database)
    assert len(children) >= 2, "a server and what compiles"
    wait_for(lambda: not any(child.is_running() for child in children))
    if end == signal.SIGINT:
        assert process.returncode == 130, output
        assert f"{len(before)} records of this session are kept" in output
        assert "the same command goes on" in output
        assert list(scratch.glob("adt-*")) == []

    document = adt_json("tune", *words)
    after = records(database)
    assert after[: len(before)] == before, "nothing is lost or changed"
    assert len(after) == len(before) + document["kept"]
    assert {record["run"] for record in after} == {document["run"]}
    assert (document["done"], document["total"], document["interrupted"]) == (8, 8, False)
    candidates = [record for record in after if record["trace"] and not record["options"].get("confirmed")]
    assert len(candidates) == 8 == len({(record["workload"], record["trace"]) for record in candidates})
    tasks = document["tasks"]
    assert sum(task["trials"] for task in tasks) == 8
    assert {task["name"] for task in tasks} >= {"fused_conv_blocks_add_relu", "fused_conv_blocks1_add1_relu1"}
    assert all(task["baseline_ms"] > 0 for task in tasks)
    assert [device["name"] for device in document["devices"]] == ["this machine"]
    logged = [line for log in Path(document["logs"]).iterdir() for line in log.read_text().splitlines()]
    assert len(logged) == len(after)

    again = run_adt("tune", *words)
    assert again.returncode == 0 and "finished before" in again.stdout
    assert len(records(database)) == len(after)

    package = adt_json(
        "compile", network, "--for", "host", "--target", "host", "--db", database, "-o", tmp_path / "pkg"
    )
    faster = [task for task in tasks if task["times_as_fast"] and task["times_as_fast"] > 1]
    assert package["package"]["tuned"] == sum(len(task["kernels"]) for task in faster)
    assert run_adt("verify", tmp_path / "pkg").returncode == 0


@contextlib.contextmanager
def good_server(bundle: TargetBundle, address: str, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Start a server on this machine that registers with the tracker at *address*."""
    words = board.arguments(key="rack", port=port, tracker=address)
    with tempfile.TemporaryFile() as log, board.run_server(bundle, words, output=log.fileno()) as process:
        yield process


@contextlib.contextmanager
def bad_server(address: str, port: int, behaviour: str) -> Iterator[None]:
    """Start a server whose second timing of a session goes wrong."""
    command = [sys.executable, BAD_SERVER, behaviour, "2", str(port), address, "rack"]
    with subprocess.Popen(command, start_new_session=True) as process:
        try:
            yield
        finally:
            kill_all(process)


def kill_all(process: subprocess.Popen[bytes]) -> None:
    for member in (*family(process), psutil.Process(process.pid)):
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()


@pytest.mark.nightly  # test_tune_fleet.py has more of this, without the search
def test_servers_that_hang_crash_and_leave_are_named_and_the_others_finish(
    network: Path, host_bundle: TargetBundle, tmp_path: Path
) -> None:
    port = free_port()
    address = tracker.start(PortRange(port, port)).address
    database = tmp_path / "db"
    with contextlib.ExitStack() as held:
        held.callback(tracker.stop)
        ports = [free_port() for _ in range(4)]
        good, leaving, hanging, crashing = names = [f"127.0.0.1:{port}" for port in ports]
        held.enter_context(good_server(host_bundle, address, ports[0]))
        leaves = held.enter_context(good_server(host_bundle, address, ports[1]))
        held.enter_context(bad_server(address, ports[2], "hang"))
        held.enter_context(bad_server(address, ports[3], "crash"))
        wait_for(lambda: wire.summary(address).queue("rack").total == 4)
        words = (network, "--for", "host", "--target", "cpu", "--key", "rack", "--tracker", address)
        with tuning(*words, "--trials", 64, "--timeout", 2, *QUICK, "--db", database, "--json") as process:
            wait_for(lambda: {record["on"]["name"] for record in records(database)} == set(names))
            kill_all(leaves)
            output, _ = process.communicate(timeout=SECONDS)
        assert process.returncode == 0, output
        assert wire.summary(address).queue("rack").total >= 1, "the tracker was there before, and stays"
    document = json.loads(output[output.index("{\n") :])
    devices = {device["name"]: device for device in document["devices"]}
    assert set(devices) == set(names), devices
    assert devices[leaving]["state"] == "left"
    for name in (hanging, crashing):
        assert devices[name]["note"], devices
    assert devices[good]["measured"] > 4 and not devices[good]["failed"]
    assert document["done"] == 64 and not document["interrupted"]
    assert any(task["times_as_fast"] for task in document["tasks"])


@pytest.mark.nightly
def test_kernels_in_opencl_buffers_are_tuned_and_right(
    network: Path, host_bundle: TargetBundle, tmp_path: Path
) -> None:
    words = (network, "--for", "host", "--target", "opencl", "--trials", 12, *QUICK, "--db", tmp_path / "db")
    document = adt_json("tune", *words, "--compare")
    assert document["done"] == 12 and document["context"]["driver"]
    comparison = document["comparison"]
    assert comparison["correct"] is True
    assert comparison["optimised"]["median_ms"] > 0 and comparison["total_kernels"] >= 4


@pytest.mark.nightly
def test_on_the_virtual_device_the_path_is_right_and_no_time_is_shown(
    network: Path,
    rack: Rack,
    tmp_path: Path,
) -> None:
    adt.build_target(platform="linux-aarch64")
    serial = rack.start("tuned").serial
    words = (network, "--serial", serial, "--trials", 4, *QUICK, "--db", tmp_path / "db", "--compare")
    done = run_adt("tune", *words)
    assert done.returncode == 0, done.stderr
    assert "emulated: right or wrong counts here" in done.stdout
    assert "both are right; no times" in done.stdout
    for text in ("GFLOPS", " ms tuned"):
        assert text not in done.stdout + done.stderr
    document = adt_json("tune", *words)
    assert document["emulated"] and document["done"] == 4 and document["platform"] == "linux-aarch64"
    assert all(task["baseline_ms"] is None for task in document["tasks"])
    assert all(record["on"]["emulated"] for record in records(tmp_path / "db"))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"db": None}, ConfigError, "no directory for the records"),
        ({"trials": -1}, ConfigError, "--trials: -1"),
        ({"timeout": 0.0}, ConfigError, "--timeout: 0.0"),
        ({"key": "k", "serials": ["s"]}, ConfigError, "a tracker chooses the devices"),
        ({"tuner": "guess"}, ConfigError, "guess"),
        ({"cost_model": "crystal"}, ConfigError, "crystal"),
        ({"builders": "some"}, ConfigError, "some"),
        ({"tracker": "127.0.0.1:1"}, TrackerError, "no tracker runs"),
        ({"serials": ["absent"]}, NoDevice, "absent"),
        ({"platform": "linux-aarch64", "target": "host"}, ConfigError, "linux-aarch64"),
        ({"platform": "host", "target": "host", "fit": True}, ConfigError, "--fit is for GPUs"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_measured(
    network: Path,
    host_bundle: TargetBundle,
    tmp_path: Path,
    options: dict[str, Any],
    error: type[AdtError],
    message: str,
) -> None:
    usual = {"platform": "host", "db": tmp_path / "db", "trials": 1}
    with pytest.raises(error, match=message):
        adt.tune(network, **(usual | options))
    assert not records(tmp_path / "db")


def test_a_database_that_another_process_writes_is_busy(
    network: Path, host_bundle: TargetBundle, tmp_path: Path
) -> None:
    with open_database(tmp_path / "db", write=True), pytest.raises(Busy):
        adt.tune(network, platform="host", db=tmp_path / "db")


def test_the_verb_and_the_package_have_one_name() -> None:
    assert callable(adt.tune) and adt.tuning.records.BASELINE == ""


def test_without_a_device_it_ends_and_the_tracker_that_it_started_too(
    network: Path, host_bundle: TargetBundle, tmp_path: Path
) -> None:
    assert tracker.running() == ""
    with pytest.raises(TrackerError, match="no device that measures"):
        adt.tune(network, platform="host", target="cpu", key="nobody", db=tmp_path / "db", trials=1, wait=1.0)
    assert tracker.running() == ""
    assert not records(tmp_path / "db")


def test_kernels_for_another_processor_are_not_measured_here(
    network: Path, host_bundle: TargetBundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refuse candidates that would each end their server with SIGILL."""
    monkeypatch.setattr(tune_places, "own_features", lambda: frozenset({"sse4_1", "sse4_2"}))
    with pytest.raises(MismatchError, match=r"CPUs with .*avx2.*, which those of this machine lack") as error:
        adt.tune(network, platform="host", target="cpu", cpu="haswell", db=tmp_path / "db", trials=1)
    assert "--cpu native" in error.value.remedy and not records(tmp_path / "db")
    with pytest.raises(ConfigError, match="cortex-a76"):
        adt.tune(network, platform="host", target="cpu", cpu="cortex-a76", db=tmp_path / "db", trials=1)
