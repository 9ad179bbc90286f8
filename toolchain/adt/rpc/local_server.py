"""An RPC server on this machine, for one block: for packages that were compiled for it.

Only this process can use it: it takes clients with a key that nobody else knows.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from adt.bundle.bundle import TargetBundle
from adt.errors import RpcError
from adt.host.disk import temporary_directory
from adt.rpc import board, handshake
from adt.rpc.handshake import Answer

START_SECONDS = 30.0
ATTEMPTS = 5
"""Somebody may take the port between our finding it free and the server's start."""


@dataclass(frozen=True)
class LocalServer:
    """A server that answers."""

    address: str
    """``host:port``, on the loopback."""
    key: str


@contextlib.contextmanager
def local_server(bundle: TargetBundle) -> Iterator[LocalServer]:
    """Run the server of *bundle* on the loopback of this machine for as long as the block runs.

    Raises:
        MismatchError: the bundle is for another machine.
        RpcError: it has no tvm_rpc, or that does not start; with its last words.
    """
    key = f"adt-{secrets.token_hex(16)}"
    with contextlib.ExitStack() as stack, tempfile.TemporaryFile(dir=temporary_directory()) as said:
        for _ in range(ATTEMPTS):
            port = _free_port()
            words = board.arguments(key=key, port=port, tracker="", expose=False, work="")[:-1]
            child = stack.enter_context(board.started_here(bundle, words, output=said.fileno()))
            if _answers(child, port):
                yield LocalServer(f"127.0.0.1:{port}", key)
                return
            stack.close()
        raise RpcError(
            f"the RPC server of {bundle.path} does not start on this machine",
            remedy="Its last words are below; build the bundle again: adt build-target --for host.",
            details=_tail(said),
        )


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def _answers(child: subprocess.Popen[bytes], port: int) -> bool:
    end = time.monotonic() + START_SECONDS
    while child.poll() is None and time.monotonic() < end:
        answer = handshake.try_server("127.0.0.1", port, seconds=5)
        if answer is Answer.MISMATCH:  # it expects us, with the key
            return child.poll() is None
        time.sleep(0.05)
    return False


def _tail(said: IO[bytes]) -> str:
    said.seek(0)
    return "\n".join(said.read().decode(errors="replace").splitlines()[-30:])
