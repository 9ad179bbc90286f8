"""The protocols of trackers and servers, spoken so that nothing that answers can hang or flood us.

With a tracker, after a magic word in each direction every message is its length (4 bytes, little endian) and
that much JSON. The client asks, the tracker answers.

Client and server exchange a magic word and their keys. A server takes only the client whose key it expects
and says "mismatch" to any other, which shows that it lives without taking it away from anybody. Then packets
follow: length (8 bytes), code (4 bytes), body, all little endian.
"""

from __future__ import annotations

import contextlib
import enum
import json
import re
import secrets
import socket
import struct
import time
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from adt.errors import ConfigError, TrackerError
from adt.limits import MOST_PORT, natural

TRACKER_MAGIC = 0x2F271
"""First word of a conversation with a tracker, from each side."""
SUCCESS = 0
REQUEST, SUMMARY = 4, 6
"""Codes of the requests that adt makes."""
MAX_FRAME = 1 << 20
"""Bytes of one answer; TVM's tracker takes no longer question either."""
PIECE = 1 << 20
"""Bytes that are read at a time, whatever number is announced."""
SECONDS = 5.0
"""Budget for one question that a tracker answers at once."""
SERVER_MAGIC = 0xFF271
ACCEPTED, MISMATCH = SERVER_MAGIC, SERVER_MAGIC + 2
"""First words of a client and of a server."""
SHUTDOWN, INIT_SERVER, RETURN = 1, 2, 4
"""Codes of packets."""
PROTOCOL_VERSION = b"0.8.0"
"""Version of the protocol of the packets in TVM 0.25 to 0.27."""
MAX_TEXT = 1 << 16
"""Bytes of a key or an answer that we are ready to read."""


@dataclass(frozen=True)
class Queue:
    """Summary by a tracker of one key."""

    key: str
    total: int
    """Servers that are registered."""
    free: int
    """Number of servers that serve nobody just now."""
    pending: int
    """Clients that wait for one."""


@dataclass(frozen=True)
class Registered:
    """A server as it registered."""

    key: str
    address: str
    """Address that clients are sent to, ``host:port``."""

    @property
    def port(self) -> int:
        """Its port; 0 when it said none."""
        return natural(self.address.rpartition(":")[2], MOST_PORT) or 0


@dataclass(frozen=True)
class Summary:
    """Everything that a tracker says of itself."""

    queues: tuple[Queue, ...]
    """By key; keys that nobody serves and nobody waits for are left out."""
    servers: tuple[Registered, ...]

    def queue(self, key: str) -> Queue:
        """Return the summary of *key*; a server has no queue yet until it first says that it is free."""
        total = sum(server.key == key for server in self.servers)
        return next((queue for queue in self.queues if queue.key == key), Queue(key, total, 0, 0))


@dataclass(frozen=True)
class Target:
    """Server that a session goes to; one that a tracker gave us waits some seconds for its client."""

    host: str
    port: int
    match_key: str
    """Match key that the server expects of its client."""
    key: str = ""
    tracker: str = ""
    """Address of the tracker that gave it to us; empty for none."""

    @property
    def address(self) -> str:
        """``host:port``."""
        return f"{self.host}:{self.port}"


def parse_address(text: str) -> tuple[str, int]:
    """Split ``HOST:PORT``; the brackets of an IPv6 host go, as sockets take it; ConfigError if it is none."""
    parts = re.fullmatch(r"(?:\[([^][\s]+)\]|([^][\s:]+)):([0-9]{1,5})", text)
    if not parts or not (port := natural(parts[3], MOST_PORT)):
        raise ConfigError(f"{text[:80]!r} is not HOST:PORT", remedy="Give an address such as 127.0.0.1:9190.")
    return parts[1] or parts[2], port


def parse_summary(raw: Any) -> Summary:
    """Read a tracker's summary; raises ValueError if it is none."""
    if not isinstance(raw, dict) or not isinstance(raw.get("queue_info"), dict):
        raise ValueError("no queue_info")
    servers = []
    for row in raw.get("server_info") or ():
        if not isinstance(row, dict) or not isinstance(row.get("addr"), list) or len(row["addr"]) != 2:
            raise ValueError("a server without an address")
        key = str(row.get("key", "")).removeprefix("server:")
        servers.append(Registered(key, ":".join(map(str, row["addr"]))))
    queues = []
    for key, row in sorted(raw["queue_info"].items()):
        if not isinstance(row, dict):
            raise ValueError("a queue that is none")
        total = sum(server.key == key for server in servers)
        free, pending = row.get("free", 0), row.get("pending", 0)
        if not isinstance(free, int) or not isinstance(pending, int):
            raise ValueError("a queue without counts")
        if total or free or pending:
            queues.append(Queue(str(key), total, free, pending))
    servers.sort(key=attrgetter("key", "address"))
    return Summary(tuple(queues), tuple(servers))


def seconds_left(end: float) -> float:
    """Return the seconds until *end*, of :func:`time.monotonic`; raise TimeoutError when it is over."""
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def read_exactly(sock: socket.socket, count: int, end: float | None = None) -> bytes:
    """Read *count* bytes, before *end* if that is given; an OSError when they do not come."""
    data = bytearray()
    while len(data) < count:
        if end is not None:
            sock.settimeout(seconds_left(end))
        more = sock.recv(min(count - len(data), PIECE))
        if not more:
            raise ConnectionResetError("it hung up")
        data += more
    return bytes(data)


class Late(TrackerError):
    """The tracker took the question and did not answer it in time."""


def _ask(address: str, question: object, seconds: float) -> Any:
    """Return the JSON that the tracker at ``HOST:PORT`` answers to *question*, within *seconds* in total."""
    host, port = parse_address(address)
    end, greeted = time.monotonic() + seconds, False
    text = json.dumps(question).encode()
    try:
        with socket.create_connection((host, port), timeout=seconds) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.sendall(struct.pack("<i", TRACKER_MAGIC))
            word = read_exactly(sock, 4, end)
            if struct.unpack("<i", word)[0] != TRACKER_MAGIC:
                raise not_a_tracker(address, f"its first word is {word!r}")
            greeted = True
            sock.settimeout(seconds_left(end))
            sock.sendall(struct.pack("<i", len(text)) + text)
            (length,) = struct.unpack("<i", read_exactly(sock, 4, end))
            if not 0 < length <= MAX_FRAME:
                raise not_a_tracker(address, f"it announced an answer of {length} bytes")
            return json.loads(read_exactly(sock, length, end))
    except (ValueError, RecursionError) as error:
        raise not_a_tracker(address, f"its answer is no JSON: {error}") from error
    except ConnectionRefusedError as error:
        raise TrackerError(
            f"no tracker runs at {address}",
            remedy="adt tracker start; or name the one that runs: --tracker HOST:PORT.",
        ) from error
    except TimeoutError as error:
        raise (Late if greeted else TrackerError)(
            f"the tracker at {address} did not answer within {seconds:g} s",
            remedy="Look what listens there (`adt doctor rpc`); `adt tracker stop` and `adt tracker start` "
            "give a fresh one.",
        ) from error
    except OSError as error:
        raise TrackerError(
            f"the connection to the tracker at {address} broke: {error}",
            remedy="Is it a tracker, and does it still run? `adt tracker status`; `adt doctor rpc`.",
        ) from error


def not_a_tracker(address: str, reason: str) -> TrackerError:
    """Return the error for something else that listens there."""
    return TrackerError(
        f"what listens at {address} is not a TVM tracker: {reason}",
        remedy="Give the tracker's own port (`adt tracker status` shows it), or run adt tracker start.",
    )


def summary(address: str, *, seconds: float = SECONDS) -> Summary:
    answer = _ask(address, [SUMMARY], seconds)
    try:
        code, raw = answer
        if code != SUCCESS:
            raise ValueError(f"code {code}")
        return parse_summary(raw)
    except (ValueError, TypeError, AttributeError) as error:
        raise not_a_tracker(address, f"its summary is none ({error})") from error


def request(address: str, key: str, *, seconds: float) -> Target | None:
    """Wait up to *seconds* for a free server with *key*; None when none became free.

    The tracker counts a request that was given up as pending until a server is free, and then passes it over.
    """
    try:
        answer = _ask(address, [REQUEST, key, "", 1], seconds)
    except Late:
        return None
    return replace(parse_grant(answer, address), key=key, tracker=address)


def parse_grant(answer: object, address: str) -> Target:
    """Read the answer to a request; raises TrackerError if it is none."""
    if isinstance(answer, list) and len(answer) == 2 and answer[0] == SUCCESS:
        given = answer[1]
        if isinstance(given, list) and len(given) == 3 and (port := natural(str(given[1]), MOST_PORT)):
            return Target(str(given[0]), port, str(given[2]))
    raise not_a_tracker(address, "its answer to a request is none")


class Answer(enum.Enum):
    """Kind of the other end."""

    SESSION = "session"
    """A server; it opened a session and closed it again."""
    MISMATCH = "mismatch"
    """A server that expects another client."""
    ABSENT = "absent"
    """Nothing: the connection is refused, or carried to where nobody listens."""
    OTHER = "other"
    """Something that is not a TVM RPC server, or a server that is too busy to answer."""


def try_server(host: str, port: int, *, key: str = "", seconds: float) -> Answer:
    """Find out what listens at *host*:*port*, within *seconds*: by a session with *key*, else by a hello."""
    try:
        with socket.create_connection((host, port), timeout=seconds) as sock:
            answer = open_session(sock, key or "adt-hello-" + secrets.token_hex(16), seconds)
            if answer is Answer.SESSION:
                with contextlib.suppress(OSError):
                    sock.sendall(struct.pack("<Qi", 4, SHUTDOWN))
            return answer
    except TimeoutError:
        return Answer.OTHER
    except OSError:  # refused, or closed at once by adb, which has nobody to connect to
        return Answer.ABSENT


def open_session(sock: socket.socket, key: str, seconds: float) -> Answer:
    """Open a session with the server as client *key*; TimeoutError after *seconds*, OSError on a hang-up."""
    end = time.monotonic() + seconds
    name = f"client:{key}".encode()
    sock.settimeout(seconds)
    sock.sendall(struct.pack("<ii", SERVER_MAGIC, len(name)) + name)
    (word,) = struct.unpack("<i", read_exactly(sock, 4, end))
    if word == MISMATCH:
        return Answer.MISMATCH
    if word != ACCEPTED:
        return Answer.OTHER
    (length,) = struct.unpack("<i", read_exactly(sock, 4, end))
    if not 0 <= length <= MAX_TEXT or not read_exactly(sock, length, end).startswith(b"server:"):
        return Answer.OTHER
    body = struct.pack("<iQ", INIT_SERVER, len(PROTOCOL_VERSION)) + PROTOCOL_VERSION + struct.pack("<i", 0)
    sock.sendall(struct.pack("<Q", len(body)) + body)
    (length,) = struct.unpack("<Q", read_exactly(sock, 8, end))
    if not 4 <= length <= MAX_TEXT:
        return Answer.OTHER
    (code,) = struct.unpack_from("<i", read_exactly(sock, length, end))
    return Answer.SESSION if code == RETURN else Answer.OTHER
