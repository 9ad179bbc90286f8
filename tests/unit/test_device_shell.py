"""Remote commands: quoting, shell protocol v2, the fallback without it."""

import os
import shlex
import subprocess
import threading
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adt.device.survey import parse, parse_free
from adt.device.transport import shell
from adt.device.transport.deadline import Deadline
from adt.errors import DeviceError
from adt.host.disk import size_text
from support.devices.adb_server import Peer, answering, fake_server, marker, packet, replying, text, v2

HOSTILE = ["a b", "$(reboot)", "`x`", "it's", '"', "new\nline", "; rm -rf /", "*", "", "-n", "\\"]


def test_arguments_arrive_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the request's text to a real shell, which prints exactly the arguments."""
    with fake_server(monkeypatch, v2(packet(3, b"\0"))) as server:
        shell.run("S", ["printf", "%s|", *HOSTILE], v2=True, timeout=60)
    transport, service = server.peers[0].requests
    assert transport == "host:transport:S"
    command = service.removeprefix("shell,v2,raw:")
    assert command != service
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout == "|".join(HOSTILE) + "|"


WORDS = st.binary(max_size=30).filter(lambda word: b"\0" not in word)


@settings(max_examples=40, deadline=None)
@given(st.lists(WORDS, max_size=6))
def test_any_bytes_arrive_as_they_are(words: list[bytes]) -> None:
    """Pass names as bytes, as they are on a device: a real shell prints exactly those."""
    with pytest.MonkeyPatch.context() as patch, fake_server(patch, v2(packet(3, b"\0"))) as server:
        shell.run("S", ["printf", "%s\\0", "x", *map(os.fsdecode, words)], v2=True, timeout=60)
    command = bytes(server.peers[0].received).partition(b"shell,v2,raw:")[2]
    command = command[: -len(packet(4, b""))]
    done = subprocess.run([b"sh", b"-c", command], capture_output=True, check=True)
    assert done.stdout == b"".join(word + b"\0" for word in (b"x", *words))


def test_an_inline_script_has_its_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run it in the shell that the daemon starts anyway: no second one, the same `$1`."""
    text_ = 'printf "%s|" "$@"; exit 3'
    argv = ("sh", "-c", text_, "sh", *HOSTILE)
    with (
        fake_server(monkeypatch, v2(packet(3, b"\x03"))) as server,
        shell.RemoteCommand("S", argv, v2=True, deadline=Deadline(60, "x"), inline=True) as command,
    ):
        assert list(command.output()) == []
    line = server.peers[0].requests[1].removeprefix("shell,v2,raw:")
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("|".join(HOSTILE) + "|", 3)
    assert "exec" not in line


@pytest.mark.parametrize(
    ("daemon", "argument", "message"),
    [
        (v2(), "a\0b", "zero byte"),
        (v2(), "x" * 70000, "longer than adb allows"),
        (replying(b"OKAY", b"FAIL" + text("closed")), "x", "closed"),
        (answering(lambda _: packet(1, b"half an answer")), "x", "broke while"),
    ],
    ids=["zero byte", "too long", "refusal", "broken connection"],
)
def test_a_command_that_is_not_run_is_an_error(
    monkeypatch: pytest.MonkeyPatch, daemon: Callable[[Peer], None], argument: str, message: str
) -> None:
    with fake_server(monkeypatch, daemon), pytest.raises(DeviceError, match=message):
        shell.run("S", ["echo", argument], v2=True, timeout=60)


def test_the_two_streams_and_the_exit_code_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    packets = packet(1, b"out"), packet(2, b"err"), packet(1, b"put\n"), packet(3, b"\x03")
    with fake_server(monkeypatch, v2(*packets)):
        done = shell.run("S", ["x"], v2=True, timeout=60, check=False)
    assert (done.stdout, done.stderr, done.exit_code) == (b"output\n", b"err", 3)


def test_stdin_is_closed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_server(monkeypatch, v2(packet(3, b"\0"))) as server:
        shell.run("S", ["cat"], v2=True, timeout=60)
    assert server.peers[0].received.endswith(packet(4, b""))


def test_the_pid_line_may_come_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    def handler(peer: Peer) -> None:
        peer.request()
        line = f"{marker(peer.request())} 99\nrest".encode()
        for at in range(0, len(line), 7):
            peer.send(packet(2, line[at : at + 7]))
        peer.send(packet(3, b"\0"))

    with fake_server(monkeypatch, handler):
        assert shell.run("S", ["x"], v2=True, timeout=60).stderr == b"rest"


@pytest.mark.parametrize("speaks_v2", [True, False], ids=["v2", "marked"])
def test_a_linker_that_warns_first_hides_no_pid(monkeypatch: pytest.MonkeyPatch, speaks_v2: bool) -> None:
    """End the command all the same, although the linker's warning comes before its process id."""
    warning = b"WARNING: linker: failed to find /linkerconfig/ld.config.txt\n"

    def answer(service: str) -> bytes:
        mark = marker(service)
        if speaks_v2:
            return packet(2, warning) + packet(2, f"{mark} 4711\nrest".encode()) + packet(3, b"\0")
        return warning + f"{mark} 4711\nrest{mark} 0\n".encode()

    deadline = Deadline(60, "running x")
    with (
        fake_server(monkeypatch, answering(answer)),
        shell.RemoteCommand("S", ["x"], v2=speaks_v2, deadline=deadline) as command,
    ):
        output = b"".join(data for _, data in command.output())
    assert (command.pid, command.exit_code, output) == (4711, 0, warning + b"rest")


def test_a_failed_command_shows_itself_and_its_output(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        fake_server(monkeypatch, v2(packet(2, b"no such thing\n"), packet(3, b"\x01"))),
        pytest.raises(DeviceError, match="exit code 1") as caught,
    ):
        shell.run("S", ["ls", "a b"], v2=True, timeout=60)
    assert "no such thing" in caught.value.details
    assert shlex.join(["ls", "a b"]) in caught.value.details


@pytest.mark.parametrize("timeout", [0.7, 60])
def test_a_timeout_and_ctrl_c_end_the_remote_process_group(
    monkeypatch: pytest.MonkeyPatch, timeout: float
) -> None:
    killed: list[str] = []

    def kill(peer: Peer) -> None:
        peer.request()
        killed.append(peer.request())

    daemon = v2(pid=4711) if timeout < 1 else v2(packet(1, b"x"), pid=4711)
    with (
        fake_server(monkeypatch, daemon, kill),
        pytest.raises((DeviceError, KeyboardInterrupt)) as caught,
        shell.RemoteCommand("S", ["x"], v2=True, deadline=Deadline(timeout, "x")) as command,
    ):
        for _ in command.output():
            raise KeyboardInterrupt
    assert isinstance(caught.value, KeyboardInterrupt) or "longer than" in caught.value.what
    assert len(killed) == 1
    assert killed[0].endswith(" sh 4711")
    assert 'kill -TERM -- -"$1"' in killed[0]


def test_a_command_that_is_over_is_not_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_server(monkeypatch, v2(packet(3, b"\0"))) as server:
        shell.run("S", ["x"], v2=True, timeout=60)
    assert len(server.peers) == 1


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_without_v2_the_exit_code_comes_from_the_marker(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Let a real shell answer the request's own text, cut into pieces of *size* bytes."""

    def handler(peer: Peer) -> None:
        peer.request()
        service = peer.request()
        assert service.startswith("exec:")
        done = subprocess.run(["sh", "-c", service.removeprefix("exec:")], capture_output=True, check=False)
        for at in range(0, len(done.stdout), size):
            peer.send(done.stdout[at : at + size])

    with fake_server(monkeypatch, handler):
        done = shell.run(
            "S", ["sh", "-c", "echo 1; echo 2 >&2; printf 3; exit 5"], v2=False, timeout=60, check=False
        )
    assert (done.stdout, done.exit_code) == (b"1\n2\n3", 5)


def test_without_v2_a_command_that_prints_its_own_command_line_is_read_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def answer(service: str) -> bytes:
        mark = marker(service)
        return f"{mark} 5\nsh -c {service.removeprefix('exec:')}\n{mark} 0\n".encode()

    with fake_server(monkeypatch, answering(answer)):
        done = shell.run("S", ["ps"], v2=False, timeout=60)
    assert done.out.startswith("sh -c echo")


def test_without_v2_a_line_is_seen_before_the_command_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the fake go on only after the line, its newline included, has been seen here."""
    seen = threading.Event()

    def handler(peer: Peer) -> None:
        peer.request()
        mark = marker(peer.request())
        peer.send(f"{mark} 5\na line\n".encode())
        assert seen.wait(10)
        peer.send(f"more{mark} 0\n".encode())

    command = shell.RemoteCommand
    with (
        fake_server(monkeypatch, handler),
        command("S", ["x"], v2=False, deadline=Deadline(60, "x")) as running,
    ):
        output = running.output()
        assert next(output) == (shell.STDOUT, b"a line\n")
        seen.set()
        assert b"".join(data for _, data in output) == b"more"


def test_without_v2_a_cut_stream_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    cut = answering(lambda service: f"{marker(service)} 5\nsome output".encode())
    monkeypatch.setattr(shell, "KILL_SECONDS", 0.1)
    with fake_server(monkeypatch, cut, Peer.drain), pytest.raises(DeviceError, match="broke while"):
        shell.run("S", ["x"], v2=False, timeout=60)


def test_properties_machine_and_page_size_are_read() -> None:
    facts = parse(
        "==machine==\naarch64\n==page==\n16384\n==properties==\n"
        "[ro.product.cpu.abilist]: [arm64-v8a,armeabi-v7a]\n[ro.build.version.sdk]: [33]\n"
        "[odd]: [two\nlines]\n[hostile]: [\n==machine==\nother\n]\n[empty]: []\n"
    ).facts
    assert facts.platforms == ("android-arm64-v8a", "android-armeabi-v7a")
    assert (facts.api_level, facts.machine, facts.page_size) == (33, "aarch64", 16384)
    assert facts.properties["odd"] == "two\nlines"
    assert facts.properties["empty"] == ""


def test_a_virtual_device_says_itself_what_it_is() -> None:
    facts = parse(
        "==machine==\naarch64\n==page==\n==properties==\n"
        "[ro.adt.platform]: [linux-aarch64]\n[ro.product.cpu.abi]: [arm64-v8a]\n[ro.build.version.sdk]: [33]\n"
    ).facts
    assert facts.platforms == ("linux-aarch64",)
    assert (facts.api_level, facts.page_size) == (None, None)
    assert "virtual" in facts.label


def test_a_board_without_properties_is_a_linux() -> None:
    assert parse("==machine==\naarch64\n==page==\n4096\n").facts.platforms == ("linux-aarch64",)


@pytest.mark.parametrize(
    ("printed", "free"),
    [
        ("Filesystem 1K-blocks Used Available Use% Mounted on\n/dev/a 100 60 40 60% /data\n", 40 * 1024),
        (
            "Filesystem 1K-blocks Used Available Use% Mounted on\n/dev/block/a-long-name\n 100 60 40 60% /\n",
            40960,
        ),
        ("df: /nope: No such file or directory\n", None),
        ("", None),
    ],
)
def test_free_space_is_read_from_df(printed: str, free: int | None) -> None:
    assert parse_free(printed) == free


def test_sizes_are_for_people() -> None:
    assert [size_text(n) for n in (0, 2048, 3 << 20, 5 << 30)] == ["0 B", "2.0 KiB", "3.0 MiB", "5.0 GiB"]
