"""The daemon of the virtual device: takes connections of adb servers, one Transport for each."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable
from pathlib import Path

from adt.device.virtual import properties, wire
from adt.device.virtual.faults import Faults
from adt.device.virtual.services import Services, environment
from adt.device.virtual.transport import FEATURES, Transport

log = logging.getLogger("adt.virtual.daemon")

READER_LIMIT = 4 << 20
"""Bytes that wait between the socket and the packet reader."""


def serve(listening: socket.socket, name: str, faults: Faults, ready: Callable[[], None]) -> None:
    """Serve *listening* until SIGTERM; *ready* is called once connections are taken."""
    asyncio.run(_serve(listening, name, faults, ready))


async def _serve(listening: socket.socket, name: str, faults: Faults, ready: Callable[[], None]) -> None:
    services = Services(environment(name))
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)

    async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        log.info("an adb server connected")
        hello = wire.banner(properties.read(Path(properties.STORE)), FEATURES)
        # cancelled when the device stops: nothing of that is worth a traceback in the log
        with contextlib.suppress(asyncio.CancelledError):
            await Transport(reader, writer, hello, faults, services.find).run()
        log.info("an adb server disconnected")

    server = await asyncio.start_server(on_connection, sock=listening, limit=READER_LIMIT)
    ready()
    await stop.wait()
    server.close()
    log.info("stopped")
