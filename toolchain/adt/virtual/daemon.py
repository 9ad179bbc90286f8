"""The daemon of the virtual device: takes connections of adb servers, finds the service for each request.

Of these, this module has the sockets: ``tcp:``, ``localabstract:`` and ``localfilesystem:``, forward and
reverse. They are in the device's own network namespace: two virtual devices may both listen on 9090.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from adt.limits import MOST_PORT, natural
from adt.virtual import namespaces, properties, rootfs, shell, sync, wire
from adt.virtual.wire import Closed, Listener, Service, Stream, Transport

log = logging.getLogger("adt.virtual.daemon")

FEATURES = ("shell_v2", "stat_v2", "ls_v2", "fixed_push_mkdir", "fixed_push_symlink_timestamp", "sendrecv_v2")
"""Features of this daemon. Not listed and therefore not asked for: delayed_ack (other flow control),
sendrecv_v2_brotli/lz4/zstd (compression), cmd and abb (Android's package manager)."""
NOT_OFFERED = ("remount", "reboot", "tcpip", "usb", "disable-verity", "enable-verity")
"""Requests that get an answer in words, because a refusal would tell nobody why."""


def environment(hostname: str) -> dict[str, str]:
    """Build the environment of every command, close to Android's."""
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
        """Return the payload of our CNXN."""
        return wire.banner(properties.read(Path(properties.STORE)), FEATURES)

    def transport(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Transport:
        """Return what serves one connection."""
        return Transport(wire.Link(reader, writer), self.hello, self.find)

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        log.info("an adb server connected")
        # cancelled when the device stops: nothing of that is worth a traceback in the log
        with contextlib.suppress(asyncio.CancelledError):
            await self.transport(reader, writer).run()
        log.info("an adb server disconnected")

    def find(self, transport: Transport, destination: str) -> Service | None:
        """Find the service for *destination*; None refuses it."""
        name, _, rest = destination.partition(":")
        kind = name.partition(",")[0]
        if kind == "shell" or name == "exec":
            request = shell.parse(destination)
            return lambda stream: shell.serve(stream, request, rootfs.SHELL, self._environment)
        if name == "sync":
            return lambda stream: sync.Session(stream).run()
        if name in KINDS and rest:
            return lambda stream: forward(stream, destination)
        if name == "reverse":
            return lambda stream: reverse(transport, stream, rest)
        if name == "root":
            return say("adbd is already running as root\n")
        if name == "unroot":
            return say("the virtual device has no other user than root\n")
        if name in NOT_OFFERED:
            return say(f"{name} is not offered by the virtual device: it is not Android\n")
        return None


def say(answer: str) -> Callable[[Stream], Awaitable[None]]:
    """Make a service that answers one text."""

    async def service(stream: Stream) -> None:
        stream.accept()
        await stream.write(answer.encode())

    return service


async def serve(listening: socket.socket, daemon: Daemon, ready: Callable[[], None], peers: Peers) -> None:
    """Serve *peers* that connect to *listening*, until SIGTERM; *ready* is called once it is served."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await peers.admit(writer.get_extra_info("socket")):
            await daemon.connected(reader, writer)
        writer.close()

    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    # at most 4 MiB wait between the socket and the packet reader
    server = await asyncio.start_server(connected, sock=listening, limit=4 << 20)
    ready()
    await stop.wait()
    server.close()
    log.info("stopped")


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]

KINDS = ("tcp", "localabstract", "localfilesystem", "local")


def length_prefixed(text: str) -> bytes:
    """Encode the text with its length in four hex digits before it."""
    raw = text.encode()
    return b"%04x" % len(raw) + raw


async def connect(address: str) -> Connection:
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


async def reverse(transport: Transport, stream: Stream, request: str) -> None:
    """Answer *request* (what follows ``reverse:``) inside the stream: OKAY, FAIL or a list."""
    stream.accept()
    verb, _, argument = request.partition(":")
    listeners, answer = transport.listeners, b"OKAY"
    try:
        if verb == "list-forward":
            rows = (f"host-{os.getpid()} {local} {each.remote}\n" for local, each in listeners.items())
            answer = length_prefixed("".join(rows))
        elif verb == "forward":
            answer += await listen(transport, argument)
        elif verb == "killforward-all":
            while listeners:
                listeners.popitem()[1].server.close()
        elif verb != "killforward":
            raise ValueError(f"unknown reverse request '{verb}'")
        elif argument in listeners:
            listeners.pop(argument).server.close()
        else:
            raise ValueError(f"listener '{argument}' not found")
    except ValueError as error:
        answer = b"FAIL" + length_prefixed(str(error))
    await stream.write(answer)


async def listen(transport: Transport, argument: str) -> bytes:
    """Start a listener for ``[norebind:]LOCAL;REMOTE``; the host gets the text of a ValueError."""
    keep = argument.startswith("norebind:")
    local, _, remote = argument.removeprefix("norebind:").partition(";")
    kind, _, address = local.partition(":")
    if kind not in ("tcp", "localabstract") or not remote:
        raise ValueError(f"cannot listen on '{local}'")
    if kind == "tcp" and (port := natural(address, MOST_PORT)) is None:
        raise ValueError(f"bad port in '{local}'")
    if local in transport.listeners:
        if keep:
            raise ValueError("cannot rebind existing socket")
        transport.listeners.pop(local).server.close()

    async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        stream = await transport.open_on_host(remote)
        if stream is None:
            writer.close()
            return
        with contextlib.closing(stream), contextlib.suppress(Closed, ConnectionError):
            await pump(stream, (reader, writer))

    try:
        if kind == "tcp":
            server = await asyncio.start_server(on_connection, "127.0.0.1", port)
        else:
            server = await asyncio.start_unix_server(on_connection, "\0" + address)
    except OSError as error:
        raise ValueError(f"cannot bind listener: {os.strerror(error.errno or 0)}") from error
    port = server.sockets[0].getsockname()[1] if local == "tcp:0" else None
    transport.listeners[local if port is None else f"tcp:{port}"] = Listener(server, remote)
    return b"" if port is None else length_prefixed(str(port))


TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
MAPPED = "0000000000000000FFFF0000"
"""Prefix of an IPv4 address in the table of IPv6 connections."""
ESTABLISHED = 1
TRIES, PAUSE = 5, 0.05
"""The table is no snapshot: a row can be missed while others come and go."""

Address = tuple[str, int]


class Peers:
    """Users of this machine whose adb servers the device serves: the one who started it, and root.

    The kernel's table of TCP connections has the user of each end. It is opened before the device gets a
    network of its own, so it stays the host's. A row counts only while it is sure whose it is: once a program
    has closed its end, the kernel shows root as the owner, and the port may become another's; so the peer's
    end must be connected and owned by a process, and afterwards ours still be connected to it.
    """

    def __init__(self) -> None:
        self.admitted = {0, os.getuid()}
        """User ids of this machine."""
        self._tables = [Path(path).open() for path in TABLES if Path(path).exists()]  # noqa: SIM115

    def close(self) -> None:
        for table in self._tables:
            table.close()

    async def admit(self, connection: socket.socket) -> bool:
        """True if the peer is a user whom the device serves; else that is logged."""
        uid = None
        with contextlib.suppress(OSError):  # it is gone
            ours, peer = connection.getsockname(), connection.getpeername()
            for _ in range(TRIES):
                if (uid := self.owner(peer, ours)) is not None:
                    break
                await asyncio.sleep(PAUSE)
            state, *_ = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
            if uid in self.admitted and state == ESTABLISHED:
                return True
        whose = "an unknown user" if uid is None else f"user {uid}"
        log.warning("a connection of %s is refused: only its starter and root may use the device", whose)
        return False

    def owner(self, local: Address, remote: Address) -> int | None:
        """Return the user of the end *local* of a connection to *remote*; None if no process has it."""
        ends = [_row_address(local), _row_address(remote)]
        for table in self._tables:
            table.seek(0)
            for row in table:
                fields = row.split()
                if [field.removeprefix(MAPPED) for field in fields[1:3]] == ends:
                    connected, inode = int(fields[3], 16) == ESTABLISHED, int(fields[9])
                    return int(fields[7]) if connected and inode else None
        return None


def _row_address(address: Address) -> str:
    host, port = address
    return f"{int.from_bytes(socket.inet_aton(host), sys.byteorder):08X}:{port:04X}"
