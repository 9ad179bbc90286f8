"""TCP ports for the tests' own servers."""

from __future__ import annotations

import contextlib
import random
import socket
from pathlib import Path

BLOCK = 100
"""Ports that one call of :func:`free_span` takes at most."""

_reserved: list[socket.socket] = []
"""One abstract name for each block that this process has taken, until it ends."""


def free_port() -> int:
    """A TCP port of the loopback that nothing listens on just now."""
    with socket.create_server(("127.0.0.1", 0)) as plug:
        return int(plug.getsockname()[1])


def free_span(length: int) -> int:
    """Reserve *length* ports in a row and return the first of them.

    Nothing listens on them, no other test process gets them while this one runs, and Linux gives none of them to a
    connection unless it may take nearly all ports.
    """
    assert length <= BLOCK
    blocks = list(range(10000, _first_of_connections() - BLOCK, BLOCK)) or list(range(20000, 32000, BLOCK))
    random.shuffle(blocks)
    for first in blocks:
        with contextlib.ExitStack() as plugs, contextlib.suppress(OSError):
            reservation = plugs.enter_context(socket.socket(socket.AF_UNIX))
            reservation.bind(f"\0adt tests: ports from {first}")
            for port in range(first, first + length):
                plugs.enter_context(socket.create_server(("127.0.0.1", port)))
            _reserved.append(reservation.dup())
            return first
    raise AssertionError("no free ports")


def _first_of_connections() -> int:
    """The first port that Linux gives to connections and to servers that name none."""
    return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
