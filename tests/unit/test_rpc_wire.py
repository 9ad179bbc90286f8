"""The tracker's protocol and the server's handshake against peers that do everything wrong."""

import contextlib
import json
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from adt.errors import ConfigError, TrackerError
from adt.rpc import wire
from adt.rpc.wire import Answer
from support.devices.ports import free_port

MAGIC = struct.pack("<i", wire.TRACKER_MAGIC)
Serve = Callable[[socket.socket], None]


def frame(text: bytes) -> bytes:
    return struct.pack("<i", len(text)) + text


def take(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = sock.recv(count - len(data))
        if not more:
            raise OSError("hung up")
        data += more
    return data


@contextlib.contextmanager
def peer(serve: Serve) -> Iterator[int]:
    """Listen on a port and do *serve* with each connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def loop() -> None:
            with contextlib.suppress(OSError):
                while True:
                    sock, _ = listening.accept()
                    with sock, contextlib.suppress(OSError):
                        serve(sock)

        threading.Thread(target=loop, daemon=True).start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)


def tracker(answer: bytes, pieces: int = 0, pause: float = 0.001, asked: list[bytes] | None = None) -> Serve:
    """Greet, append a question to *asked*, and give *answer*: *pieces* bytes at a time, or at once where 0."""

    def serve(sock: socket.socket) -> None:
        take(sock, 4)
        sock.sendall(MAGIC)
        (length,) = struct.unpack("<i", take(sock, 4))
        question = take(sock, length)
        if asked is not None:
            asked.append(question)
        step = pieces or len(answer) or 1
        for at in range(0, len(answer), step):
            sock.sendall(answer[at : at + step])
            if pieces:
                time.sleep(pause)

    return serve


SUMMARY = {
    "queue_info": {"phone": {"free": 1, "pending": 2}, "old": {"free": 0, "pending": 0}},
    "server_info": [
        {"key": "server:phone", "addr": ["127.0.0.1", "9091"]},
        {"key": "server:phone", "addr": ["127.0.0.1", 9090]},
    ],
}


@pytest.mark.parametrize("pieces", [0, 1, 3])
def test_a_summary_however_it_is_cut_up(pieces: int) -> None:
    with peer(tracker(frame(json.dumps([0, SUMMARY]).encode()), pieces=pieces)) as port:
        summary = wire.summary(f"127.0.0.1:{port}")
    assert summary.queues == (wire.Queue("phone", 2, 1, 2),)
    assert [server.address for server in summary.servers] == ["127.0.0.1:9090", "127.0.0.1:9091"]
    assert [server.port for server in summary.servers] == [9090, 9091]
    assert summary.queue("absent") == wire.Queue("absent", 0, 0, 0)


def nonsense() -> list[bytes]:
    deep = b"[" * 100_000
    rows: list[object] = [None, [], [1], [0], [0, None], [0, {}], {"queue_info": {}}, [0, {"queue_info": []}]]
    rows += ["no list", [0, {"queue_info": {"k": 1}}], [0, {"queue_info": {"k": {"free": []}}}]]
    rows += [
        [0, SUMMARY | {"server_info": [1]}],
        [0, SUMMARY | {"server_info": [{"addr": 1}]}],
        [-1, SUMMARY],
    ]
    rng = random.Random(3)
    return [
        struct.pack("<i", -1),
        struct.pack("<i", 0),
        struct.pack("<i", 1 << 30),
        frame(b"\xff\xfe"),
        frame(b"{"),
        frame(deep),
        *(frame(json.dumps(row).encode()) for row in rows),
        *(frame(rng.randbytes(rng.randrange(1, 200))) for _ in range(20)),
    ]


@pytest.mark.parametrize("answer", nonsense())
def test_nonsense_is_said_to_be_no_tracker(answer: bytes) -> None:
    with peer(tracker(answer)) as port, pytest.raises(TrackerError, match="is not a TVM tracker"):
        wire.summary(f"127.0.0.1:{port}")


@pytest.mark.parametrize("first", [b"HTTP/1.1 400 Bad Request\r\n", b"\0\0\0\0", b"SSH-2.0-x\r\n"])
def test_another_service_is_said_to_be_no_tracker(first: bytes) -> None:
    with (
        peer(lambda sock: sock.sendall(first) or take(sock, 9)) as port,
        pytest.raises(TrackerError, match="is not a TVM tracker: its first word"),
    ):
        wire.summary(f"127.0.0.1:{port}")


@pytest.mark.parametrize(
    "serve",
    [
        lambda sock: take(sock, 1 << 20),  # never says anything
        lambda sock: sock.sendall(MAGIC[:3]) or take(sock, 1 << 20),
        tracker(struct.pack("<i", 100) + b"[0"),
        tracker(b""),
    ],
    ids=["silent", "half a word", "half a frame", "hangs up"],
)
def test_one_that_does_not_answer_costs_bounded_time(serve: Serve) -> None:
    with peer(serve) as port, pytest.raises(TrackerError, match=r"did not answer within|broke"):
        wire.summary(f"127.0.0.1:{port}", seconds=0.3)


def test_a_trickle_does_not_prolong_the_deadline() -> None:
    trickle = tracker(struct.pack("<i", 1000) + b" " * 1000, pieces=1, pause=0.05)
    with peer(trickle) as port, pytest.raises(TrackerError, match="did not answer within"):
        wire.summary(f"127.0.0.1:{port}", seconds=0.4)


def test_nothing_listens() -> None:
    with pytest.raises(TrackerError, match="no tracker runs at") as caught:
        wire.summary(f"127.0.0.1:{free_port()}")
    assert "adt tracker start" in caught.value.remedy


@pytest.mark.parametrize(
    "address", ["", "9190", "host:", ":9190", "host:port", "host:0", "host:65536", "::1:9190", "[]:9190"]
)
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(ConfigError, match="is not HOST:PORT"):
        wire.parse_address(address)


def test_an_ipv6_host_comes_without_its_brackets() -> None:
    assert wire.parse_address("[::1]:9190") == ("::1", 9190)
    assert wire.parse_address("[fe80::1%wlan0]:9190") == ("fe80::1%wlan0", 9190)


def test_a_request() -> None:
    asked: list[bytes] = []
    with peer(tracker(frame(b'[0, ["127.0.0.1", 9090, "phone:0.5"]]'), asked=asked)) as port:
        grant = wire.request(f"127.0.0.1:{port}", "phone", seconds=60)
    assert grant and (grant.address, grant.match_key) == ("127.0.0.1:9090", "phone:0.5")
    assert list(map(json.loads, asked)) == [[wire.REQUEST, "phone", "", 1]]


def test_a_request_that_nobody_grants_ends() -> None:
    def silent(sock: socket.socket) -> None:
        take(sock, 4)
        sock.sendall(MAGIC)
        take(sock, 1 << 20)

    with peer(silent) as port:
        assert wire.request(f"127.0.0.1:{port}", "phone", seconds=0.7) is None


def test_a_server_counts_before_it_has_said_that_it_is_free() -> None:
    row = {"key": "server:phone", "addr": ["127.0.0.1", 9090]}
    summary = wire.parse_summary({"queue_info": {}, "server_info": [row]})
    assert summary.queue("phone").total == 1
    assert summary.queue("other").total == 0


@pytest.mark.parametrize(
    "answer", [None, [], [0], [0, []], [0, ["h", "x", "k"]], [1, ["h", 1, "k"]], {"a": 1}]
)
def test_a_grant_that_is_none(answer: object) -> None:
    with pytest.raises(TrackerError, match="its answer to a request is none"):
        wire.parse_grant(answer, "127.0.0.1:9190")


# the server's handshake ---------------------------------------------------------------------------


def rpc_server(code: int, key: bytes = b"server:phone", packet: bytes = b"") -> Serve:
    def serve(sock: socket.socket) -> None:
        magic, length = struct.unpack("<ii", take(sock, 8))
        assert magic == wire.SERVER_MAGIC and take(sock, length).startswith(b"client:")
        sock.sendall(struct.pack("<i", code))
        if code == wire.ACCEPTED:
            sock.sendall(frame(key))
            (size,) = struct.unpack("<Q", take(sock, 8))
            take(sock, size)
            sock.sendall(packet)
            take(sock, 12)

    return serve


def silent(sock: socket.socket) -> None:
    take(sock, 1 << 20)


RETURNED = struct.pack("<Qiii", 12, wire.RETURN, 1, 0)


@pytest.mark.parametrize(
    ("serve", "answer"),
    [
        (rpc_server(wire.MISMATCH), Answer.MISMATCH),
        (rpc_server(wire.ACCEPTED, packet=RETURNED), Answer.SESSION),
        (rpc_server(wire.ACCEPTED, packet=struct.pack("<Qi", 4, 5)), Answer.OTHER),
        (rpc_server(wire.ACCEPTED, packet=struct.pack("<Q", 1 << 60)), Answer.OTHER),
        (rpc_server(wire.ACCEPTED, key=b"nonsense"), Answer.OTHER),
        (rpc_server(1), Answer.OTHER),
        (lambda sock: sock.sendall(b"HTTP/1.1 400 Bad Request\r\n") or take(sock, 1 << 20), Answer.OTHER),
        (silent, Answer.OTHER),
        (lambda sock: None, Answer.ABSENT),
    ],
    ids=["mismatch", "session", "exception", "huge", "no key", "no code", "http", "silent", "hangs up"],
)
def test_what_listens_at_a_port(serve: Serve, answer: Answer) -> None:
    with peer(serve) as port:
        assert (
            wire.try_server("127.0.0.1", port, key="phone:0.5", seconds=0.5 if serve is silent else 60)
            is answer
        )


def test_nobody_at_a_port() -> None:
    assert wire.try_server("127.0.0.1", free_port(), seconds=60) is Answer.ABSENT
