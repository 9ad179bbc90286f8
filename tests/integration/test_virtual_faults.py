"""State that faults leave on a virtual device; that they strike is shown where they are met."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from adt.virtual import state
from support.devices import faulty
from support.devices.virtual import TMP, Phone, adb, connect, places
from support.waiting import wait_for

__all__ = ["adb", "connect", "places"]


@pytest.fixture
def device(connect: Callable[..., Phone]) -> Iterator[Phone]:
    """Yield a device, and take back what is injected."""
    shared = connect("faulty", boot=faulty.start)
    yield shared
    faulty.set_faults("faulty", ())
    wait_for(lambda: f"{shared.info.serial}\tdevice" in shared.adb("devices").stdout)


def test_reboot(device: Phone, tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(bytes(range(256)) * 20_000)
    device.shell(f"echo kept > {TMP}/kept; echo gone > /tmp/gone; setprop debug.adt.gone yes")
    device.shell("nohup sleep 1000 </dev/null >/dev/null 2>&1 &")
    device("reverse", "tcp:7000", "tcp:7001")
    ask = "cat /proc/sys/kernel/random/boot_id"
    before = device.shell(ask)
    assert before != Path("/proc/sys/kernel/random/boot_id").read_text()
    faulty.set_faults("faulty", ["reboot-after=1m@once"])
    assert device("push", tmp_path / "big", f"{TMP}/half", rc=None).returncode != 0
    device("wait-for-device")
    assert device.shell(ask) != before
    assert "sleep" not in device.shell("ps -A -o COMM")
    assert device("reverse", "--list").stdout.strip() == ""
    assert device.shell(f"cat {TMP}/kept; ls /tmp; getprop debug.adt.gone") == "kept\n\n"
    half = state.home("faulty").data / "local/tmp/half"
    assert 0 < half.stat().st_size <= 1 << 20, "a device that goes down cleans nothing up"


def test_the_devices_of_the_product_take_no_faults(connect: Callable[..., Phone]) -> None:
    device = connect("plain")
    with pytest.raises(AssertionError, match="takes no faults"):
        faulty.set_faults("plain", ["offline"])
    assert device.shell("echo well") == "well\n"
