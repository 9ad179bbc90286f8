"""Forwards, reverses and what is asked come back after a drop; what was opened is closed again."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
from device_fixtures import Rack, processes, rack, wait_for

from adt.device import adb, overview, selection
from adt.device.device import Device
from adt.device.link import retry_idempotent, wait_ready
from adt.device.virtual import emulator
from adt.errors import AdtError, DeviceError, NoDevice

__all__ = ["rack"]


@pytest.fixture
def phone(rack: Rack) -> Device:
    """A virtual device; it runs until a test stops it."""
    return rack.start("linked")


def adb_lists(device: Device, *arguments: str) -> str:
    """What the adb program itself says."""
    argv = [adb.find_adb().path, "-s", device.serial, *arguments]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


def disconnect(device: Device) -> None:
    selection.disconnect(device.serial)


def restart_server(device: Device) -> None:
    subprocess.run([adb.find_adb().path, "kill-server"], check=True, capture_output=True)


def cut(device: Device) -> None:
    emulator.set_faults("linked", ["drop-after=0@once"])
    with pytest.raises(DeviceError):
        device.push(b"x" * 100_000, "/data/local/tmp/cut")
    emulator.set_faults("linked", [])


def reboot(device: Device) -> None:
    emulator.set_faults("linked", ["reboot-after=0@once"])
    with pytest.raises(AdtError):
        device.push(b"x" * 100_000, "/data/local/tmp/cut")
    emulator.set_faults("linked", [])


@pytest.mark.parametrize("drop", [disconnect, restart_server, cut, reboot])
def test_links_come_back_with_the_same_ports(phone: Device, drop) -> None:
    with phone.forward(7701) as forward, phone.reverse(7702) as reverse:
        again = phone.links.forward(7703)
        phone.links.remove(again)
        drop(phone)
        asked = retry_idempotent(phone, "asking", lambda: phone.script("echo hello").out, attempts=5)
        assert asked == "hello\n"
        phone.links.restore()
        assert adb_lists(phone, "forward", "--list") == (
            f"{phone.serial} tcp:{forward.local} tcp:{forward.remote}"
        )
        listed = adb_lists(phone, "reverse", "--list").split()
        assert listed[-2:] == [f"tcp:{reverse.remote}", "tcp:7702"] and len(listed) == 3
        assert phone.links.restore() == ()
    assert adb_lists(phone, "forward", "--list") == adb_lists(phone, "reverse", "--list") == ""


def test_a_device_that_stays_away_is_reported_in_time(rack: Rack) -> None:
    device = rack.start("linked")
    rack.kill("linked")
    began = time.monotonic()
    with pytest.raises(AdtError):
        wait_ready(device.serial, timeout=2)
    assert time.monotonic() - began < 60, "not a connection's own, longer patience"
    disconnect(device)


def test_a_pull_is_done_again_after_a_drop(phone: Device, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for n in range(30):
        (tmp_path / "in" / f"f{n}").write_bytes(bytes([n]) * 100_000)
    phone.push_tree(tmp_path / "in", "/data/local/tmp/t")
    emulator.set_faults("linked", ["drop-after=1m@once"])
    report = retry_idempotent(
        phone, "pulling", lambda: phone.pull_tree("/data/local/tmp/t", tmp_path / "out"), attempts=3
    )
    assert report.files == 30
    assert not emulator.armed_faults("linked")


def test_leaving_the_block_ends_what_was_started(phone: Device) -> None:
    with Device.open(phone.serial) as device:
        device.links.forward(7701)
        device.links.reverse(7702)
        command = device.start(["sh", "-c", "trap '' HUP; echo up; while :; do sleep 4331; done"])
        next(command.output())
        assert [row for row in processes(phone) if "4331" in row]
    wait_for(lambda: not [row for row in processes(phone) if "4331" in row], "it is ended")
    assert adb_lists(phone, "forward", "--list") == adb_lists(phone, "reverse", "--list") == ""


def test_the_only_device_is_opened(phone: Device) -> None:
    with Device.open() as device:
        assert device.serial == phone.serial
    with pytest.raises(NoDevice), Device.open("nothing"):
        pass


def test_without_shell_v2_everything_works_with_the_marker(rack: Rack, tmp_path: Path) -> None:
    """stderr comes with stdout then, and the exit code from the marker."""
    rack.stop_all()
    device = rack.start("linked", fault="no-shell-v2")
    try:
        assert "shell_v2" not in device.features
        done = device.script("echo out; echo err >&2; exit 7", check=False)
        assert (done.out, done.err, done.exit_code) == ("out\nerr\n", "", 7)
        assert device.shell(["printf", "%s|", "a b", "$(reboot)", "it's\n"]).out == "a b|$(reboot)|it's\n|"
        assert device.shell(["cat"]).out == ""
        with pytest.raises(DeviceError, match="exit code 127"):
            device.shell(["no-such-program"])
        with pytest.raises(DeviceError, match="longer than"):
            device.script("sleep 4332; sleep 4332", timeout=1)
        wait_for(lambda: not [row for row in processes(device) if "4332" in row], "it is ended")
        assert device.facts.machine == "aarch64"
        (tmp_path / "in").mkdir()
        (tmp_path / "in/f").write_text("contents")
        device.push_tree(tmp_path / "in", "/data/local/tmp/marked")
        device.push_tree(tmp_path / "in", "/data/local/tmp/marked")
        assert device.pull_tree("/data/local/tmp/marked", tmp_path / "out").files == 1
        assert not [row for row in processes(device) if ".adt-push" in row]
    finally:
        rack.stop_all()


def test_the_list_does_not_wait_for_a_device_that_hangs(rack: Rack) -> None:
    well, hung = rack.start("well"), rack.start("hung")
    try:
        emulator.set_faults("hung", ["stall-after=0"])
        began = time.monotonic()
        found = {device.serial: device for device in overview.overview(seconds=2)}
        assert time.monotonic() - began < 60, "not a connection's own, longer patience"
        assert (found[well.serial].problem, found[well.serial].abis) == ("", ("arm64-v8a",))
        assert "virtual" in found[well.serial].model and found[well.serial].virtual
        assert "longer than 2 s" in found[hung.serial].problem
        emulator.set_faults("hung", [])
        wait_for(lambda: all(not device.problem for device in overview.overview()), "it answers again")
    finally:
        rack.stop_all()
