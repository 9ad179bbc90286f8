"""TVM's RPC: which ports are free, who listens on the others, what the tracker knows, and adt's servers."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import socket
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from shlex import quote

from adt.checkup.check import Check, Question, failed, ok, warning
from adt.errors import AdtError
from adt.host.extras import install_command
from adt.rpc import server, tracker, wire
from adt.rpc.server import ServerStatus
from adt.rpc.tracker import TrackerInfo
from adt.rpc.wire import Summary

LISTEN = "0A"
PROC = Path("/proc")


@dataclass(frozen=True)
class Listener:
    address: str
    port: int
    inode: str
    """Names the socket in the file descriptors of the process that holds it."""

    @property
    def loopback(self) -> bool:
        return ipaddress.ip_address(self.address).is_loopback


def parse_listeners(text: str) -> list[Listener]:
    """Read /proc/net/tcp or /proc/net/tcp6."""
    listening = []
    for row in text.splitlines()[1:]:
        fields = row.split()
        if len(fields) < 10 or fields[3] != LISTEN:
            continue
        address, _, port = fields[1].partition(":")
        listening.append(Listener(_address(address), int(port, 16), fields[9]))
    return listening


def _address(digits: str) -> str:
    """Parse an address in words of four bytes, each in the machine's (little-endian) order."""
    raw = bytes.fromhex(digits)
    swapped = b"".join(raw[at : at + 4][::-1] for at in range(0, len(raw), 4))
    parsed = ipaddress.ip_address(swapped)
    return str(getattr(parsed, "ipv4_mapped", None) or parsed)


def listeners(ports: Iterable[int]) -> list[Listener]:
    """Find every socket that listens on one of *ports*; none where /proc does not tell."""
    numbers, listening = frozenset(ports), []
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError, ValueError):
            every = parse_listeners((PROC / "net" / name).read_text())
            listening += [listener for listener in every if listener.port in numbers]
    return listening


def holder(listener: Listener) -> str:
    """Describe the process that holds a socket; empty when it belongs to another user."""
    link_text = f"socket:[{listener.inode}]"
    for process in PROC.iterdir():
        if not process.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            if any(str(link.readlink()) == link_text for link in (process / "fd").iterdir()):
                return f"{(process / 'exe').readlink()}, pid {process.name}"
    return ""


PORTS = tracker.PORTS
"""Ports on which TVM's tracker and servers listen unless an option says otherwise."""
SECONDS = 2.0
"""Budget for asking what listens on one port."""
PACKAGES = ("psutil", "cloudpickle")
"""Packages that TVM's own programs and its tuner import, and its wheel does not ask for; adt's tracker
does not."""


@dataclass(frozen=True)
class Port:
    number: int
    holder: str
    """The process that listens there, when it can be seen."""
    address: str
    """Address on which it listens; empty when that cannot be seen."""
    exposed: bool
    """Other machines can reach it."""
    tracker: Summary | None
    """Summary that a tracker gives of itself; None when something else listens."""


def taken(port: int) -> bool:
    """Return True if nothing more can listen on *port* of 127.0.0.1."""
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return True
            raise
    return False


def ask(port: int) -> Summary | None:
    """Return the tracker's summary of its servers; None when none on *port* answers."""
    try:
        return wire.summary(f"127.0.0.1:{port}", seconds=SECONDS)
    except AdtError:
        return None


def look() -> list[Port]:
    """Look at every port; those that are taken are asked who they are, all at once."""
    numbers = [number for number in PORTS if taken(number)]
    if not numbers:
        return []
    with ThreadPoolExecutor(len(numbers)) as askers:
        summaries = list(askers.map(ask, numbers))
    first_exposed = sorted(listeners(numbers), key=lambda each: each.loopback)
    ports = []
    for number, summary in zip(numbers, summaries, strict=True):
        listener = next((each for each in first_exposed if each.port == number), None)
        if listener is None:
            ports.append(Port(number, "", "", False, summary))
        else:
            ports.append(Port(number, holder(listener), listener.address, not listener.loopback, summary))
    return ports


def check_ports(ports: Sequence[Port]) -> Iterator[Check]:
    trackers = [port for port in ports if port.tracker is not None]
    others = [port for port in ports if port.tracker is None]
    free, origin = f"{len(PORTS) - len(ports)} of {len(PORTS)} free", f"{PORTS} on 127.0.0.1"
    if others:
        held = ", ".join(f"{port.number} ({port.holder or 'another user'})" for port in others)
        full = len(ports) == len(PORTS)
        remedy = "End what is no longer needed there"
        remedy += ", or give tracker and servers other ports (--port, --port-end)." if full else "."
        listens = f"{free}; no tracker, but something listens on {held}"
        yield failed("ports", listens, origin, remedy, needed=full)
    else:
        yield ok("ports", free, origin)
    for port in trackers:
        if port.exposed:
            name = f"tracker on {port.number}"
            danger = f"listens on {port.address}: whoever reaches this machine can run code through TVM's RPC"
            remedy = "Start it without --expose (adt's), or with --host 127.0.0.1 (TVM's)"
            yield warning(name, danger, port.holder, remedy)
    if not trackers:
        yield ok("tracker", f"none runs on {PORTS}; only tuning on a device needs one")
    for port in trackers:
        yield check_tracker(port)


def check_tracker(port: Port) -> Check:
    """Say what a tracker knows: the servers that registered, by key, and how many are free."""
    summary = port.tracker
    name, origin = f"tracker on {port.number}", port.holder
    if summary is None or not summary.servers:
        reverse = f"adb reverse tcp:{port.number} tcp:{port.number}"
        remedy = "adt rpc start --serial S --key K starts one. For a server of your own look at its output: "
        remedy += f"it must name this tracker's port, and reach it from the device through `{reverse}`."
        return warning(name, "runs, but no server has registered with it", origin, remedy)
    rows = [f"{row.key}: {row.free} of {row.total} free, {row.pending} waiting" for row in summary.queues]
    return ok(name, f"registered: {'; '.join(rows) or len(summary.servers)}", origin)


def check_own_tracker(info: TrackerInfo) -> Iterator[Check]:
    """Judge the tracker that adt started; nothing when it started none, or all is well."""
    if info.address and not info.running:
        problem = f"on {info.address}: {info.error}"
        yield warning("adt's tracker", problem, str(info.log or ""), "adt tracker start")


def check_server(status: ServerStatus) -> Check:
    """Judge a server that adt started and that nobody stopped."""
    name = f"server on {status.serial}"
    if status.state == "ready":
        again = f"; started again {status.restarts} times, last because {status.last_error}"
        shown = f"{status.key} on {status.address}{again if status.restarts else ''}"
        return ok(name, shown, str(status.log))
    serial = quote(status.serial)
    remedy = {
        "waiting": f"Connect the device again: adt adb -s {serial} -- get-state; the server then comes back.",
        "lost": f"adt rpc stop --serial {serial}",
        "failed": f"Look at {status.log}; then adt rpc start --serial {serial} --key {quote(status.key)}",
    }.get(status.state, "Wait a moment: adt rpc status")
    return warning(name, f"{status.state}: {status.last_error}", str(status.log), remedy)


def check_packages(missing: Sequence[str]) -> Check:
    if missing:
        lack = f"{', '.join(missing)} not installed; TVM's own rpc_server and its tuner need it"
        return warning("Python packages", lack, remedy=install_command(*missing))
    return ok("Python packages", f"{', '.join(PACKAGES)} are installed")


def questions() -> Iterator[Question]:
    """Yield the questions about packages, then ports, then what adt started."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    yield Question("Python packages", lambda: [check_packages(missing)])
    yield Question("ports", lambda: check_ports(look()))
    yield Question("adt's tracker", lambda: check_own_tracker(tracker.status()))
    yield Question("servers", lambda: map(check_server, server.statuses()))
