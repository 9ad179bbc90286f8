"""The control socket of a running device: other processes change the faults that are armed in it.

A Unix socket in the device's directory on this machine, so only the user who
started the device can use it. One JSON line each way: ``{"faults": [SPEC...]}``
arms these in place of what was armed, ``{}`` only asks; the answer is
``{"faults": [SPEC...]}`` (what may still strike) or ``{"error": TEXT}``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

from adt.errors import AdtError, EmulatorError
from adt.virtual import faults
from adt.virtual.faults import Injector

TIMEOUT = 10.0
"""Seconds in which a device must answer."""


@contextlib.contextmanager
def _short(path: Path) -> Iterator[str]:
    """A name of *path* that fits into a socket address (108 bytes), however deep its directory is."""
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


def listen(path: Path) -> socket.socket:
    """The device's side: a socket that listens at *path*, where an older device's may still lie.

    Raises:
        OSError: it cannot be made.
    """
    path.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _short(path) as name:
            listening.bind(name)
        path.chmod(0o600)
        listening.listen(8)
    except OSError:
        listening.close()
        raise
    return listening


async def serve(listening: socket.socket, injector: Injector) -> asyncio.Server:
    """Answer requests until the server is closed."""

    async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.CancelledError):
            writer.write(json.dumps(answer(await reader.readline(), injector)).encode() + b"\n")
            await writer.drain()
        writer.close()

    # not start_unix_server: from Python 3.13 on it looks for the file by the short name, which is gone
    return await asyncio.start_server(on_connection, sock=listening)


def answer(line: bytes, injector: Injector) -> dict[str, object]:
    """What the device answers to one request."""
    try:
        request = json.loads(line)
        if "faults" in request:
            injector.replace(faults.parse(request["faults"]))
    except AdtError as error:
        return {"error": error.what}
    except (ValueError, TypeError, OSError) as error:
        return {"error": str(error)}
    return {"faults": [str(fault) for fault in injector.armed()]}


def ask(path: Path, specifications: Sequence[str] | None) -> tuple[str, ...]:
    """The starter's side: arm *specifications* (None to leave things alone) and give what is armed.

    Raises:
        EmulatorError: nothing listens at *path*, or the device refuses.
    """
    request = {} if specifications is None else {"faults": list(specifications)}
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as plug, _short(path) as name:
            plug.settimeout(TIMEOUT)
            plug.connect(name)
            plug.sendall(json.dumps(request).encode() + b"\n")
            with plug.makefile("rb") as answers:
                reply = json.loads(answers.readline())
    except (OSError, ValueError) as error:
        raise EmulatorError(
            f"the virtual device does not answer at {path}: {error}",
            remedy="See `adt emulator list`; a device of an older adt must be stopped and started again.",
        ) from error
    if "error" in reply:
        raise EmulatorError(
            f"the faults cannot be injected: {reply['error']}", remedy="Name what the device has."
        )
    return tuple(reply["faults"])
