"""TCP ports for the tests' own servers."""

from __future__ import annotations

import socket


def free_port() -> int:
    """A TCP port of the loopback that nothing listens on just now."""
    with socket.create_server(("127.0.0.1", 0)) as plug:
        return int(plug.getsockname()[1])
