"""The users that a virtual device serves, told by the kernel's table of connections."""

import asyncio
import os
import socket
from collections.abc import Callable, Iterator

import pytest

from adt.virtual.daemon import Peers

STRANGER = os.getuid() + 1


@pytest.fixture
def peers() -> Iterator[Peers]:
    opened = Peers()
    opened.admitted = {os.getuid()}
    yield opened
    opened.close()


def admitted(
    peers: Peers, before: Callable[[socket.socket], None] = lambda _: None, family: int = socket.AF_INET
) -> bool:
    """True if *peers* admits a connection of this process, to which *before* has happened."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.socket(family, socket.SOCK_STREAM) as client,
    ):
        host = "127.0.0.1" if family == socket.AF_INET else "::ffff:127.0.0.1"
        client.connect((host, listening.getsockname()[1]))
        with listening.accept()[0] as connection:
            before(client)
            return asyncio.run(peers.admit(connection))


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_connection_of_the_starter_is_served(peers: Peers, family: int) -> None:
    assert admitted(peers, family=family)


def test_a_connection_of_another_user_is_refused(peers: Peers, caplog: pytest.LogCaptureFixture) -> None:
    peers.admitted = {STRANGER}
    assert not admitted(peers)
    assert f"user {os.getuid()} is refused" in caplog.text


@pytest.mark.parametrize("end", [socket.socket.close, lambda client: client.shutdown(socket.SHUT_WR)])
def test_an_end_that_nobody_holds_any_more_is_refused(
    peers: Peers, end: Callable[[socket.socket], None]
) -> None:
    """Refuse it although the kernel shows root as its owner, whoever had it."""
    peers.admitted = {0, os.getuid()}
    assert not admitted(peers, lambda client: (client.sendall(b"CNXN"), end(client))[-1])


def test_a_connection_that_was_cut_is_refused(peers: Peers) -> None:
    peers.admitted = {0, os.getuid()}

    def cut(client: socket.socket) -> None:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.close()

    assert not admitted(peers, cut)
