"""How shell requests are read, and the frames of protocol 2."""

import struct
from pathlib import Path

import pytest

from adt.device.virtual import faults, properties, shell, wire
from adt.device.virtual.faults import Faults
from adt.errors import ConfigError


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


def test_faults() -> None:
    assert faults.parse("") == Faults() and not Faults().any()
    assert faults.parse("drop_after=4096, reject") == Faults(4096, True, False)
    assert faults.parse("offline").any()
    for bad in ("drop_after=", "drop_after=x", "late"):
        with pytest.raises(ConfigError, match="unknown fault"):
            faults.parse(bad)


def test_properties_say_what_the_device_is(tmp_path: Path) -> None:
    (tmp_path / "system/bin").mkdir(parents=True)
    linux = properties.of_device("one", tmp_path)
    assert linux["ro.adt.virtual"] == "1" and linux["ro.adt.platform"] == "linux-aarch64"
    assert "not Android" in linux["ro.product.model"] and "no speed" in linux["ro.adt.notice"]
    assert linux["ro.product.cpu.abi"] == "arm64-v8a" and linux["ro.build.version.sdk"].isdigit()
    assert b"not Android" in wire.banner(linux, ())
    (tmp_path / "system/bin/linker64").symlink_to("/apex/com.android.runtime/bin/linker64")
    (tmp_path / "system/build.prop").write_text("# c\nro.build.version.sdk=30\nro.adt.platform=lie\n")
    android = properties.of_device("two", tmp_path)
    assert android["ro.adt.platform"] == "android-arm64-v8a" and android["ro.build.version.sdk"] == "30"
    assert "no speed" in android["ro.adt.notice"]
