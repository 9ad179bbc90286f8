"""Commands on the device: stdout and stderr apart, live, with exit code, total deadline and a real end.

When a connection ends, the device's daemon only sends SIGHUP to the shell. So every command first reports its
process id; on ctrl-C, an error or a timeout we end its whole process group from a second connection.
"""

from __future__ import annotations

import contextlib
import logging
import re
import secrets
import shlex
import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypedDict, Unpack

from adt.device.scripts import script
from adt.device.transport import adb
from adt.device.transport.deadline import SHORT, Deadline
from adt.errors import AdtError, DeviceError
from adt.host.process import command_line, last_lines, log_command

log = logging.getLogger("adt.device.transport.shell")

STDIN, STDOUT, STDERR, EXIT, CLOSE_STDIN = range(5)
"""Packet kinds of shell protocol v2; a packet is kind (1 byte), length (4, little endian), data."""

PID_WITHIN = 64 << 10
"""Bytes at the start of a command's output among which its process id is looked for."""

KILL_SECONDS = 5.0


class ShellOptions(TypedDict, total=False):
    """Options of a command on the device; every one may be left out."""

    timeout: float | None
    """Seconds in total, after which the command is ended; None for no limit, SHORT when left out."""
    check: bool
    """Raise when its exit code is not 0, with *what* and *remedy*; the default."""
    doing: str
    """Names it in the error for a timeout or a broken connection; else its first word does."""
    what: str
    remedy: str


@dataclass(frozen=True)
class Completed:
    """A command on the device that ended."""

    serial: str
    argv: tuple[str, ...]
    exit_code: int
    """The program's own; 128 + N when signal N ended it."""
    stdout: bytes
    """On a device without shell protocol v2 stderr is in here too."""
    stderr: bytes

    @property
    def out(self) -> str:
        return self.stdout.decode(errors="replace")

    @property
    def err(self) -> str:
        return self.stderr.decode(errors="replace")

    def tail(self, lines: int = 30) -> str:
        return last_lines(self.out, self.err, lines)


class RemoteCommand(contextlib.AbstractContextManager["RemoteCommand"]):
    """A command that runs on the device *serial* until the block of this context manager ends."""

    def __init__(
        self,
        serial: str,
        argv: Sequence[str],
        *,
        v2: bool,
        deadline: Deadline,
        keep_stdin: bool = False,
        inline: bool = False,
    ) -> None:
        """Start *argv*; *v2* if the device speaks shell protocol v2.

        With *keep_stdin*, stdin stays open until :meth:`close_stdin`. With *inline*, *argv* is ``sh -c TEXT
        sh ARGUMENTS``, and TEXT runs in the shell that the daemon starts anyway, not in one more.
        """
        self.serial = serial
        self.argv = tuple(argv)
        self.pid: int | None = None
        """Process id on the device, once it has been reported; also its process group."""
        self.exit_code: int | None = None
        self._v2 = v2
        self._closed = False
        self._marker = f"adt-{secrets.token_hex(8)}"
        self._held = b""  # start of the stream that carries the pid line, until that line is whole
        self._pid_pending = True
        # quoted so that a list of processes, which shows this text, does not show the marker
        marker = f"{self._marker[:4]}''{self._marker[4:]}"
        line = shlex.join(self.argv)
        self._began = time.monotonic()
        if v2:
            run = f"set -- {shlex.join(self.argv[4:])}\n{self.argv[2]}" if inline else f"exec {line}"
            service = f"shell,v2,raw:echo {marker} $$ >&2; {run}"
        else:  # exec: has neither a pty nor a separate stderr nor an exit code
            stdin = "" if keep_stdin else " </dev/null"
            service = f"exec:echo {marker} $$; {line}{stdin} 2>&1; echo {marker} $?"
        self._wire = adb.open_device(serial, service, deadline=deadline)
        try:
            if v2 and not keep_stdin:
                self.close_stdin()
        except BaseException:
            self._wire.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the command unless it has ended, and hang up; nothing happens a second time."""
        if self._closed:
            return
        self._closed = True
        try:
            if self.exit_code is None:
                self.kill()
        finally:
            self._wire.close()
            log_command(("adb", "-s", self.serial, "shell", *self.argv), self._began)

    def set_deadline(self, deadline: Deadline) -> None:
        """Replace the deadline, for a command that outlives the question it was started for."""
        self._wire.deadline = deadline

    def write(self, data: bytes) -> None:
        """Give the command *data* to read; it was started with *keep_stdin*."""
        self._wire.send(struct.pack("<BI", STDIN, len(data)) + data if self._v2 else data)

    def close_stdin(self) -> bool:
        """Let the command read end-of-file; False when the device cannot do that (without v2)."""
        if self._v2:
            self._wire.send(struct.pack("<BI", CLOSE_STDIN, 0))
        return self._v2

    def output(self) -> Iterator[tuple[int, bytes]]:
        """Yield ``(STDOUT | STDERR, data)`` until the command has ended and :attr:`exit_code` is set."""
        yield from self._output_v2() if self._v2 else self._output_marked()

    def _output_v2(self) -> Iterator[tuple[int, bytes]]:
        while True:
            kind, length = struct.unpack("<BI", self._wire.read_exactly(5))
            data = self._wire.read_exactly(length)
            if kind == EXIT:
                if self._held:
                    yield STDERR, self._held
                self.exit_code = data[0] if data else 255
                return
            if kind == STDERR:
                data = self._take_pid(data)
            if data and kind in (STDOUT, STDERR):
                yield kind, data

    def _output_marked(self) -> Iterator[tuple[int, bytes]]:
        """Yield the output without v2: all is stdout, and the exit code follows our marker at its end."""
        end = f"{self._marker} ".encode()
        pending = b""  # not yet known not to be the marker
        while data := self._wire.read_some():
            pending += self._take_pid(data)
            tail = _overlap(pending, end)
            if tail:
                yield STDOUT, pending[:tail]
                pending = pending[tail:]
        code = pending.removeprefix(end).strip()
        if not pending.startswith(end) or not code.isdigit():
            raise self._wire.lost()
        self.exit_code = int(code)

    def _take_pid(self, data: bytes) -> bytes:
        """Cut the line with the process id out of the stream; the linker's warnings may precede it."""
        if not self._pid_pending:
            return data
        self._held += data
        match = re.search(rb"^%s (\d{1,18})\r?\n" % self._marker.encode(), self._held, re.MULTILINE)
        if match:
            self.pid = int(match[1])
        elif len(self._held) < PID_WITHIN:
            return b""
        held, self._held, self._pid_pending = self._held, b"", False
        return held[: match.start()] + held[match.end() :] if match else held

    def kill(self) -> None:
        """End the command and everything in its process group; no error when it has ended already."""
        if self.pid is None:
            return  # not even started: hanging up ends it
        words = shlex.join(("sh", "-c", script("kill"), "sh", str(self.pid)))
        service = f"{'shell,v2,raw' if self._v2 else 'exec'}:{words}"
        deadline = Deadline(KILL_SECONDS, "ending a command")
        with contextlib.suppress(AdtError), adb.open_device(self.serial, service, deadline=deadline) as wire:
            while wire.read_some():
                pass


def _overlap(data: bytes, end: bytes) -> int:
    """Return where in *data* a whole *end*, or the beginning of one at the very end of *data*, starts."""
    whole = data.find(end)
    if whole >= 0:
        return whole
    start = max(0, len(data) - len(end) + 1)
    return next((at for at in range(start, len(data)) if end.startswith(data[at:])), len(data))


def run(serial: str, argv: Sequence[str], *, v2: bool, **options: Unpack[ShellOptions]) -> Completed:
    """Run *argv* on the device to its end, with nothing on stdin; *v2* if it speaks shell protocol v2."""
    streams = {STDOUT: bytearray(), STDERR: bytearray()}
    doing = options.get("doing") or f"running `{argv[0]}` on {serial}"
    deadline = Deadline(options.get("timeout", SHORT), doing)
    with RemoteCommand(serial, argv, v2=v2, deadline=deadline) as command:
        for kind, data in command.output():
            streams[kind] += data
    code = command.exit_code
    assert code is not None
    done = Completed(serial, tuple(argv), code, bytes(streams[STDOUT]), bytes(streams[STDERR]))
    if options.get("check", True) and code != 0:
        what = options.get("what") or f"`{argv[0]}` failed on {serial}"
        message = "Read the program's own message above; run again with -v to see every command."
        raise DeviceError(
            f"{what} (exit code {code})",
            remedy=options.get("remedy") or message,
            details=f"$ adb -s {serial} shell {command_line(done.argv)}\n{done.tail()}",
        )
    return done
