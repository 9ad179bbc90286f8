"""Reading of shell requests, and the frames of protocol 2."""

import struct

import pytest

from adt.virtual import shell


@pytest.mark.parametrize(
    ("destination", "request_"),
    [
        ("shell:ls -l", shell.Request("ls -l", 1, False, "dumb")),
        ("shell:", shell.Request("", 1, True, "dumb")),
        ("shell,v2,raw:a:b", shell.Request("a:b", 2, False, "dumb")),
        ("shell,v2,TERM=xterm-256color,pty:", shell.Request("", 2, True, "xterm-256color")),
        ("shell,v2,raw:", shell.Request("", 2, False, "dumb")),
        ("shell,pty:top", shell.Request("top", 1, True, "dumb")),
        ("exec:cat", shell.Request("cat", 1, False, "dumb")),
        ("exec:", shell.Request("", 1, False, "dumb")),
    ],
)
def test_requests(destination: str, request_: shell.Request) -> None:
    assert shell.parse(destination) == request_


def test_golden_frames() -> None:
    assert shell.frame(shell.STDERR, b"ab").hex() == "02020000006162"
    assert shell.frame(shell.EXIT, b"\x07").hex() == "030100000007"


def test_exit_status_of_a_killed_command_is_the_shells() -> None:
    assert [shell.exit_status(code) for code in (0, 3, -9, -1)] == [0, 3, 137, 129]


def test_window_size() -> None:
    assert shell.window_size(b"24x80,640x480\0") == struct.pack("HHHH", 24, 80, 640, 480)
    assert shell.window_size(b"24x80") == struct.pack("HHHH", 24, 80, 0, 0)
    for bad in (b"", b"24", b"axb,1x1", b"99999999x1", b"\xff"):
        assert shell.window_size(bad) is None
