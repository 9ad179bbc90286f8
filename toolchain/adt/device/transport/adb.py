"""The adb program and its server: found, started when needed, and asked over its own socket.

We speak the server's protocol ourselves: it is small, and one code path then has total deadlines, the
server's own failure text and ports that it chose. The ``adb`` program is only needed to start a server.
"""

from __future__ import annotations

import logging
import os
import re
import select
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from typing import TypeVar

from adt.device.transport.deadline import Deadline
from adt.errors import AdtError, ConfigError, DeviceError, DeviceNotReady, NoDevice, ToolNotFound
from adt.host import process
from adt.host.extras import install_command
from adt.host.process import Version, parse_version
from adt.limits import MOST_PORT, natural

log = logging.getLogger("adt.adb")

T = TypeVar("T")

DEFAULT_PORT = 5037
LOOPBACK = frozenset({"127.0.0.1", "localhost"})
OLD = (30,)
"""Below this major version adb has no `pair`; everything adt itself does works from 29 on."""
REQUEST_SECONDS = 20.0
"""Budget for one short question to the server."""
QUICKACK: int | None = getattr(socket, "TCP_QUICKACK", None)
"""Linux only; it holds for what comes next, so it is set again and again."""
MAX_REQUEST = 0xFFFF
"""Bytes: a request's length travels as four hex digits."""


READY = "device"
"""Name in adb of the state in which commands and files go through."""

SETTLING = frozenset({"authorizing", "connecting"})
"""States that pass by themselves within moments."""

_REMEDIES = {
    "offline": "Unplug the cable and plug it in again, or `adt adb -s SERIAL -- reconnect`; for a device "
    "on the network `adt adb -- connect SERIAL`; for a virtual device `adt emulator start`.",
    "unauthorized": 'Unlock the phone and accept "Allow USB debugging"; if nothing is shown, '
    '"Revoke USB debugging authorizations" in the developer options, then plug it in again.',
    "authorizing": 'Unlock the phone and accept "Allow USB debugging", then run the same command again.',
    "connecting": "Wait a moment and run the same command again; if it stays so, plug the device in again.",
    "no permissions": "This user may not open the USB device: install udev rules for it (Debian: "
    "`apt install android-sdk-platform-tools-common`), be in the group `plugdev`, plug it in again.",
    "recovery": "The device is in recovery: `adt adb -s SERIAL -- reboot`, then wait until it has started.",
    "sideload": "The device waits for a sideload: leave that on its screen, or `adt adb -s SERIAL -- "
    "reboot`.",
    "rescue": "The device is in rescue mode: restart it from its screen.",
    "bootloader": "The device is in its bootloader: `fastboot reboot`.",
    "host": "This is not a device but a host in device mode: unplug it.",
    "detached": "Another program holds the device: `adt adb -s SERIAL -- attach`.",
}


STATES = (READY, *sorted(SETTLING), *_REMEDIES)
NO_SERIAL = "(no serial number)"
"""Serial in a listing of a device that has none; only the number of its connection selects it."""


class ConnectionLost(DeviceError):
    """The connection to the device or to the adb server broke: what may be done twice can be tried again."""


@dataclass(frozen=True)
class Adb:
    path: Path
    version: Version
    """Version of the platform tools, e.g. ``(36, 0, 0)``; empty when it does not say."""
    origin: str
    """Source of the path: ``ADBUTILS_ADB_PATH``, ``PATH`` or ``adbutils``."""

    @property
    def old(self) -> bool:
        """Too old for all of adb's own verbs (`adb pair`), though adt works with it."""
        return self.version < OLD

    @property
    def label(self) -> str:
        number = ".".join(map(str, self.version)) or "of unknown version"
        note = "; old: no `adb pair`" if self.old else ""
        return f"{self.path} {number} (from {self.origin}{note})"


def _candidates() -> Iterator[tuple[str, Path]]:
    if path := process.which("adb"):
        yield "PATH", Path(path)
    spec = find_spec("adbutils")  # only located: importing it would pull in an image library
    if spec and spec.origin and (bundled := Path(spec.origin).parent / "binaries" / "adb").is_file():
        yield "adbutils", bundled


def _probe(origin: str, path: Path) -> Adb | None:
    try:
        done = process.run([path, "version"], timeout=10, check=False)
    except ToolNotFound:
        return None
    return Adb(path, parse_version(done.stdout, after="Version"), origin) if done.returncode == 0 else None


def find_adb() -> Adb:
    """Find adb: ADBUTILS_ADB_PATH if set, else the newer one of PATH's and the one adbutils carries."""
    explicit = os.environ.get("ADBUTILS_ADB_PATH")
    candidates = [("ADBUTILS_ADB_PATH", Path(explicit))] if explicit else _candidates()
    programs = [adb for origin, path in candidates if (adb := _probe(origin, path)) is not None]
    if explicit and not programs:
        raise ToolNotFound(
            f"ADBUTILS_ADB_PATH names {explicit}, which does not run as adb",
            remedy="Point it at an adb program, or unset it.",
        )
    if not programs:
        raise ToolNotFound(
            "no adb on this machine",
            remedy=install_command("adbutils") + "   (it carries adb); or install the platform tools",
        )
    chosen = max(programs, key=lambda adb: adb.version)
    log.debug("adb: %s", chosen.label)
    return chosen


def server_port() -> int:
    """Return the adb server's port: ADB_SERVER_SOCKET > ANDROID_ADB_SERVER_PORT > 5037, of 127.0.0.1."""
    host = os.environ.get("ANDROID_ADB_SERVER_ADDRESS") or "127.0.0.1"
    text, setting = os.environ.get("ANDROID_ADB_SERVER_PORT") or str(DEFAULT_PORT), "ANDROID_ADB_SERVER_PORT"
    if spec := os.environ.get("ADB_SERVER_SOCKET"):
        setting = "ADB_SERVER_SOCKET"
        kind, _, rest = spec.partition(":")
        if kind != "tcp":
            raise ConfigError(
                f"ADB_SERVER_SOCKET={spec} is not a TCP address",
                remedy="Use tcp:PORT or tcp:localhost:PORT, or unset it.",
            )
        named, _, text = rest.rpartition(":")
        host = named or "127.0.0.1"
    if not (port := natural(text, MOST_PORT)):
        raise ConfigError(f"{setting} names port {text!r}", remedy="Give one from 1 to 65535, or unset it.")
    if host not in LOOPBACK:
        raise ConfigError(
            f"the adb server's address is {host}; adt talks to a server on this machine only",
            remedy="Unset ANDROID_ADB_SERVER_ADDRESS and ADB_SERVER_SOCKET, or bring the remote server's "
            "port to 127.0.0.1 (`ssh -L 5037:127.0.0.1:5037 HOST`).",
        )
    return port


def server_environment() -> dict[str, str]:
    """Give variables with which an adb program uses the server on :func:`server_port`, or starts it there."""
    # Our own spelling of the address, so that adb binds the loopback whatever else the environment says.
    return {"ADB_SERVER_SOCKET": f"tcp:{server_port()}"}


class Wire(AbstractContextManager["Wire"]):
    """One connection to the adb server; methods raise DeviceError when it breaks or its deadline is over."""

    def __init__(self, sock: socket.socket, deadline: Deadline, serial: str = "") -> None:
        self.sock = sock
        self.deadline = deadline
        self.serial = serial

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; a service on the device then ends."""
        self.sock.close()

    def _patiently(self, call: Callable[[], T]) -> T:
        """Return the result of *call*, one operation of the socket, once it can be done."""
        while True:
            self.sock.settimeout(self.deadline.patience())
            try:
                result = call()
            except TimeoutError:
                continue  # the deadline says whether that was all the time there is
            except OSError as error:
                raise self.lost() from error
            self.deadline.moved()
            return result

    def lost(self) -> ConnectionLost:
        """Return the error for a connection that ended too early."""
        who = f"device {self.serial}" if self.serial else "the adb server"
        again = quote(self.serial) if self.serial else "SERIAL"
        return ConnectionLost(
            f"the connection to {who} broke while {self.deadline.doing}",
            remedy=f"Check the cable or network (`adt adb -s {again} -- get-state`), then run the same "
            "command again; what was complete on the device is still there.",
        )

    def send(self, data: bytes | bytearray | memoryview) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[self._patiently(partial(self.sock.send, rest)) :]

    def send_some(self, data: memoryview) -> int:
        """Send what fits without waiting; returns how much that was."""
        try:
            count = self.sock.send(data, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise self.lost() from error
        self.deadline.moved()
        return count

    def wait(self) -> tuple[bool, bool]:
        """Wait until there is something to read, or room to write: (readable, writable)."""
        poll = select.poll()
        poll.register(self.sock, select.POLLIN | select.POLLOUT)
        while True:
            if events := poll.poll(self.deadline.patience() * 1000):
                mask = events[0][1]
                return bool(mask & ~select.POLLOUT), bool(mask & select.POLLOUT)

    def read_some(self, limit: int = 1 << 16) -> bytes:
        """Read at least one byte; ``b""`` when the other side has hung up."""
        # The server's side of this socket holds a small piece back until the one before is acknowledged
        # (Nagle), and the kernel here takes 40 ms to do that when we only listen.
        if QUICKACK is not None:
            self.sock.setsockopt(socket.IPPROTO_TCP, QUICKACK, 1)
        return self._patiently(partial(self.sock.recv, limit))

    def read_exactly(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            data = self.read_some(min(count - len(parts), 1 << 20))
            if not data:
                raise self.lost()
            parts += data
        return bytes(parts)

    def read_text(self) -> str:
        """Read a string with its length in four hex digits before it."""
        head = self.read_exactly(4)
        try:
            length = int(head, 16)
        except ValueError as error:
            raise self.garbled(head) from error
        return self.read_exactly(length).decode(errors="replace")

    def garbled(self, data: bytes) -> DeviceError:
        """Return the error for an answer that is not the adb protocol."""
        return DeviceError(
            f"what answered while {self.deadline.doing} does not speak adb's protocol (it sent {data!r})",
            remedy="Another program may listen on the adb server's port: `adt adb -- kill-server`, or set "
            "ANDROID_ADB_SERVER_PORT to a free port.",
        )

    def status(self) -> None:
        """Read OKAY, or raise the error for FAIL with the server's text."""
        head = self.read_exactly(4)
        if head == b"FAIL":
            raise refusal(self.read_text(), serial=self.serial, doing=self.deadline.doing)
        if head != b"OKAY":
            raise self.garbled(head)

    def request(self, service: str) -> None:
        """Ask for *service* and read the server's OKAY."""
        data = os.fsencode(service)  # names on a device are bytes
        if b"\0" in data:
            raise DeviceError(
                "a command for a device has a zero byte in it", remedy="Send such data as a file."
            )
        if len(data) > MAX_REQUEST:
            raise DeviceError(
                f"a request of {len(data)} bytes is longer than adb allows ({MAX_REQUEST})",
                remedy="Split the command, or send its data as a file.",
            )
        self.send(b"%04x" % len(data) + data)
        self.status()


def state_remedy(state: str, serial: str) -> str:
    text = _REMEDIES.get(state, "Plug the device in again, or restart it; `adt devices` shows its state.")
    return text.replace("SERIAL", quote(serial))


def not_ready(serial: str, state: str) -> DeviceNotReady:
    return DeviceNotReady(f"device {serial} is not usable: {state}", remedy=state_remedy(state, serial))


def refusal(text: str, *, serial: str, doing: str) -> AdtError:
    """Turn the adb server's own refusal (its FAIL text) into an error with a remedy."""
    message = text.strip()
    if re.search(r"^device '.*' not found|^no devices|^device not found|unknown device", message):
        return NoDevice(
            f"device {serial} is not connected",
            remedy="Plug it in, `adt adb -- connect HOST:PORT` if it is on the network, or `adt emulator "
            "start`; `adt devices` lists what is there.",
        )
    for state in _REMEDIES:
        if re.search(rf"\bdevice (still )?{state}\b", message):
            return not_ready(serial, state)
    if "insufficient permissions" in message:
        return not_ready(serial, "no permissions")
    return DeviceError(
        f"adb refused while {doing}: {message}",
        remedy=f"Check the device with `adt adb -s {quote(serial)} -- shell true`; run again with -v to see "
        "every step.",
    )


def start_server() -> Adb:
    """Start the adb server on :func:`server_port`, with the adb that :func:`find_adb` chooses."""
    adb, port = find_adb(), server_port()
    log.info("starting the adb server on 127.0.0.1:%d with %s", port, adb.label)
    started = process.run([adb.path, "start-server"], env=server_environment(), timeout=30, check=False)
    # Of two that start it at once, one fails: what counts is that a server listens.
    if started.returncode != 0 and not server_listens():
        raise process.failure(
            started,
            error=DeviceError,
            what="the adb server did not start",
            remedy=f"Look whether another program uses port {port}; ANDROID_ADB_SERVER_PORT chooses another.",
        )
    return adb


def server_listens() -> bool:
    """Return True if anything listens on :func:`server_port`; starts nothing."""
    try:
        socket.create_connection(("127.0.0.1", server_port()), timeout=REQUEST_SECONDS).close()
    except OSError:
        return False
    return True


def open_wire(*, deadline: Deadline, serial: str = "") -> Wire:
    """Connect to the server, starting it when nothing listens."""
    address = ("127.0.0.1", server_port())
    try:
        try:
            sock = socket.create_connection(address, timeout=deadline.remaining())
        except ConnectionRefusedError:
            start_server()
            sock = socket.create_connection(address, timeout=deadline.remaining())
    except TimeoutError as error:
        raise deadline.expired() from error
    except OSError as error:
        raise DeviceError(
            f"the adb server on 127.0.0.1:{address[1]} cannot be reached: {error}",
            remedy="Run `adt adb -- kill-server`, then the same command again.",
        ) from error
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Wire(sock, deadline, serial)


def connection_number() -> str:
    """Return the transport id of the first device without a serial; raises NoDevice if there is none."""
    listing = query("host:devices-l", doing="listing devices")
    match = re.search(rf"^{re.escape(NO_SERIAL)}\s.*\btransport_id:(\d+)", listing, re.MULTILINE)
    if match is None:
        raise refusal("device not found", serial=NO_SERIAL, doing="")
    return match[1]


def host_service(serial: str, request: str) -> str:
    """Spell the server's own service *request* about the device *serial*."""
    device = f"host-transport-id:{connection_number()}" if serial == NO_SERIAL else f"host-serial:{serial}"
    return f"{device}:{request}"


def open_device(serial: str, service: str, *, deadline: Deadline) -> Wire:
    """Connect through to the daemon of the device *serial*, which has taken the request for *service*."""
    transport = f"transport-id:{connection_number()}" if serial == NO_SERIAL else f"transport:{serial}"
    wire = open_wire(deadline=deadline, serial=serial)
    try:
        wire.request(f"host:{transport}")
        wire.request(service)
    except BaseException:
        wire.close()
        raise
    return wire


def query(service: str, *, doing: str, serial: str = "", seconds: float | None = None) -> str:
    """Ask the server for *service* and return the text it answers, within *seconds* or REQUEST_SECONDS."""
    with open_wire(deadline=Deadline(seconds or REQUEST_SECONDS, doing), serial=serial) as wire:
        wire.request(service)
        return wire.read_text()
