"""TCP ports for the tests' own servers."""

import contextlib
import random
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

BLOCK = 100
"""Ports that a process reserves at once, and that one call of :func:`free_span` takes at most."""

_reserved: list[socket.socket] = []
"""One abstract name for each block that this process has taken, until it ends."""


_ports: list[int] = []
"""Ports of the newest block that no call has taken yet, in a row."""


def free_port() -> int:
    """Reserve one port, see :func:`free_span`."""
    return free_span(1)


@contextlib.contextmanager
def own_rpc_ports() -> Iterator[None]:
    """Give RPC servers and trackers ports that no other test process has."""
    ports = free_span(61)
    with pytest.MonkeyPatch.context() as patch:
        for number, name in enumerate(("PORT", "PORT_END", "TRACKER_PORT", "TRACKER_PORT_END")):
            patch.setenv(f"ADT_RPC_{name}", str(ports + 20 * number))
        yield


def free_span(length: int) -> int:
    """Reserve *length* ports in a row and return the first of them.

    Nothing listens on them, no other test process gets them while this one runs, and Linux gives none of them to a
    connection unless it may take nearly all ports.
    """
    assert length <= BLOCK
    while True:
        if len(_ports) < length:
            _ports[:] = _new_block()
        span, _ports[:length] = _ports[:length], []
        if all(map(_is_free, span)):
            return span[0]


@contextlib.contextmanager
def answering(answer: Callable[[socket.socket], bytes]) -> Iterator[int]:
    """Yield a port of this machine whose server gives each client an *answer*, and closes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):  # it is closed
                while True:
                    client, _ = server.accept()
                    with client:
                        client.sendall(answer(client))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join(60)


def _is_free(port: int) -> bool:
    """Return True if nothing listens on *port* of the loopback."""
    with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
        return True
    return False


def _new_block() -> range:
    """Reserve a block of ports that no other test process has."""
    # The first port that Linux gives to connections and to servers that name none.
    first_of_connections = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    blocks = list(range(10000, first_of_connections - BLOCK, BLOCK)) or list(range(20000, 32000, BLOCK))
    random.shuffle(blocks)
    for first in blocks:
        with socket.socket(socket.AF_UNIX) as reservation, contextlib.suppress(OSError):
            reservation.bind(f"\0adt tests: ports from {first}")
            _reserved.append(reservation.dup())
            return range(first, first + BLOCK)
    raise AssertionError("no free ports")
