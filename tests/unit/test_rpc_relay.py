"""Answers of a server that reach TVM's client, and those that never do."""

import contextlib
import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest

from adt.rpc import relay, wire
from adt.rpc.wire import read_exactly
from support.standins import hostile_rpc
from support.standins.hostile_rpc import (
    BYTES,
    CALL,
    COPY_ACK,
    COPY_FROM,
    EXCEPTION,
    FAULTS,
    GET_FUNCTION,
    INTEGER,
    MODULE,
    NONE,
    NOTHING,
    RETURN,
    STRING,
    handle,
    integer,
    packet,
    returned,
    string,
    tensor,
    text,
    values,
)

GOOD = {
    "nothing": (CALL, returned(integer(NONE), NOTHING)),
    "a number": (CALL, returned(integer(INTEGER), integer(-5))),
    "a text": (CALL, returned(integer(STRING), text(b"text"))),
    "bytes": (CALL, returned(integer(66), text(bytes(300), kind=BYTES))),
    "a module": (CALL, returned(integer(MODULE), handle())),
    "a tensor": (CALL, returned(integer(70), tensor(2, 3), handle())),
    "an error": (CALL, packet(EXCEPTION, values(text(b"it failed")))),
    "a function's handle": (GET_FUNCTION, returned(handle())),
    "no such function": (GET_FUNCTION, returned(NOTHING)),
    "an attribute": (GET_FUNCTION + 3, returned(string(b"Adreno"))),
    "memory": (GET_FUNCTION + 4, returned(handle())),
    "its end": (CALL, packet(1)),
}


def split(answer: bytes) -> tuple[int, bytes]:
    """Return code and body of a packet."""
    return struct.unpack_from("<i", answer, 8)[0], answer[12:]


@pytest.mark.parametrize("name", GOOD)
def test_what_servers_answer_passes(name: str) -> None:
    request, answer = GOOD[name]
    relay.check_answer(request, *split(answer))


def test_the_answer_must_fit_the_request() -> None:
    for request, answer in (
        (GET_FUNCTION, returned(integer(1))),
        (GET_FUNCTION, returned(integer(NONE), NOTHING)),
        (GET_FUNCTION + 3, returned(tensor(1))),
        (CALL, returned(NOTHING)),
        (CALL, packet(COPY_ACK, bytes(8))),
    ):
        with pytest.raises(relay.Malformed):
            relay.check_answer(request, *split(answer))


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    """Return the two ends of a connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = socket.create_connection(listening.getsockname(), timeout=10)
        return client, listening.accept()[0]


@contextlib.contextmanager
def relayed() -> Iterator[tuple[socket.socket, socket.socket, list[str]]]:
    """Yield the ends of client and server with a relay between them, and the faults that it found."""
    faults: list[str] = []
    server, inner = tcp_pair()
    listening = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        try:
            relay.serve(listening, inner, "key")
        except relay.Malformed as error:
            faults.append(str(error))
        finally:
            inner.close()

    address = listening.getsockname()
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    with server, socket.create_connection(address, timeout=10) as client:
        server.settimeout(10)
        client.sendall(struct.pack("<ii", wire.SERVER_MAGIC, 10) + b"client:key")
        assert client.recv(15) == struct.pack("<ii", wire.ACCEPTED, 7) + b"server:"
        yield client, server, faults
    thread.join(10)
    assert not thread.is_alive()


def test_the_last_request_reaches_the_server() -> None:
    """Let the relay be slow to pass on a farewell, without which a server takes its client for gone."""
    server, inner = tcp_pair()
    with server:
        with inner:
            link = relay.Relay(inner, time.monotonic(), 0)
        with socket.create_connection(("127.0.0.1", link.port), timeout=10) as client:
            greeting = f"client:{link._key}".encode()
            client.sendall(struct.pack("<ii", wire.SERVER_MAGIC, len(greeting)) + greeting)
            assert read_exactly(client, 15).endswith(b"server:")
            os.kill(link._process.pid, signal.SIGSTOP)
            client.sendall(packet(relay.SHUTDOWN))
        threading.Timer(0.3, os.kill, (link._process.pid, signal.SIGCONT)).start()
        link.close()
        server.settimeout(10)
        assert server.recv(64) == packet(relay.SHUTDOWN)


def end_of(client: socket.socket) -> bytes:
    """Return all that still arrives at the client."""
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while more := client.recv(1 << 16):
            data += more
    return data


@pytest.mark.parametrize(
    "name", [name for name in FAULTS if name not in ("the end", "a packet that goes on")]
)
def test_no_byte_of_a_malformed_answer_reaches_the_client(name: str) -> None:
    with relayed() as (client, server, faults):
        client.sendall(packet(CALL, struct.pack("<Q", 1) + values(NOTHING)))
        server.recv(1 << 16)
        server.sendall(FAULTS[name])
        with contextlib.suppress(OSError):  # the relay has hung up
            server.shutdown(socket.SHUT_WR)
        assert end_of(client) == b""
    assert len(faults) == ("half a" not in name), faults


@pytest.mark.parametrize("size", [0, 15, 17])
def test_a_tensors_content_has_the_size_that_was_asked_for(size: int) -> None:
    request = packet(COPY_FROM, tensor(4)[4:] + struct.pack("<Q", 16))
    with relayed() as (client, server, faults):
        client.sendall(request)
        assert server.recv(1 << 16) == request
        good = packet(COPY_ACK, bytes(16))
        server.sendall(good)
        assert read_exactly(client, len(good), time.monotonic() + 10) == good
        client.sendall(request)
        server.recv(1 << 16)
        server.sendall(packet(COPY_ACK, bytes(size)))
        assert end_of(client) == b""
    assert f"{size} bytes" in faults[0]


def test_who_does_not_know_the_key_is_passed_over() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    server, inner = tcp_pair()
    thread = threading.Thread(target=relay.serve, args=(listening, inner, "key"), daemon=True)
    thread.start()
    with server, inner:
        with socket.create_connection(listening.getsockname(), timeout=10) as stranger:
            stranger.sendall(struct.pack("<ii", wire.SERVER_MAGIC, 10) + b"client:yek")
            assert end_of(stranger) == b""
        with socket.create_connection(listening.getsockname(), timeout=10) as client:
            client.sendall(struct.pack("<ii", wire.SERVER_MAGIC, 10) + b"client:key")
            assert client.recv(8)
        thread.join(10)
    assert not thread.is_alive()


def test_changed_answers_are_malformed_or_well_formed() -> None:
    """End the check whatever arrives, and with no other exception."""
    refused = 0
    for seed in range(3000):
        answer = hostile_rpc.mutated(seed)
        if len(answer) < 12:
            continue
        try:
            relay.check_answer(CALL if seed % 2 else GET_FUNCTION, *split(answer))
        except relay.Malformed:
            refused += 1
    assert refused > 1000
    assert RETURN == relay.RETURN
