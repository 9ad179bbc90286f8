"""The sync protocol byte by byte, and what happens when the other side misbehaves."""

import os
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from adt.device.device import Device
from adt.device.transport.deadline import Cancelled, Deadline, cancel_on
from adt.device.transport.sync import BATCH, CHUNK, PushItem, Refused, SyncSession
from adt.errors import DeviceError, DeviceFull, DeviceNotReady, DiskError, NoDevice
from adt.host.transfers import observer
from support.devices.adb_server import Peer, answering, fake_server, packet, replying, text


def accept(peer: Peer) -> None:
    """Take the two requests that open a sync connection."""
    assert peer.request() == "host:transport:S"
    assert peer.request() == "sync:"


def sync_to(answers: bytes, *, after: int = 0) -> Callable[[Peer], None]:
    """Connect to a daemon that sends *answers* once it has *after* bytes, and then only listens."""

    def handler(peer: Peer) -> None:
        accept(peer)
        peer.received.clear()
        peer.exactly(after)
        peer.send(answers)
        peer.drain()

    return handler


def session(seconds: float = 60) -> SyncSession:
    return SyncSession("S", deadline=Deadline(seconds, "copying"))


def okay() -> bytes:
    return b"OKAY" + bytes(4)


def fail(message: str) -> bytes:
    return struct.pack("<4sI", b"FAIL", len(message)) + message.encode()


def test_push_sends_exactly_these_bytes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    data = os.urandom(CHUNK + 5)
    local = tmp_path / "f"
    local.write_bytes(data)
    os.utime(local, (7, 7))

    daemon = sync_to(okay(), after=8 + len(b"/d/f,33261") + 8 + CHUNK + 8 + 5 + 8)
    seen: list[tuple[str, int, int]] = []
    with fake_server(monkeypatch, daemon) as server, session() as sync:
        sent = sync.push(local, "/d/f", mode=0o755, progress=lambda *a: seen.append(a))
    expected = struct.pack("<4sI", b"SEND", 10) + b"/d/f,33261"  # 33261 = 0o100755
    expected += struct.pack("<4sI", b"DATA", CHUNK) + data[:CHUNK]
    expected += struct.pack("<4sI", b"DATA", 5) + data[CHUNK:]
    expected += struct.pack("<4sI", b"DONE", 7)
    expected += struct.pack("<4sI", b"QUIT", 0)
    assert bytes(server.peers[0].received) == expected
    assert sent == len(data)
    assert seen[-1] == ("/d/f", len(data), len(data))


def push(sync: SyncSession, directory: Path) -> None:
    sync.push(b"x", "/d/f")


def pull(sync: SyncSession, directory: Path) -> None:
    sync.pull("/d/f", directory / "f")


def push_absent(sync: SyncSession, directory: Path) -> None:
    sync.push(directory / "missing", "/d/f")


def push_and_pull(sync: SyncSession, directory: Path) -> None:
    sync.push_many([PushItem(b"x" * BATCH, f"/f{n}") for n in range(3)])
    pull(sync, directory)


@pytest.mark.parametrize(
    ("answers", "copy", "seconds", "error", "message"),
    [
        (fail("couldn't create file: Is a directory"), push, 60, Refused, "Is a directory"),
        (struct.pack("<4sI", b"WHAT", 3) + b"abc", pull, 60, DeviceError, "does not speak adb"),
        (struct.pack("<4sI", b"DATA", 0x7FFFFFFF), pull, 60, DeviceError, None),
        (okay() * 9, push_and_pull, 60, DeviceError, "does not speak adb"),
        (b"", push, 0.3, DeviceError, r"longer than 0\.3 s"),
        (b"", push_absent, 60, DiskError, "No such file"),
    ],
    ids=[
        "refusal",
        "no answer",
        "piece larger than allowed",
        "more answers than asked",
        "silence",
        "no file",
    ],
)
def test_what_ends_a_copy_is_explained(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    answers: bytes,
    copy: Callable[[SyncSession, Path], None],
    seconds: float,
    error: type[Exception],
    message: str | None,
) -> None:
    with (
        fake_server(monkeypatch, sync_to(answers)),
        pytest.raises(error, match=message),
        session(seconds) as sync,
    ):
        copy(sync, tmp_path)


def test_a_refusal_before_the_end_stops_the_sending(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Refuse after the first bytes and read no more, as a daemon does: waiting for it would hang."""
    local = tmp_path / "large"
    with local.open("wb") as file:
        file.truncate(256 << 20)

    with (
        fake_server(monkeypatch, sync_to(fail("No space left on device"), after=100)) as server,
        pytest.raises(Refused) as caught,
        session(60) as sync,
    ):
        sync.push(local, "/d/large")
    assert caught.value.full
    assert len(server.peers[0].received) < 64 << 20


def test_a_full_device_shows_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    df = b"==space==\nFilesystem 1K-blocks Used Available Use% Mounted on\n/dev/x 100 90 2048 90% /data\n"

    features = replying(b"OKAY" + text("shell_v2,cmd"))
    refusal = sync_to(fail("write failed: No space left on device"))
    handlers = refusal, features, answering(lambda _: packet(1, df) + packet(3, b"\0"))
    with fake_server(monkeypatch, *handlers), pytest.raises(DeviceFull) as caught:
        Device("S").push(b"x" * 100, "/d/f")
    assert "2.0 MiB free" in caught.value.what
    assert "/d/f" in caught.value.what
    assert "adt clean" in caught.value.remedy


def test_pull_writes_the_file_complete(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answer = struct.pack("<4sI", b"DATA", 3) + b"abc" + struct.pack("<4sI", b"DATA", 2) + b"de"
    with fake_server(monkeypatch, sync_to(answer + b"DONE" + bytes(4))) as server, session() as sync:
        assert sync.pull("/d/f", tmp_path / "f") == 5
    assert (tmp_path / "f").read_bytes() == b"abcde"
    assert server.peers[0].received.startswith(struct.pack("<4sI", b"RECV", 4) + b"/d/f")


@pytest.mark.parametrize(
    "answer",
    [
        struct.pack("<4sI", b"DATA", 100) + b"only this",
        struct.pack("<4sI", b"DATA", 3) + b"abc",
        b"DA",
    ],
    ids=["inside data", "between pieces", "inside a header"],
)
def test_a_cut_stream_leaves_the_old_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: bytes
) -> None:
    (tmp_path / "f").write_text("old")

    def handler(peer: Peer) -> None:
        accept(peer)
        peer.exactly(8 + len("/d/f"))
        peer.send(answer)

    with (
        fake_server(monkeypatch, handler),
        pytest.raises(DeviceError, match="broke while copying"),
        session() as sync,
    ):
        sync.pull("/d/f", tmp_path / "f")
    assert [path.name for path in tmp_path.iterdir()] == ["f"]
    assert (tmp_path / "f").read_text() == "old"


def test_a_missing_remote_file_is_an_error_and_makes_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with (
        fake_server(monkeypatch, sync_to(fail("No such file or directory"))),
        pytest.raises(DeviceError, match="No such file"),
    ):
        Device("S").pull("/missing", tmp_path / "f")
    assert list(tmp_path.iterdir()) == []


def test_a_daemon_that_trickles_does_not_outlive_the_deadline(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """End by the deadline of all reads: a timeout for each of them would never end here."""

    def handler(peer: Peer) -> None:
        import time

        accept(peer)
        while True:
            peer.send(struct.pack("<4sI", b"DATA", 1) + b"x")
            time.sleep(0.02)

    with (
        fake_server(monkeypatch, handler),
        pytest.raises(DeviceError, match="longer than"),
        session(0.3) as sync,
    ):
        sync.pull("/d/f", tmp_path / "f")


@pytest.mark.parametrize(
    ("message", "kind"), [("device offline", DeviceNotReady), ("device 'S' not found", NoDevice)]
)
def test_a_device_that_went_away_is_named(
    monkeypatch: pytest.MonkeyPatch, message: str, kind: type[Exception]
) -> None:
    with fake_server(monkeypatch, replying(b"FAIL" + text(message))), pytest.raises(kind, match="S"):
        session()


def test_a_path_that_no_device_takes_is_refused_here(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_server(monkeypatch, sync_to(b"")), session() as sync:
        for path in ("/" + "a" * 1024, "/a\0b"):
            with pytest.raises(Refused):
                sync.push(b"", path)


def test_files_are_sent_without_waiting_for_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answer only once all files are there: waiting for an answer to each would hang here."""
    items = [PushItem(b"%d" % n, f"/f{n}") for n in range(50)]

    sent = sum(8 + len(f"{item.remote},33188") + 8 + len(item.source) + 8 for item in items)
    with fake_server(monkeypatch, sync_to(okay() * len(items), after=sent)), session() as sync:
        assert sync.push_many(items) == sum(len(item.source) for item in items)


def test_without_a_function_the_observer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tell the command line's observer, so that each verb that sends or receives shows its progress."""
    notices: list[tuple[str, int, int]] = []
    token = observer.set(lambda *facts: notices.append(facts))
    try:
        with fake_server(monkeypatch, sync_to(okay() * 2)), session() as sync:
            sync.push_many([PushItem(b"abc", "/f"), PushItem(b"de", "/g")])
    finally:
        observer.reset(token)
    assert notices == [("/f", 3, 3), ("/g", 2, 2)]


@pytest.mark.parametrize("size", [1, 1000])
@pytest.mark.parametrize("failing", [0, 3, 6])
def test_the_refused_file_among_many_is_named(
    monkeypatch: pytest.MonkeyPatch, failing: int, size: int
) -> None:
    answers = okay() * failing + fail("Permission denied")

    def handler(peer: Peer) -> None:
        accept(peer)
        for at in range(0, len(answers), size):
            peer.send(answers[at : at + size])
        peer.drain()

    with (
        fake_server(monkeypatch, handler),
        pytest.raises(Refused, match="Permission denied") as caught,
        session() as sync,
    ):
        sync.push_many([PushItem(b"x", f"/f{n}") for n in range(7)])
    assert caught.value.path == f"/f{failing}"


def test_cancelling_ends_a_push_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    cancel = threading.Event()
    threading.Timer(0.2, cancel.set).start()
    with fake_server(monkeypatch, sync_to(b"")), pytest.raises(Cancelled), cancel_on(cancel):
        Device("S").push(b"x", "/d/f")
