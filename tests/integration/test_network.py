"""`adt devices`, `connect`, `disconnect` and `pair`, on the loopback only."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from device_fixtures import Rack, rack

from adt.device import network, selection
from adt.errors import DeviceError, DeviceNotReady, NoDevice
from ports import free_port

__all__ = ["rack"]


@pytest.fixture(scope="module")
def address(rack: Rack) -> Iterator[str]:
    """HOST:PORT of a virtual device that adb is not connected to."""
    yield rack.boot("networked").serial
    rack.stop_all()


@pytest.fixture(autouse=True)
def disconnected(address: str) -> Iterator[None]:
    yield
    selection.disconnect(address)


def adt(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command line."""
    argv = [sys.executable, "-c", "from adt.cli.main import main; main()", *arguments]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(argv, input=stdin, capture_output=True, text=True, env=env, check=False)


def test_a_device_is_connected_and_forgotten(address: str) -> None:
    done = adt("connect", address, "--json")
    assert json.loads(done.stdout)["already"] is False
    assert "already" in adt("connect", address).stdout
    (row,) = json.loads(adt("devices", "--json").stdout)["devices"]
    assert (row["serial"], row["state"], row["transport"], row["problem"]) == (address, "device", "tcp", "")
    assert row["abis"] == ["arm64-v8a"] and row["api_level"] is None and row["virtual"] is True
    shown = adt("devices").stdout
    assert address in shown and "arm64-v8a" in shown
    assert adt("disconnect", address).returncode == 0
    done = adt("disconnect", address)
    assert done.returncode == NoDevice.exit_code and "not connected" in done.stderr
    assert selection.listing() == ()


def test_a_closed_port_is_an_error_though_adb_says_okay() -> None:
    closed = f"127.0.0.1:{free_port()}"
    done = adt("connect", closed)
    assert done.returncode == NoDevice.exit_code
    assert "Connection refused" in done.stderr and "remedy:" in done.stderr
    done = adt("pair", closed, "--code", "123456")
    assert done.returncode == NoDevice.exit_code and "pairing" in done.stderr
    assert selection.listing() == ()


def test_a_listener_that_never_answers_ends_and_is_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "CONNECT_SECONDS", 2.0)
    monkeypatch.setattr(network, "PAIR_SECONDS", 2.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        where = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises((NoDevice, DeviceError)):
            network.connect(where)
        with pytest.raises(DeviceError, match="longer than 2 s"):
            network.pair(where, "123456")
    assert where not in [device.serial for device in selection.listing()]


def test_without_a_terminal_the_code_is_not_asked_for() -> None:
    done = adt("pair", "127.0.0.1:1", stdin="123456\n")
    assert done.returncode == 3 and "--code" in done.stderr


def test_a_bad_state_has_its_remedy_in_the_list(rack: Rack) -> None:
    info = rack.boot("locked", fault="unauthorized")
    try:
        done = adt("connect", info.serial)
        assert done.returncode == DeviceNotReady.exit_code and "Allow USB debugging" in done.stderr
        shown = adt("devices").stdout
        assert f"{info.serial}: unauthorized" in shown and "Allow USB debugging" in shown
        (row,) = json.loads(adt("devices", "--json").stdout)["devices"]
        assert row["state"] == row["problem"] == "unauthorized" and row["remedy"]
    finally:
        rack.stop("locked")
