"""Choosing a device and working on it: the real adb, real virtual devices."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import adt
from adt.device import probe, selection
from adt.device.deploy.workspace import workspace
from adt.device.device import Device
from adt.device.transport import adb
from adt.errors import AmbiguousDevice, DeviceError, DeviceFull, DeviceNotReady, NoDevice
from support.devices import faulty
from support.devices.fixtures import NATIVE, Rack, child, entries, processes
from support.waiting import wait_for


@pytest.fixture
def phone(native_rack: Rack) -> Device:
    """Return the rack's only device, which stays for the next test that needs it."""
    return native_rack.start("phone")


@pytest.fixture
def alone(native_rack: Rack) -> Iterator[Rack]:
    """Yield a rack without a device, before and after."""
    native_rack.stop_all()
    yield native_rack
    native_rack.stop_all()


def test_without_a_device_the_error_says_how_to_get_one(alone: Rack) -> None:
    assert selection.listing() == ()
    with pytest.raises(NoDevice, match="no device") as caught:
        selection.select()
    assert "adt emulator start" in caught.value.remedy


def test_the_only_device_is_taken_and_described(phone: Device) -> None:
    devices = selection.listing()
    assert [(d.serial, d.state, d.transport) for d in devices] == [(phone.serial, "device", "tcp")]
    assert selection.select().serial == phone.serial
    assert phone.platform == NATIVE.linux_platform
    assert phone.facts.machine == NATIVE.machine
    assert "virtual" in phone.facts.label


def test_two_devices_need_a_serial(alone: Rack, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = alone.start("one"), alone.start("two")
    with pytest.raises(AmbiguousDevice) as caught:
        selection.select()
    assert first.serial in caught.value.details
    assert second.serial in caught.value.details
    monkeypatch.setenv("ANDROID_SERIAL", second.serial)
    assert selection.select().serial == second.serial
    assert selection.select(first.serial).serial == first.serial
    monkeypatch.delenv("ANDROID_SERIAL")
    near = [f"{first.serial[:-1]}{digit}" for digit in range(10)]
    wrong = next(serial for serial in near if serial not in (first.serial, second.serial))
    with pytest.raises(NoDevice) as unknown:
        selection.select(wrong)
    assert "Did you mean" in unknown.value.remedy
    assert first.serial in unknown.value.details


def test_every_verb_finds_it_again_after_the_server_was_restarted(phone: Device) -> None:
    """Find the device by verbs that name it and by those that name none."""
    for look in (
        lambda: [selection.select(phone.serial).serial],
        lambda: [device.serial for device in adt.devices()],
        lambda: [selection.select().serial],
        lambda: list(selection.named_serials(None, everyone=True)),
    ):
        subprocess.run([adb.find_adb().path, "kill-server"], check=True, capture_output=True)
        assert look() == [phone.serial]
        assert phone.shell(["echo", "here"]).out == "here\n"


def test_an_unauthorized_device_says_what_to_accept(alone: Rack) -> None:
    info = alone.boot("locked", faults=["unauthorized"])
    with pytest.raises(NoDevice, match="failed to authenticate"):
        selection.connect(info.serial)
    with pytest.raises(DeviceNotReady, match="unauthorized") as caught:
        selection.select(info.serial)
    assert "Allow USB debugging" in caught.value.remedy


def test_an_offline_device_says_how_to_reconnect(alone: Rack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "SETTLE_SECONDS", 0.5)
    monkeypatch.setattr(selection, "RECONNECT_SECONDS", 0.5)
    info = alone.boot("dark", faults=["offline"])
    try:
        asking = threading.Thread(target=_try_to_connect, args=(info.serial,))
        asking.start()
        wait_for(lambda: info.serial in {d.serial for d in selection.listing()}, "the device is listed")
        with pytest.raises(DeviceNotReady, match=r"offline|connecting") as caught:  # one, then the other
            selection.select()
        assert caught.value.remedy
    finally:
        alone.stop_all()
        asking.join(120)
        assert not asking.is_alive()


def _try_to_connect(serial: str) -> None:
    try:
        selection.connect(serial)
    except (NoDevice, DeviceError):
        return


def test_a_device_that_died_is_not_used(alone: Rack) -> None:
    device = alone.start("mortal")
    alone.kill("mortal")
    with pytest.raises((NoDevice, DeviceNotReady)):
        device.shell(["true"])
    with pytest.raises((NoDevice, DeviceNotReady)):
        selection.select(device.serial)
    selection.disconnect(device.serial)


HOSTILE = ["a b", "$(reboot)", "`x`", "it's", '"', "new\nline", "; exit 9", "*", "", "\\", "é"]


def test_arguments_reach_the_program_as_they_are(phone: Device) -> None:
    assert phone.shell(["printf", "%s|", *HOSTILE]).out == "|".join(HOSTILE) + "|"
    assert phone.script('printf "%s|" "$@"', *HOSTILE).out == "|".join(HOSTILE) + "|"


@pytest.mark.parametrize("code", [0, 1, 3, 126, 255])
def test_exit_codes_and_both_streams_come_back(phone: Device, code: int) -> None:
    done = phone.script("echo out; echo err >&2; exit $1", str(code), check=False)
    assert (done.out, done.err, done.exit_code) == ("out\n", "err\n", code)


def test_a_program_ended_by_a_signal_has_its_number(phone: Device) -> None:
    assert phone.script("kill -SEGV $$", check=False).exit_code == 128 + signal.SIGSEGV


def test_output_is_seen_while_the_command_runs(phone: Device) -> None:
    """Release the second line only after the first one has been seen here."""
    waits = "echo first; while [ ! -e /data/local/tmp/go ]; do sleep 0.05; done; echo second"
    with phone.start(["sh", "-c", waits], timeout=120) as command:
        output = command.output()
        assert next(output)[1] == b"first\n"
        phone.shell(["touch", "/data/local/tmp/go"])
        assert b"".join(data for _, data in output) == b"second\n"


def test_large_output_arrives_whole(phone: Device) -> None:
    done = phone.script("head -c 3000000 /dev/zero; head -c 1000000 /dev/zero >&2")
    assert (len(done.stdout), len(done.stderr)) == (3_000_000, 1_000_000)


def test_a_timeout_leaves_no_remote_process(phone: Device) -> None:
    with pytest.raises(DeviceError, match="longer than"):
        phone.script("sleep 4321 & sleep 4321; wait", timeout=1)
    wait_for(lambda: not [line for line in processes(phone) if "sleep 4321" in line], "it is ended")


def test_a_process_that_ignores_term_is_killed(phone: Device) -> None:
    with pytest.raises(DeviceError, match="longer than"):
        phone.script("trap '' TERM HUP; while :; do sleep 4322; done", timeout=1)
    wait_for(lambda: not [line for line in processes(phone) if "sleep 4322" in line], "it is killed")


LONG = """
import sys
from adt.device import selection
waits = "echo started; trap '' HUP; sleep 4323 & sleep 4323; wait"
with selection.select(sys.argv[1]).start(["sh", "-c", waits]) as command:
    for _, data in command.output():
        print(data.decode(), end="", flush=True)
"""


def test_ctrl_c_ends_the_remote_command(phone: Device) -> None:
    """Run a command that ignores HUP, all that adbd would send: only our own kill ends it."""
    with child(LONG, phone.serial) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "started\n"
        assert [line for line in processes(phone) if "sleep 4323" in line]
        running.send_signal(signal.SIGINT)
        assert running.wait(120) != 0
        wait_for(lambda: not [line for line in processes(phone) if "sleep 4323" in line], "it is ended")


def test_files_come_back_as_they_went(phone: Device, tmp_path: Path) -> None:
    data = os.urandom(300_001)
    (tmp_path / "in").write_bytes(data)
    (tmp_path / "in").chmod(0o755)
    os.utime(tmp_path / "in", (1_600_000_000, 1_600_000_000))
    remote = "/data/local/tmp/new dir/it's $(x).bin"
    assert phone.push(tmp_path / "in", remote) == len(data)
    # the device's daemon copies the owner's bits to group and others
    facts = phone.shell(["busybox", "stat", "-c", "%a %s %Y", remote]).out.split()
    assert (facts[0][-3], *map(int, facts[1:])) == ("7", len(data), 1_600_000_000)
    assert phone.pull(remote, tmp_path / "out") == len(data)
    assert (tmp_path / "out").read_bytes() == data


def test_pulling_what_is_not_there_leaves_nothing(phone: Device, tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="No such file"):
        phone.pull("/data/local/tmp/nothing", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_pushing_onto_a_directory_shows_the_devices_words(phone: Device) -> None:
    with pytest.raises(DeviceError, match="directory"):
        phone.push(b"x", "/data/local/tmp")


def test_a_full_device_says_so_with_what_is_left(alone: Rack) -> None:
    device = alone.start("small", data_size="4m")
    with pytest.raises(DeviceFull) as caught:
        device.push(b"x" * (6 << 20), "/data/local/tmp/large")
    assert "free" in caught.value.what
    assert device.free_space() is not None
    assert device.free_space() < 5 << 20
    assert device.push(b"small", "/data/local/tmp/small") == 5


def test_a_workspace_is_gone_after_its_block(phone: Device) -> None:
    with workspace(phone, "/data/local/tmp/w") as there:
        phone.push(b"x", f"{there}/deep/f")
        assert len(entries(phone, "/data/local/tmp/w")) == 1
    assert entries(phone, "/data/local/tmp/w") == []


HOLD = """
import sys, time
from adt.device import selection
from adt.device.deploy.workspace import workspace
with workspace(selection.select(sys.argv[1]), "/data/local/tmp/w") as there:
    print(there, flush=True)
    time.sleep(1000)
"""


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGKILL, signal.SIGTERM])
def test_a_workspace_is_gone_when_its_owner_is_killed(phone: Device, sig: signal.Signals) -> None:
    with child(HOLD, phone.serial) as owner:
        assert owner.stdout is not None
        path = owner.stdout.readline().strip()
        assert entries(phone, "/data/local/tmp/w") == [path.rpartition("/")[2]]
        owner.send_signal(sig)
        owner.wait(120)
    wait_for(lambda: entries(phone, "/data/local/tmp/w") == [], "the directory is removed")
    wait_for(lambda: not [line for line in processes(phone) if "adt" in line], "its holder ends")


def test_workspaces_of_the_living_stay_and_those_of_the_dead_go(phone: Device) -> None:
    phone.shell(["mkdir", "-p", "/data/local/tmp/w/99999-adt0123", "/data/local/tmp/w/1-adt0123"])
    with workspace(phone, "/data/local/tmp/w") as first, workspace(phone, "/data/local/tmp/w") as second:
        assert first != second
        names = {first.rpartition("/")[2], second.rpartition("/")[2]}
        assert set(entries(phone, "/data/local/tmp/w")) == names


def test_a_workspace_that_cannot_be_made_says_why(phone: Device) -> None:
    phone.push(b"a file", "/data/local/tmp/f")
    with pytest.raises(DeviceError, match="does not let us"), workspace(phone, "/data/local/tmp/f"):
        pass


def test_without_shell_v2_everything_works_with_the_marker(native_rack: Rack, tmp_path: Path) -> None:
    """Read stderr with stdout, and the exit code from the marker."""
    native_rack.stop_all()
    device = native_rack.start("linked", faults=["no-shell-v2"])
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
        wait_for(lambda: not [row for row in processes(device) if "sleep 4332" in row], "it is ended")
        assert device.facts.machine == NATIVE.machine
        with workspace(device, "/data/local/tmp/marked") as there:
            device.push(b"contents", f"{there}/f")
            assert device.pull(f"{there}/f", tmp_path / "f") == len("contents")
    finally:
        native_rack.stop_all()


def test_the_list_does_not_wait_for_a_device_that_hangs(native_rack: Rack) -> None:
    well, hung = native_rack.start("well"), native_rack.start("hung", faults=[])
    try:
        faulty.set_faults("hung", ["stall-after=0"])
        began = time.monotonic()
        devices = {device.serial: device for device in probe.overview(seconds=8)}
        assert time.monotonic() - began < 60, "not a connection's own, longer patience"
        assert (devices[well.serial].problem, devices[well.serial].abis) == ("", (NATIVE.name,))
        assert "virtual" in devices[well.serial].model and devices[well.serial].virtual
        assert "longer than 8 s" in devices[hung.serial].problem
        faulty.set_faults("hung", [])
        wait_for(lambda: all(not device.problem for device in probe.overview(seconds=8)), "it answers again")
    finally:
        native_rack.stop_all()
