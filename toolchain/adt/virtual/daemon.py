"""The daemon of the virtual device: takes connections of adb servers, finds the service for each request."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from adt.virtual import control, faults, filesystem, forwards, properties, shell, sync, wire
from adt.virtual.faults import Injector
from adt.virtual.transport import FEATURES, Service, Stream, Transport

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
        self.down_until = asyncio.get_running_loop().time() + filesystem.DOWN
        self._cut_everyone_off()
        filesystem.restart(self.at_boot)


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


SHELL = "/system/bin/sh"

NOT_OFFERED = ("remount", "reboot", "tcpip", "usb", "disable-verity", "enable-verity")
"""Requests that get an answer in words, because a refusal would tell nobody why."""


def environment(hostname: str) -> dict[str, str]:
    """The environment of every command, close to Android's."""
    return {
        "PATH": f"{properties.TOOLS}:/system/bin:/vendor/bin",
        "HOME": "/data",
        "TMPDIR": "/data/local/tmp",
        "USER": "root",
        "LOGNAME": "root",
        "SHELL": SHELL,
        "HOSTNAME": hostname,
        "ANDROID_ROOT": "/system",
        "ANDROID_DATA": "/data",
        "EXTERNAL_STORAGE": "/sdcard",
    }


@dataclass(frozen=True)
class Services:
    """The services of one device."""

    environment: Mapping[str, str]
    injector: Injector

    def find(self, transport: Transport, destination: str) -> Service | None:
        """The service for *destination*, or None to refuse it."""
        name, _, rest = destination.partition(":")
        kind = name.partition(",")[0]
        if kind == "shell" or name == "exec":
            request = shell.parse(destination)
            return lambda stream: shell.serve(stream, request, SHELL, self.environment)
        if name == "sync":
            return lambda stream: sync.Session(stream, self.injector).run()
        if name in forwards.KINDS and rest:
            return lambda stream: forwards.forward(stream, destination)
        if name == "reverse":
            return lambda stream: forwards.Reverse(transport).serve(stream, rest)
        if name == "root":
            return say("adbd is already running as root\n")
        if name == "unroot":
            return say("the virtual device has no other user than root\n")
        if name in NOT_OFFERED:
            return say(f"{name} is not offered by the virtual device: it is not Android\n")
        return None


def say(answer: str) -> Callable[[Stream], Awaitable[None]]:
    """A service that answers one text."""

    async def service(stream: Stream) -> None:
        stream.accept()
        await stream.write(answer.encode())

    return service
