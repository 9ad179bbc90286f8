"""The ports of TVM's RPC: which are free, who holds the others, and what the tracker knows."""

from __future__ import annotations

import errno
import json
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from adt.checkup import sockets
from adt.checkup.check import Area, Check, Question, Status
from adt.checkup.sockets import Listener
from adt.device.deadline import Deadline
from adt.errors import AdtError, DeviceError

PORTS = range(9190, 9200)
"""Where TVM's tracker and servers listen unless they are told otherwise."""
TRACKER_MAGIC = 0x2F271
"""First word of a tracker's protocol, from each side."""
SUMMARY = 6
"""The request for what the tracker knows."""
SECONDS = 2.0
"""Budget for asking what listens on one port."""
MAX_ANSWER = 1 << 20
PACKAGES = ("tornado", "psutil", "cloudpickle")
"""What TVM's tracker and server import and its wheel does not ask for."""


@dataclass(frozen=True)
class Port:
    """A port that is not free."""

    number: int
    holder: str
    """The process that listens there, when it can be seen."""
    address: str
    """Where it listens; empty when that cannot be seen."""
    exposed: bool
    """Other machines can reach it."""
    tracker: Mapping[str, Any] | None
    """A tracker's summary; None when something else listens."""


def taken(port: int) -> bool:
    """Whether nothing more can listen on *port* of 127.0.0.1."""
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", port))
        except OSError as why:
            if why.errno == errno.EADDRINUSE:
                return True
            raise
    return False


def tracker_summary(port: int) -> Mapping[str, Any] | None:
    """What the tracker on *port* says of its servers; None when it is no tracker or does not answer."""
    deadline = Deadline(SECONDS, f"asking what listens on port {port}")
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=deadline.remaining()) as sock:
            sock.sendall(struct.pack("<i", TRACKER_MAGIC))
            if struct.unpack("<i", _exactly(sock, 4, deadline))[0] != TRACKER_MAGIC:
                return None
            question = json.dumps([SUMMARY]).encode()
            sock.sendall(struct.pack("<i", len(question)) + question)
            (length,) = struct.unpack("<i", _exactly(sock, 4, deadline))
            if not 0 < length <= MAX_ANSWER:
                return None
            code, summary = json.loads(_exactly(sock, length, deadline))
    except (OSError, AdtError, ValueError, TypeError):
        return None
    return summary if code == 0 and isinstance(summary, dict) else None


def _exactly(sock: socket.socket, count: int, deadline: Deadline) -> bytes:
    data = bytearray()
    while len(data) < count:
        sock.settimeout(deadline.remaining())
        more = sock.recv(count - len(data))
        if not more:
            raise DeviceError("the other side hung up", remedy="")
        data += more
    return bytes(data)


def look() -> list[Port]:
    """Look at every port; those that are taken are asked who they are, all at once."""
    numbers = [number for number in PORTS if taken(number)]
    if not numbers:
        return []
    with ThreadPoolExecutor(len(numbers)) as askers:
        summaries = list(askers.map(tracker_summary, numbers))
    heard = sockets.listeners(numbers)
    return [
        _described(number, summary, [one for one in heard if one.port == number])
        for number, summary in zip(numbers, summaries, strict=True)
    ]


def _described(number: int, summary: Mapping[str, Any] | None, here: Sequence[Listener]) -> Port:
    exposed = [one for one in here if not one.loopback]
    shown = next(iter([*exposed, *here]), None)
    if shown is None:
        return Port(number, "", "", False, summary)
    return Port(number, sockets.holder(shown), shown.address, bool(exposed), summary)


def check_ports(found: Sequence[Port]) -> Iterator[Check]:
    """Judge the ports that are not free."""
    others = [port for port in found if port.tracker is None]
    free = len(PORTS) - len(found)
    span = f"{PORTS[0]} to {PORTS[-1]}"
    if others:
        held = ", ".join(f"{port.number} ({port.holder or 'another user'})" for port in others)
        yield Check(
            Area.RPC,
            "ports",
            Status.WARNING if free else Status.FAILED,
            f"{free} of {len(PORTS)} free; no tracker, but something listens on {held}",
            f"{span} on 127.0.0.1",
            "End what is no longer needed there"
            + (
                "."
                if free
                else ", or give tracker and servers other ports (a tracker above 9199 needs --port-end)."
            ),
        )
    else:
        yield Check(Area.RPC, "ports", Status.OK, f"{free} of {len(PORTS)} free", f"{span} on 127.0.0.1")
    for port in found:
        if port.exposed and port.tracker is not None:
            yield _exposed(port)
    trackers = [port for port in found if port.tracker is not None]
    if not trackers:
        yield Check(Area.RPC, "tracker", Status.OK, f"none runs on {span}; only tuning on a device needs one")
    for port in trackers:
        yield check_tracker(port)


def _exposed(port: Port) -> Check:
    return Check(
        Area.RPC,
        f"tracker on {port.number}",
        Status.WARNING,
        f"listens on {port.address}: whoever reaches this machine can run code through TVM's RPC",
        port.holder,
        "Start it with --host 127.0.0.1",
    )


def check_tracker(port: Port) -> Check:
    """Say what a tracker knows: the servers that registered, by key, and how many are free."""
    summary = port.tracker or {}
    queues = {str(key): row for key, row in dict(summary.get("queue_info") or {}).items()}
    servers = [row for row in summary.get("server_info") or () if isinstance(row, dict)]
    name, origin = f"tracker on {port.number}", port.holder
    if not servers:
        return Check(
            Area.RPC,
            name,
            Status.WARNING,
            "runs, but no server has registered with it",
            origin,
            "Look at the server's own output: it must name this tracker's port, and reach it from the device "
            f"through `adb reverse tcp:{port.number} tcp:{port.number}`.",
        )
    rows = [f"{key}: {row.get('free')} free, {row.get('pending')} waiting" for key, row in queues.items()]
    found = f"registered: {'; '.join(rows) or len(servers)}"
    return Check(Area.RPC, name, Status.OK, found, origin)


def check_packages(missing: Sequence[str]) -> Check:
    """Judge whether TVM's Python tracker and server can start."""
    if missing:
        return Check(
            Area.RPC,
            "Python packages",
            Status.WARNING,
            f"{', '.join(missing)} not installed; TVM's tracker needs it",
            remedy=f"pip install {' '.join(missing)}",
        )
    return Check(Area.RPC, "Python packages", Status.OK, f"{', '.join(PACKAGES)} are installed")


def questions() -> Iterator[Question]:
    """Packages, then ports."""

    def packages() -> Iterator[Check]:
        yield check_packages([name for name in PACKAGES if find_spec(name) is None])

    yield Question(Area.RPC, "Python packages", packages)
    yield Question(Area.RPC, "ports", lambda: check_ports(look()))
