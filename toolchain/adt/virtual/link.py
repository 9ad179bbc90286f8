"""The cable between an adb server and the device: packets in both directions, and what can befall them.

Faults of the link count bytes of stream data (payloads of WRTE), both ways
together, for each connection from its start or from when the faults were armed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from adt.virtual import wire
from adt.virtual.faults import Fault
from adt.virtual.injection import Injector

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
        deliver: Callable[[wire.Packet], None],
    ) -> None:
        self._reader, self._writer, self._injector, self._deliver = reader, writer, injector, deliver
        self.summed = True  # whether packets carry checksums
        self._carried = 0
        self._rate: int | None = None
        self._free_at = 0.0  # when the link is free to send again
        self._doomed: Fault | None = None
        self.stalled = False
        self._unread: list[wire.Packet] = []  # arrived while the device was stalled
        self._unsent: list[tuple[int, int, int, bytes]] = []

    # what the transport calls ------------------------------------------------------------------

    async def receive(self, *, verified: bool) -> wire.Packet:
        """The next packet for the device; a stalled one gets none.

        Args:
            verified: whether its checksum counts.

        Raises:
            asyncio.IncompleteReadError, ConnectionError: the connection is gone.
            wire.ProtocolError: what arrived is no packet.
        """
        while True:
            if self._doomed:
                await asyncio.sleep(LAST_BYTES)
                self._fail(self._doomed)
            packet = await wire.read_packet(self._reader, summed=verified)
            if self.stalled:
                self._unread.append(packet)
                continue
            if packet.command != wire.WRTE:
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
            return wire.Packet(packet.command, packet.arg0, packet.arg1, part)

    def send(self, command: int, arg0: int, arg1: int, payload: bytes | memoryview = b"") -> None:
        """Put one packet into the connection's buffer."""
        if self._writer.is_closing() or self._doomed:
            return
        if command == wire.WRTE and not self.stalled:
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
        self._writer.write(wire.header(command, arg0, arg1, payload, summed=self.summed))
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
