"""Packets of the ADB transport protocol.

A packet is a 24-byte header of six little-endian uint32 (command, arg0, arg1,
payload length, checksum, command ^ 0xffffffff) and the payload. The checksum is
the sum of the payload's bytes; two sides that both speak ``VERSION_SKIP`` leave it 0.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from dataclasses import dataclass

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
    """The sum of the payload's bytes, modulo 2**32."""
    return sum(payload) & 0xFFFFFFFF


def header(
    command: int, arg0: int, arg1: int, payload: bytes | memoryview = b"", *, summed: bool = False
) -> bytes:
    """The 24 header bytes of a packet; *summed* fills in the checksum."""
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
    """The payload of our CNXN: ``device::key=value;...features=a,b``, with what `adb devices -l` shows."""
    keys = ("ro.product.name", "ro.product.model", "ro.product.device")
    fields = "".join(f"{key}={properties.get(key, '').replace(';', ' ')};" for key in keys)
    return f"device::{fields}features={','.join(features)}".encode()


class Link:
    """One TCP connection, as packets."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.summed = True  # whether packets carry checksums
        tcp_socket = writer.get_extra_info("socket")
        tcp_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    async def receive(self, *, verified: bool) -> Packet:
        """The next packet for the device."""
        return await read_packet(self._reader, summed=verified)

    def send(self, command: int, arg0: int, arg1: int, payload: bytes | memoryview = b"") -> None:
        """Put one packet into the connection's buffer."""
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
