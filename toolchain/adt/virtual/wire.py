"""Packets of the ADB transport protocol.

A packet is a 24-byte header of six little-endian uint32 (command, arg0, arg1,
payload length, checksum, command ^ 0xffffffff) and the payload. The checksum is
the sum of the payload's bytes; two sides that both speak ``VERSION_SKIP`` leave it 0.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import struct
from collections.abc import Callable
from dataclasses import dataclass

from adt.virtual.faults import Fault, Injector

CNXN = int.from_bytes(b"CNXN", "little")
AUTH = int.from_bytes(b"AUTH", "little")
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

AUTH_TOKEN, AUTH_SIGNATURE, AUTH_PUBLIC_KEY = 1, 2, 3

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
    """The sum of the payload's bytes, modulo 2**32."""
    return sum(payload) & 0xFFFFFFFF


def header(
    command: int, arg0: int, arg1: int, payload: bytes | memoryview = b"", *, summed: bool = False
) -> bytes:
    """The 24 header bytes of a packet; *summed* fills in the checksum."""
    total = checksum(payload) if summed else 0
    return HEADER.pack(command, arg0, arg1, len(payload), total, command ^ 0xFFFFFFFF)


async def read_packet(reader: asyncio.StreamReader, *, summed: bool) -> Packet:
    """Read the next packet; *summed* says whether its checksum counts.

    Raises:
        asyncio.IncompleteReadError: the peer closed the connection.
        ProtocolError: bad magic, bad checksum or a payload above MAX_PAYLOAD.
    """
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
    """The payload of our CNXN: ``device::key=value;...features=a,b``.

    Of the properties only the three that `adb devices -l` shows are sent, without
    the characters that separate fields.
    """
    keys = ("ro.product.name", "ro.product.model", "ro.product.device")
    fields = "".join(f"{key}={properties.get(key, '').replace(';', ' ')};" for key in keys)
    return f"device::{fields}features={','.join(features)}".encode()


log = logging.getLogger("adt.virtual.link")

LAST_BYTES = 0.01
"""Seconds that the device gets to take what arrived just before the link failed."""


class Link:
    """One TCP connection, as packets.

    Args:
        deliver: takes the packets that arrived while the device was stalled, when it goes on.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        injector: Injector,
        deliver: Callable[[Packet], None],
    ) -> None:
        self._reader, self._writer, self._injector, self._deliver = reader, writer, injector, deliver
        self.summed = True  # whether packets carry checksums
        self._carried = 0
        self._rate: int | None = None
        self._free_at = 0.0  # when the link is free to send again
        self._doomed: Fault | None = None
        self.stalled = False
        self._unread: list[Packet] = []  # arrived while the device was stalled
        self._unsent: list[tuple[int, int, int, bytes]] = []

    # what the transport calls ------------------------------------------------------------------

    async def receive(self, *, verified: bool) -> Packet:
        """The next packet for the device; a stalled one gets none.

        Args:
            verified: whether its checksum counts.

        Raises:
            asyncio.IncompleteReadError, ConnectionError: the connection is gone.
            ProtocolError: what arrived is no packet.
        """
        while True:
            if self._doomed:
                await asyncio.sleep(LAST_BYTES)
                self._fail(self._doomed)
            packet = await read_packet(self._reader, summed=verified)
            if self.stalled:
                self._unread.append(packet)
                continue
            if packet.command != WRTE:
                return packet
            if slow := self._slow():
                await asyncio.sleep(len(packet.payload) / slow)
            before = self._carried
            fault = self._count(len(packet.payload))
            if fault is None:
                return packet
            if fault.kind == "stall-after":
                self._stall()
                self._unread.append(packet)
                continue
            self._doomed = fault
            part = packet.payload[: max(0, (fault.amount or 0) - before)]
            return Packet(packet.command, packet.arg0, packet.arg1, part)

    def send(self, command: int, arg0: int, arg1: int, payload: bytes | memoryview = b"") -> None:
        """Put one packet into the connection's buffer."""
        if self._writer.is_closing() or self._doomed:
            return
        if command == WRTE and not self.stalled:
            if slow := self._slow():
                now = asyncio.get_running_loop().time()
                self._free_at = max(now, self._free_at) + len(payload) / slow
            fault = self._count(len(payload))
            if fault is not None and fault.kind == "stall-after":
                self._stall()
            elif fault is not None:
                with contextlib.suppress(ConnectionError):
                    self._fail(fault)
                return
        if self.stalled:
            self._unsent.append((command, arg0, arg1, bytes(payload)))
            return
        self._writer.write(header(command, arg0, arg1, payload, summed=self.summed))
        if payload:
            self._writer.write(payload)

    async def drain(self) -> None:
        """Wait until the connection's own buffer is short, and a slow link is free again."""
        await self._writer.drain()
        if self._rate is not None:
            await asyncio.sleep(self._free_at - asyncio.get_running_loop().time())

    def on_faults(self) -> None:
        """Other faults are armed: count afresh; a stalled device goes on where it stopped."""
        self._carried, self._rate, self._doomed = 0, None, None
        if not self.stalled:
            return
        self.stalled = False
        unsent, self._unsent = self._unsent, []
        unread, self._unread = self._unread, []
        for words in unsent:
            self.send(*words)
        for packet in unread:
            self._deliver(packet)

    def abort(self) -> None:
        """Cut the connection at once, as a pulled cable does."""
        self._writer.transport.abort()

    def close(self) -> None:
        """Close the connection once what was sent is out."""
        self._writer.close()

    # inside ------------------------------------------------------------------------------------

    def _slow(self) -> int | None:
        if self._rate is None and (fault := self._injector.strikes("bandwidth")):
            self._rate = fault.amount
        return self._rate

    def _count(self, length: int) -> Fault | None:
        """Note *length* bytes; the fault that strikes with them."""
        self._carried += length
        for kind in ("drop-after", "reboot-after", "stall-after"):
            fault = self._injector.get(kind)
            if fault is not None and self._carried > (fault.amount or 0):
                return self._injector.strikes(kind)
        return None

    def _stall(self) -> None:
        log.warning("the link stalls after %d bytes", self._carried)
        self.stalled = True

    def _fail(self, fault: Fault) -> None:
        """Cut the connection, or restart the device, which cuts it too.

        Raises:
            ConnectionAbortedError: always.
        """
        log.warning("the link fails (%s) after %d bytes", fault, self._carried)
        if fault.kind == "reboot-after":
            self._injector.on_reboot()
        self.abort()
        raise ConnectionAbortedError
