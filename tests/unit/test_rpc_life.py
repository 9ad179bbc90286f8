"""Records, back-off, reasons and command lines of RPC, without a device and without TVM."""

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from adt.bundle.bundle import TargetBundle
from adt.device.scripts import script
from adt.errors import ConfigError, MismatchError, RpcError, TrackerError
from adt.host import process
from adt.options.sections import PortRange, RpcSettings
from adt.rpc import board, instance, relay, server, session, state, tracker, wire
from adt.rpc.instance import Death, Instance, ServerConfig
from adt.rpc.watchdog import Watchdog
from adt.rpc.wire import Answer
from support.devices.fixtures import child
from support.devices.ports import free_port
from support.devices.programs import write_program
from support.standins.artefacts import make_bundle
from support.standins.rpc_records import server_record
from support.waiting import wait_for


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


# records ------------------------------------------------------------------------------------------


def test_a_record_is_read_as_it_was_written() -> None:
    at = state.server_home("phone:1")
    assert state.read_server(at) is None and state.server_homes() == []
    state.write(server_record(), at)
    stored = state.read_server(at)
    assert stored is not None and replace(stored, since=0) == server_record(
        since=0, ready_since=stored.ready_since
    )
    assert state.server_homes() == [at]
    at.remove()
    assert state.server_homes() == []


def test_serials_that_look_alike_have_records_of_their_own() -> None:
    homes = {state.server_home(serial).directory for serial in ("a:1", "a_1", "a/1", "../a", "a b", "")}
    assert len(homes) == 6 and all(home.parent == state.rpc_directory() / "servers" for home in homes)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": "other"}'])
def test_an_unreadable_record_is_removed_and_no_error(text: str, caplog: pytest.LogCaptureFixture) -> None:
    at = state.tracker_home()
    at.directory.mkdir(parents=True)
    at.record.write_text(text)
    assert state.read_tracker(at) is None
    assert not at.record.exists() and "unreadable" in caplog.text
    assert not tracker.status().running


def test_a_recycled_pid_is_another_process() -> None:
    me = state.this_process()
    assert me.alive
    assert not replace(me, start_time=me.start_time + 1).alive
    assert not replace(me, boot="another").alive
    assert replace(me, boot="another").end(1), "of an earlier boot: it is gone, and we still live"


def test_status_tells_ready_lost_and_failed_apart() -> None:
    at = state.server_home("phone:1")
    dead_process = replace(state.this_process(), start_time=1)
    for changes, shown in (
        ({}, ("ready", 8)),
        ({"state": "restarting"}, ("restarting", 0)),
        ({"process": dead_process}, ("lost", 0)),
        ({"process": dead_process, "state": "failed", "last_error": "why"}, ("failed", 0)),
    ):
        state.write(server_record(**changes), at)
        (status,) = server.statuses()
        assert (status.state, status.device_pid) == shown
        assert (status.uptime > 0) == (shown[0] == "ready")
    assert status.last_error == "why"


# the tracker --------------------------------------------------------------------------------------


def test_the_tracker_binds_the_loopback_unless_exposed_and_warns(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bound = []

    def listen(ports: object, host: str) -> socket.socket:
        bound.append(host)
        raise TrackerError("enough", remedy="")

    monkeypatch.setattr(tracker, "listen", listen)
    for expose in (False, True):
        with pytest.raises(TrackerError, match="enough"):
            tracker.start(expose=expose)
        assert ("remote code execution" in caplog.text) == expose
    assert bound == ["127.0.0.1", "0.0.0.0"]


def test_the_next_free_port_is_taken_and_none_is_an_error() -> None:
    taken = free_port()
    in_use = pytest.raises(TrackerError, match=f"port {taken} is in use")
    with socket.create_server(("127.0.0.1", taken)), in_use:
        tracker.listen(PortRange(taken, taken), "127.0.0.1")
    with tracker.listen(PortRange(taken, taken), "127.0.0.1") as listening:
        assert listening.getsockname() == ("127.0.0.1", taken)


@pytest.mark.parametrize("ends", [(0, 4), (65530, 65539), (5, 4), (-1, -1)])
def test_what_are_no_ports(ends: tuple[int, int]) -> None:
    with pytest.raises(ConfigError, match="is not a range of ports"):
        PortRange(*ends)
    with pytest.raises(ConfigError, match="is not a range of ports"):
        _ = RpcSettings(port=ends[0], port_end=ends[1]).ports


def test_a_tracker_that_died_is_said_to_have_died() -> None:
    at = state.tracker_home()
    dead_process = replace(state.this_process(), start_time=1)
    state.write(state.TrackerRecord("127.0.0.1", 9190, dead_process, 0.0), at)
    status = tracker.status()
    assert not status.running and "died" in status.error and status.address == "127.0.0.1:9190"
    assert tracker.running() == ""
    assert not tracker.stop().running and not at.directory.exists()


# launching ----------------------------------------------------------------------------------------

CHILD = """
import os, signal, sys, time
from dataclasses import replace
from pathlib import Path
from adt.errors import RpcError
from adt.rpc import state
at = Path(sys.argv[1])
starter = state.Starter()
plan = starter.plan()
def stop(*_):
    (at / "ended").write_text("by SIGTERM")
    os._exit(0)
signal.signal(signal.SIGTERM, stop)
starter.watch()
print("chatter that must not be taken for an answer", flush=True)
(at / "pid").write_text(str(os.getpid()))
if plan["what"] == "fail":
    starter.failed(RpcError("it did not work", remedy="mend it", details="last words"))
elif plan["what"] == "die":
    print("the last words")
    sys.exit(3)
elif plan["what"] == "ready":
    starter.ready()
time.sleep(60)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "launched_by_test.py").write_text(CHILD)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    return "launched_by_test"


def test_a_launched_process_outlives_its_starter_once_committed(module: str) -> None:
    at = state.Home(state.rpc_directory() / "x", "server")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        state.launch(module, {"what": "ready"}, at, seconds=120, doing="starting it")
    assert [str(warning.message) for warning in warned] == []
    pid = int((at.directory / "pid").read_text())
    assert os.getpgid(pid) == pid, "of a session of its own: the terminal's end is not its end"
    time.sleep(0.2)
    assert not (at.directory / "ended").exists()
    os.kill(pid, signal.SIGTERM)
    wait_for(lambda: (at.directory / "ended").exists())
    assert "chatter" in at.log.read_text()
    wait_for(lambda: not Path(f"/proc/{pid}").exists(), "the process that launched it collects it")


def test_what_a_launched_process_reports_is_raised(module: str) -> None:
    at = state.Home(state.rpc_directory() / "x", "server")
    with pytest.raises(RpcError, match="it did not work") as caught:
        state.launch(module, {"what": "fail"}, at, seconds=120, doing="starting it")
    assert (caught.value.remedy, caught.value.details) == ("mend it", "last words")
    assert (at.directory / "ended").exists(), "it was not committed, so it ended"


def test_one_that_dies_gives_its_last_words(module: str) -> None:
    at = state.Home(state.rpc_directory() / "x", "server")
    with pytest.raises(RpcError, match="did not come up") as caught:
        state.launch(module, {"what": "die"}, at, seconds=120, doing="starting it")
    assert "the last words" in caught.value.details


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_without_its_starter_an_uncommitted_process_ends(module: str, number: int, tmp_path: Path) -> None:
    directory = tmp_path / "at"
    code = f"""
from dataclasses import replace
from pathlib import Path
from adt.rpc import state
state.launch({module!r}, {{"what": "wait"}}, state.Home(Path({str(directory)!r}), "server"), seconds=60, doing="starting it")
"""
    starter = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    wait_for(lambda: (directory / "pid").exists() and (directory / "pid").read_text() != "")
    starter.send_signal(number)
    starter.wait(120)
    wait_for(lambda: (directory / "ended").exists())


# the watchdog -------------------------------------------------------------------------------------


class Starter:
    def __init__(self) -> None:
        self.notices = 0

    def ready(self) -> None:
        self.notices += 1


PORTS = PortRange(9090, 9091)


def watchdog(ports: PortRange = PORTS, deployment: str = "/data/d") -> Watchdog:
    config = ServerConfig(
        "phone", "android", "127.0.0.1:9190", deployment, "/data/rpc", 5037, ports, "0" * 24
    )
    return Watchdog(config, state.server_home("phone"))


def one_life() -> Instance:
    dog = watchdog()
    return Instance(dog.config, dog._live, dog.stopping)


def rehearse(
    monkeypatch: pytest.MonkeyPatch,
    deaths: list[Death | Exception],
    ports: PortRange = PORTS,
    deployment: str = "/data/d",
) -> tuple[Watchdog, list[float], list[int]]:
    """Let one server after another die as *deaths* say (all but taken ports after having been ready)."""
    dog, pauses, tried = watchdog(ports, deployment), [], []
    lives = iter(deaths)

    def live(self: Instance, _device: object, port: int, starter: Any) -> Death:
        tried.append(port)
        death = next(lives, None)
        if death is None:
            dog.stop()
            return Death("we stop here")
        self.ready = not isinstance(death, Exception) and not death.port_taken and death.reason != "unready"
        if self.ready and starter:
            starter.ready()
        if isinstance(death, Exception):
            raise death
        return death

    monkeypatch.setattr(Instance, "live", live)
    monkeypatch.setattr(Watchdog, "_device", lambda *_, **__: None)
    monkeypatch.setattr(Watchdog, "_drop_forward", lambda _: None)
    monkeypatch.setattr(Watchdog, "_pause", lambda _, seconds: pauses.append(seconds))
    return dog, pauses, tried


def run(dog: Watchdog) -> Starter:
    starter = Starter()
    dog.run(starter)  # type: ignore[arg-type]
    return starter


def test_quick_deaths_double_the_pause_and_then_it_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    dog, pauses, tried = rehearse(monkeypatch, [Death("tvm_rpc was ended by SIGSEGV")] * 9)
    starter = run(dog)
    assert starter.notices == 1, "told once"
    assert pauses == [1, 2, 4, 8] and len(tried) == 5
    stored = state.read_server(state.server_home("phone"))
    assert stored is not None and stored.state == "failed"
    assert stored.last_error == "tvm_rpc was ended by SIGSEGV"


def test_pauses_have_an_upper_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adt.rpc.watchdog.QUICK_DEATHS", 9)
    dog, pauses, _ = rehearse(monkeypatch, [Death("x")] * 9)
    run(dog)
    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30]


def test_a_server_that_lived_long_starts_again_from_the_shortest_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("adt.rpc.watchdog.QUICK_SECONDS", 0.0)
    dog, pauses, _ = rehearse(monkeypatch, [Death("x")] * 7)
    run(dog)
    assert pauses[:7] == [1] * 7
    assert dog.record.restarts == 7


def test_a_lost_device_is_waited_for_and_is_no_quick_death(monkeypatch: pytest.MonkeyPatch) -> None:
    death = Death("the connection to the device was lost", device_lost=True)
    dog, pauses, tried = rehearse(monkeypatch, [*[death] * 20])
    run(dog)
    assert len(tried) == 21 and max(pauses[:20]) <= 2 and dog.record.state != "failed"


def test_taken_ports_are_passed_over_until_none_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = Death("port 9090 is in use on the device", port_taken=True)
    dog, _, tried = rehearse(monkeypatch, [taken, Death("x")], ports=PortRange(9090, 9092))
    run(dog)
    assert tried[:3] == [9090, 9091, 9091]
    dog, _, tried = rehearse(monkeypatch, [taken] * 3, ports=PortRange(9090, 9092))
    with pytest.raises(RpcError, match="no port is free, 9090 to 9092") as caught:
        run(dog)
    assert tried == [9090, 9091, 9092] and "--port" in caught.value.remedy


def test_a_first_server_that_never_gets_ready_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    dog, pauses, _ = rehearse(monkeypatch, [Death("unready")])
    with pytest.raises(RpcError, match="did not start: unready"):
        run(dog)
    assert pauses == []


def test_a_program_that_is_gone_is_not_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    dog, pauses, tried = rehearse(
        monkeypatch, [Death("x"), Death("tvm_rpc is no longer there", hopeless=True)]
    )
    run(dog)
    assert len(tried) == 2 and pauses == [1] and dog.record.state == "failed"


def test_the_reason_leaves_the_chatter_out() -> None:
    server = one_life()
    for line in (
        "[07:23:01] tvm/apps/cpp_rpc/main.cc:96: host        = 127.0.0.1",
        "[07:23:02] tvm/apps/cpp_rpc/rpc_server.cc:302: Warning: Mismatch key from127.0.0.1:50046",
        "terminate called after throwing an instance of 'tvm::ffi::Error'",
        "[07:23:03] tvm/x.cc:3: InternalError: Check failed: code == kReturn",
        "Killed",
    ):
        server._read(2, line.encode() + b"\n")
    assert server._reason(137) == (
        "tvm_rpc was ended by SIGKILL: terminate called after throwing an instance of 'tvm::ffi::Error' | "
        "[07:23:03] tvm/x.cc:3: InternalError: Check failed: code == kReturn"
    )


def test_what_the_server_says_is_read_in_pieces() -> None:
    server = one_life()
    for piece in (b"[07:23:01] x.cc:1: bind", b" to 127.0.0.1:90", b"90\n[07"):
        server._read(2, piece)
    server._read(1, b"wrapper 85 103 /data/local/tmp/adt/me/rpc/85-adt00\n")
    assert server._bound == 9090
    assert server.record.now.there.pids == (85, 103)
    assert server.record.now.there.directory == "/data/local/tmp/adt/me/rpc/85-adt00"
    server._read(2, b":1] y.cc:1: bind to 127.0.0.1:-1\n")
    assert server._bound == -1, "what TVM says when the port is taken"


def test_when_a_server_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    server = one_life()
    server.record.update(port=9090)
    mine = wire.Registered("android", "127.0.0.1:9090")

    def doubtful(servers: tuple[wire.Registered, ...], free: int, looked: float) -> bool:
        summary = wire.Summary((wire.Queue("android", len(servers), free, 0),), servers)
        monkeypatch.setattr(wire, "summary", lambda _: summary)
        server._looked = time.monotonic() - looked
        return server._doubtful()

    assert not doubtful((mine,), free=1, looked=999), "it offers itself: leave the device in peace"
    assert not doubtful((mine,), free=0, looked=1)
    assert doubtful((mine,), free=0, looked=999)
    assert doubtful((), free=0, looked=1), "it has not registered"
    server.config = replace(server.config, tracker="")
    assert not doubtful((), free=0, looked=1)
    assert doubtful((), free=0, looked=999), "nobody knows whether it is in use"


@pytest.mark.parametrize(
    ("looks", "last"), [((True, True), 2), ((True, False, True, True), 4), ((True,), 1)], ids=str
)
def test_a_server_counts_as_gone_at_the_second_look(
    monkeypatch: pytest.MonkeyPatch, looks: tuple[bool, ...], last: int
) -> None:
    """Look twice: the shell that ends what a server leaves knows why it ended, and says so between the two."""
    server, taken = one_life(), 0
    monkeypatch.setattr(instance, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(Instance, "_mend", lambda _: None)
    monkeypatch.setattr(Instance, "_doubtful", lambda _: True)

    def vanished(_: Instance) -> bool:
        nonlocal taken
        taken += 1
        if taken == len(looks) == 1:
            server.events.put(("end", 137))
        return looks[taken - 1]

    monkeypatch.setattr(Instance, "_vanished", vanished)
    death = server._stay()
    assert taken == last
    assert ("SIGKILL" if len(looks) == 1 else "tvm_rpc is gone") in death.reason


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        (None, None, range(9090, 9100)),
        (9095, None, range(9095, 9105)),
        (None, 9092, range(9090, 9093)),
        (20000, 20000, range(20000, 20001)),
        (65530, None, range(65530, 65536)),
    ],
)
def test_which_ports_are_tried(first: int | None, last: int | None, expected: range) -> None:
    chosen = PortRange(9090, 9099).chosen(first, last)
    assert [*chosen] == [*expected] and len(chosen) == len(expected) and expected[-1] in chosen
    assert chosen.insisted == ((first, last) != (None, None))


@pytest.mark.parametrize(
    ("code", "text"),
    [(137, "SIGKILL"), (139, "SIGSEGV"), (1, "exit code 1"), (96, "no longer"), (200, "signal 72")],
)
def test_exit_codes_for_people(code: int, text: str) -> None:
    assert text in instance.explain_exit(code)


def test_an_app_that_was_ready_is_started_again_however_often_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Start it again without counting: it ends with each client that disconnects. Count one that is not ready."""
    app = "com.example.rpc/android.app.NativeActivity"
    dog, pauses, tried = rehearse(monkeypatch, [Death("the app ended")] * 9, deployment=app)
    run(dog)
    assert pauses[:9] == [1] * 9 and len(tried) == 10
    dog, pauses, tried = rehearse(monkeypatch, [Death("x"), *[Death("unready")] * 9], deployment=app)
    run(dog)
    assert pauses == [1, 2, 4, 8] and len(tried) == 5
    stored = state.read_server(state.server_home("phone"))
    assert stored is not None and (stored.state, stored.app) == ("failed", "com.example.rpc")


@pytest.mark.parametrize("sig", [signal.SIGHUP, signal.SIGTERM, None], ids=["HUP", "TERM", "end of stdin"])
def test_a_second_signal_does_not_keep_a_wrapper_from_cleaning_up(
    tmp_path: Path, sig: signal.Signals | None
) -> None:
    write_program(tmp_path / "home/bin/tvm_rpc", "exec sleep 60")
    start = script("server_start").replace("leave() {\n", "leave() {\n  kill -TERM $$\n")
    assert start != script("server_start")
    argv = ["sh", "-c", start, "sh", str(tmp_path / "rpc"), "adt00", str(tmp_path / "home"), "1", "d"]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as running:
        assert running.stdin is not None and running.stdout is not None
        server = int(running.stdout.readline().split()[2])
        running.stdout.close()  # as when the connection is cut: what it says now finds a closed pipe
        if sig is None:
            running.stdin.close()
        else:
            running.send_signal(sig)
        assert running.wait(120) == 143
    assert list((tmp_path / "rpc").iterdir()) == []
    wait_for(lambda: process.start_time(server) is None)


def test_a_server_on_a_device_hears_its_own_loopback_only() -> None:
    words = board.arguments(key="k", port=9090, tracker="127.0.0.1:41000")
    assert words[:3] == ["--host=127.0.0.1", "--port=9090", "--port-end=9091"]
    assert "--tracker=127.0.0.1:41000" in words and "--custom-addr=127.0.0.1" in words
    assert not any("tracker" in word for word in board.arguments(key="k", port=1))


@pytest.mark.parametrize("key", ["", "two words", 'quo"te', "a:b", "a\\b", "ä", "x" * 65, "a\nb", "$(id)"])
def test_what_is_no_key(key: str) -> None:
    with pytest.raises(ConfigError, match="cannot be the key"):
        server.check_key(key)


# sessions -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "is_lost"),
    [
        ("Check failed: (code == RPCCode::kReturn) is false: code=kShutdown", True),
        (
            "Check failed: (HandleUntilReturnEvent(true, [](ffi::PackedArgs) {}) == RPCCode::kCopyAck) is false:",
            True,
        ),
        ("InternalError: Channel closes before we get needed bytes", True),
        ("Socket SockChannel::Recv Error:Connection reset by peer", True),
        ("SockChannel::Send Error:Broken pipe", True),
        ("Error caught from RPC call: cannot find nothing.so", False),
        ("shapes differ", False),
    ],
)
def test_which_errors_mean_that_the_server_is_gone(text: str, is_lost: bool) -> None:
    assert session.lost(RuntimeError(text)) is is_lost


def test_an_end_at_the_time_limit_is_the_limits() -> None:
    target = session.Target("127.0.0.1", 9090, "k:0.1", "k", "127.0.0.1:9190")
    error = session._ended(target, 9.9, 10, RuntimeError("kShutdown"))
    assert "time limit of 10 s" in error.what and "timeout=" in error.remedy


def test_an_end_before_that_is_explained_by_the_watchdog() -> None:
    state.write(
        server_record(last_error="tvm_rpc was ended by SIGSEGV", ready_since=time.time()),
        state.server_home("p"),
    )
    target = session.Target("127.0.0.1", 9090, "k:0.1", "android", "127.0.0.1:9190")
    error = session._ended(target, 3, 10, RuntimeError("first\nkShutdown"))
    assert "ended during the session: tvm_rpc was ended by SIGSEGV" in error.what
    assert error.details == "kShutdown"


def test_no_device_has_the_key() -> None:
    summary = wire.Summary((), (wire.Registered("tablet", "127.0.0.1:1"),))
    error = session._no_such_key("127.0.0.1:9190", "phone", summary)
    assert "it has tablet" in error.what and "adt rpc start" in error.remedy
    failed = server_record(
        key="phone", state="failed", process=replace(server_record().process, start_time=1)
    )
    state.write(replace(failed, last_error="SIGSEGV again"), state.server_home("p"))
    assert "SIGSEGV again" in session._no_such_key("127.0.0.1:9190", "phone", wire.Summary((), ())).details


# boards -------------------------------------------------------------------------------------------


def planned(directory: Path, tracker: str, *, expose: bool) -> board.ServePlan:
    bundle = make_bundle(directory, {board.PROGRAM: b""})
    return board.plan(bundle, board="pi@board", key="rpi", port=9095, tracker=tracker, expose=expose)


def test_a_board_is_reached_through_ssh_and_nothing_is_exposed(tmp_path: Path) -> None:
    plan = planned(tmp_path / "b b", "127.0.0.1:9190", expose=False)
    copy, start = map(shlex.split, plan.commands)
    assert copy == ["scp", "-r", str(tmp_path / "b b"), "pi@board:adt-rpc"]
    assert start[:6] == ["ssh", "-L", "9095:127.0.0.1:9095", "-R", "9190:127.0.0.1:9190", "pi@board"]
    there = shlex.split(start[6].replace("&&", ";").partition(";")[2])
    assert there[0].startswith("LD_LIBRARY_PATH=") and there[1:4] == ["exec", "bin/tvm_rpc", "server"]
    assert {"--host=127.0.0.1", "--tracker=127.0.0.1:9190", "--key=rpi", "--custom-addr=127.0.0.1"} <= set(
        there
    )
    assert "0.0.0.0" not in " ".join(plan.commands) and plan.address == "127.0.0.1:9095"


def test_an_exposed_board_listens_everywhere_and_needs_no_tunnel(tmp_path: Path) -> None:
    plan = planned(tmp_path, "10.0.0.5:9190", expose=True)
    assert "--host=0.0.0.0" in plan.argv and "--tracker=10.0.0.5:9190" in plan.argv
    assert not any(word.startswith("--custom-addr") for word in plan.argv)
    assert "-L" not in plan.commands[1] and plan.address == "board:9095" and plan.exposed


def test_a_bundle_without_a_server(tmp_path: Path) -> None:
    empty = make_bundle(tmp_path)
    with pytest.raises(RpcError, match="has no tvm_rpc"):
        board.plan(empty, board="b", key="k", port=1, tracker="", expose=False)


def test_a_bundle_for_another_machine_is_not_run(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path, {board.PROGRAM: b""})
    with pytest.raises(MismatchError, match="this machine is"):
        board.serve(TargetBundle(tmp_path, replace(bundle.manifest, machine="RISCV")), [])


SERVER = b"""#!/bin/sh
pwd >"$ADT_TEST_SAID"
printf "%s\\n" "$LD_LIBRARY_PATH" "$@" >>"$ADT_TEST_SAID"
sleep 60 &
echo child $! >>"$ADT_TEST_SAID"
wait
"""
"""Shows its arguments and waits, with a child that does, too."""
SERVE = """
import sys
from pathlib import Path
from adt.bundle.bundle import load_bundle
from adt.rpc import board
with board.run_server(load_bundle(Path(sys.argv[1])), ["--host=127.0.0.1"], output=2) as server:
    print("started", flush=True)
    server.wait()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_serving_here_leaves_nothing_when_it_is_ended(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = make_bundle(tmp_path / "b", {board.PROGRAM: SERVER}, platform="host")
    here.file(board.PROGRAM).chmod(0o755)
    log = tmp_path / "said"
    monkeypatch.setenv("ADT_TEST_SAID", str(log))
    with child(SERVE, str(here.path)) as serving:
        assert serving.stdout is not None and serving.stdout.readline() == "started\n"
        wait_for(lambda: log.exists() and "child" in log.read_text())
        directory, libraries, *words, last = log.read_text().splitlines()
        assert libraries.split(os.pathsep)[0] == str(here.path / "lib")
        assert words == ["server", "--host=127.0.0.1", f"--work-dir={directory}"]
        serving.send_signal(number)
        serving.wait(120)
    wait_for(lambda: not Path(directory).exists())
    wait_for(lambda: process.start_time(int(last.removeprefix("child "))) is None)


def test_a_server_that_ended_before_its_tracker_noticed_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Inject a fault: the first answer of the tracker is out of date."""
    stale = session.StaleRegistration("out of date", remedy="again")
    answers: list[Exception | str] = [stale, stale, "remote"]

    def connect(target: session.Target, limit: int) -> tuple[str, SimpleNamespace]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer, SimpleNamespace(close=lambda: None)

    target = session.Target("127.0.0.1", 9, "key:1", "key", "127.0.0.1:9190")
    monkeypatch.setattr(session, "_from_tracker", lambda *_: target)
    monkeypatch.setattr(session, "_connect", connect)
    monkeypatch.setattr(session, "close", lambda _: None)
    monkeypatch.setattr(session, "STALE_PAUSE", 0.0)
    with session.open_session(key="key", timeout=None, wait=60) as connection:
        assert connection.remote == "remote" and not answers
    answers[:] = [stale]
    with pytest.raises(session.StaleRegistration), session.open_session(key="key", timeout=None, wait=0):
        pass


def test_a_refusal_of_what_the_tracker_named_is_of_a_registration_out_of_date() -> None:
    refusal = relay.Refusal(Answer.MISMATCH)
    for place, kind in (("127.0.0.1:9190", session.StaleRegistration), ("", RpcError)):
        target = session.Target("127.0.0.1", 9, "key:1", "key", place)
        assert type(session._unreached(target, refusal)) is kind
