"""The daemon of a virtual device that takes faults: the product's classes, which fail where they are told to.

How the faults are changed from outside: on a connection of its own to the device's port, a packet `FAULTS`
whose payload is JSON, ``{"faults": [SPECIFICATION...]}`` to arm these in place of what was armed or ``{}`` to
ask only, is answered by one: ``{"faults": [...]}`` (what may still strike) or ``{"error": TEXT}``.
"""

import asyncio
import contextlib
import errno
import json
import logging
import os
import secrets
import shutil
import signal
import stat
from collections.abc import Callable
from pathlib import Path

from adt.virtual import filesystem, namespaces, properties, sync, wire
from adt.virtual.daemon import FEATURES, Daemon
from adt.virtual.wire import Closed, Service, Stream, Transport
from support.devices import faults
from support.devices.faults import Fault, Injector

log = logging.getLogger("adt.virtual.faults")

FAULTS = int.from_bytes(b"FLTS", "little")
"""The command of the packets that change the faults; ADB has none of that name."""
AUTH = int.from_bytes(b"AUTH", "little")
AUTH_TOKEN, AUTH_SIGNATURE, AUTH_PUBLIC_KEY = 1, 2, 3


class FaultyLink(wire.Link):
    """A connection that can be slow, be cut, and stall."""

    LAST_BYTES = 0.01
    """Seconds that the device gets to take what arrived just before the link failed."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, injector: Injector
    ) -> None:
        super().__init__(reader, writer)
        self._injector = injector
        self.deliver: Callable[[wire.Packet], None] = lambda packet: None
        """Takes the packets that arrived while the device was stalled, when it goes on."""
        self._carried = 0
        self._rate: int | None = None
        self._free_at = 0.0  # when the link is free to send again
        self._doomed: Fault | None = None
        self._stalled = False
        self._unread: list[wire.Packet] = []  # arrived while the device was stalled
        self._unsent: list[tuple[int, int, int, bytes]] = []

    async def receive(self, *, verified: bool) -> wire.Packet:
        """Return the next packet for the device; a stalled one gets none."""
        while True:
            if self._doomed:
                await asyncio.sleep(self.LAST_BYTES)
                self._fail(self._doomed)
            packet = await super().receive(verified=verified)
            if self._stalled:
                self._unread.append(packet)
                continue
            if packet.command != wire.WRTE:
                return packet
            if rate := self._limit():
                await asyncio.sleep(len(packet.payload) / rate)
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
        """Put one packet into the connection's buffer, unless the link fails at it."""
        if self._writer.is_closing() or self._doomed:
            return
        if command == wire.WRTE and not self._stalled:
            if rate := self._limit():
                now = asyncio.get_running_loop().time()
                self._free_at = max(now, self._free_at) + len(payload) / rate
            fault = self._count(len(payload))
            if fault is not None and fault.kind == "stall-after":
                self._stall()
            elif fault is not None:
                with contextlib.suppress(ConnectionError):
                    self._fail(fault)
                return
        if self._stalled:
            self._unsent.append((command, arg0, arg1, bytes(payload)))
            return
        super().send(command, arg0, arg1, payload)

    async def drain(self) -> None:
        """Wait until the connection's own buffer is short, and a slow link is free again."""
        await super().drain()
        if self._rate is not None:
            await asyncio.sleep(self._free_at - asyncio.get_running_loop().time())

    def on_faults(self) -> None:
        """Count afresh; a stalled device goes on where it stopped."""
        self._carried, self._rate, self._doomed = 0, None, None
        if not self._stalled:
            return
        self._stalled = False
        unsent, self._unsent = self._unsent, []
        unread, self._unread = self._unread, []
        for packet in unsent:
            self.send(*packet)
        for received in unread:
            self.deliver(received)

    def abort(self) -> None:
        """Cut the connection at once, as a pulled cable does."""
        self._writer.transport.abort()

    def _limit(self) -> int | None:
        """Return the bytes a second that the link carries; None: no limit."""
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
        self._stalled = True

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


class FaultyTransport(Transport):
    """A connection whose handshake can fail, and at which faults are changed."""

    link: FaultyLink

    def __init__(
        self,
        link: FaultyLink,
        banner: Callable[[], bytes],
        find: Callable[[Transport, str], Service | None],
        injector: Injector,
    ) -> None:
        super().__init__(link, banner, find)
        link.deliver = self._packet
        self._injector = injector
        self._greeted = False  # whether an adb server is at the other end

    async def run(self) -> None:
        """Serve the connection until it ends."""
        self._injector.connections.add(self)
        try:
            await super().run()
        finally:
            self._injector.connections.discard(self)

    def cut(self) -> None:
        """Cut an adb server off; who changes the faults still gets an answer."""
        if self._greeted:
            self.link.abort()

    def on_faults(self) -> None:
        self.link.on_faults()

    def _packet(self, packet: wire.Packet) -> None:
        if packet.command == FAULTS:
            self.link.send(FAULTS, 0, 0, json.dumps(change(self._injector, packet.payload)).encode())
        elif packet.command == AUTH:
            self._on_auth(packet)
        else:
            super()._packet(packet)

    def _on_connect(self, packet: wire.Packet) -> None:
        self._greeted = True
        if asyncio.get_running_loop().time() < self._injector.down_until:
            self.link.abort()
        else:
            super()._on_connect(packet)

    def _accept(self) -> None:
        if self._injector.strikes("offline"):
            log.warning("fault injection: CNXN is not answered")
        elif self._injector.get("unauthorized"):
            self._ask_for_key()
        else:
            super()._accept()

    def _ask_for_key(self) -> None:
        self.link.send(AUTH, AUTH_TOKEN, 0, secrets.token_bytes(20))

    def _on_auth(self, packet: wire.Packet) -> None:
        if packet.arg0 == AUTH_SIGNATURE:
            self._ask_for_key()  # "I do not know this key": the host tries its next one
        elif packet.arg0 == AUTH_PUBLIC_KEY and self._injector.strikes("unauthorized"):
            log.warning("fault injection: the host's key is not accepted")


def change(injector: Injector, request: bytes) -> dict[str, object]:
    """Apply the faults of a packet FAULTS, and return the answer to it."""
    try:
        specifications = json.loads(request).get("faults")
        if specifications is not None:
            injector.replace(faults.parse(specifications))
    except (ValueError, OSError) as error:
        return {"error": str(error)}
    return {"faults": [str(fault) for fault in injector.armed()]}


class FaultySession(sync.Session):
    """A `sync:` stream whose pushes can fail."""

    def __init__(self, stream: Stream, injector: Injector) -> None:
        super().__init__(stream)
        self._injector, self._boots = injector, injector.boots
        self._storing = False  # whether the DATA that arrive are stored in a file

    async def _push_file(self, path: str, mode: int) -> None:
        self._storing = True
        try:
            await super()._push_file(path, mode)
        finally:
            self._storing = False
        if stat.S_ISREG(os.lstat(path).st_mode) and self._injector.strikes("wrong-hash"):
            spoil(Path(path))

    async def _data(self) -> tuple[bytes | None, int]:
        data, seconds = await super()._data()
        if self._storing and data is not None and not self._injector.take_room(len(data)):
            raise sync.refusal("write failed", OSError(errno.ENOSPC, ""))
        return data, seconds

    def _remove_half(self, path: str) -> None:
        if self._boots == self._injector.boots:  # a device that goes down cleans nothing up
            super()._remove_half(path)


def spoil(path: Path) -> None:
    """Change the byte in the middle of a file; an empty one gets a byte."""
    status, content = path.stat(), bytearray(path.read_bytes() or b"\0")
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def end_early(stream: Stream, injector: Injector) -> Stream:
    """Let what is written to *stream* end where the fault `truncate` strikes."""
    write_whole = stream.write

    async def write(data: bytes | bytearray | memoryview) -> None:
        if not injector.strikes("truncate"):
            await write_whole(data)
            return
        await write_whole(memoryview(data)[: len(data) // 2])
        stream.close()
        raise Closed

    stream.write = write  # type: ignore[method-assign]
    return stream


class FaultyDaemon(Daemon):
    """The device as the hosts see it, with its faults."""

    DOWN = 1.0
    """Seconds in which adb servers are cut off after a restart."""
    capabilities = Daemon.capabilities | {namespaces.CAP_SYS_ADMIN}
    """For the fault `readonly`, which mounts."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.injector = Injector()
        self.injector.on_reboot = self._reboot
        self._at_boot = properties.read(Path(properties.STORE))

    def hello(self) -> bytes:
        return wire.banner(properties.read(Path(properties.STORE)), self.injector.features(FEATURES))

    def transport(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Transport:
        link = FaultyLink(reader, writer, self.injector)
        return FaultyTransport(link, self.hello, self.find, self.injector)

    def find(self, transport: Transport, destination: str) -> Service | None:
        if destination.startswith("sync:"):
            return lambda stream: FaultySession(end_early(stream, self.injector), self.injector).run()
        service = super().find(transport, destination)
        if service is None or not destination.startswith(("shell:", "shell,", "exec:")):
            return service
        return lambda stream: service(end_early(stream, self.injector))

    def _reboot(self) -> None:
        log.warning("the device restarts")
        self.injector.boots += 1
        self.injector.down_until = asyncio.get_running_loop().time() + self.DOWN
        self.injector.cut_everyone_off()
        restart(self._at_boot)


def restart(at_boot: dict[str, str]) -> None:
    """Kill everything but PID 1 and this process, and bring the memory's contents to those after a boot.

    Args:
        at_boot: the properties of a fresh start.
    """
    with contextlib.suppress(ProcessLookupError):  # there may be nobody else
        os.kill(-1, signal.SIGKILL)  # spares PID 1 and, on Linux, the caller
    for directory in ("/tmp", "/dev/shm"):
        for entry in Path(directory).iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)
    store = Path(properties.STORE)
    with contextlib.suppress(OSError):
        Path(f"{store}.lock").rmdir()
    store.write_text(properties.text(at_boot))
    filesystem.new_boot_id(Path(filesystem.BOOT_ID))
