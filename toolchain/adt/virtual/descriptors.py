"""Wait for pipes, terminals and processes inside the event loop, without threads."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

CHUNK = 1 << 16


async def _ready(add: Callable[..., None], remove: Callable[[int], bool], fd: int) -> None:
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake() -> None:
        if not done.done():
            done.set_result(None)

    add(fd, wake)
    try:
        await done
    finally:
        remove(fd)


async def read(fd: int) -> bytes:
    """Up to CHUNK bytes of a non-blocking *fd*; ``b""`` at its end.

    A terminal whose other side is closed answers EIO, which is its end too.
    """
    loop = asyncio.get_running_loop()
    while True:
        try:
            return os.read(fd, CHUNK)
        except BlockingIOError:
            await _ready(loop.add_reader, loop.remove_reader, fd)
        except OSError:
            return b""


async def write(fd: int, data: bytes) -> None:
    """Write all of *data* to a non-blocking *fd*.

    Raises:
        OSError: nobody reads the other end any more.
    """
    loop = asyncio.get_running_loop()
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            await _ready(loop.add_writer, loop.remove_writer, fd)


async def exited(pid: int) -> None:
    """Return once our child *pid* has ended; its exit status is left to be collected."""
    loop = asyncio.get_running_loop()
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        await _ready(loop.add_reader, loop.remove_reader, fd)
    finally:
        os.close(fd)
