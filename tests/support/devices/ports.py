"""TCP ports for the tests' own servers."""

from __future__ import annotations

import contextlib
import random
import socket


def free_port() -> int:
    """A TCP port of the loopback that nothing listens on just now."""
    with socket.create_server(("127.0.0.1", 0)) as plug:
        return int(plug.getsockname()[1])


def free_span(length: int) -> int:
    """The first of *length* ports in a row that nothing listens on just now."""
    for _ in range(100):
        first = random.randrange(20000, 32000)
        with contextlib.ExitStack() as plugs, contextlib.suppress(OSError):
            for port in range(first, first + length):
                plugs.enter_context(socket.create_server(("127.0.0.1", port)))
            return first
    raise AssertionError("no free ports")
