"""The log: its lines, its filters, its end."""

from __future__ import annotations

import struct
import threading

import pytest
from device_fake_server import Handler, Peer, fake_server, text
from hypothesis import given
from hypothesis import strategies as st

from adt.device import logcat
from adt.device.device import Device
from adt.device.logcat import LogLine, parse_filters, parse_line, passes
from adt.errors import ConfigError, DeviceError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "11-21 07:30:01.234  1234  5678 W ActivityManager: Slow operation: 12 ms",
            LogLine("11-21 07:30:01.234", 1234, 5678, "W", "ActivityManager", "Slow operation: 12 ms"),
        ),
        ("11-21 07:30:01.234     1     2 I tag     : ", LogLine("11-21 07:30:01.234", 1, 2, "I", "tag", "")),
        (
            "2026-11-21 07:30:01.234567 u0_a12  1  2 E adreno: x",
            LogLine("2026-11-21 07:30:01.234567", 1, 2, "E", "adreno", "x"),
        ),
        ("11-21 07:30:01.234  1  2 F libc: a\r", LogLine("11-21 07:30:01.234", 1, 2, "F", "libc", "a")),
        ("--------- beginning of main", None),
        ("", None),
    ],
)
def test_lines_are_read(text: str, expected: LogLine | None) -> None:
    assert parse_line(text) == expected


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=60)
TAG = st.from_regex(r"[A-Za-z][\w./-]{0,20}", fullmatch=True)


@given(st.integers(0, 99999), st.integers(0, 99999), st.sampled_from("VDIWEF"), TAG, TEXT)
def test_what_is_written_is_read_again(pid: int, tid: int, priority: str, tag: str, message: str) -> None:
    line = LogLine("01-02 03:04:05.678", pid, tid, priority, tag, message)
    assert parse_line(str(line)) == line


def line(priority: str = "I", tag: str = "t", pid: int = 1) -> LogLine:
    return LogLine("11-21 07:30:01.234", pid, 1, priority, tag, "m")


@pytest.mark.parametrize(
    ("filters", "one", "wanted"),
    [
        ((), line("V"), True),
        (("*:W",), line("I"), False),
        (("*:W",), line("E"), True),
        (("t:V", "*:S"), line("V"), True),
        (("t", "*:S"), line("V"), True),
        (("u:V", "*:S"), line("F"), False),
        (("t:E",), line("I", "other"), True),
    ],
)
def test_filters_mean_what_they_mean_to_logcat(filters: tuple[str, ...], one: LogLine, wanted: bool) -> None:
    assert passes(one, parse_filters(filters), None) is wanted


def test_a_process_can_be_chosen() -> None:
    assert passes(line(pid=7), {}, 7) and not passes(line(pid=8), {}, 7)


@pytest.mark.parametrize("bad", ["t:X", "a b", "", "-d", ":W", "t:W:E"])
def test_what_is_no_filter_is_refused(bad: str) -> None:
    with pytest.raises(ConfigError, match="no filter"):
        parse_filters([bad])


@pytest.mark.parametrize("bad", ["yesterday", "$(reboot)", "11-21", "-5"])
def test_what_is_no_time_is_refused(bad: str) -> None:
    with pytest.raises(ConfigError, match="no time"):
        Device("S").logcat(since=bad)


def features(peer: Peer) -> None:
    peer.request(b"OKAY" + text("shell_v2"))


def device(*packets: bytes, then: Handler = Peer.drain) -> Handler:
    def handler(peer: Peer) -> None:
        peer.request()
        marker = peer.request().split("echo ", 1)[1].split()[0].replace("''", "")
        pid = f"{marker} 5\n".encode()
        peer.send(struct.pack("<BI", 2, len(pid)) + pid)
        for packet in packets:
            peer.send(packet)
        then(peer)

    return handler


def packet(kind: int, data: bytes) -> bytes:
    return struct.pack("<BI", kind, len(data)) + data


def killed(peer: Peer) -> None:
    peer.request()
    peer.request()


LINE = b"11-21 07:30:01.234  1  2 W t: number %d\n"


def test_lines_come_while_the_log_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line may come in pieces; the log has not ended when the block is left."""
    first = LINE % 1
    handlers = features, device(packet(1, first[:9]), packet(1, first[9:] + LINE % 2)), killed
    with (
        fake_server(monkeypatch, *handlers) as server,
        Device("S").logcat(["*:W"], since="11-21 07:00:00.000") as log,
    ):
        found = iter(log)
        assert [next(found).message, next(found).message] == ["number 1", "number 2"]
    asked = server.peers[1].requests[1]
    assert asked.endswith("exec logcat -v threadtime -T '11-21 07:00:00.000' '*:W'")
    assert len(server.peers) == 3  # the third one ended what runs on the device


def test_another_thread_ends_the_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_server(monkeypatch, features, device(), killed), Device("S").logcat() as log:
        threading.Timer(0.2, log.stop).start()
        assert list(log) == []


def test_a_dump_ends_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    handlers = features, device(packet(1, LINE % 1 + b"--- x\n" + (LINE % 2)[:-1]), packet(3, b"\0"))
    with fake_server(monkeypatch, *handlers), Device("S").logcat(dump=True) as log:
        assert [line.message for line in log] == ["number 1", "number 2"]


def test_lines_that_nobody_takes_are_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logcat, "WAITING", 5)
    lines = b"".join(LINE % n for n in range(20))
    with (
        fake_server(monkeypatch, features, device(packet(1, lines), packet(3, b"\0"))),
        Device("S").logcat() as log,
    ):
        log._reader.join(60)
        assert [line.message for line in log] == [f"number {n}" for n in range(15, 20)]
        assert log.dropped == 15


def test_a_device_without_logcat_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    packets = packet(2, b"sh: logcat: inaccessible or not found\n"), packet(3, b"\x7f")
    with (
        fake_server(monkeypatch, features, device(*packets)),
        pytest.raises(DeviceError, match="has no logcat") as caught,
        Device("S").logcat() as log,
    ):
        list(log)
    assert "dmesg" in caught.value.remedy


def test_logcats_own_words_reach_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    packets = packet(2, b"logcat: Permission denied\n"), packet(3, b"\x01")
    with (
        fake_server(monkeypatch, features, device(*packets)),
        pytest.raises(DeviceError, match="exit code 1") as caught,
        Device("S").logcat() as log,
    ):
        list(log)
    assert "Permission denied" in caught.value.details


def test_a_connection_that_breaks_is_no_end_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = device(packet(1, LINE % 1), then=lambda peer: None)
    with fake_server(monkeypatch, features, broken, killed), Device("S").logcat() as log:
        found = iter(log)
        assert next(found).message == "number 1"
        with pytest.raises(DeviceError, match="broke while"):
            next(found)
