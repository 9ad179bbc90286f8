"""Packets of the ADB transport protocol, against bytes written down by hand."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from adt.virtual import wire
from adt.virtual.wire import LOW_WATER, Closed, Stream


def read(data: bytes, *, summed: bool) -> wire.Packet:
    async def run() -> wire.Packet:
        reader = asyncio.StreamReader()
        reader.feed_data(data)
        reader.feed_eof()
        return await wire.read_packet(reader, summed=summed)

    return asyncio.run(run())


def test_golden_headers() -> None:
    assert wire.header(wire.CNXN, 0x01000001, 0x100000, b"host::", summed=True).hex() == (
        "434e584e01000001000010000600000032020000bcb1a7b1"
    )
    assert wire.header(wire.OKAY, 7, 9).hex() == "4f4b4159070000000900000000000000" + "00000000" + "b0b4bea6"
    assert wire.header(wire.WRTE, 1, 2, b"\xff\xff")[16:20] == bytes(4), (
        "no checksum between two that skip it"
    )


def test_read_what_was_written() -> None:
    raw = wire.header(wire.WRTE, 3, 4, b"abc", summed=True) + b"abc"
    assert read(raw, summed=True) == wire.Packet(wire.WRTE, 3, 4, b"abc")


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (wire.header(wire.OKAY, 0, 0)[:-1] + b"\0", "magic"),
        (wire.HEADER.pack(wire.WRTE, 1, 1, wire.MAX_PAYLOAD + 1, 0, wire.WRTE ^ 0xFFFFFFFF), "payload"),
        (wire.header(wire.WRTE, 1, 1, b"abc", summed=True) + b"abd", "checksum"),
    ],
)
def test_damaged_packets_are_refused(raw: bytes, says: str) -> None:
    with pytest.raises(wire.ProtocolError, match=says):
        read(raw, summed=True)


def test_wrong_checksum_is_no_matter_when_skipped() -> None:
    assert read(wire.header(wire.WRTE, 1, 1, b"abc") + b"abc", summed=False).payload == b"abc"


def test_banner_cannot_be_broken_by_a_property() -> None:
    properties = {"ro.product.name": "n;features=evil", "ro.product.model": "m"}
    assert wire.banner(properties, ("shell_v2", "ls_v2")) == (
        b"device::ro.product.name=n features=evil;ro.product.model=m;ro.product.device=;"
        b"features=shell_v2,ls_v2"
    )


class Host:
    """The other end of a stream: keeps what was sent to it."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, int, int, bytes]] = []
        self.open = True

    def send(self, command: int, arg0: int, arg1: int, payload: bytes | memoryview) -> None:
        self.sent.append((command, arg0, arg1, bytes(payload)))

    async def drain(self) -> None:
        await asyncio.sleep(0)

    def forget(self, _: int) -> bool:
        was, self.open = self.open, False
        return was

    def stream(self, maxdata: int = 4) -> Stream:
        return Stream(5, 6, maxdata, self.send, self.drain, self.forget)

    def count(self, command: int) -> int:
        return sum(1 for packet in self.sent if packet[0] == command)


def in_loop(test: Callable[[Host], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Make a test of a function that runs in an event loop."""

    def run() -> None:
        asyncio.run(asyncio.wait_for(test(Host()), 60))

    run.__name__, run.__doc__ = test.__name__, test.__doc__  # not wraps: pytest would ask for the host
    return run


@in_loop
async def test_write_waits_for_the_acknowledgement_of_each_chunk(host: Host) -> None:
    stream = host.stream()
    stream.accept()
    writing = asyncio.ensure_future(stream.write(b"0123456789"))
    for expected in (b"0123", b"4567", b"89"):
        await asyncio.sleep(0.01)
        assert host.sent[-1] == (wire.WRTE, 5, 6, expected)
        stream.on_okay(6)
    await writing


@in_loop
async def test_what_nobody_reads_is_not_acknowledged(host: Host) -> None:
    stream = host.stream()
    stream.accept()
    stream.on_write(bytes(LOW_WATER))
    assert host.count(wire.OKAY) == 2, "the answer to OPEN, and the first write fits"
    stream.on_write(b"x")
    assert host.count(wire.OKAY) == 2
    assert len(await stream.read()) == LOW_WATER + 1
    assert host.count(wire.OKAY) == 3


@in_loop
async def test_exactly_more_than_the_buffer_holds_does_not_hang(host: Host) -> None:
    stream = host.stream()
    stream.accept()
    pending = asyncio.ensure_future(stream.exactly(3 * LOW_WATER))
    for _ in range(3):
        await asyncio.sleep(0)
        stream.on_write(bytes(LOW_WATER))
    assert len(await pending) == 3 * LOW_WATER


@in_loop
async def test_refusal_is_a_close_with_zero(host: Host) -> None:
    host.stream().close()
    assert host.sent == [(wire.CLSE, 0, 6, b"")]
    other = Host()
    stream = other.stream()
    stream.accept()
    stream.close()
    assert other.sent[-1] == (wire.CLSE, 5, 6, b"")


@in_loop
async def test_end_of_the_stream(host: Host) -> None:
    stream = host.stream()
    stream.accept()
    stream.on_write(b"ab")
    stream.on_close()
    assert await stream.read() == b"ab", "what had arrived is still read"
    assert await stream.read() == b""
    with pytest.raises(Closed):
        await stream.exactly(1)
    with pytest.raises(Closed):
        await stream.write(b"x")
