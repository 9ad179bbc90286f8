"""The first words of TVM's RPC: does a server answer, and does it open a session?

Client and server exchange a magic word and their keys. A server takes only the client whose key it expects
and says "mismatch" to any other, which shows that it lives without taking it away from anybody. Then packets
follow: length (8 bytes), code (4 bytes), body, all little endian.
"""

from __future__ import annotations

import contextlib
import enum
import secrets
import socket
import struct
import time

from adt.rpc.wire import read_exactly

MAGIC = 0xFF271
ACCEPTED, MISMATCH = MAGIC, MAGIC + 2
SHUTDOWN, INIT_SERVER, RETURN = 1, 2, 4
"""Codes of packets."""
PROTOCOL_VERSION = b"0.8.0"
"""Version of the protocol of the packets in TVM 0.25 to 0.27."""
MAX_TEXT = 1 << 16
"""Bytes of a key or an answer that we are ready to read."""


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
    """Find out what listens at *host*:*port*, within *seconds*; with its *key*, by a session, else by a
    hello only."""
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
    """Greet the server as the client *key* and open a session; TimeoutError after *seconds*, OSError if it
    hangs up."""
    end = time.monotonic() + seconds
    name = f"client:{key}".encode()
    sock.settimeout(seconds)
    sock.sendall(struct.pack("<ii", MAGIC, len(name)) + name)
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
