"""A device that stops in the midst of it, its connection whole: what is said, and that one ctrl-C ends any verb."""

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import adt
from adt.compiler.networks.builder import Network
from adt.device.device import Device
from adt.device.transport.deadline import LEAVING, SHORT, STALL
from adt.errors import INTERRUPTED, DeviceError, PackageError, RpcError
from adt.tuning.database.store import open_database
from adt.virtual import emulator
from support.devices import faulty
from support.devices.fixtures import NATIVE, Rack
from support.devices.ports import own_rpc_ports
from support.devices.programs import ADT, invoke, invoke_json
from support.devices.remains import soon_nothing
from support.standins.artefacts import native_bundle as make_bundle
from support.standins.artefacts import native_package as make_package
from support.waiting import wait_for

PATIENCE = 15.0
"""Seconds in which a program ends that was told to, on a busy machine. No device that has stalled is given up
so soon: what ends in it did not wait for one."""
pytestmark = pytest.mark.flaky(
    reruns=1, reason="limits of seconds on the clock are tested, which a busy machine may take for itself"
)


@pytest.fixture(scope="module")
def phone(native_rack: Rack) -> Iterator[Device]:
    assert LEAVING < PATIENCE < SHORT < STALL
    with own_rpc_ports():
        yield native_rack.start("phone", faults=[])


@pytest.fixture
def device(phone: Device) -> Iterator[Device]:
    """Yield the device; once it answers again, nothing of what was under way is left on it or here."""
    yield phone
    faulty.set_faults("phone", [])
    adt.rpc_stop(all=True)
    adt.tracker_stop()
    soon_nothing(phone)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    net = Network((1, 8, 8, 8))
    x = net.relu(net.conv("x", 8))
    return net.save(tmp_path_factory.mktemp("network") / "small.onnx", net.classifier(x, 4), (1, 4))


@pytest.fixture(scope="module")
def package(phone: Device, model: Path) -> Path:
    adt.build_target(platform=NATIVE.linux_platform)
    out = model.with_name("package")
    invoke_json("compile", model, "--for", NATIVE.linux_platform, "-o", out)
    invoke_json("run", out, "--serial", phone.serial)
    invoke_json("deploy", "--no-rpc", "--serial", phone.serial)
    return out


@dataclass
class Verb:
    """`adt` under way, and what it says."""

    process: subprocess.Popen[str]
    errors: list[str] = field(default_factory=list)
    began: int = 0
    """Length of the device's log at the start."""

    def stalls(self) -> None:
        """Wait until the device has."""
        wait_for(lambda: "stalls after" in device_log().read_text()[self.began :], "the device stalls")
        assert self.process.poll() is None

    def says(self, words: str) -> None:
        """Wait until it has said *words* on stderr."""
        wait_for(lambda: words in "".join(self.errors), f"it says {words!r}")

    def interrupt(self) -> None:
        """End the verb by one ctrl-C while the device still does not answer."""
        self.process.send_signal(signal.SIGINT)
        try:
            assert self.process.wait(PATIENCE) == INTERRUPTED
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)  # faulthandler tells where it waits
            self.process.wait()
            time.sleep(1)
            raise AssertionError("".join(self.errors)) from None
        assert faulty.armed_faults("phone"), "the device has not come back"


def device_log() -> Path:
    return next(info.log for info in emulator.listing() if info.name == "phone")


@contextlib.contextmanager
def verb(*words: object, stall: str | None) -> Iterator[Verb]:
    """Run `adt` with *words* on a phone that stalls after *stall* bytes; None: not yet."""
    began = len(device_log().read_text())
    if stall is not None:
        faulty.set_faults("phone", [f"stall-after={stall}"])
    with subprocess.Popen(
        [str(ADT), *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONFAULTHANDLER": "1"},
    ) as process:
        running = Verb(process, began=began)
        assert process.stderr is not None
        reader = threading.Thread(target=running.errors.extend, args=(process.stderr,))
        reader.start()
        try:
            yield running
        finally:
            process.kill()
            reader.join()


def interrupted_document(running: Verb) -> None:
    assert running.process.stdout is not None
    document = json.loads(running.process.stdout.read())
    assert (document["error"], document["exit_code"]) == ("Interrupted", INTERRUPTED)


@pytest.mark.parametrize("stall", ["0", "3k", "3m"], ids=["at first", "while it looks", "while it sends"])
def test_a_stalled_deploy_says_so_and_ends_at_once(device: Device, tmp_path: Path, stall: str) -> None:
    bundle = make_bundle(tmp_path / "bundle", {"lib/large.so": os.urandom(8_000_000)})
    package = make_package(tmp_path / "package")
    words = ("deploy", package.path, "--bundle", bundle.path, "--no-rpc", "--serial", device.serial)
    with verb(*words, "--json", stall=stall) as running:
        running.stalls()
        if stall == "0":  # while it sends, two devices say so below
            running.says("5 s so far")
            assert device.serial in "".join(running.errors)
        running.interrupt()
        interrupted_document(running)


def test_two_stalled_deploys_end_at_once(device: Device, tmp_path: Path, native_rack: Rack) -> None:
    bundle = make_bundle(tmp_path / "bundle", {"lib/large.so": os.urandom(8_000_000)})
    other = native_rack.start("other")
    words = ("deploy", make_package(tmp_path / "package").path, "--bundle", bundle.path, "--no-rpc")
    with verb(*words, "--serial", f"{device.serial},{other.serial}", stall="3m") as running:
        running.stalls()
        running.says(f"{device.serial}: ")
        running.says("no byte for 5 s")
        running.interrupt()
    native_rack.stop("other")


def test_a_time_limit_holds_for_every_step(device: Device, tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "bundle", {"lib/large.so": os.urandom(8_000_000)})
    package = make_package(tmp_path / "package")
    words = ("deploy", package.path, "--bundle", bundle.path, "--no-rpc", "--serial", device.serial)
    for stall, doing in (("0", "running a shell script on"), ("3m", "deploying toy to")):
        faulty.set_faults("phone", [f"stall-after={stall}"])
        done = invoke(*words, "--timeout", 6)
        assert done.returncode == DeviceError.exit_code, done.stderr
        assert (
            f"error: {doing} {device.serial} took longer than 6 s; no byte came for the last" in done.stderr
        )
        assert "--timeout" in done.stderr.partition("remedy: ")[2]
        faulty.set_faults("phone", [])
    assert invoke(*words, "--timeout", 300).returncode == 0, "the remedy"


PACKAGE = "PACKAGE"
"""Word that stands for the package."""


@pytest.mark.parametrize(
    ("words", "stall"),
    [
        (("run", PACKAGE), "4k"),
        (("verify", PACKAGE), "6k"),
        (("profile", PACKAGE), "6k"),
        (("run", PACKAGE, "--via", "rpc"), "5k"),
        (("run", PACKAGE, "--via", "rpc"), "9k"),
        *((("rpc", "start", "--no-tracker"), stall) for stall in ("3k", "4500", "5k")),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else value,
)
def test_one_ctrl_c_ends_what_works_with_a_device(
    device: Device, package: Path, words: tuple[str, ...], stall: str
) -> None:
    given = [package if word == PACKAGE else word for word in words]
    with verb(*given, "--serial", device.serial, "--json", stall=stall) as running:
        running.stalls()
        running.interrupt()
        interrupted_document(running)


@pytest.mark.usefixtures("package")
def test_a_session_ends_though_the_server_has_stalled(device: Device) -> None:
    invoke_json("rpc", "start", "--serial", device.serial)
    with (
        pytest.raises(RpcError, match="time limit of 2 s"),
        adt.rpc_session(key=NATIVE.linux_platform, timeout=2) as remote,
    ):
        faulty.set_faults("phone", ["stall-after=0"])
        remote.cpu(0).sync()
    faulty.set_faults("phone", [])
    with pytest.raises(KeyboardInterrupt), adt.rpc_session(key=NATIVE.linux_platform, timeout=None) as remote:
        faulty.set_faults("phone", ["stall-after=0"])
        raise KeyboardInterrupt
    assert faulty.armed_faults("phone"), "the device has not come back"


def has_records(directory: Path) -> bool:
    with contextlib.suppress(PackageError), open_database(directory) as database:
        return bool(database.records())
    return False


def test_one_ctrl_c_ends_a_tuning(device: Device, package: Path, model: Path, tmp_path: Path) -> None:
    words = ("--trials", 500, "--tuner", "random", "--db", tmp_path / "db", "--serial", device.serial)
    with verb("tune", model, "--for", NATIVE.linux_platform, *words, stall=None) as running:
        wait_for(lambda: has_records(tmp_path / "db"), "it measures", 300)
        faulty.set_faults("phone", ["stall-after=0"])
        running.stalls()
        running.interrupt()
