"""A fake ADB server on 127.0.0.1 that answers with prepared bytes: fault injection only.

What adt and the real adb do together is tested with the real adb and a virtual
device; this is for answers that those do not give: refusals, cut streams, silence.
"""

import contextlib
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest

Handler = Callable[["Peer"], None]


class Peer:
    """The server's side of one connection, and everything it received."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.requests: list[str] = []
        self.received = bytearray()

    def request(self, answer: bytes = b"OKAY") -> str:
        """Read one smart-socket request and answer it."""
        name = os.fsdecode(self.exactly(int(self.exactly(4), 16)))
        self.requests.append(name)
        self.send(answer)
        return name

    def exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self.sock.recv(count - len(data))
            if not more:
                raise ConnectionError
            data += more
        self.received += data
        return data

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def drain(self) -> None:
        with contextlib.suppress(OSError):
            while data := self.sock.recv(1 << 16):
                self.received += data


class FakeServer:
    """Serves the n-th connection with the n-th handler (the last one from then on)."""

    def __init__(self, *handlers: Handler) -> None:
        self.handlers = handlers
        self.peers: list[Peer] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._threads = [threading.Thread(target=self._serve, daemon=True)]
        self._threads[0].start()

    def _serve(self) -> None:
        while True:
            try:
                sock, _ = self._listening.accept()
            except OSError:
                return
            peer = Peer(sock)
            handler = self.handlers[min(len(self.peers), len(self.handlers) - 1)]
            self.peers.append(peer)
            thread = threading.Thread(target=self._handle, args=(handler, peer), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _handle(self, handler: Handler, peer: Peer) -> None:
        with contextlib.suppress(OSError, ValueError), peer.sock:
            handler(peer)
            # Closing with unread bytes would reset the connection, and with it what was just sent.
            peer.sock.shutdown(socket.SHUT_WR)
            peer.sock.settimeout(60)
            while peer.sock.recv(1 << 16):
                pass

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for peer in self.peers:
            with contextlib.suppress(OSError):
                peer.sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()


@contextlib.contextmanager
def fake_server(monkeypatch: pytest.MonkeyPatch, *handlers: Handler) -> Iterator[FakeServer]:
    """Run a FakeServer in place of the adb server."""
    server = FakeServer(*handlers)
    for name in ("ADB_SERVER_SOCKET", "ANDROID_ADB_SERVER_ADDRESS", "ANDROID_SERIAL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(server.port))
    try:
        yield server
    finally:
        server.close()


def text(body: str) -> bytes:
    """Return *body* with its length before it, as the server sends strings."""
    data = body.encode()
    return b"%04x" % len(data) + data


def replying(*answers: bytes) -> Callable[[Peer], None]:
    """Return a server that gives each of *answers* to one request."""

    def handler(peer: Peer) -> None:
        for answer in answers:
            peer.request(answer)

    return handler


def packet(kind: int, data: bytes) -> bytes:
    """Return a packet of shell protocol v2."""
    return struct.pack("<BI", kind, len(data)) + data


def marker(request: str) -> str:
    """Return the marker with which a command reports its process id."""
    return request.split("echo ", 1)[1].split()[0].replace("''", "")


def v2(*packets: bytes, pid: int = 77) -> Handler:
    """Return a daemon that speaks shell protocol v2 and sends *packets*."""

    def handler(peer: Peer) -> None:
        peer.request()
        peer.send(packet(2, f"{marker(peer.request())} {pid}\n".encode()))
        for piece in packets:
            peer.send(piece)
        peer.drain()

    return handler


def answering(answer: Callable[[str], bytes]) -> Handler:
    """Return a daemon that gives *answer* to the text of a command, and hangs up."""

    def handler(peer: Peer) -> None:
        peer.request()
        peer.send(answer(peer.request()))

    return handler
