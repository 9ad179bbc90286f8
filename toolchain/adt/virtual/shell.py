"""The shell services: ``shell:`` in protocol 1 and 2, with or without a terminal, and ``exec:``.

Protocol 2 frames everything as one byte of identifier, four of length (little endian) and the data, which
keeps stderr apart and carries the exit code.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import struct
import subprocess
import termios
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from adt.virtual.wire import Closed, Stream


async def _ready(add: Callable[..., None], remove: Callable[[int], bool], fd: int) -> None:
    done = asyncio.Event()
    add(fd, done.set)
    try:
        await done.wait()
    finally:
        remove(fd)


async def read(fd: int) -> bytes:
    """Read some bytes of a non-blocking *fd*; ``b""`` at its end, which is EIO of a terminal."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            return os.read(fd, 1 << 16)
        except BlockingIOError:
            await _ready(loop.add_reader, loop.remove_reader, fd)
        except OSError:
            return b""


async def write(fd: int, data: bytes) -> None:
    """Write all of *data* to a non-blocking *fd*."""
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


STDIN, STDOUT, STDERR, EXIT, CLOSE_STDIN, WINDOW_SIZE = range(6)
FRAME = struct.Struct("<BI")

_left_behind: set[asyncio.Task[None]] = set()


@dataclass(frozen=True)
class Request:
    """Request of the host by one ``shell...:`` or ``exec:`` destination."""

    command: str
    """The command line for the device's shell; empty for an interactive one."""
    protocol: int
    """1 (bytes) or 2 (frames)."""
    terminal: bool
    """True if the command gets a pseudo terminal."""
    term: str
    """The host's TERM."""


def parse(destination: str) -> Request:
    """Parse ``shell[,v2][,pty|,raw][,TERM=name]:command`` or ``exec:command``, as adbd does."""
    options, _, command = destination.partition(":")
    service, *words = options.split(",")
    interactive = not command and service == "shell" and "raw" not in words
    term = next((word[5:] for word in words if word.startswith("TERM=")), "")
    return Request(command, 2 if "v2" in words else 1, "pty" in words or interactive, term or "dumb")


def frame(identifier: int, data: bytes) -> bytes:
    """Encode one frame of shell protocol 2."""
    return FRAME.pack(identifier, len(data)) + data


def window_size(text: bytes) -> bytes | None:
    """Parse ``ROWSxCOLUMNS,XPIXELSxYPIXELS`` into the argument of TIOCSWINSZ; None when it cannot be read."""
    try:
        cells, _, pixels = text.rstrip(b"\0").decode().partition(",")
        rows, columns = (int(number) for number in cells.split("x"))
        width, height = (int(number) for number in pixels.split("x")) if pixels else (0, 0)
        return struct.pack("HHHH", rows, columns, width, height)
    except (ValueError, struct.error):
        return None


def exit_status(returncode: int) -> int:
    """Return the byte that a shell would report: the code, or 128 + the signal that ended it."""
    return returncode & 0xFF if returncode >= 0 else 128 - returncode


def _take_terminal() -> None:
    """Let standard input control the session: one system call, so it is safe between fork and exec."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class _Child:
    """A started command and our ends of its descriptors, all non-blocking."""

    def __init__(self, request: Request, shell: str, environment: Mapping[str, str]) -> None:
        self.terminal = request.terminal
        self.outputs: dict[int, int] = {}
        self._open, inside = set[int](), list[int]()
        try:
            if request.terminal:
                self.stdin, theirs = os.openpty()
                self.outputs, inside = {STDOUT: self.stdin}, [theirs] * 3
                self._open = {self.stdin}
            else:
                theirs, self.stdin = os.pipe()
                self._open, inside = {self.stdin}, [theirs]
                for kind in (STDOUT, STDERR) if request.protocol == 2 else (STDOUT,):
                    self.outputs[kind], theirs = os.pipe()
                    self._open.add(self.outputs[kind])
                    inside.append(theirs)
            for fd in self._open:
                os.set_blocking(fd, False)
            self.process = subprocess.Popen(
                [shell, "-c", request.command] if request.command else [shell],
                stdin=inside[0],
                stdout=inside[1],
                stderr=inside[-1],
                env={**environment, "TERM": request.term},
                start_new_session=True,
                preexec_fn=_take_terminal if request.terminal else None,
            )
        except BaseException:
            self.close()
            raise
        finally:
            for fd in set(inside):
                os.close(fd)

    async def feed(self, data: bytes) -> None:
        """Write to the command's standard input; nothing happens when it no longer reads."""
        if self.stdin in self._open:
            with contextlib.suppress(OSError):
                await write(self.stdin, data)

    def end_input(self) -> None:
        """Close standard input; a terminal has no such thing."""
        if not self.terminal and self.stdin in self._open:
            self._open.discard(self.stdin)
            os.close(self.stdin)

    def resize(self, size: bytes | None) -> None:
        if self.terminal and size is not None:
            with contextlib.suppress(OSError):
                fcntl.ioctl(self.stdin, termios.TIOCSWINSZ, size)

    def close(self) -> None:
        """Close our ends; closing a terminal hangs up whoever runs in it."""
        while self._open:
            os.close(self._open.pop())

    def collect_later(self) -> None:
        """Collect the exit status of a command whose host has gone, whenever it ends."""

        async def collect() -> None:
            await exited(self.process.pid)
            self.process.wait()

        task = asyncio.ensure_future(collect())
        _left_behind.add(task)
        task.add_done_callback(_left_behind.discard)


async def _input_frames(stream: Stream, child: _Child) -> None:
    """Pass protocol 2 from the host to the command until the host is gone (raises Closed)."""
    while True:
        identifier, length = FRAME.unpack(await stream.exactly(FRAME.size))
        data = await stream.exactly(length)
        if identifier == STDIN:
            await child.feed(data)
        elif identifier == CLOSE_STDIN:
            child.end_input()
        elif identifier == WINDOW_SIZE:
            child.resize(window_size(data))


async def _input_bytes(stream: Stream, child: _Child) -> None:
    """Pass protocol 1 from the host to the command until the host is gone (raises Closed)."""
    while data := await stream.read():
        await child.feed(data)
    raise Closed


async def _output(stream: Stream, fd: int, identifier: int, protocol: int) -> None:
    while data := await read(fd):
        await stream.write(frame(identifier, data) if protocol == 2 else data)


async def serve(stream: Stream, request: Request, shell: str, environment: Mapping[str, str]) -> None:
    """Run the request's command on *stream* until it ends or the host hangs up.

    On a hang-up adbd sends SIGHUP to the shell it started (protocol 2) or closes the command's descriptors
    (protocol 1), and nothing more; so do we.
    """
    child = _Child(request, shell, environment)
    stream.accept()
    take = _input_frames if request.protocol == 2 else _input_bytes
    incoming: asyncio.Future[None] = asyncio.ensure_future(take(stream, child))
    outputs = [
        asyncio.ensure_future(_output(stream, fd, identifier, request.protocol))
        for identifier, fd in child.outputs.items()
    ]

    async def end() -> None:
        await asyncio.gather(*outputs)  # Closed, when the host went away while we wrote
        await exited(child.process.pid)

    ending = asyncio.ensure_future(end())
    tasks = (incoming, ending, *outputs)
    try:
        await asyncio.wait((incoming, ending), return_when=asyncio.FIRST_COMPLETED)
        if not ending.done():
            raise Closed
        ending.result()
        code = child.process.wait()
        if request.protocol == 2:
            await stream.write(frame(EXIT, bytes([exit_status(code)])))
    finally:
        # each by itself: a gather that failed leaves its other tasks running, and one that still waits on
        # a descriptor when that is closed would wait on the next command's of the same number
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        child.close()
        if child.process.returncode is None and child.process.poll() is None:
            if request.protocol == 2:
                child.process.send_signal(signal.SIGHUP)
            child.collect_later()
