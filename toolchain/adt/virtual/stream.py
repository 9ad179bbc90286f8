"""One ADB stream with the classic flow control: one unacknowledged WRTE in each direction.

We acknowledge (OKAY) what the host wrote only while little of it waits to be
consumed, so a push larger than memory moves at the pace of the disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from adt.virtual import wire

LOW_WATER = 1 << 20
"""Bytes that may wait in a stream before the host's next WRTE stays unacknowledged."""
COMPACT = 4 << 20
"""Consumed bytes at the front of the buffer above which it is moved."""


class Closed(Exception):
    """The stream ended while more was to be read or written."""


class Stream:
    """A stream between a service here and a client of the adb server.

    Args:
        local: our identifier, not 0.
        remote: the host's identifier; 0 while a stream that we opened is not answered.
        maxdata: most bytes in one WRTE.
        send: writes one packet to the transport.
        drain: waits until the transport's own buffer is short.
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
        self._buffer, self._position, self._unacknowledged = bytearray(), 0, 0
        self._accepted = False
        self.ended = False
        self.keep: Callable[[int, int], int | None] = lambda written, length: None
        """Fault injection: see :meth:`adt.virtual.injection.Injector.keep`."""
        self._written = 0
        self._readable, self._writable = asyncio.Event(), asyncio.Event()
        self.answered: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    # what the transport calls ------------------------------------------------------------------

    def on_okay(self, remote: int) -> None:
        """The host accepted our OPEN, or consumed our last WRTE."""
        self.remote, self._accepted = remote, True
        if not self.answered.done():
            self.answered.set_result(True)
        self._writable.set()

    def on_write(self, payload: bytes) -> None:
        """The host wrote *payload*."""
        self._buffer += payload
        self._unacknowledged += 1
        self._readable.set()
        self._acknowledge()

    def on_close(self) -> None:
        """The host closed the stream, or the transport is gone."""
        self.ended = True
        self._readable.set()
        self._writable.set()
        if not self.answered.done():
            self.answered.set_result(False)

    # what services call ------------------------------------------------------------------------

    def accept(self) -> None:
        """Answer the host's OPEN with OKAY; until then `close` is a refusal."""
        self._accepted = True
        self._writable.set()
        self._send(wire.OKAY, self.local, self.remote, b"")

    async def read(self) -> bytes:
        """Whatever the host wrote, at least one byte; ``b""`` at the end of the stream."""
        while not self._waiting():
            if self.ended:
                return b""
            await self._more()
        return self._take(self._waiting())

    async def exactly(self, count: int) -> bytes:
        """The next *count* bytes.

        Raises:
            Closed: the stream ended before.
        """
        while self._waiting() < count:
            if self.ended:
                raise Closed
            # a request longer than LOW_WATER would wait for ever on an unacknowledged WRTE
            self._acknowledge(force=True)
            await self._more()
        return self._take(count)

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send *data* in WRTEs of at most `maxdata` bytes, each once the one before is acknowledged.

        Raises:
            Closed: the host closed the stream, or a fault did.
        """
        view = memoryview(data)
        short = self.keep(self._written, len(view))
        if short is not None:
            view = view[:short]
        self._written += len(view)
        for start in range(0, len(view), self.maxdata):
            while not self._writable.is_set() and not self.ended:
                await self._writable.wait()
            if self.ended:
                raise Closed
            self._writable.clear()
            self._send(wire.WRTE, self.local, self.remote, view[start : start + self.maxdata])
            await self._drain()
        if short is not None:
            self.close()
            raise Closed

    def close(self) -> None:
        """End the stream; a stream that was never accepted is refused."""
        if self._forget(self.local) and not self.ended:
            # A refusal is CLSE(0, remote): the adb server ignores a CLSE with our identifier
            # for a stream it does not know yet, and its client would hang.
            self._send(wire.CLSE, self.local if self._accepted else 0, self.remote, b"")
        self.on_close()

    # inside ------------------------------------------------------------------------------------

    def _waiting(self) -> int:
        return len(self._buffer) - self._position

    async def _more(self) -> None:
        self._readable.clear()
        await self._readable.wait()

    def _acknowledge(self, *, force: bool = False) -> None:
        while self._unacknowledged and not self.ended and (force or self._waiting() <= LOW_WATER):
            self._unacknowledged -= 1
            self._send(wire.OKAY, self.local, self.remote, b"")

    def _take(self, count: int) -> bytes:
        start = self._position
        taken = bytes(memoryview(self._buffer)[start : start + count])
        self._position += count
        if self._position == len(self._buffer):
            self._buffer.clear()
            self._position = 0
        elif self._position > COMPACT:
            del self._buffer[: self._position]
            self._position = 0
        self._acknowledge()
        return taken
