"""Each fault of the virtual device as a real adb meets it, injected while the device runs."""

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from adt.virtual import emulator, state
from support.devices import faulty
from support.devices.virtual import TMP, Adb, Phone, adb, connect, places, sha256
from support.waiting import wait_for

__all__ = ["adb", "connect", "places"]


@pytest.fixture(scope="module")
def shared(connect: Callable[..., Phone]) -> Phone:
    return connect("faulty", boot=faulty.start)


@pytest.fixture
def device(shared: Phone) -> Iterator[Phone]:
    """Yield one device for all tests, and take back what is injected."""
    yield shared
    faulty.set_faults("faulty", ())
    wait_for(lambda: f"{shared.info.serial}\tdevice" in shared.adb("devices").stdout)


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("big") / "big"
    path.write_bytes(bytes(range(256)) * 20_000)
    return path


def inject(*specifications: str) -> None:
    assert faulty.set_faults("faulty", specifications) == specifications


def words(done: subprocess.CompletedProcess[str]) -> str:
    """Return adb's message: old ones print errors of transfers among the progress."""
    return done.stdout + done.stderr


def on_disk(name: str) -> Path:
    return state.home("faulty").data / "local/tmp" / name


def test_dropped_connection(device: Phone, big: Path) -> None:
    inject("drop-after=1m@once")
    assert device("push", big, f"{TMP}/dropped", rc=None).returncode != 0
    assert faulty.armed_faults("faulty") == ()
    wait_for(lambda: not on_disk("dropped").exists())
    device("wait-for-device")
    device("push", big, f"{TMP}/dropped")
    assert sha256(on_disk("dropped")) == sha256(big)


def test_stalled_device_answers_again(device: Phone, big: Path) -> None:
    before = len(device.info.log.read_text())
    inject("stall-after=1m")
    push = subprocess.Popen(
        device.adb.argv("push", big, f"{TMP}/stalled", serial=device.info.serial),
        env=device.adb.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    try:
        wait_for(lambda: "stalls after" in device.info.log.read_text()[before:])
        time.sleep(0.3)
        assert push.poll() is None
        assert f"{device.info.serial}\tdevice" in device.adb("devices").stdout, "adb notices nothing"
        faulty.set_faults("faulty", ())
        assert push.wait(120) == 0
    finally:
        push.kill()
        push.wait()
    assert sha256(on_disk("stalled")) == sha256(big)


def test_reboot(device: Phone, big: Path) -> None:
    device.shell(f"echo kept > {TMP}/kept; echo gone > /tmp/gone; setprop debug.adt.gone yes")
    device.shell("nohup sleep 1000 </dev/null >/dev/null 2>&1 &")
    device("reverse", "tcp:7000", "tcp:7001")
    ask = "cat /proc/sys/kernel/random/boot_id"
    before = device.shell(ask)
    assert before != Path("/proc/sys/kernel/random/boot_id").read_text()
    inject("reboot-after=1m@once")
    assert device("push", big, f"{TMP}/half", rc=None).returncode != 0
    device("wait-for-device")
    assert device.shell(ask) != before
    assert "sleep" not in device.shell("ps -A -o COMM")
    assert device("reverse", "--list").stdout.strip() == ""
    assert device.shell(f"cat {TMP}/kept; ls /tmp; getprop debug.adt.gone") == "kept\n\n"
    assert 0 < on_disk("half").stat().st_size <= 1 << 20, "a device that goes down cleans nothing up"


def test_slow_link(device: Phone, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.write_bytes(bytes(300_000))
    inject("bandwidth=600k")
    device("push", data, f"{TMP}/slow")
    device("pull", f"{TMP}/slow", tmp_path / "back")
    assert sha256(tmp_path / "back") == sha256(data) == sha256(on_disk("slow"))


def test_truncated_answers(device: Phone, tmp_path: Path, big: Path) -> None:
    device("push", big, f"{TMP}/whole")
    inject("truncate@once")
    assert device("shell", "echo 0123456789", rc=None).stdout != "0123456789\n"
    assert device.shell("echo 0123456789") == "0123456789\n", "only once"
    inject("truncate=100000@once")
    device("pull", f"{TMP}/whole", tmp_path / "pulled", rc=1)
    for number in range(5):
        assert device.shell(f"echo {number}; echo err >&2") == f"{number}\n", "later commands are whole"


def test_no_space(device: Phone, big: Path) -> None:
    inject("enospc=1m")
    assert "No space left on device" in words(device("push", big, f"{TMP}/full", rc=1))
    assert not on_disk("full").exists()


def test_wrong_hash(device: Phone, big: Path) -> None:
    inject("wrong-hash@once")
    device("push", big, f"{TMP}/wrong")
    assert on_disk("wrong").stat().st_size == big.stat().st_size
    assert sha256(on_disk("wrong")) != sha256(big)
    device("push", big, f"{TMP}/wrong")
    assert sha256(on_disk("wrong")) == sha256(big)


def test_read_only_directory(device: Phone, big: Path) -> None:
    inject(f"readonly={TMP}")
    assert "Read-only file system" in words(device("push", big, f"{TMP}/ro", rc=1))
    assert "Read-only file system" in device("shell", f"echo x > {TMP}/ro", rc=1).stderr
    device.shell("echo x > /data/elsewhere")
    faulty.set_faults("faulty", ())
    device.shell(f"echo x > {TMP}/ro")
    with pytest.raises(ValueError, match="no directory /none"):
        faulty.set_faults("faulty", ["readonly=/none"])


def test_unauthorized_then_accepted(device: Phone) -> None:
    def listed(how: str) -> bool:
        return f"{device.info.serial}\t{how}" in device.adb("devices").stdout

    inject("unauthorized")
    wait_for(lambda: listed("unauthorized"))
    assert "unauthorized" in device("shell", "true", rc=1).stderr
    faulty.set_faults("faulty", ())
    wait_for(lambda: listed("device"))
    inject("unauthorized=2")
    wait_for(lambda: listed("unauthorized"))
    wait_for(lambda: listed("device"))
    assert faulty.armed_faults("faulty") == (), "the key is remembered"


def test_offline_then_online(device: Phone) -> None:
    inject("offline")
    wait_for(lambda: f"{device.info.serial}\toffline" in device.adb("devices").stdout)
    faulty.set_faults("faulty", ())
    device("wait-for-device")
    assert device.shell("echo back") == "back\n"


def test_without_shell_v2(device: Phone) -> None:
    inject("no-shell-v2")
    offered: list[str] = []

    def without() -> bool:
        offered[:] = device("features", rc=None).stdout.split()
        return "ls_v2" in offered and "shell_v2" not in offered

    wait_for(without)
    device("shell", "exit 3", rc=0)
    faulty.set_faults("faulty", ())
    wait_for(lambda: "shell_v2" in device("features", rc=None).stdout.split())
    device("shell", "exit 3", rc=3)


def test_from_the_start(adb: Adb, big: Path) -> None:
    info = faulty.start("born", ["enospc", "offline"])
    try:
        with subprocess.Popen(
            adb.argv("connect", info.serial), env=adb.env, stdout=subprocess.DEVNULL
        ) as client:
            wait_for(lambda: f"{info.serial}\toffline" in adb("devices").stdout)
            client.kill()
        assert faulty.armed_faults("born") == ("enospc", "offline")
        assert faulty.start("born", ["truncate"]).pid == info.pid
        assert faulty.armed_faults("born") == ("truncate",), "of a device that runs they are changed"
    finally:
        emulator.stop("born")
        adb("disconnect", info.serial, rc=None)


def test_the_devices_of_the_product_take_no_faults(connect: Callable[..., Phone]) -> None:
    device = connect("plain")
    with pytest.raises(AssertionError, match="takes no faults"):
        faulty.set_faults("plain", ["offline"])
    assert device.shell("echo well") == "well\n"
