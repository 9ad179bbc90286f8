"""`adt devices` and `adt adb` behind each adb that people have, as a user runs them."""

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from adt.device import selection
from adt.device.transport import adb
from adt.errors import AmbiguousDevice, NoDevice
from support.devices.fixtures import NATIVE, Rack, adb_server
from support.devices.programs import ADT, adt, adt_json
from support.waiting import wait_for


@pytest.fixture(scope="module")
def address(adb_rack: Rack) -> Iterator[str]:
    """Yield HOST:PORT of a virtual device, which runs whether adb is connected to it or not."""
    yield adb_rack.boot("passed-through").serial
    adb_rack.stop_all()


@pytest.fixture
def connected(address: str) -> str:
    """Connect the device as a user does it."""
    done = adt("adb", "--", "connect", address)
    assert (done.returncode, "connected to" in done.stdout) == (0, True), done.stdout + done.stderr
    return address


def test_a_device_on_the_network_is_connected_and_forgotten(connected: str) -> None:
    wait_for(lambda: selection.listing()[0].ready, "it has shaken hands")
    assert connected in adt("adb", "devices").stdout
    (row,) = adt_json("devices")["devices"]
    assert (row["serial"], row["state"], row["transport"], row["problem"]) == (connected, "device", "tcp", "")
    assert row["abis"] == [NATIVE.name] and row["api_level"] is None and row["virtual"] is True
    assert adt("adb", "--", "disconnect", connected).returncode == 0
    assert selection.listing() == ()


def test_input_output_and_exit_code_are_those_of_the_command(connected: str) -> None:
    done = subprocess.run(
        [ADT, "adb", "--", "shell", "cat; echo err >&2; exit 7"],
        input="from here\n",
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (7, "from here\n", "err\n")
    assert adt("adb", "--serial", connected, "shell", "exit", "9").returncode == 9  # -- is not needed


def test_files_and_options_of_adb_pass(connected: str, tmp_path: Path) -> None:
    (tmp_path / "sent").write_text("contents")
    there = "/data/local/tmp/--sent"
    assert adt("adb", "--", "push", tmp_path / "sent", there).returncode == 0
    assert adt("adb", "--", "-s", connected, "pull", there, tmp_path / "back").returncode == 0
    assert (tmp_path / "back").read_text() == "contents"


def test_ctrl_c_ends_adb_and_what_it_runs(connected: str) -> None:
    process = subprocess.Popen([ADT, "adb", "--", "shell", "echo up; sleep 300"], stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"up\n"
    assert Path(f"/proc/{process.pid}/exe").resolve() == adb.find_adb().path.resolve()
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == -signal.SIGINT
    process.stdout.close()


def test_the_server_is_the_one_that_adt_uses(connected: str) -> None:
    before = adb_server()
    assert adt("adb", "--", "shell", "true").returncode == 0
    assert adt("adb", "kill-server").returncode == 0
    assert not adb.server_listens()
    assert adt("adb", "--", "start-server").returncode == 0
    assert adb_server() != before
    (row,) = adt_json("devices")["devices"]  # it is connected again by itself
    assert (row["serial"], row["problem"]) == (connected, "")


def test_which_of_several_devices(connected: str, adb_rack: Rack, monkeypatch: pytest.MonkeyPatch) -> None:
    other = adb_rack.start("other").serial
    echo = ("adb", "--", "shell", "getprop", "ro.serialno")
    try:
        done = adt(*echo)
        assert done.returncode == AmbiguousDevice.exit_code and connected in done.stderr
        assert adt("adb", "devices").returncode == 0
        outputs = {serial: adt("adb", "--serial", serial, *echo[1:]).stdout for serial in (connected, other)}
        assert outputs[connected] != outputs[other]
        monkeypatch.setenv("ANDROID_SERIAL", other)
        assert adt(*echo).stdout == outputs[other]
    finally:
        adb_rack.stop("other")


def test_a_device_that_is_not_there_or_not_usable(connected: str, adb_rack: Rack) -> None:
    done = adt("adb", "--serial", "nobody", "--", "shell", "true")
    assert done.returncode == NoDevice.exit_code and "remedy:" in done.stderr
    locked = adb_rack.boot("locked", faults=["unauthorized"]).serial
    try:
        adt("adb", "--", "connect", locked)
        shown = adt("devices").stdout
        assert f"{locked}: unauthorized" in shown and "Allow USB debugging" in shown
        done = adt("adb", "--serial", locked, "--", "get-state")
        assert done.returncode == 1 and "unauthorized" in done.stderr, "adb's own words"
    finally:
        adb_rack.stop("locked")
