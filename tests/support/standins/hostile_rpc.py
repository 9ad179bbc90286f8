"""An RPC server, and a tracker that names it, whose answers are what a hostile device would send to its client.

The server is a good one until its NUMBERth answer to a session; from then on each answer is the fault. What a
good one answers is made up, and enough to get a client through its whole session.
"""

from __future__ import annotations

import contextlib
import json
import random
import socket
import struct
import threading

from adt.rpc import wire

RETURN, EXCEPTION, COPY_FROM, COPY_ACK = 4, 5, 6, 8
INIT, CALL, GET_FUNCTION = 2, 3, 9
NONE, INTEGER, HANDLE, TENSOR, TEXT, BYTES, SMALL = 0, 1, 4, 7, 8, 9, 11
STRING, FUNCTION, MODULE = 65, 68, 73
WILD = 0x4141414141414141


def packet(code: int, body: bytes = b"", *, length: int | None = None) -> bytes:
    """Return one packet; *length* in place of its real one."""
    return struct.pack("<Qi", 4 + len(body) if length is None else length, code) + body


def values(*parts: bytes, count: int | None = None) -> bytes:
    """Return a sequence of values; *count* in place of their real number."""
    return struct.pack("<i", len(parts) if count is None else count) + b"".join(parts)


def integer(value: int) -> bytes:
    return struct.pack("<iq", INTEGER, value)


def handle(value: int = WILD, kind: int = HANDLE) -> bytes:
    return struct.pack("<iQ", kind, value)


def text(content: bytes, *, length: int | None = None, kind: int = TEXT) -> bytes:
    return struct.pack("<iQ", kind, len(content) if length is None else length) + content


def string(content: bytes, *, length: int | None = None, outer: int = STRING, inner: int = STRING) -> bytes:
    return struct.pack("<iIQ", outer, inner, len(content) if length is None else length) + content


def tensor(
    *shape: int,
    ndim: int | None = None,
    kind: tuple[int, int, int] = (2, 32, 1),
    device: tuple[int, int] = (1, 0),
) -> bytes:
    dimensions = struct.pack(f"<{len(shape)}q", *shape)
    head = struct.pack("<iQiii", TENSOR, WILD, *device, len(shape) if ndim is None else ndim)
    return head + struct.pack("<BBH", *kind) + dimensions + bytes(8)


def returned(*parts: bytes, count: int | None = None) -> bytes:
    return packet(RETURN, values(*parts, count=count))


NOTHING = struct.pack("<i", NONE)
FAULTS: dict[str, bytes] = {
    "no value": returned(),
    "no value of a function": returned(integer(NONE)),
    "values that do not come": returned(integer(STRING), text(b"x"), count=3),
    "a billion values": returned(count=1 << 30),
    "fewer than no values": returned(count=-1),
    "a function": returned(handle(kind=FUNCTION)),
    "a function of a function": returned(integer(INTEGER), handle(kind=FUNCTION)),
    "a module of a function": returned(integer(STRING), handle(kind=MODULE)),
    "a handle for a text": returned(integer(STRING), handle()),
    "a text for a handle": returned(integer(MODULE), text(b"module")),
    "a tensor": returned(tensor(4)),
    "a tensor for a number": returned(integer(INTEGER), tensor(4)),
    "a tensor without a handle": returned(integer(70), tensor(4)),
    "a tensor of -1 dimensions": returned(integer(70), tensor(ndim=-1), handle()),
    "a tensor of a billion dimensions": returned(integer(70), tensor(1, ndim=1 << 30), handle()),
    "a tensor of a negative size": returned(integer(70), tensor(-4), handle()),
    "a tensor of 2**62 elements": returned(integer(70), tensor(1 << 62, 4), handle()),
    "a tensor of no type": returned(integer(70), tensor(4, kind=(255, 255, 65535)), handle()),
    "a tensor of another session": returned(integer(70), tensor(4, device=(128 * 7 + 1, -1)), handle()),
    "a text longer than its packet": returned(integer(STRING), text(b"x", length=1 << 20)),
    "a text of 2**64-1 bytes": returned(integer(STRING), text(b"x", length=(1 << 64) - 1)),
    "bytes of 2**63 bytes": returned(integer(STRING), text(b"x", length=1 << 63, kind=BYTES)),
    "a string of 2**64-1 bytes": returned(integer(STRING), string(b"x", length=(1 << 64) - 1)),
    "a string that is a function": returned(integer(STRING), string(b"x", inner=FUNCTION)),
    "an object that is none": returned(integer(STRING), string(b"x", outer=100, inner=100)),
    "a reference to an object": returned(integer(STRING), struct.pack("<iIQ", SMALL, 115, WILD)),
    "an unknown type": returned(integer(STRING), struct.pack("<iQ", 63, WILD)),
    "an exception without a text": packet(EXCEPTION, values()),
    "an exception of a number": packet(EXCEPTION, values(integer(7))),
    "an exception of a function": packet(EXCEPTION, values(handle(kind=FUNCTION))),
    "an exception longer than its packet": packet(EXCEPTION, values(text(b"x", length=1 << 40))),
    "an exception of half a text": packet(EXCEPTION, values(text(b"a" * 9, length=10)), length=400),
    "a packet of 3 bytes": struct.pack("<Q", 3) + b"abc",
    "a packet of 2**64-1 bytes": packet(RETURN, length=(1 << 64) - 1),
    "a packet of 2**40 bytes": packet(RETURN, length=1 << 40),
    "a packet that goes on": packet(RETURN, values(NOTHING) + b"more"),
    "an empty packet": struct.pack("<Q", 0),
    "half a packet": packet(RETURN, values(NOTHING), length=500),
    "a code that is none": packet(1000, values(NOTHING)),
    "a negative code": packet(-1, values(NOTHING)),
    "copied data nobody asked for": packet(COPY_ACK, b"data"),
    "the client made a server": packet(INIT, struct.pack("<Q", 5) + b"0.8.0" + values()),
    "a call into the client": packet(CALL, struct.pack("<Q", WILD) + values(integer(1))),
    "a request for the client's functions": packet(GET_FUNCTION, values(text(b"runtime.GetGlobalFunc"))),
    "a read of the client's memory": packet(COPY_FROM, tensor(4)[4:] + struct.pack("<Q", 16)),
    "a freed handle of the client": packet(GET_FUNCTION + 1, values(handle())),
    "a shutdown with a body": packet(1, b"more"),
    "the end": b"",
    "noise": random.Random(5).randbytes(4096),
}
"""Answers, by what they are."""


def good(code: int, body: bytes, names: list[bytes]) -> bytes:
    """Return the answer of a good server to a request.

    Args:
        names: the functions that were asked for; those of a session, whose handles are places in it.
    """
    if code == GET_FUNCTION:
        names.append(body)
        return returned(NOTHING if b"GetCRTMaxPacketSize" in body else handle(len(names)))
    if code == COPY_FROM:
        return packet(COPY_ACK, bytes(struct.unpack("<Q", body[-8:])[0]))
    if code != CALL:
        return returned(NOTHING)
    (place,) = struct.unpack("<Q", body[:8])
    name = names[place - 1] if place <= len(names) else b""
    if b"load_module" in name:
        return returned(integer(MODULE), handle())
    if b"ModuleGetFunction" in name:
        return returned(integer(FUNCTION), handle())
    return returned(integer(NONE), NOTHING)


def _take(sock: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        more = sock.recv(count - len(data))
        if not more:
            raise OSError("hung up")
        data += more
    return bytes(data)


class Hostile:
    """The server and the tracker, for as long as the block runs."""

    def __init__(self, fault: bytes, number: int) -> None:
        self.fault, self.number = fault, number
        self.answered = 0
        """Answers of the last session."""
        self.key = "server:hostile"
        self._ports: list[socket.socket] = []

    @property
    def address(self) -> str:
        """Address of the server."""
        return f"127.0.0.1:{self._ports[0].getsockname()[1]}"

    @property
    def tracker(self) -> str:
        """Address of the tracker."""
        return f"127.0.0.1:{self._ports[1].getsockname()[1]}"

    def __enter__(self) -> Hostile:
        for serve in (self._serve, self._track):
            listening = socket.create_server(("127.0.0.1", 0))
            self._ports.append(listening)
            threading.Thread(target=self._loop, args=(listening, serve), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for listening in self._ports:
            listening.shutdown(socket.SHUT_RDWR)
            listening.close()

    def _loop(self, listening: socket.socket, serve: object) -> None:
        assert callable(serve)
        with contextlib.suppress(OSError):
            while True:
                sock, _ = listening.accept()
                with sock, contextlib.suppress(OSError):
                    serve(sock)

    def _serve(self, sock: socket.socket) -> None:
        _take(sock, struct.unpack("<ii", _take(sock, 8))[1])
        sock.sendall(struct.pack("<ii", wire.ACCEPTED, len(self.key)) + self.key.encode())
        self.answered, names = 0, list[bytes]()
        while True:
            length, code = struct.unpack("<Qi", _take(sock, 12))
            body = _take(sock, length - 4)
            if code == wire.SHUTDOWN:
                return
            self.answered += 1
            if self.answered < self.number:
                sock.sendall(good(code, body, names))
                continue
            sock.sendall(self.fault)
            if not self.fault:
                return

    def _track(self, sock: socket.socket) -> None:
        host, _, port = self.address.rpartition(":")
        sock.sendall(struct.pack("<i", struct.unpack("<i", _take(sock, 4))[0]))
        while True:
            question = json.loads(_take(sock, struct.unpack("<i", _take(sock, 4))[0]))
            summary = {
                "queue_info": {"phone": {"free": 1, "pending": 0}},
                "server_info": [{"key": "server:phone", "addr": [host, port]}],
            }
            answer = json.dumps(
                [wire.SUCCESS, summary if question[0] == wire.SUMMARY else [host, int(port), "k"]]
            )
            sock.sendall(struct.pack("<i", len(answer)) + answer.encode())


def mutated(seed: int) -> bytes:
    """Return a good or bad answer with some bytes changed, cut or doubled."""
    rng = random.Random(seed)
    data = bytearray(
        rng.choice([*FAULTS.values(), returned(NOTHING), returned(integer(STRING), text(b"text"))])
    )
    for _ in range(rng.randrange(1, 4)):
        if not data:
            break
        at = rng.randrange(len(data))
        data[at : at + rng.randrange(3)] = rng.randbytes(rng.randrange(3))
    return bytes(data)
