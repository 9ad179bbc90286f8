"""Sockets on the device: ``tcp:``, ``localabstract:`` and ``localfilesystem:``, forward and reverse.

The device has its own network namespace, so its ``tcp:`` ports and abstract
names are its own: two virtual devices may both listen on 9090.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os

from adt.limits import MOST_PORT, natural
from adt.virtual.transport import Closed, Listener, Stream, Transport

log = logging.getLogger("adt.virtual.forwarding")

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]

KINDS = ("tcp", "localabstract", "localfilesystem", "local")


def length_prefixed(text: str) -> bytes:
    """Four hex digits of length and the text."""
    raw = text.encode()
    return b"%04x" % len(raw) + raw


async def connect(address: str) -> Connection:
    """Connect to *address* on the device."""
    kind, _, rest = address.partition(":")
    if kind == "tcp":
        text, _, host = rest.partition(":")
        host = "127.0.0.1" if host in ("", "localhost") else host
        if (port := natural(text, MOST_PORT)) is None:
            raise OSError(f"bad port in {address}")
        return await asyncio.open_connection(host, port)
    return await asyncio.open_unix_connection("\0" + rest if kind == "localabstract" else rest)


async def pump(stream: Stream, connection: Connection) -> None:
    """Copy both ways until one side ends; ADB has no half-closed streams."""
    reader, writer = connection

    async def inward() -> None:
        while data := await stream.read():
            writer.write(data)
            await writer.drain()

    async def outward() -> None:
        while data := await reader.read(1 << 18):
            await stream.write(data)

    tasks = [asyncio.ensure_future(inward()), asyncio.ensure_future(outward())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def forward(stream: Stream, address: str) -> None:
    """Serve a host's connection to *address*; without a listener the stream is refused."""
    try:
        connection = await connect(address)
    except OSError as error:
        log.debug("%s: %s", address, error)
        return
    stream.accept()
    await pump(stream, connection)


class Reverse:
    """The `reverse:` requests of one transport; its listeners live as long as the transport."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def serve(self, stream: Stream, request: str) -> None:
        """Answer *request* (what follows ``reverse:``) inside the stream: OKAY, FAIL or a list."""
        stream.accept()
        verb, _, argument = request.partition(":")
        try:
            if verb == "list-forward":
                rows = (
                    f"host-{os.getpid()} {local} {listener.remote}\n"
                    for local, listener in self._transport.listeners.items()
                )
                answer = length_prefixed("".join(rows))
            elif verb == "forward":
                answer = b"OKAY" + await self._listen(argument)
            elif verb == "killforward-all":
                for local in list(self._transport.listeners):
                    self._drop(local)
                answer = b"OKAY"
            elif verb == "killforward":
                if argument not in self._transport.listeners:
                    raise ValueError(f"listener '{argument}' not found")
                self._drop(argument)
                answer = b"OKAY"
            else:
                raise ValueError(f"unknown reverse request '{verb}'")
        except ValueError as error:
            answer = b"FAIL" + length_prefixed(str(error))
        await stream.write(answer)

    def _drop(self, local: str) -> None:
        self._transport.listeners.pop(local).server.close()

    async def _listen(self, argument: str) -> bytes:
        """Start a listener for ``[norebind:]LOCAL;REMOTE``, of tcp:0 return the port; the host gets a
        ValueError's text."""
        keep = argument.startswith("norebind:")
        local, _, remote = argument.removeprefix("norebind:").partition(";")
        kind, _, address = local.partition(":")
        if kind not in ("tcp", "localabstract") or not remote:
            raise ValueError(f"cannot listen on '{local}'")
        if kind == "tcp" and (port := natural(address, MOST_PORT)) is None:
            raise ValueError(f"bad port in '{local}'")
        if local in self._transport.listeners:
            if keep:
                raise ValueError("cannot rebind existing socket")
            self._drop(local)

        async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            stream = await self._transport.open_on_host(remote)
            if stream is None:
                writer.close()
                return
            try:
                with contextlib.suppress(Closed, ConnectionError):
                    await pump(stream, (reader, writer))
            finally:
                stream.close()

        try:
            if kind == "tcp":
                server = await asyncio.start_server(on_connection, "127.0.0.1", port)
            else:
                server = await asyncio.start_unix_server(on_connection, "\0" + address)
        except OSError as error:
            raise ValueError(f"cannot bind listener: {os.strerror(error.errno or 0)}") from error
        port = server.sockets[0].getsockname()[1] if local == "tcp:0" else None
        self._transport.listeners[local if port is None else f"tcp:{port}"] = Listener(server, remote)
        return b"" if port is None else length_prefixed(str(port))
