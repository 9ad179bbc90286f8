"""Several trackers and several users of one adb server: it outlives them all, and what is not theirs stays."""

import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import adt
from adt.device.device import Device
from adt.device.transport import adb, forwards
from adt.rpc import session
from adt.virtual.abis import ABIS, ARM64
from support.devices.fixtures import NATIVE, Rack, adb_program, adb_server, ask, open_rack, processes
from support.devices.ports import answering, free_span
from support.devices.programs import ADT, invoke

SPAN = 8
GREETING = b"hello from somebody else\n"


@dataclass(frozen=True)
class User:
    """Somebody with a HOME of their own."""

    home: Path

    def environment(self) -> dict[str, str]:
        """Return the environment without the test's own state directory."""
        variables = {name: value for name, value in os.environ.items() if name != "XDG_STATE_HOME"}
        return variables | {"HOME": str(self.home)}

    def begin(self, *words: object) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [ADT, *map(str, words)],
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: object, fails: bool = False) -> str:
        """Run the command line ``adt WORDS`` in this process, and return what it prints."""
        with pytest.MonkeyPatch.context() as patch:
            patch.delenv("XDG_STATE_HOME")
            patch.setenv("HOME", str(self.home))
            done = invoke(*words)
        assert (done.returncode != 0) == fails, done.stderr
        return done.stderr if fails else done.stdout

    def stop(self) -> None:
        self.run("rpc", "stop", "--all")
        self.run("tracker", "stop")


def finished(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    return out


def ready(out: str) -> dict[str, str]:
    """Return the words of the line in which a server is ready."""
    match = re.search(r"^ready: (.*)$", out, re.MULTILINE)
    assert match is not None, out
    return dict(word.split("=") for word in match[1].split())


@dataclass(frozen=True)
class Shared:
    """A device that others use, too."""

    device: Device
    ann: User
    ben: User
    others_forward: int
    others_reverse: int
    server: int
    """The adb server's pid at the beginning."""

    def check(self) -> None:
        """Check that the adb server is the same and that others' forwards work."""
        assert adb_server() == self.server
        serial = self.device.serial
        assert forwards.listed(serial)[self.others_forward] == "tcp:7000"
        assert self.others_reverse in forwards.listed(serial, reverse=True)
        assert ask(self.device, self.others_reverse) == GREETING.decode()

    def ours(self) -> tuple[set[int], set[int]]:
        """Return ports of forwards and reverses that are not the others'."""
        serial = self.device.serial
        there, back = forwards.listed(serial), forwards.listed(serial, reverse=True)
        return set(there) - {self.others_forward}, set(back) - {self.others_reverse}


@pytest.fixture(scope="module", params=["debian", "adbutils"])
def rack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rack]:
    """Yield a rack behind that program's server; with the newer one devices need no emulation."""
    abi = ARM64 if request.param == "debian" else NATIVE
    with open_rack(
        tmp_path_factory.mktemp("home"), program=adb_program(request.param), abi=abi.name
    ) as opened:
        yield opened


@pytest.fixture
def shared(rack: Rack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shared]:
    """Yield a device with a forward and a reverse of somebody else's, which alone are left in the end."""
    assert rack.abi
    adt.build_target(platform=ABIS[rack.abi].linux_platform)
    for name in ("ADT_RPC", "ADT_RPC_TRACKER"):
        first = free_span(SPAN)
        monkeypatch.setenv(f"{name}_PORT", str(first))
        monkeypatch.setenv(f"{name}_PORT_END", str(first + SPAN - 1))
    monkeypatch.setattr(session, "CONNECT_SECONDS", 240.0)  # of a slow machine under load, too
    device = rack.start("shared")
    users = [User(tmp_path / name) for name in ("ann", "ben")]
    for user in users:
        user.home.mkdir()
    with answering(lambda _: GREETING) as port:
        program = [str(adb.find_adb().path), "-s", device.serial]
        forward = subprocess.run(
            [*program, "forward", "tcp:0", "tcp:7000"], check=True, capture_output=True, text=True
        )
        reverse = free_span(1)
        subprocess.run([*program, "reverse", f"tcp:{reverse}", f"tcp:{port}"], check=True)
        shared = Shared(device, *users, int(forward.stdout), reverse, adb_server())
        shared.check()
        yield shared
        for user in users:
            user.stop()
        shared.check()
        assert shared.ours() == (set(), set())
        assert [row for row in processes(device) if "tvm_rpc" in row] == []
        for reverse in (False, True):
            for port in forwards.listed(device.serial, reverse=reverse):
                ends = (0, port) if reverse else (port, 0)
                forwards.end(device.serial, forwards.Forward(*ends, reverse=reverse))


def check_session(line: dict[str, str]) -> None:
    """Open a session through the tracker of that line."""
    with adt.rpc_session(key=line["key"], tracker=line["tracker"], timeout=300, wait=120) as remote:
        remote.upload(bytearray(b"data"), "file")
        remote.remove("file")


def test_a_tracker_after_another(shared: Shared) -> None:
    start = ("rpc", "start", "--serial", shared.device.serial, "--key", "phone")
    first = ready(shared.ann.run(*start))
    check_session(first)
    (before,) = shared.ours()[1]
    shared.ann.run("tracker", "stop")
    host, _, port = first["tracker"].rpartition(":")
    with socket.create_server((host, int(port))):  # so that the next one is elsewhere
        shared.ann.run("tracker", "start")
        second = ready(shared.ann.run(*start))
    assert second["tracker"] != first["tracker"]
    check_session(second)
    (after,) = shared.ours()[1]
    for port in {before, after}:  # adb's server once ended of such a connection
        shared.device.script('busybox nc 127.0.0.1 "$1" </dev/null', str(port), check=False)
    shared.check()
    check_session(second)


def test_two_homes_at_once_leave_each_other_alone(shared: Shared) -> None:
    start = ("rpc", "start", "--serial", shared.device.serial)
    begun = [
        user.begin(*start, "--key", key) for user, key in ((shared.ann, "for-ann"), (shared.ben, "for-ben"))
    ]
    anns, bens = (ready(finished(process)) for process in begun)
    shared.check()
    assert anns["tracker"] != bens["tracker"] and anns["server"] != bens["server"]
    check_session(anns)
    check_session(bens)
    forward, reverse = shared.ours()
    assert len(forward) == len(reverse) == 2
    shared.ann.stop()
    shared.check()
    assert [len(ports) for ports in shared.ours()] == [1, 1]
    check_session(bens)
    # the port of another home is not taken over
    before = shared.ours()
    port = bens["server"].rpartition(":")[2]
    only = ("--port", port, "--port-end", port)
    (status,) = json.loads(shared.ben.run("rpc", "status", "--json"))["servers"]
    os.kill(status["pid"], signal.SIGSTOP)  # his watchdog would make again what the other removes
    try:
        output = shared.ann.run(*start, "--key", "for-ann", *only, fails=True)
        assert f"no port is free, {port} to {port}" in output
        assert shared.ours() == before, "what leads to the other's server stays"
        check_session(bens)
    finally:
        os.kill(status["pid"], signal.SIGCONT)
