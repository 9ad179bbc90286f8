"""Listeners on the TCP ports of this machine, as /proc shows them."""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

LISTEN = "0A"
"""The kernel's number for a listening socket."""
PROC = Path("/proc")


@dataclass(frozen=True)
class Listener:
    address: str
    port: int
    inode: str
    """Names the socket in the file descriptors of the process that holds it."""

    @property
    def loopback(self) -> bool:
        """True if only this machine can connect."""
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
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped:
        parsed = parsed.ipv4_mapped
    return str(parsed)


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
