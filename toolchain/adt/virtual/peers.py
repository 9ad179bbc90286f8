"""The users of this machine whose adb servers a virtual device serves: the one who started it, and root.

The kernel's table of TCP connections has the user of each end. It is opened before the device gets a network
of its own, so it stays the host's. A row counts only while it is sure whose it is: once a program has closed
its end, the kernel shows root as the owner, and the port may become another's; so the peer's end must be
connected and owned by a process, and afterwards ours still be connected to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import sys
from pathlib import Path

log = logging.getLogger("adt.virtual.peers")

TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
MAPPED = "0000000000000000FFFF0000"
"""Prefix of an IPv4 address in the table of IPv6 connections."""
ESTABLISHED = 1
TRIES, PAUSE = 5, 0.05
"""The table is no snapshot: a row can be missed while others come and go."""

Address = tuple[str, int]


class Peers:
    """Tells who is at the other end of a connection on the loopback; made in the host's namespaces."""

    def __init__(self) -> None:
        self.admitted = {0, os.getuid()}
        """User ids of this machine."""
        self._tables = [Path(path).open() for path in TABLES if Path(path).exists()]  # noqa: SIM115

    def close(self) -> None:
        """Close the tables."""
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
            if uid in self.admitted and _state(connection) == ESTABLISHED:
                return True
        whose = "an unknown user" if uid is None else f"user {uid}"
        log.warning("a connection of %s is refused: only its starter and root may use the device", whose)
        return False

    def owner(self, local: Address, remote: Address) -> int | None:
        """The user of the connected end *local*, whose other end is *remote*; None if no process has it."""
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


def _state(connection: socket.socket) -> int:
    return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
