"""The log of a device: a stand-in `logcat` on the virtual device, which has no logd of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from device_fixtures import Rack, processes, rack, wait_for

from adt.device.device import Device
from adt.errors import DeviceError

__all__ = ["rack"]

LINES = [
    "--------- beginning of main",
    "11-21 07:30:01.000   100   101 I ActivityManager: started",
    "11-21 07:30:02.000   200   201 W adreno  : slow: 12 ms",
    "11-21 07:30:03.000   200   202 E adreno  : out of memory",
]

STAND_IN_LOGCAT = r"""#!/system/bin/sh
# A stand-in for Android's logcat: prints prepared lines, then one a second unless -d is given; filters nothing.
cat /data/local/tmp/log
case " $* " in *" -d "*) exit 0;; esac
n=0
while :; do n=$((n+1)); echo "11-21 07:31:00.000   300   301 W tick: $n"; sleep 0.2; done
"""


@pytest.fixture(scope="module")
def phone(rack: Rack) -> Iterator[Device]:
    """A virtual device with the stand-in in place of its own script."""
    device = rack.start("logging")
    device.push("\n".join([*LINES, ""]).encode(), "/data/local/tmp/log")
    device.push(STAND_IN_LOGCAT.encode(), "/data/local/tmp/stand-in-logcat", mode=0o755)
    device.shell(["busybox", "mount", "--bind", "/data/local/tmp/stand-in-logcat", "/adt/bin/logcat"])
    yield device
    rack.stop_all()


def of_logcat(device: Device) -> list[str]:
    return [row for row in processes(device) if "logcat" in row]


def test_lines_come_live_and_the_end_is_prompt(phone: Device) -> None:
    with phone.logcat(["adreno:W", "tick:V", "*:S"]) as log:
        found = iter(log)
        first = [next(found) for _ in range(4)]
        assert [(line.tag, line.priority, line.pid) for line in first] == [
            ("adreno", "W", 200),
            ("adreno", "E", 200),
            ("tick", "W", 300),
            ("tick", "W", 300),
        ]
        assert first[0].message == "slow: 12 ms"
        assert of_logcat(phone)
    wait_for(lambda: not of_logcat(phone), "the device's logcat ends")


def test_a_dump_ends(phone: Device) -> None:
    with phone.logcat(pid=100, dump=True) as log:
        assert [str(line) for line in log] == ["11-21 07:30:01.000   100   101 I ActivityManager: started"]


def command(*arguments: str) -> list[str]:
    code = "from adt.cli.main import main; main()"
    return [sys.executable, "-c", code, "logcat", *arguments]


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}


def test_the_command_prints_until_ctrl_c(phone: Device) -> None:
    argv = command("--serial", phone.serial, "tick:V", "*:S")
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environment()) as running:
        assert running.stdout is not None
        try:
            assert running.stdout.readline().endswith("W tick: 1\n")
            assert running.stdout.readline().endswith("W tick: 2\n")
            running.send_signal(signal.SIGINT)
            assert running.wait(120) == 130
        finally:
            running.kill()
    wait_for(lambda: not of_logcat(phone), "the device's logcat ends")


def test_the_command_prints_one_document(phone: Device) -> None:
    argv = command("--serial", phone.serial, "--json", "adreno:E", "*:S")
    done = subprocess.run(argv, capture_output=True, text=True, env=environment(), check=True)
    document = json.loads(done.stdout)
    assert document["schema"] == "adt.logcat" and document["dropped"] == 0
    assert [line["message"] for line in document["lines"]] == ["out of memory"]


def test_a_device_without_logcat_says_so(phone: Device) -> None:
    phone.shell(["busybox", "mount", "--bind", "/dev/null", "/adt/bin/logcat"])
    try:
        with pytest.raises(DeviceError, match="has no logcat") as caught, phone.logcat() as log:
            list(log)
        assert "dmesg" in caught.value.remedy
    finally:
        phone.shell(["busybox", "umount", "/adt/bin/logcat"])
