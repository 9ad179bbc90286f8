"""Real devices for the tests: a real adb server of our own and virtual devices behind it.

Import the fixtures by name; nothing here touches the user's adb server, keys or state.
"""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from adt.checkup import rpc as sockets
from adt.device import selection
from adt.device.device import Device
from adt.device.transport import adb
from adt.host.cache import cache_dir
from adt.virtual import emulator
from adt.virtual.abis import ABIS
from support.devices import faulty
from support.devices.ports import free_port

DEBIAN_ADB = Path("/usr/bin/adb")
NATIVE = next(abi for abi in ABIS.values() if abi.native)
"""Processor of this machine: a device that has it needs no emulation, where each start of a program takes 25 ms."""


@dataclass
class Rack:
    """Virtual devices behind one adb server; all of it ends with the test module."""

    state: Path
    abi: str | None = None
    """Processor of devices that name none; None for arm64."""
    _names: list[str] = field(default_factory=list)

    def start(self, name: str, **options: Any) -> Device:
        """Start a virtual device as :meth:`boot` does (fresh unless it was started before) and connect it."""
        info = self.boot(name, **options)
        selection.connect(info.serial)
        return selection.select(info.serial)

    def start_with(self, name: str, programs: Mapping[str, str], workdir: Path) -> Device:
        """Start a virtual device in whose userland *programs*, scripts by name, stand in for Android's."""
        source = self.boot(f"{name}-plain").root
        userland = Path(shutil.copytree(source, workdir / f"{name}-userland", symlinks=True))
        for program, text in programs.items():
            path = userland / "system/bin" / program
            path.unlink(missing_ok=True)  # a link to toybox
            path.write_text(text)
            path.chmod(0o755)
        return self.start(name, rootfs=userland)

    def boot(
        self,
        name: str,
        *,
        data_size: str | None = None,
        faults: Sequence[str] | None = None,
        port: int | None = None,
        abi: str | None = None,
        rootfs: Path | None = None,
    ) -> emulator.EmulatorInfo:
        """Start a virtual device without connecting it: of the rack's processor, if *rootfs* is the default one.

        It has *faults* from the start, and takes others later; None for the product's own device.
        """
        if rootfs is None:
            abi = abi or self.abi
        start = emulator.start if faults is None else partial(faulty.start, faults=faults)
        info = start(name, port=port, data_size=data_size, abi=abi, rootfs=rootfs)
        if name not in self._names:
            self._names.append(name)
        return info

    def stop(self, name: str) -> None:
        """Stop it for good, and make the adb server forget it."""
        info = emulator.stop(name)
        self._names.remove(name)
        selection.disconnect(info.serial)

    def kill(self, name: str) -> emulator.EmulatorInfo:
        """Kill the device; its /data stays and adb notices by itself."""
        info = emulator.stop(name)
        self._names.remove(name)
        return info

    def stop_all(self) -> None:
        for name in list(self._names):
            self.stop(name)


@pytest.fixture(scope="module")
def rack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rack]:
    """Yield an empty rack with an adb server, HOME and state directory of its own."""
    with open_rack(tmp_path_factory.mktemp("home")) as opened_rack:
        yield opened_rack


@pytest.fixture(scope="module")
def native_rack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rack]:
    """Yield an empty rack whose devices have this machine's processor."""
    with open_rack(tmp_path_factory.mktemp("home"), abi=NATIVE.name) as opened:
        yield opened


@pytest.fixture(scope="module", params=["debian", "adbutils"])
def adb_rack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rack]:
    """Yield an empty native rack behind a server of each adb that people have."""
    program = adb_program(request.param)
    with open_rack(tmp_path_factory.mktemp("home"), program=program, abi=NATIVE.name) as opened:
        assert adb.find_adb().path.resolve() == program.resolve()
        yield opened


@contextlib.contextmanager
def open_rack(home: Path, *, program: Path | None = None, abi: str | None = None) -> Iterator[Rack]:
    """Yield an empty rack; *program* is the adb to use, else the one that adt finds, and *abi* the rack's."""
    cache = cache_dir()  # downloads are shared with other runs; everything else is ours
    with pytest.MonkeyPatch.context() as patch:
        for name in ("ADB_SERVER_SOCKET", "ANDROID_ADB_SERVER_ADDRESS", "ANDROID_SERIAL", "ADB_VENDOR_KEYS"):
            patch.delenv(name, raising=False)
        patch.setenv("ADT_CACHE_DIR", str(cache))
        patch.setenv("HOME", str(home))
        patch.setenv("XDG_STATE_HOME", str(home / "state"))
        patch.setenv("ANDROID_ADB_SERVER_PORT", str(free_port()))
        patch.setenv("ADB_MDNS", "0")
        if program is not None:
            patch.setenv("ADBUTILS_ADB_PATH", str(program))
        opened_rack = Rack(home / "state", abi)
        try:
            yield opened_rack
        finally:
            opened_rack.stop_all()
            subprocess.run([adb.find_adb().path, "kill-server"], check=False, capture_output=True)


def adb_program(name: str) -> Path:
    """Return Debian's adb, 29 in bookworm (``debian``), or the 36 of adbutils; fail if it is missing."""
    if name == "debian":
        if not DEBIAN_ADB.exists():
            pytest.fail(f"{DEBIAN_ADB} is missing: apt-get install adb")
        return DEBIAN_ADB
    import adbutils

    return Path(adbutils.__file__).parent / "binaries" / "adb"


def adb_server() -> int:
    port = adb.server_port()
    heard = sockets.parse_listeners(Path("/proc/net/tcp").read_text())
    (inode,) = [listener.inode for listener in heard if listener.port == port]
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if any(str(entry.readlink()) == f"socket:[{inode}]" for entry in (process / "fd").iterdir()):
                return int(process.name)
    raise AssertionError(f"nobody owns the socket on port {port}")


@pytest.fixture
def only(rack: Rack) -> Iterator[Callable[..., Device]]:
    """Start devices that are gone again after the test."""
    yield rack.start
    rack.stop_all()


def processes(device: Device) -> list[str]:
    """Return the command lines on the device, without our own ``ps``, its PID 1 and daemon."""
    rows = device.shell(["ps", "-A", "-o", "ARGS"]).out.splitlines()[1:]
    return [row.strip() for row in rows if " -o ARGS" not in row and "init.py" not in row]


ASK = """
rm -f /data/local/tmp/answer
{ n=0; while [ ! -s /data/local/tmp/answer ] && [ $((n += 1)) -lt 600 ]; do sleep 0.1; done; } |
  busybox nc 127.0.0.1 "$1" >/data/local/tmp/answer
cat /data/local/tmp/answer
"""


def ask(device: Device, port: int) -> str:
    """Return the bytes that a program on *device* reads from one of its ports.

    ADB has no half-close: a client whose input ends before the answer comes may lose the answer.
    """
    return device.script(ASK, str(port)).out


def entries(device: Device, directory: str) -> list[str]:
    return device.script('ls "$1" 2>/dev/null', directory, check=False).out.split()


@contextlib.contextmanager
def child(code: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run Python *code* in a process of its own (to be interrupted); it is gone afterwards."""
    import sys

    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()
