"""The flows of TVM's tutorials, over our tracker and servers on virtual devices; and everything that goes wrong."""

import contextlib
import itertools
import os
import random
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import adt
from adt.bundle.bundle import TargetBundle
from adt.checkup import rpc as sockets
from adt.device import selection
from adt.device.deploy.payload import user_directory
from adt.device.deploy.store import Deployment, deploy
from adt.device.device import Device
from adt.device.transport import adb, forwards
from adt.device.transport.forwards import Forward
from adt.errors import AdtError, NoDevice, RpcError, TrackerError
from adt.host import process
from adt.host.process import run
from adt.rpc import instance, server, session, state, wire
from adt.rpc.server import ServerStatus
from support.devices import faulty
from support.devices.fixtures import NATIVE, Rack, child, entries, processes
from support.devices.ports import free_port, free_span, own_rpc_ports
from support.devices.programs import ADT, adt_json, command_lines, invoke, invoke_json
from support.devices.programs import adt as run_adt
from support.models.kernels import add_one, compile_add_one
from support.waiting import wait_for


@pytest.fixture(scope="module")
def library(native_bundle: TargetBundle, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("lib") / "add_one.so"
    return compile_add_one(out, platform=NATIVE.linux_platform, bundle=native_bundle.path)


@dataclass(frozen=True)
class Site:
    """Two devices and ports of our own."""

    one: Device
    two: Device
    bundle: Path
    deployment: Deployment
    """Deployment of the bundle on the first device."""

    def start(self, device: Device, key: str = "phone", **options: Any) -> server.RpcServer:
        return adt.rpc_start(serial=device.serial, key=key, bundle=self.bundle, **options)

    def serve(self) -> server.RpcServer:
        """Return the first device's server, that of an earlier test if it did not die more than once."""
        running = [status for status in adt.rpc_status().servers if status.serial == self.one.serial]
        if running and running[0].restarts > 1:
            adt.rpc_stop(serial=self.one.serial)
        return server.start(self.one, self.deployment, key="phone")

    def check_stop(self) -> None:
        """Stop every server as a user would; nothing but the tracker is left."""
        adt.rpc_stop(all=True)
        assert [row for row in ours() if "adt.rpc.tracker" not in row] == []
        for device in (self.one, self.two):
            assert there(device) == []
            assert forwards.listed(device.serial) == {}
            assert forwards.listed(device.serial, reverse=True) == {}
        left = [
            path for path in state.rpc_directory().rglob("*") if path.is_file() and path.suffix != ".lock"
        ]
        assert [path for path in left if path.parent != state.tracker_home().directory] == []

    def check_tracker_stop(self) -> None:
        """Stop the tracker; nothing of it is left."""
        adt.tracker_stop()
        assert ours() == []
        left = [path.name for path in state.rpc_directory().rglob("*") if path.is_file()]
        assert [name for name in left if not name.endswith(".lock")] == []


@pytest.fixture(scope="module")
def racked(native_rack: Rack, native_bundle: TargetBundle) -> Iterator[Site]:
    with own_rpc_ports(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "CONNECT_SECONDS", 240.0)  # of a slow machine under load, too
        first = native_rack.start("one", faults=[])
        deployment = deploy(first, native_bundle, None).deployment
        site = Site(first, native_rack.start("two"), native_bundle.path, deployment)
        yield site
        site.check_stop()
        site.check_tracker_stop()


def ours() -> list[str]:
    """Return this machine's processes that belong to RPC, by what they were started with."""
    return [f"{pid}: {line}" for pid, line in command_lines(str(state.rpc_directory())).items()]


def there(device: Device) -> list[str]:
    """Return servers, their wrappers and directories on a device."""
    running = [row for row in processes(device) if "tvm_rpc" in row or "wrapper" in row]
    return running + entries(device, f"{user_directory()}/rpc")


@pytest.fixture
def site(racked: Site) -> Iterator[Site]:
    """Yield a site without a server, before and after; a tracker may run throughout."""
    if adt.rpc_status().servers:
        racked.check_stop()
    yield racked
    racked.check_stop()


@pytest.fixture
def shared(racked: Site) -> Iterator[Site]:
    """Yield a site with a server on the first device, which serves after the test, too."""
    racked.serve()
    yield racked
    wait_for(lambda: status_of(racked.one).state == "ready", "the next test has a server")


def check_session(library: Path) -> None:
    """Use the kernel in a session with a device of the key phone."""
    with adt.rpc_session(key="phone") as remote:
        add_one(remote, library)


def status_of(device: Device) -> ServerStatus:
    return next(status for status in adt.rpc_status().servers if status.serial == device.serial)


def restarted(device: Device) -> Callable[[], bool]:
    """Return a check that the server serves, and was started again since this call."""
    before = status_of(device).restarts

    def ask() -> bool:
        now = status_of(device)
        return now.state == "ready" and now.restarts > before

    return ask


# the tutorials' flows -----------------------------------------------------------------------------


def test_add_one_over_tracker_and_server(site: Site, library: Path) -> None:
    done = run_adt("rpc", "start", "--serial", site.one.serial, "--key", "phone", "--bundle", site.bundle)
    assert done.returncode == 0, done.stderr
    words = dict(word.split("=") for word in done.stdout.removeprefix("ready: ").split())
    assert words["key"] == "phone" and words["serial"] == site.one.serial
    assert wire.summary(words["tracker"]).queue("phone") == wire.Queue("phone", 1, 1, 0)
    with adt.rpc_session(key="phone", timeout=300) as remote:
        add_one(remote, library)
        during = invoke_json("rpc", "status")
        assert during["tracker"]["queues"] == [{"key": "phone", "total": 1, "free": 0, "pending": 0}]
        assert [(status["serial"], status["state"]) for status in during["servers"]] == [
            (site.one.serial, "ready")
        ]
    wait_for(lambda: wire.summary(words["tracker"]).queue("phone").free == 1, "the device is free again")
    with adt.rpc_session(key="phone", tracker=words["tracker"]) as remote:
        add_one(remote, library)
    table = invoke("rpc", "status").stdout
    assert "key    total  free  pending" in table and "phone  1" in table


def test_add_one_over_a_direct_connection(site: Site, library: Path) -> None:
    site.check_tracker_stop()
    started = site.start(site.one, use_tracker=False)
    assert started.tracker == "" and not adt.tracker_status().running
    with adt.rpc_session(key="phone", address=started.address) as remote:
        add_one(remote, library)
    with pytest.raises(RpcError, match="does not take a client with the key"):
        adt.rpc_session(key="wrong-key", address=started.address).__enter__()


def test_two_devices_under_one_key_serve_in_parallel_on_the_loopback_alone(site: Site, library: Path) -> None:
    started = [site.start(site.one), site.start(site.two)]
    assert len({status.port for status in started}) == 2 and len({status.tracker for status in started}) == 1
    assert adt.rpc_status().tracker.summary.queue("phone") == wire.Queue("phone", 2, 2, 0)
    both = threading.Barrier(2, timeout=240)

    def work() -> None:
        with adt.rpc_session(key="phone", timeout=300) as remote:
            both.wait()  # only reached by two when both have a device at the same time
            add_one(remote, library)
            both.wait()

    with ThreadPoolExecutor(2) as pool:
        for worker in [pool.submit(work) for _ in range(2)]:
            worker.result()
    check_listeners([site.one, site.two])


def check_listeners(devices: list[Device]) -> None:
    """Check that a tracker and a server for each device listen on the loopback only."""
    pids = {int(row.partition(":")[0]) for row in ours()}
    assert len(pids) == 1 + len(devices), "a tracker and the watchdogs"
    inodes = set()
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                inodes.add(str(link.readlink()))
    tables = [Path(f"/proc/net/{name}").read_text() for name in ("tcp", "tcp6")]
    everything = [listener for table in tables for listener in sockets.parse_listeners(table)]
    mine = [listener for listener in everything if f"socket:[{listener.inode}]" in inodes]
    assert len(mine) == 1, "the tracker's own"
    carried = {port for device in devices for port in forwards.listed(device.serial)}
    assert len(carried) == len(devices)
    mine += [listener for listener in everything if listener.port in carried]
    assert len(mine) == 1 + len(devices) and all(listener.loopback for listener in mine)
    for device in devices:
        heard = sockets.parse_listeners(device.shell(["cat", "/proc/net/tcp"]).out)
        assert heard and all(listener.loopback for listener in heard)


def test_what_runs_already_stays(site: Site) -> None:
    site.check_tracker_stop()
    first = adt_json("tracker", "start")
    assert not first["already"]
    again = invoke_json("tracker", "start")
    assert again["already"] and (again["pid"], again["address"]) == (first["pid"], first["address"])
    started = site.start(site.one)
    assert started.tracker == first["address"]
    two = site.start(site.one)
    assert two.already and (two.pid, two.address) == (started.pid, started.address)
    other = site.start(site.one, key="tablet")
    assert not other.already and other.pid != started.pid
    assert [queue.key for queue in wire.summary(other.tracker).queues] == ["tablet"]


# faults -------------------------------------------------------------------------------------------


def test_a_killed_server_comes_back_and_says_why_it_died(shared: Site, library: Path) -> None:
    came_back = restarted(shared.one)
    shared.one.shell(["kill", "-9", str(status_of(shared.one).device_pid)])
    wait_for(came_back, "it was started again")
    assert "SIGKILL" in status_of(shared.one).last_error
    assert len([row for row in there(shared.one) if "tvm_rpc server" in row and "qemu" not in row]) <= 2
    check_session(library)


def test_a_server_that_dies_in_a_session_is_an_error_that_says_so(shared: Site, library: Path) -> None:
    came_back = restarted(shared.one)
    with (
        pytest.raises(RpcError, match=r"ended during the session: .*SIGKILL"),
        adt.rpc_session(key="phone") as remote,
    ):
        add_one(remote, library)
        kill_servers(shared.one)
        add_one(remote, library)
    wait_for(came_back, "it was started again")
    check_session(library)


def kill_servers(device: Device) -> None:
    """Kill tvm_rpc with everything that it has forked."""
    device.script(
        'for p in /proc/[0-9]*; do case $(tr "\\0" " " <$p/cmdline 2>/dev/null) in '
        '*"bin/tvm_rpc server"*"--work-dir"*) case $(tr "\\0" " " <$p/cmdline) in *wrapper*) ;; '
        "*) kill -9 ${p#/proc/};; esac;; esac; done",
        check=False,
    )


@pytest.mark.usefixtures("shared")
def test_the_time_limit_of_a_session_is_named(library: Path) -> None:
    with (
        pytest.raises(RpcError, match="time limit of 2 s"),
        adt.rpc_session(key="phone", timeout=2) as remote,
    ):
        end = time.monotonic() + 30
        while time.monotonic() < end:
            add_one(remote, library)


@pytest.mark.usefixtures("shared")
def test_an_error_of_the_program_in_a_session_is_its_own() -> None:
    with pytest.raises(ValueError, match="mine"), adt.rpc_session(key="phone"):
        raise ValueError("mine")
    with pytest.raises(Exception, match=r"nothing\.so") as caught, adt.rpc_session(key="phone") as remote:
        remote.load_module("nothing.so")
    assert not isinstance(caught.value, RpcError)


def test_stop_removes_what_a_killed_watchdog_left_through_the_adb_server_of_the_start(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = site.start(site.one)
    os.kill(started.pid, signal.SIGKILL)
    wait_for(lambda: process.start_time(started.pid) is None, "the watchdog is gone")
    assert status_of(site.one).state == "lost"
    assert started.port in forwards.listed(site.one.serial)
    with monkeypatch.context() as patch:
        patch.setenv("ANDROID_ADB_SERVER_PORT", str(free_port()))
        assert adt.rpc_stop(serial=site.one.serial) == (site.one.serial,)
        assert not adb.server_listens()
    assert adt.rpc_stop(serial=site.one.serial) == ()
    # the fixture looks for what is left


def test_a_device_that_goes_is_waited_for(shared: Site, native_rack: Rack, library: Path) -> None:
    info = native_rack.kill("one")
    wait_for(lambda: status_of(shared.one).state == "waiting", "status says that it is gone")
    assert status_of(shared.one).last_error
    with pytest.raises(TrackerError, match="no device with the key phone; no device has registered"):
        adt.rpc_session(key="phone", wait=1).__enter__()
    native_rack.boot("one", faults=[], port=info.port)
    wait_for(lambda: status_of(shared.one).state == "ready", "it serves again")
    check_session(library)
    selection.select(shared.one.serial)


def test_ports_that_somebody_removed_come_back(shared: Site, library: Path) -> None:
    port, restarts = shared.serve().port, status_of(shared.one).restarts
    (reverse,) = forwards.listed(shared.one.serial, reverse=True)
    adb_program = adb.find_adb().path
    for verb in ("forward", "reverse"):
        run([adb_program, "-s", shared.one.serial, verb, "--remove-all"])
    wait_for(lambda: port in forwards.listed(shared.one.serial), "the forward is there again")
    wait_for(
        lambda: reverse in forwards.listed(shared.one.serial, reverse=True), "the reverse is there again"
    )
    check_session(library)
    assert status_of(shared.one).restarts == restarts


def test_a_registered_device_without_its_forward_is_unreachable(shared: Site) -> None:
    running = shared.serve()
    os.kill(running.pid, signal.SIGSTOP)  # so that it cannot mend
    try:
        forwards.end(shared.one.serial, Forward(running.port, running.port))
        with pytest.raises(RpcError, match="cannot be reached there") as caught:
            adt.rpc_session(key="phone").__enter__()
        assert f"adt rpc start --serial {shared.one.serial}" in caught.value.remedy
    finally:
        os.kill(running.pid, signal.SIGCONT)
    wait_for(lambda: running.port in forwards.listed(shared.one.serial), "the forward is there again")


def test_a_port_taken_on_the_device_is_passed_over(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    # No server of an earlier test was here, whose connections the device may still know.
    first = free_span(11)
    monkeypatch.setenv("ADT_RPC_PORT", str(first))
    monkeypatch.setenv("ADT_RPC_PORT_END", str(first + 10))
    with site.one.start(["nc", "-l", "-s", "127.0.0.1", "-p", str(first)], keep_stdin=True) as listener:
        threading.Thread(target=lambda: list(listener.output()), daemon=True).start()

        def listening() -> bool:
            table = site.one.shell(["cat", "/proc/net/tcp"]).out
            return any(heard.port == first for heard in sockets.parse_listeners(table))

        wait_for(listening, "it listens")
        port = site.start(site.one).port
        assert first < port <= first + 10
        assert list(forwards.listed(site.one.serial)) == [port]


def test_taken_tracker_ports_and_no_tracker(site: Site) -> None:
    site.check_tracker_stop()
    first = int(os.environ["ADT_RPC_TRACKER_PORT"])
    with socket.create_server(("127.0.0.1", first)):
        with pytest.raises(TrackerError, match=f"port {first} is in use"):
            adt.tracker_start(port=first, port_end=first)
        address = adt.tracker_start().address
        assert address == f"127.0.0.1:{first + 1}"
    site.check_tracker_stop()
    with pytest.raises(TrackerError, match="no tracker runs") as caught:
        adt.rpc_session(key="phone").__enter__()
    assert "adt rpc start" in caught.value.remedy
    with pytest.raises(TrackerError, match="no tracker runs at"):
        adt.rpc_session(key="phone", tracker=address).__enter__()


def test_garbage_and_half_frames_do_not_stop_the_tracker(shared: Site) -> None:
    tracker = shared.serve().tracker
    address = wire.parse_address(tracker)
    magic = struct.pack("<i", wire.TRACKER_MAGIC)
    rng = random.Random(7)
    held = []
    for piece in (
        b"\x00",
        b"GET / HTTP/1.1\r\n\r\n",
        magic[:2],
        magic + struct.pack("<i", -1),
        magic + struct.pack("<i", 1 << 30),
        magic + struct.pack("<i", 100) + b"[6",
        magic + struct.pack("<i", 4) + b"\xff\xfe\xfd\xfc",
        magic + struct.pack("<i", 2) + b"{}",
        magic + struct.pack("<i", 4) + b"[99]",
        *(rng.randbytes(rng.randrange(1, 5000)) for _ in range(40)),
    ):
        sock = socket.create_connection(address, timeout=60)
        sock.sendall(piece[:4])
        time.sleep(0.01)  # as frames of their own
        with contextlib.suppress(OSError):
            sock.sendall(piece[4:])
        held.append(sock)  # half of them stay open
        if len(held) % 2:
            sock.close()
    assert wire.summary(tracker).queue("phone") == wire.Queue("phone", 1, 1, 0)
    with adt.rpc_session(key="phone") as remote:
        assert remote.cpu(0) is not None
    for sock in held:
        sock.close()


@pytest.mark.usefixtures("shared")
def test_a_session_with_an_unknown_key_or_a_device_that_is_taken() -> None:
    with pytest.raises(TrackerError, match="no device with the key tablet; it has phone"):
        adt.rpc_session(key="tablet").__enter__()
    with (
        adt.rpc_session(key="phone"),
        pytest.raises(TrackerError, match="no device with the key phone bec"),
    ):
        adt.rpc_session(key="phone", wait=1).__enter__()


def test_a_tracker_that_was_killed_can_be_started_again(shared: Site, library: Path) -> None:
    address = shared.serve().tracker
    os.kill(adt.tracker_status().pid, signal.SIGKILL)
    wait_for(lambda: not adt.tracker_status().running, "it is gone")
    assert "died" in adt.tracker_status().error
    assert adt.tracker_start(port=wire.parse_address(address)[1]).address == address
    wait_for(lambda: wire.summary(address).queue("phone").free == 1, "the server registers again")
    check_session(library)


@pytest.mark.parametrize(
    ("number", "moment"),
    [
        (signal.SIGINT, 0.9),
        (signal.SIGKILL, 1.4),
        *(
            pytest.param(*moment, marks=pytest.mark.nightly)
            for moment in itertools.product((signal.SIGINT, signal.SIGKILL), (0.2, 0.4, 0.7, 2.0))
        ),
    ],
)
def test_a_start_that_is_ended_early_leaves_nothing(site: Site, number: int, moment: float) -> None:
    adt.tracker_start()
    words = ["rpc", "start", "--serial", site.one.serial, "--bundle", site.bundle]
    starter = subprocess.Popen([ADT, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(moment)
    starter.send_signal(number)
    starter.wait(300)
    if any(status.state == "ready" for status in adt.rpc_status().servers):
        return  # it was done before; the fixture stops it
    wait_for(lambda: [row for row in ours() if "watchdog" in row] == [], "the watchdog is gone")
    wait_for(lambda: there(site.one) == [], "nothing is on the device")
    assert forwards.listed(site.one.serial) == {} and forwards.listed(site.one.serial, reverse=True) == {}
    assert adt.rpc_status().servers == ()


def test_a_bundle_that_does_not_start_gives_its_last_words(site: Site) -> None:
    program = f"{site.deployment.directory}/bin/tvm_rpc"
    site.one.script(
        f'real=$(readlink {program}) && rm {program} && printf "#!/bin/sh\\n%s\\n" "$1" >{program} && '
        f'chmod 755 {program} && ln -s "$real" {program}.real',
        "echo CANNOT LINK EXECUTABLE >&2; exit 1",
    )
    try:
        with pytest.raises(RpcError, match="did not start: tvm_rpc ended with exit code 1: CANNOT LINK"):
            server.start(site.one, site.deployment, key="phone")
        assert adt.rpc_status().servers == ()
    finally:
        site.one.script(f"mv -f {program}.real {program}")


def test_what_scripts_read(site: Site) -> None:
    site.check_tracker_stop()
    document = adt_json("rpc", "status")
    assert document["schema"] == "adt.rpc-status" and document["servers"] == []
    assert not document["tracker"]["running"]
    assert invoke_json("rpc", "stop", "--all")["stopped"] == []
    assert invoke_json("tracker", "stop")["stopped"] is False
    serve = invoke_json("rpc", "serve", "--board", "pi@board", "--key", "rpi", "--bundle", site.bundle)
    copy, start = serve["commands"]
    assert copy.startswith("scp -r ") and "pi@board" in copy
    assert "--host=127.0.0.1" in start and " -R " in start and not serve["exposed"]
    with pytest.raises(NoDevice):
        adt.rpc_start(serial="nobody", bundle=site.bundle)
    assert adt.rpc_status().servers == ()


# kills -----------------------------------------------------------------------------------------


SESSION = """
import sys
import adt
from adt.rpc import session
session.CONNECT_SECONDS = 240.0
with adt.rpc_session(key="phone", timeout=300, wait=240) as remote:
    print("open", flush=True)
    while True:
        remote.upload(bytearray(100_000), "data")
        remote.cpu(0).sync()
        remote.remove("data")
"""


@pytest.mark.parametrize(
    "kills", [4, pytest.param(100, marks=[pytest.mark.nightly, pytest.mark.timeout(3600)])]
)
def test_kills_at_random_moments_of_sessions(shared: Site, library: Path, kills: int) -> None:
    """Kill any process at any moment: the next session works, and nothing is left (the fixture counts)."""
    rng = random.Random(20261121)
    address = shared.serve().tracker
    victims = ("client", "server", "watchdog", "wrapper")
    for victim in [*victims, *rng.choices(victims, k=kills - len(victims))]:
        with child(SESSION) as client:
            assert client.stdout is not None and client.stderr is not None
            assert client.stdout.readline() == "open\n", client.stderr.read()
            time.sleep(rng.random())
            status = status_of(shared.one)
            if victim == "client":
                client.kill()
            elif victim == "watchdog":
                os.kill(status.pid, signal.SIGKILL)
            elif victim == "server":
                shared.one.shell(["kill", "-9", str(status.device_pid)])
            else:
                record = state.read_server(state.server_home(shared.one.serial))
                assert record is not None
                shared.one.shell(["kill", "-9", str(record.there.pids[0])])
            if victim == "wrapper":  # nobody notices, and what it guarded goes on
                client.kill()
            client.wait(300)
        if victim == "watchdog":
            shared.serve()
        wait_for(lambda: wire.summary(address).queue("phone").free == 1, f"ready after {victim}")
        with adt.rpc_session(key="phone") as remote:
            add_one(remote, library)
        left = there(shared.one)
        assert len([name for name in left if "-adt" in name and "/" not in name]) == 1, left
    assert status_of(shared.one).state == "ready"


# a device that misbehaves ---------------------------------------------------------------------------


@pytest.fixture
def inject(racked: Site) -> Iterator[Callable[[str], None]]:
    """Let the first device misbehave; it does no more after the test."""
    yield lambda fault: faulty.set_faults("one", [fault])
    faulty.set_faults("one", [])
    settle(racked.one)


def settle(device: Device) -> None:
    """Wait for a device whose link is cut and made anew."""
    time.sleep(0.5)
    wait_for(lambda: instance.usable(device.serial) is not None, "the device is usable")


def test_a_device_that_restarts(shared: Site, inject: Callable[[str], None], library: Path) -> None:
    came_back = restarted(shared.one)
    inject("reboot-after=0@once")
    with contextlib.suppress(AdtError):
        shared.one.shell(["true"], timeout=30)
    wait_for(came_back, "it serves again")
    assert "connection" in status_of(shared.one).last_error
    check_session(library)


def test_a_link_that_is_cut_during_a_session(
    shared: Site, inject: Callable[[str], None], library: Path
) -> None:
    came_back = restarted(shared.one)
    with pytest.raises(RpcError, match="ended during the session"), adt.rpc_session(key="phone") as remote:
        add_one(remote, library)
        inject("drop-after=4k@once")
        for _ in range(50):
            add_one(remote, library)
    wait_for(came_back, "it serves again")
    check_session(library)


@pytest.mark.nightly  # waits for time limits
def test_a_device_that_hangs(
    site: Site, inject: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, library: Path
) -> None:
    monkeypatch.setattr(session, "CONNECT_SECONDS", 2.0)
    site.start(site.one)
    inject("stall-after=0")
    with pytest.raises(RpcError, match="did not answer within 2 s"):
        adt.rpc_session(key="phone").__enter__()
    wait_for(lambda: status_of(site.one).state == "waiting", "status says that it does not answer")
    faulty.set_faults("one", [])
    wait_for(lambda: status_of(site.one).state == "ready", "it answers again")
    check_session(library)
    inject("stall-after=0")
    assert adt.rpc_stop(serial=site.one.serial) == (site.one.serial,)
    assert ours() == [row for row in ours() if "tracker" in row]
    assert forwards.listed(site.one.serial) == {}
    faulty.set_faults("one", [])
    wait_for(lambda: there(site.one) == [], "the wrapper has noticed")
    for port in forwards.listed(site.one.serial, reverse=True):  # nobody could remove it while it hung
        forwards.end(site.one.serial, Forward(0, port, reverse=True))


def test_a_device_without_shell_v2(site: Site, inject: Callable[[str], None], library: Path) -> None:
    inject("no-shell-v2")
    serial = site.one.serial
    settle(site.one)
    wait_for(lambda: "shell_v2" not in selection.select(serial).features, "adb has noticed")
    old = selection.select(serial)
    started = site.start(old)
    check_session(library)
    came_back = restarted(old)
    kill_servers(old)
    wait_for(came_back, "it was started again")
    assert "SIGKILL" in status_of(old).last_error
    os.kill(started.pid, signal.SIGKILL)
    assert adt.rpc_stop(serial=old.serial) == (old.serial,)
    wait_for(lambda: there(old) == [], "nothing is on the device")
