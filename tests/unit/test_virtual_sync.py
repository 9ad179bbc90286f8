"""The sync service on a directory of this machine, against bytes written down by hand."""

import asyncio
import contextlib
import errno
import os
import struct
from pathlib import Path

import pytest

from adt.virtual import sync
from adt.virtual.wire import Closed, Stream


class Talk:
    """A host that says everything at once, acknowledges at once, and then hangs up."""

    def __init__(self, sent: bytes) -> None:
        self.sent, self.heard = sent, b""

    def run(self) -> bytes:
        """Return everything that the session answered."""
        asyncio.run(self._run())
        return self.heard

    async def _run(self) -> None:
        def send(command: int, arg0: int, arg1: int, payload: bytes | memoryview) -> None:
            self.heard += bytes(payload)
            if payload:
                asyncio.get_running_loop().call_soon(stream.on_okay, 2)

        async def drain() -> None:
            await asyncio.sleep(0)

        stream = Stream(1, 2, 1 << 20, send, drain, lambda _: True)
        stream.on_write(self.sent)
        session = asyncio.ensure_future(sync.Session(stream).run())
        await asyncio.wait({session}, timeout=60 if self.sent.endswith(QUIT) else 0.3)
        stream.on_close()
        with contextlib.suppress(Closed):
            await asyncio.wait_for(session, 60)


def request(identifier: bytes, payload: bytes) -> bytes:
    return struct.pack("<4sI", identifier, len(payload)) + payload


def push(path: Path, data: bytes, *, mode: int = 0o100644, done: bool = True) -> bytes:
    sent = request(b"SEND", f"{path},{mode}".encode())
    for start in range(0, len(data), sync.MAX_DATA):
        sent += request(b"DATA", data[start : start + sync.MAX_DATA])
    return sent + (struct.pack("<4sI", b"DONE", 1_000_000_000) if done else b"")


QUIT = request(b"QUIT", b"")


def test_golden_answers() -> None:
    status = os.stat_result((0o100644, 2, 3, 4, 5, 6, 0x1_0000_0007, 8, 9, 10))
    assert sync.stat_v1(b"STAT", status).hex() == "53544154a48100000700000009000000"
    assert sync.stat_v1(b"STAT", OSError()) == b"STAT" + bytes(12)
    assert sync.stat_v2(b"LST2", status).hex() == (
        "4c535432"
        "00000000"
        "0300000000000000"
        "0200000000000000"
        "a4810000"
        "04000000"
        "05000000"
        "06000000"
        "0700000001000000"
        "0800000000000000"
        "0900000000000000"
        "0a00000000000000"
    )
    missing = sync.stat_v2(b"STA2", OSError(errno.ENOENT, ""))
    assert missing == b"STA2" + struct.pack("<I", errno.ENOENT) + bytes(64)
    assert sync.fail("no").hex() == "4641494c020000006e6f"


def test_listing(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"abc")
    listed = sync.listing(str(tmp_path), version=1)
    assert listed.count(b"DENT") == 3 and listed.endswith(b"DONE" + bytes(16))
    assert struct.pack("<I", 1) + b"f" in listed
    wide = sync.listing(str(tmp_path), version=2)
    assert wide.count(b"DNT2") == 3 and wide.endswith(b"DONE" + bytes(72))
    assert sync.listing(str(tmp_path / "none"), version=1) == b"DONE" + bytes(16)


def test_group_and_others_get_what_the_owner_has() -> None:
    assert sync.received_mode(0o100600) == 0o666
    assert sync.received_mode(0o100744) == 0o777
    assert sync.received_mode(0o100400) == 0o444


def test_push_replaces_a_link_and_not_what_it_points_to(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("keep")
    (tmp_path / "link").symlink_to("other")
    assert Talk(push(tmp_path / "link", b"new") + QUIT).run().startswith(b"OKAY")
    assert (tmp_path / "other").read_text() == "keep" and not (tmp_path / "link").is_symlink()


def test_push_of_a_link(tmp_path: Path) -> None:
    assert Talk(push(tmp_path / "link", b"to/there", mode=0o120777) + QUIT).run() == b"OKAY" + bytes(4)
    assert (tmp_path / "link").readlink() == Path("to/there")


def test_push_of_an_empty_file(tmp_path: Path) -> None:
    """Push an empty file: adb sends a DATA of no bytes before DONE."""
    sent = request(b"SEND", f"{tmp_path}/empty,33188".encode()) + request(b"DATA", b"")
    sent += struct.pack("<4sI", b"DONE", 5)
    assert Talk(sent + push(tmp_path / "next", b"x") + QUIT).run() == (b"OKAY" + bytes(4)) * 2
    assert (tmp_path / "empty").read_bytes() == b"" and (tmp_path / "next").read_bytes() == b"x"


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (request(b"RECV", b"/none/at/all"), b"open failed: No such file or directory"),
        (request(b"RECV", b"/"), b"read failed: Is a directory"),
        (push(Path("/proc/none/x"), b"abc"), b"couldn't create file: No such file or directory"),
        (request(b"STAT", b"x" * 2000), b"path too long"),
        (request(b"WHAT", b"x"), b"unknown request b'WHAT'"),
        (
            request(b"SND2", b"/x")
            + struct.pack("<4sII", b"SND2", 0o644, 4)
            + struct.pack("<4sI", b"DONE", 0),
            b"compression is not offered",
        ),
    ],
)
def test_failures_say_why(sent: bytes, text: bytes) -> None:
    assert Talk(sent + QUIT).run() == request(b"FAIL", text)


def test_dry_run_writes_nothing(tmp_path: Path) -> None:
    sent = request(b"SND2", bytes(tmp_path / "x")) + struct.pack("<4sII", b"SND2", 0o644, sync.DRY_RUN)
    sent += request(b"DATA", b"abc") + struct.pack("<4sI", b"DONE", 0)
    assert Talk(sent + QUIT).run() == b"OKAY" + bytes(4)
    assert not (tmp_path / "x").exists()
