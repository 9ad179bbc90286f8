"""The daemon of the virtual device: takes connections of adb servers, finds the service for each request."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

from adt.virtual import forwards, namespaces, properties, rootfs, shell, sync, wire
from adt.virtual.peers import Peers
from adt.virtual.transport import Service, Stream, Transport

log = logging.getLogger("adt.virtual.daemon")

READER_LIMIT = 4 << 20
"""Bytes that wait between the socket and the packet reader."""
FEATURES = ("shell_v2", "stat_v2", "ls_v2", "fixed_push_mkdir", "fixed_push_symlink_timestamp", "sendrecv_v2")
"""Features of this daemon. Not listed and therefore not asked for: delayed_ack (other flow control),
sendrecv_v2_brotli/lz4/zstd (compression), cmd and abb (Android's package manager)."""
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
        "SHELL": rootfs.SHELL,
        "HOSTNAME": hostname,
        "ANDROID_ROOT": "/system",
        "ANDROID_DATA": "/data",
        "EXTERNAL_STORAGE": "/sdcard",
    }


class Daemon:
    """The device as the hosts see it."""

    capabilities = namespaces.FILE_CAPABILITIES
    """Capabilities of its process; programs of the device have at most those over files."""

    def __init__(self, name: str) -> None:
        self._environment = environment(name)

    def shell_problem(self) -> str:
        """Start the shell once, its output to the log; return why it does not start, else an empty text."""
        try:
            code = subprocess.run([rootfs.SHELL, "-c", ":"], env=self._environment, check=False).returncode
        except OSError as error:
            return f"its shell does not start: {error}"
        return f"its shell, {rootfs.SHELL}, does not start: it ends with {code}" if code else ""

    def hello(self) -> bytes:
        """The payload of our CNXN."""
        return wire.banner(properties.read(Path(properties.STORE)), FEATURES)

    def transport(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Transport:
        """Return what serves one connection."""
        return Transport(wire.Link(reader, writer), self.hello, self.find)

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection to its end."""
        log.info("an adb server connected")
        # cancelled when the device stops: nothing of that is worth a traceback in the log
        with contextlib.suppress(asyncio.CancelledError):
            await self.transport(reader, writer).run()
        log.info("an adb server disconnected")

    def find(self, transport: Transport, destination: str) -> Service | None:
        """The service for *destination*, or None to refuse it."""
        name, _, rest = destination.partition(":")
        kind = name.partition(",")[0]
        if kind == "shell" or name == "exec":
            request = shell.parse(destination)
            return lambda stream: shell.serve(stream, request, rootfs.SHELL, self._environment)
        if name == "sync":
            return lambda stream: sync.Session(stream).run()
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


def serve(listening: socket.socket, daemon: Daemon, ready: Callable[[], None], peers: Peers) -> None:
    """Serve *peers* that connect to *listening*, until SIGTERM; *ready* is called once it is served."""
    asyncio.run(_serve(listening, daemon, ready, peers))


async def _serve(listening: socket.socket, daemon: Daemon, ready: Callable[[], None], peers: Peers) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await peers.admit(writer.get_extra_info("socket")):
            await daemon.connected(reader, writer)
        writer.close()

    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    server = await asyncio.start_server(connected, sock=listening, limit=READER_LIMIT)
    ready()
    await stop.wait()
    server.close()
    log.info("stopped")
