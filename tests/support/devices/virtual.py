"""Virtual devices with a plain adb, for the tests of the virtual device itself.

Import the fixtures by name; `places` works for the whole module that has it.
"""

import contextlib
import hashlib
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from adt.errors import EmulatorError
from adt.host import cache
from adt.virtual import emulator
from adt.virtual.emulator import EmulatorInfo
from support.devices.fixtures import adb_program
from support.devices.ports import answering, free_port

TMP = "/data/local/tmp"


@dataclass
class Adb:
    """A real adb with a server and a HOME of its own."""

    home: Path
    port: int = field(default_factory=free_port)

    @property
    def env(self) -> dict[str, str]:
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("ADB", "ANDROID"))}
        return clean | {"HOME": str(self.home), "ANDROID_ADB_SERVER_PORT": str(self.port), "ADB_MDNS": "0"}

    def argv(self, *words: str | Path, serial: str = "") -> list[str]:
        return [str(adb_program("adbutils")), *(["-s", serial] if serial else []), *map(str, words)]

    def __call__(
        self,
        *words: str | Path,
        serial: str = "",
        rc: int | None = 0,
        text: str | None = None,
        timeout: float = 300,
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self.argv(*words, serial=serial),
            env=self.env,
            input=text,
            stdin=subprocess.DEVNULL if text is None else None,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        assert rc is None or done.returncode == rc, f"{words}: {done}"
        return done


@dataclass
class Phone:
    """A connected virtual device."""

    adb: Adb
    info: EmulatorInfo

    def __call__(self, *words: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
        return self.adb(*words, serial=self.info.serial, **options)  # type: ignore[arg-type]

    def shell(self, command: str) -> str:
        return self("shell", command).stdout


@pytest.fixture(scope="module", autouse=True)
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Set HOME and state to own directories; the cache stays where it is, for the userland in it."""
    base = tmp_path_factory.mktemp("virtual")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ADT_CACHE_DIR", str(cache.cache_dir()))
        patch.setenv("XDG_STATE_HOME", str(base / "state"))
        patch.setenv("HOME", str(base))
        yield base
        for info in emulator.listing():
            emulator.stop(info.name)


@pytest.fixture(scope="module")
def adb(places: Path) -> Iterator[Adb]:
    own = Adb(places)
    own("start-server")
    yield own
    own("kill-server")


@pytest.fixture(scope="module")
def connect(adb: Adb) -> Iterator[Callable[..., Phone]]:
    """Start a device and connect to it."""
    started: list[Phone] = []

    def start(name: str, *, boot: Callable[..., EmulatorInfo] = emulator.start, **options: object) -> Phone:
        info = boot(name, **options)
        assert "connected to" in adb("connect", info.serial).stdout
        adb("wait-for-device", serial=info.serial)
        started.append(Phone(adb, info))
        return started[-1]

    yield start
    for phone in started:
        adb("disconnect", phone.info.serial, rc=None)
        with contextlib.suppress(EmulatorError):
            emulator.stop(phone.info.name)


@pytest.fixture(scope="module")
def phone(connect: Callable[..., Phone]) -> Phone:
    return connect("main")


def pids_inside(info: EmulatorInfo) -> list[int]:
    """Return every process of this machine in the pid namespace of the device."""
    return pids_in_namespace(pid_namespace(info))


def pid_namespace(info: EmulatorInfo) -> Path:
    return Path(f"/proc/{info.pid}/ns/pid").readlink()


def pids_in_namespace(space: Path) -> list[int]:
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if (entry / "ns/pid").readlink() == space:
                    pids.append(int(entry.name))
    return pids


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def echo_server() -> contextlib.AbstractContextManager[int]:
    """Start a TCP server on this machine that answers ``echo:`` and what it got."""
    return answering(lambda plug: b"echo:" + plug.recv(100))


def ask(port: int, question: bytes, length: int) -> bytes:
    """Send *question* to a port of this machine and read *length* bytes of the answer, or to its end."""
    with socket.create_connection(("127.0.0.1", port), timeout=120) as plug:
        plug.sendall(question)
        answer = b""
        while len(answer) < length and (data := plug.recv(1 << 16)):
            answer += data
    return answer
