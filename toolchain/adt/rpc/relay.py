"""Relay between TVM's RPC client and a server, each packet of which is checked.

TVM's client believes its server. A count that is wrong or a handle in place of a number crashes the process,
an unknown type ends it with exit code 255, and a server may send requests, which the client obeys: it would
load modules and run functions for the device. Here the client's requests pass unchanged, one at a time, and
for each the server may answer once, with what fits it. Anything else ends the session.

The relay is a process, ``python -m adt.rpc.relay LISTENING SERVER SECONDS`` (sockets, and its time), as TVM's
client holds Python's lock while it waits in a destructor. TVM can only connect to a port, so it listens
on one of the loopback until the client is there, which knows the key that came through standard input.

A packet is its length (8 bytes), a code (4 bytes) and a body, all little endian. A body is most often a
sequence of values: their number and, for each, its type and content.
"""

from __future__ import annotations

import contextlib
import math
import secrets
import signal
import socket
import struct
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from adt.host import process
from adt.rpc.wire import (
    ACCEPTED,
    INIT_SERVER,
    PIECE,
    RETURN,
    SERVER_MAGIC,
    SHUTDOWN,
    Answer,
    open_session,
    read_exactly,
)

if TYPE_CHECKING:
    from tvm.rpc import RPCSession

CALL, EXCEPTION, COPY_FROM, COPY_ACK, GET_FUNCTION = 3, 5, 6, 8, 9
"""Further codes of packets; those above are requests of the client, too."""
NONE, INTEGER, _BOOLEAN, _FLOAT, HANDLE, DATA_TYPE, DEVICE, TENSOR, TEXT, BYTES = range(10)
SMALL_TEXT, SMALL_BYTES, OBJECT, TEXT_OBJECT, BYTES_OBJECT, TENSOR_OBJECT = 11, 12, 64, 65, 66, 70
"""Types of values (``TVMFFITypeIndex``); from OBJECT on they are classes."""
TEXTS = (TEXT, SMALL_TEXT, TEXT_OBJECT)
OWN_TEXTS = (*TEXTS, BYTES, SMALL_BYTES, BYTES_OBJECT)
MAX_ANSWER = 1 << 31
"""Bytes of an answer, but for a tensor's content: what a program asks for as one text or one file."""
MAX_TENSOR = 1 << 40
"""Bytes of a tensor that a function returns."""
MAX_DIMENSIONS, MAX_LANES, SESSION_DEVICES = 32, 64, 128
CLIENT_SECONDS = 30.0
"""In which TVM's client connects to this process."""
OVERTIME = 3
"""Seconds after a session's limit, which the server keeps, in which a server that has stalled is given up."""
END_SECONDS = 2.0
"""In which a relay ends when its session has ended."""


class Malformed(Exception):
    """An answer that no TVM RPC server gives; the message says what is wrong with it."""


class Refusal(Exception):
    """No session: another client is expected, or this is no server of TVM's."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"the answer to the greeting: {answer.value}")
        self.answer = answer


class Body:
    """The content of a packet, read from its start."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def numbers(self, form: str) -> tuple[int, ...]:
        return struct.unpack("<" + form, self.take(struct.calcsize("<" + form)))

    def take(self, count: int) -> bytes:
        if count > len(self._data) - self._at:
            raise Malformed(f"{count} bytes are announced where {len(self._data) - self._at} follow")
        self._at += count
        return self._data[self._at - count : self._at]

    def values(self, most: int = 3) -> list[tuple[int, int]]:
        """Read the rest of the body: the type of each value, and its number if it is an integer."""
        (count,) = self.numbers("i")
        if not 0 < count <= most:
            raise Malformed(f"{count} values")
        values = [self._value() for _ in range(count)]
        if self._at != len(self._data):
            raise Malformed(f"{len(self._data) - self._at} bytes follow the last value")
        return values

    def _value(self) -> tuple[int, int]:
        (kind,) = self.numbers("i")
        number = 0
        if kind == INTEGER:
            (number,) = self.numbers("q")
        elif INTEGER < kind <= DEVICE:
            self.take(8)
        elif kind == TENSOR:
            self._tensor()
        elif kind in (TEXT, BYTES):
            self.take(*self.numbers("Q"))
        elif kind in OWN_TEXTS:
            inner, size = self.numbers("IQ")
            if inner not in (TEXT_OBJECT, BYTES_OBJECT):
                raise Malformed(f"a text of the type {inner}")
            self.take(size)
        elif kind != NONE:
            raise Malformed(f"a value of the type {kind}")
        return kind, number

    def _tensor(self) -> None:
        _data, device, index, dimensions = self.numbers("Qiii")
        _code, bits, lanes = self.numbers("BBH")
        if not 0 <= dimensions <= MAX_DIMENSIONS:
            raise Malformed(f"a tensor of {dimensions} dimensions")
        shape = self.numbers(f"{dimensions}q")
        self.take(8)
        size = math.prod(shape) * bits * lanes
        if min(shape, default=0) < 0 or size > 8 * MAX_TENSOR or not bits or not 0 < lanes <= MAX_LANES:
            raise Malformed(f"a tensor of the shape {shape}, with {lanes} times {bits} bits an element")
        if not 0 < device < SESSION_DEVICES or index < 0:
            raise Malformed(f"a tensor on device {index} of the kind {device}")


def check_answer(request: int, code: int, body: bytes) -> None:
    """Check the answer *code* with *body* to the request with the code *request*."""
    if code == SHUTDOWN and not body:
        return
    if code not in (RETURN, EXCEPTION):
        raise Malformed(f"an answer with the code {code}")
    values = Body(body).values(1 if code == EXCEPTION or request != CALL else 3)
    kinds = [kind for kind, _ in values]
    if code == EXCEPTION:
        fits = kinds[0] in TEXTS
    elif request == GET_FUNCTION:
        fits = kinds[0] in (NONE, HANDLE)
    elif request == CALL:
        fits = _is_result(kinds, values[0][1])
    else:
        fits = kinds[0] != TENSOR
    if not fits:
        raise Malformed(f"values of the types {kinds} to a request with the code {request}")


def _is_result(kinds: list[int], announced: int) -> bool:
    """True if values of these kinds are a function's result: the type that is *announced*, and the value."""
    if kinds[0] != INTEGER:
        return False
    if announced in (TENSOR, TENSOR_OBJECT):
        return kinds[1:] == [TENSOR, HANDLE]
    if announced in OWN_TEXTS:
        return len(kinds) == 2 and kinds[1] in OWN_TEXTS
    if announced >= OBJECT:
        return kinds[1:] == [HANDLE]
    return len(kinds) == 2 and kinds[1] != TENSOR


class Relay:
    """The process that stands between the client and one server."""

    def __init__(self, server: socket.socket, began: float, limit: int) -> None:
        self.began = began
        """Start of the server's session, by :func:`time.monotonic`."""
        self._key = secrets.token_hex(16)
        with socket.create_server(("127.0.0.1", 0), backlog=1) as listening:
            self.port = listening.getsockname()[1]
            descriptors = (listening.fileno(), server.fileno())
            self._process = process.start(
                [sys.executable, "-P", "-m", __name__, *map(str, (*descriptors, limit))],
                env=process.python_path(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=descriptors,
                reaped=True,
            )
        assert self._process.stdin and self._process.stdout
        self._fault = self._process.stdout
        with self._process.stdin as pipe:
            pipe.write(self._key.encode())

    def connect(self) -> RPCSession:
        """Open the session of TVM's client with the server, which has opened its own already."""
        from tvm import rpc

        return rpc.connect("127.0.0.1", self.port, self._key)

    def fault(self) -> str:
        """Return the fault of an answer that ended the session; empty if there was none."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_SECONDS)
            return self._fault.read().decode()
        return ""

    def close(self, *, at_once: bool = False) -> None:
        """End the session, after the client's last request; *at_once*: what waits in TVM fails now."""
        if not at_once:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(END_SECONDS)
        process.kill_group(self._process)
        self._fault.close()


def serve(listening: socket.socket, server: socket.socket, key: str) -> None:
    """Relay between the client that connects to *listening* and *server*, until either hangs up."""
    with contextlib.suppress(OSError):
        with listening:
            listening.settimeout(CLIENT_SECONDS)
            client = _accept(listening, key)
        with client:
            for end in (client, server):
                end.settimeout(None)
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while _pass_on(client, server):
                continue


def _accept(listening: socket.socket, key: str) -> socket.socket:
    """Wait for the connection of our client: other processes that connect do not know the key."""
    expected = f"client:{key}".encode()
    greeting = struct.pack("<ii", SERVER_MAGIC, len(expected)) + expected
    while True:
        client, _ = listening.accept()
        with contextlib.suppress(OSError):
            client.settimeout(CLIENT_SECONDS)
            if secrets.compare_digest(read_exactly(client, len(greeting)), greeting):
                client.sendall(struct.pack("<ii", ACCEPTED, len(b"server:")) + b"server:")
                return client
        client.close()


def _pass_on(client: socket.socket, server: socket.socket) -> bool:
    """Pass one request on, and its answer; False when it is the last."""
    header = read_exactly(client, 12)
    length, request = struct.unpack("<Qi", header)
    short = request in (INIT_SERVER, COPY_FROM)
    body = read_exactly(client, length - 4) if short else b""
    if request == INIT_SERVER:  # was answered before the client connected
        client.sendall(struct.pack("<Qiii", 12, RETURN, 1, NONE))
        return True
    server.sendall(header + body)
    if not short:
        _stream(client, server, length - 4)
    if request == SHUTDOWN:
        return False
    _pass_answer(server, client, request, body)
    return True


def _pass_answer(server: socket.socket, client: socket.socket, request: int, asked: bytes) -> None:
    header = read_exactly(server, 8)
    (length,) = struct.unpack("<Q", header)
    if length < 4:
        raise Malformed(f"a packet of {length} bytes")
    header += read_exactly(server, 4)
    (code,) = struct.unpack_from("<i", header, 8)
    if request == COPY_FROM and code == COPY_ACK:
        (size,) = struct.unpack("<Q", asked[-8:])
        if length != 4 + size:
            raise Malformed(f"{length - 4} bytes of a tensor's content, where {size} were asked for")
        client.sendall(header)
        _stream(server, client, size)
        return
    if length > MAX_ANSWER:
        raise Malformed(f"a packet of {length} bytes")
    body = read_exactly(server, length - 4)
    check_answer(request, code, body)
    client.sendall(header + body)


def connect(host: str, port: int, key: str, *, limit: int, seconds: float) -> tuple[RPCSession, Relay]:
    """Open a session of TVM's client through a relay; the server ends it after *limit* seconds.

    Refusal if it takes another client, or is no server; *limit* 0 is never; it must answer within *seconds*.
    """
    import tvm.rpc  # noqa: F401 - it takes seconds, which are none of the session's

    with socket.create_connection((host, port), timeout=seconds) as server:
        began = time.monotonic()
        answer = open_session(server, f"{key} -timeout={limit}" if limit else key, seconds)
        if answer is not Answer.SESSION:
            raise Refusal(answer)
        relay = Relay(server, began, limit + OVERTIME if limit else 0)
    try:
        return relay.connect(), relay
    except BaseException:
        relay.close(at_once=True)
        raise


def _stream(source: socket.socket, target: socket.socket, count: int) -> None:
    while count:
        more = read_exactly(source, min(count, PIECE))
        target.sendall(more)
        count -= len(more)


if __name__ == "__main__":
    port, device = (socket.socket(fileno=int(descriptor)) for descriptor in sys.argv[1:3])
    signal.alarm(int(sys.argv[3]))  # ends this process; no thread of the client's could, see above
    try:
        serve(port, device, sys.stdin.read())
    except Malformed as error:
        sys.stdout.write(str(error))  # for the parent
