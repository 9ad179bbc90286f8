"""Packets of the ADB transport protocol, and one connection from an adb server: handshake, packets, streams.

A packet is a 24-byte header of six little-endian uint32 (command, arg0, arg1, payload length, checksum,
command ^ 0xffffffff) and the payload. The checksum is the sum of the payload's bytes; two sides that both
speak ``VERSION_SKIP`` leave it 0.

A stream has the classic flow control: one unacknowledged WRTE in each direction. We acknowledge (OKAY) what
the host wrote only while little of it waits to be consumed, so a push larger than memory moves at the pace
of the disk.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

log = logging.getLogger("adt.virtual.wire")

CNXN = int.from_bytes(b"CNXN", "little")
OPEN = int.from_bytes(b"OPEN", "little")
OKAY = int.from_bytes(b"OKAY", "little")
CLSE = int.from_bytes(b"CLSE", "little")
WRTE = int.from_bytes(b"WRTE", "little")
STLS = int.from_bytes(b"STLS", "little")

VERSION_CHECKSUM = 0x01000000
"""The first protocol version: every payload carries its checksum."""
VERSION_SKIP = 0x01000001
"""The version that lets both sides leave the checksum out."""
MAX_PAYLOAD = 1 << 20
"""The largest payload in bytes that we take and announce."""

HEADER = struct.Struct("<6I")


class ProtocolError(Exception):
    """The peer sent something that is not the ADB protocol; the connection is of no more use."""


@dataclass(frozen=True)
class Packet:
    """One packet, without the parts of the header that follow from the rest."""

    command: int
    arg0: int
    arg1: int
    payload: bytes = b""


def checksum(payload: bytes | memoryview) -> int:
    return sum(payload) & 0xFFFFFFFF


def header(
    command: int, arg0: int, arg1: int, payload: bytes | memoryview = b"", *, summed: bool = False
) -> bytes:
    """Encode the 24 header bytes of a packet; *summed* fills in the checksum."""
    total = checksum(payload) if summed else 0
    return HEADER.pack(command, arg0, arg1, len(payload), total, command ^ 0xFFFFFFFF)


async def read_packet(reader: asyncio.StreamReader, *, summed: bool) -> Packet:
    """Read the next packet; its checksum counts if *summed*. ProtocolError if it is wrong or too large."""
    command, arg0, arg1, length, total, magic = HEADER.unpack(await reader.readexactly(HEADER.size))
    if magic != command ^ 0xFFFFFFFF:
        raise ProtocolError(f"bad magic {magic:#010x} for command {command:#010x}")
    if length > MAX_PAYLOAD:
        raise ProtocolError(f"payload of {length} bytes is above {MAX_PAYLOAD}")
    payload = await reader.readexactly(length) if length else b""
    if summed and total != checksum(payload):
        raise ProtocolError(f"checksum {total:#010x} does not match the payload")
    return Packet(command, arg0, arg1, payload)


def banner(properties: dict[str, str], features: tuple[str, ...]) -> bytes:
    """Encode the payload of our CNXN, ``device::key=value;...features=a,b``, for `adb devices -l`."""
    keys = ("ro.product.name", "ro.product.model", "ro.product.device")
    fields = "".join(f"{key}={properties.get(key, '').replace(';', ' ')};" for key in keys)
    return f"device::{fields}features={','.join(features)}".encode()


class Link:
    """One TCP connection, as packets."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.summed = True  # whether packets carry checksums

    async def receive(self, *, verified: bool) -> Packet:
        return await read_packet(self._reader, summed=verified)

    def send(self, command: int, arg0: int, arg1: int, payload: bytes | memoryview = b"") -> None:
        if self._writer.is_closing():
            return
        self._writer.write(header(command, arg0, arg1, payload, summed=self.summed))
        if payload:
            self._writer.write(payload)

    async def drain(self) -> None:
        """Wait until the connection's own buffer is short."""
        await self._writer.drain()

    def close(self) -> None:
        """Close the connection once what was sent is out."""
        self._writer.close()


LOW_WATER = 1 << 20
"""Bytes that may wait in a stream before the host's next WRTE stays unacknowledged."""


class Closed(Exception):
    """The stream ended while more was to be read or written."""


class Stream:
    """A stream between a service here and a client of the adb server.

    Args:
        local: our identifier, not 0.
        remote: the host's identifier; 0 while a stream that we opened is not answered.
        maxdata: most bytes in one WRTE.
        forget: takes the stream out of the transport's table; False when it was not in it.
    """

    def __init__(
        self,
        local: int,
        remote: int,
        maxdata: int,
        send: Callable[[int, int, int, bytes | memoryview], None],
        drain: Callable[[], Awaitable[None]],
        forget: Callable[[int], bool],
    ) -> None:
        self.local, self.remote, self.maxdata = local, remote, maxdata
        self._send, self._drain, self._forget = send, drain, forget
        self._buffer, self._unacknowledged, self._accepted = bytearray(), 0, False
        self.ended = False
        self._readable, self._writable = asyncio.Event(), asyncio.Event()
        self.answered: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def on_okay(self, remote: int) -> None:
        """Handle an OKAY: the host accepted our OPEN, or consumed our last WRTE."""
        self.remote, self._accepted = remote, True
        if not self.answered.done():
            self.answered.set_result(True)
        self._writable.set()

    def on_write(self, payload: bytes) -> None:
        """Handle a WRTE of *payload* by the host."""
        self._buffer += payload
        self._unacknowledged += 1
        self._readable.set()
        self._acknowledge()

    def on_close(self) -> None:
        """Handle a CLSE by the host, or the end of the transport."""
        self.ended = True
        self._readable.set()
        self._writable.set()
        if not self.answered.done():
            self.answered.set_result(False)

    def accept(self) -> None:
        """Answer the host's OPEN with OKAY; until then `close` is a refusal."""
        self._accepted = True
        self._writable.set()
        self._send(OKAY, self.local, self.remote, b"")

    async def read(self) -> bytes:
        """Read what the host wrote, at least one byte; ``b""`` at the end of the stream."""
        while not self._buffer:
            if self.ended:
                return b""
            await self._more()
        return self._take(len(self._buffer))

    async def exactly(self, count: int) -> bytes:
        """Read exactly *count* bytes; raise Closed if the stream ended before."""
        while len(self._buffer) < count:
            if self.ended:
                raise Closed
            # a request longer than LOW_WATER would wait for ever on an unacknowledged WRTE
            self._acknowledge(force=True)
            await self._more()
        return self._take(count)

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send *data* in WRTEs of at most `maxdata` bytes, each once the one before is acknowledged."""
        view = memoryview(data)
        for start in range(0, len(view), self.maxdata):
            while not self._writable.is_set() and not self.ended:  # another writer may be first
                await self._writable.wait()
            if self.ended:
                raise Closed
            self._writable.clear()
            self._send(WRTE, self.local, self.remote, view[start : start + self.maxdata])
            await self._drain()

    def close(self) -> None:
        """End the stream; a stream that was never accepted is refused."""
        if self._forget(self.local) and not self.ended:
            # A refusal is CLSE(0, remote): the adb server ignores a CLSE with our identifier
            # for a stream it does not know yet, and its client would hang.
            self._send(CLSE, self.local if self._accepted else 0, self.remote, b"")
        self.on_close()

    async def _more(self) -> None:
        self._readable.clear()
        await self._readable.wait()

    def _acknowledge(self, *, force: bool = False) -> None:
        while self._unacknowledged and not self.ended and (force or len(self._buffer) <= LOW_WATER):
            self._unacknowledged -= 1
            self._send(OKAY, self.local, self.remote, b"")

    def _take(self, count: int) -> bytes:
        taken = bytes(memoryview(self._buffer)[:count])
        del self._buffer[:count]  # CPython moves the start; it copies only where it shrinks the buffer
        self._acknowledge()
        return taken


Service = Callable[[Stream], Awaitable[None]]


@dataclass(frozen=True)
class Listener:
    """A `reverse:` listener: the device's listening server and where the host is to connect."""

    server: asyncio.Server
    remote: str


class Transport:
    """One connection; *find* gives the service of an OPEN's destination, or None to refuse it."""

    def __init__(
        self, link: Link, banner: Callable[[], bytes], find: Callable[[Transport, str], Service | None]
    ) -> None:
        self.link, self._banner, self._find = link, banner, find
        self._host_version, self._maxdata = VERSION_CHECKSUM, 4096
        self._online = False
        self._locals = itertools.count(1)
        self._streams: dict[int, Stream] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.listeners: dict[str, Listener] = {}

    async def run(self) -> None:
        """Serve the connection until it ends; then every stream, task and listener of it ends."""
        try:
            while True:
                self._packet(await self.link.receive(verified=self.link.summed and self._online))
        except (asyncio.IncompleteReadError, ConnectionError):
            log.debug("the adb server is gone")
        except ProtocolError as error:
            log.warning("connection dropped: %s", error)
        finally:
            for listener in self.listeners.values():
                listener.server.close()
            for stream in list(self._streams.values()):
                stream.on_close()
            self.link.close()
            if self._tasks:  # services notice the end of their streams and clean up behind themselves
                await asyncio.wait(set(self._tasks), timeout=2)
                for task in set(self._tasks):
                    task.cancel()

    def _packet(self, packet: Packet) -> None:
        if packet.command == CNXN:
            self._on_connect(packet)
        elif packet.command == STLS:
            raise ProtocolError("TLS transports are not offered")
        elif not self._online:
            raise ProtocolError("packet before the handshake")
        elif packet.command == OPEN:
            self._on_open(packet)
        else:
            self._on_stream(packet)

    def _on_connect(self, packet: Packet) -> None:
        self._host_version = packet.arg0
        self._maxdata = max(1, min(packet.arg1, MAX_PAYLOAD))
        self._accept()

    def _accept(self) -> None:
        # This reply still carries a checksum: the host learns only now that it may skip it.
        self.link.summed = True
        self.link.send(CNXN, VERSION_SKIP, MAX_PAYLOAD, self._banner())
        self.link.summed = min(self._host_version, VERSION_SKIP) < VERSION_SKIP
        self._online = True

    def _on_open(self, packet: Packet) -> None:
        destination = packet.payload.rstrip(b"\0").decode("utf-8", "surrogateescape")
        log.debug("open %s", destination[:200])
        service = self._find(self, destination)
        if service is None:
            log.debug("refused: %s", destination[:200])
            self.link.send(CLSE, 0, packet.arg0)
            return
        stream = self._new_stream(packet.arg0)
        task = asyncio.ensure_future(self._serve(stream, service, destination))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _on_stream(self, packet: Packet) -> None:
        stream = self._streams.get(packet.arg1)
        if stream is None:
            if packet.command == WRTE:  # a stream that we closed in the meantime
                self.link.send(CLSE, 0, packet.arg0)
        elif packet.command == OKAY:
            stream.on_okay(packet.arg0)
        elif packet.command == WRTE:
            stream.on_write(packet.payload)
        elif packet.command == CLSE:
            del self._streams[packet.arg1]
            stream.on_close()
        else:
            raise ProtocolError(f"unknown command {packet.command:#010x}")

    def _forget(self, local: int) -> bool:
        return self._streams.pop(local, None) is not None

    def _new_stream(self, remote: int) -> Stream:
        link, local = self.link, next(self._locals)
        stream = Stream(local, remote, self._maxdata, link.send, link.drain, self._forget)
        self._streams[local] = stream
        return stream

    async def _serve(self, stream: Stream, service: Service, destination: str) -> None:
        try:
            await service(stream)
        except (Closed, ConnectionError):
            pass
        except Exception:
            log.exception("service %s failed", destination[:200])
        finally:
            stream.close()

    async def open_on_host(self, destination: str) -> Stream | None:
        """Open a stream to *destination* (``tcp:PORT``...) on the host; None when it refuses."""
        stream = self._new_stream(0)
        self.link.send(OPEN, stream.local, 0, destination.encode() + b"\0")
        if await stream.answered:
            return stream
        self._forget(stream.local)
        return None
