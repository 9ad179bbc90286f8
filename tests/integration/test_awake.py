"""A device is held awake while it measures or serves, and its own setting comes back however that ends."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import adt
from adt.device.deploy.workspace import AWAKE, awake
from adt.device.device import Device
from adt.device.scripts import script
from support.devices.fixtures import Rack, child, entries
from support.devices.ports import free_span
from support.devices.programs import ADT
from support.models.small import small_model
from support.sampling import matrix
from support.waiting import wait_for

HELD = "7"
"""AC, USB and wireless, as `svc power stayon true` sets it."""
HOLD = """
import sys
from adt.device.deploy.workspace import awake
from adt.device.device import Device
with awake(Device(sys.argv[1])):
    sys.stdin.readline()
"""


@pytest.fixture(scope="module")
def phone(rack: Rack) -> Device:
    return rack.start("awake", abi="x86_64")


BEFORE = ("null", "3")


@pytest.fixture(params=BEFORE)
def before(phone: Device, request: pytest.FixtureRequest) -> Iterator[str]:
    """Yield the setting before the test; nothing else may be left after it."""
    words = ("delete",) if request.param == "null" else ("put", request.param)
    change(phone, *words)
    yield request.param
    wait_for(lambda: entries(phone, AWAKE) == [], "nobody holds it")
    assert setting(phone) == request.param


def leave(holder: subprocess.Popen[str]) -> None:
    assert holder.stdin is not None
    holder.stdin.write("bye\n")
    holder.stdin.flush()


def change(device: Device, verb: str, *value: str) -> str:
    return device.shell(["settings", verb, "global", "stay_on_while_plugged_in", *value]).out.strip()


def setting(device: Device) -> str:
    return change(device, "get")


ENDS = (None, signal.SIGINT, signal.SIGTERM, signal.SIGKILL)


@pytest.mark.parametrize(("before", "end"), matrix(BEFORE, ENDS), indirect=["before"])
def test_the_setting_comes_back(phone: Device, before: str, end: signal.Signals | None) -> None:
    with child(HOLD, phone.serial) as holder:
        wait_for(lambda: setting(phone) == HELD, "it is held")
        if end is None:
            leave(holder)
        else:
            holder.send_signal(end)
        holder.wait(60)
        wait_for(lambda: setting(phone) == before, "it is put back")


def test_the_last_of_two_puts_it_back(phone: Device, before: str) -> None:
    with awake(phone):
        with child(HOLD, phone.serial) as other:
            wait_for(lambda: len([name for name in entries(phone, AWAKE) if "-adt" in name]) == 2, "both")
            other.kill()
            other.wait(60)
            wait_for(lambda: len([name for name in entries(phone, AWAKE) if "-adt" in name]) == 1, "one")
        assert setting(phone) == HELD
    assert setting(phone) == before


AT_ONCE = """
cd /data/local/tmp
cat >settings <<'END'
#!/system/bin/sh
sleep 0.$((RANDOM % 8))
exec /adt/bin/settings "$@"
END
chmod 755 settings
PATH=$PWD:$PATH
for n in 1 2 3 4 5 6 7 8 9 11 12 13 14 15 16 17 18 19; do
  { sleep 0.$((n * 7 % 10)); echo bye; } | sh -c "$1" sh "$2" "adt$n" &
  sleep 0.1
done
wait
"""
"""Some who come and leave at the same moments, where reading and writing a setting takes a while."""


def test_many_at_once(phone: Device, before: str) -> None:
    phone.script(AT_ONCE, script("awake"), AWAKE)


def test_a_holder_who_was_lost_does_not_change_what_comes_back(phone: Device, before: str) -> None:
    """Start the device again: the setting and its former value outlive that, the shell does not."""
    phone.script('mkdir -p "$1"; echo "$2" >"$1/before"', AWAKE, before)
    change(phone, "put", HELD)
    with awake(phone):
        assert setting(phone) == HELD


def test_a_linux_is_left_alone(phone: Device, before: str) -> None:
    without = f"PATH=/system/bin\n{script('awake')}"
    with phone.start(("sh", "-c", without, "sh", AWAKE, "adt0"), timeout=60, keep_stdin=True) as holder:
        output = holder.output()
        assert next(output)[1].startswith(AWAKE.encode())
        assert setting(phone) == before
        holder.write(b"bye\n")
        assert list(output) == [] and holder.exit_code == 0


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    adt.build_target(platform="host")
    top = tmp_path_factory.mktemp("package")
    return adt.compile(small_model(top / "small.onnx"), out=top / "package", platform="host").path


@pytest.mark.parametrize(
    ("before", "end"), matrix(BEFORE, (None, signal.SIGINT, signal.SIGKILL)), indirect=["before"]
)
def test_bench_holds_it(phone: Device, before: str, package: Path, end: signal.Signals | None) -> None:
    words = ("bench", package, "--serial", phone.serial, "--no-record")
    with subprocess.Popen(
        [str(ADT), *map(str, words)], env=os.environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as running:
        wait_for(lambda: setting(phone) == HELD or running.poll() is not None, "it is held")
        assert running.poll() is None
        if end:
            running.send_signal(end)
        assert (running.wait(120) == 0) == (end is None)


@pytest.mark.parametrize(("before", "killed"), matrix(BEFORE, (False, True)), indirect=["before"])
def test_a_server_holds_it(phone: Device, before: str, package: Path, killed: bool) -> None:
    span = free_span(20)
    server = adt.rpc_start(serial=phone.serial, use_tracker=False, port=span, port_end=span + 19)
    try:
        assert setting(phone) == HELD
        if killed:
            os.kill(server.pid, signal.SIGKILL)
            wait_for(lambda: setting(phone) == before, "it is put back")
    finally:
        adt.rpc_stop(serial=phone.serial)
    wait_for(lambda: setting(phone) == before, "it is put back")
