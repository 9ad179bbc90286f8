"""The daemon of the virtual device: takes connections of adb servers, one Transport for each."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from adt.virtual import control, faults, properties, reboot, wire
from adt.virtual.injection import Injector
from adt.virtual.services import Services, environment
from adt.virtual.transport import FEATURES, Transport

log = logging.getLogger("adt.virtual.daemon")

READER_LIMIT = 4 << 20
"""Bytes that wait between the socket and the packet reader."""


@dataclass
class Daemon:
    """The device as the hosts see it."""

    name: str
    injector: Injector = field(default_factory=Injector)
    transports: set[Transport] = field(default_factory=set)
    down_until: float = 0.0
    """The event loop's time until which connections are cut at once."""

    def __post_init__(self) -> None:
        self.at_boot = properties.read(Path(properties.STORE))
        self.services = Services(environment(self.name), self.injector)
        self.injector.on_change = self._tell_everyone
        self.injector.on_new_handshake = self._cut_everyone_off
        self.injector.on_reboot = self._reboot

    def hello(self) -> bytes:
        """The payload of our CNXN."""
        return wire.banner(properties.read(Path(properties.STORE)), self.injector.features(FEATURES))

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection to its end."""
        if asyncio.get_running_loop().time() < self.down_until:
            writer.transport.abort()
            return
        log.info("an adb server connected")
        transport = Transport(reader, writer, self.hello, self.injector, self.services.find)
        self.transports.add(transport)
        # cancelled when the device stops: nothing of that is worth a traceback in the log
        with contextlib.suppress(asyncio.CancelledError):
            await transport.run()
        self.transports.discard(transport)
        log.info("an adb server disconnected")

    def _tell_everyone(self) -> None:
        for transport in list(self.transports):
            transport.on_faults()

    def _cut_everyone_off(self) -> None:
        for transport in list(self.transports):
            transport.link.abort()

    def _reboot(self) -> None:
        log.warning("the device restarts")
        self.injector.boots += 1
        self.down_until = asyncio.get_running_loop().time() + reboot.DOWN
        self._cut_everyone_off()
        reboot.restart(self.at_boot)


def serve(
    listening: socket.socket,
    controlling: socket.socket,
    name: str,
    specifications: Sequence[str],
    ready: Callable[[], None],
) -> None:
    """Serve *listening* until SIGTERM.

    Args:
        listening: where adb servers connect.
        controlling: where the faults are changed.
        name: the device's name.
        specifications: the faults that are armed from the start.
        ready: called once connections are taken.
    """
    asyncio.run(_serve(listening, controlling, name, specifications, ready))


async def _serve(
    listening: socket.socket,
    controlling: socket.socket,
    name: str,
    specifications: Sequence[str],
    ready: Callable[[], None],
) -> None:
    daemon = Daemon(name)
    daemon.injector.replace(faults.parse(specifications))
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    control_server = await control.serve(controlling, daemon.injector)
    server = await asyncio.start_server(daemon.connected, sock=listening, limit=READER_LIMIT)
    ready()
    await stop.wait()
    server.close()
    control_server.close()
    log.info("stopped")
