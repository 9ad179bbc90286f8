"""Launch PID 1 of a virtual device and wait until it takes connections, or say why it does not."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import time

from adt.errors import EmulatorError
from adt.host import manifest, process
from adt.virtual import state
from adt.virtual.init import Boot

LOOPBACK = "127.0.0.1"
START_TIMEOUT = 60.0
"""Seconds in which a device must come up."""
LOG_TAIL = 20
"""Lines of the log in an error message."""
LOG_LIMIT = 4 << 20
"""Bytes above which a start begins a new log."""


def listen(port: int | None) -> socket.socket:
    """A socket that listens on the loopback address only, made before the device's own network exists."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((LOOPBACK, port or 0))
        listening.listen(16)
    except OSError as why:
        listening.close()
        raise EmulatorError(
            f"cannot listen on {LOOPBACK}:{port or 0}: {why.strerror}",
            remedy="Choose another --port, or leave it away for a free one.",
        ) from why
    return listening


def boot_up(boot: Boot, listening: socket.socket, at: state.Home, mode: str) -> state.Record:
    """Launch PID 1, wait until the device takes connections, and record it.

    Whatever goes wrong, ctrl-C included, nothing stays behind: PID 1 ends when our
    end of its standard input closes before it was told ``commit``.
    """
    with at.log.open("a") as file:
        offset = file.tell()
        if offset > LOG_LIMIT:
            offset = file.truncate(0)
        launcher = process.start(
            ["env", "-i", *_environment(), sys.executable, "-P", "-m", "adt.virtual.init"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=file.fileno(),
            pass_fds=(boot.listening, boot.control),
        )
    pid, started, ready, committed = 0, None, False, False
    try:
        assert launcher.stdin and launcher.stdout
        launcher.stdin.write(boot.to_json().encode() + b"\n")
        launcher.stdin.flush()
        for message in _Messages(launcher.stdout.fileno(), START_TIMEOUT):
            if "error" in message:
                raise _failed(boot.name, str(message["error"]), at, offset)
            if "pid" in message:
                pid = int(str(message["pid"]))
                started = state.start_time(pid)
            ready |= "ready" in message
            if ready and pid:
                break
        else:
            raise _failed(boot.name, "it ended, or did not answer in time", at, offset)
        if started is None:
            raise _failed(boot.name, "it ended at once", at, offset)
        record = state.Record(
            schema=state.SCHEMA,
            schema_version=1,
            name=boot.name,
            port=listening.getsockname()[1],
            pid=pid,
            start_time=started,
            boot=state.boot_id(),
            mode=mode,
            userland=boot.userland,
            data_size=boot.data_size,
            abi=boot.abi,
        )
        manifest.write(record, at.record)
        launcher.stdin.write(b"commit\n")
        launcher.stdin.flush()
        committed = True
        return record
    except BrokenPipeError as why:
        raise _failed(boot.name, "it ended", at, offset) from why
    finally:
        if not committed:
            at.record.unlink(missing_ok=True)
            process.kill_group(launcher)
            if pid:
                state.end(pid, started, grace=1.0)
        for pipe in (launcher.stdin, launcher.stdout):
            if pipe:
                try:
                    pipe.close()
                except BrokenPipeError:  # closing flushes what a dead launcher did not read
                    continue
        launcher.wait()


def _environment() -> list[str]:
    """The launcher's whole environment: programs on the device can read PID 1's, so it holds no secrets."""
    kept = ("LD_LIBRARY_PATH", "PYTHONHOME")
    ours = {**process.python_path(), **{key: os.environ[key] for key in kept if key in os.environ}}
    return [f"{key}={value}" for key, value in ours.items()]


class _Messages:
    """The JSON lines of a pipe, as they come, until its end or *timeout* seconds from now."""

    def __init__(self, fd: int, timeout: float) -> None:
        self._fd, self._deadline, self._rest = fd, time.monotonic() + timeout, b""

    def __iter__(self) -> _Messages:
        return self

    def __next__(self) -> dict[str, object]:
        while b"\n" not in self._rest:
            left = self._deadline - time.monotonic()
            if left <= 0 or not select.select([self._fd], [], [], left)[0]:
                raise StopIteration
            data = os.read(self._fd, 4096)
            if not data:
                raise StopIteration
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        message: dict[str, object] = json.loads(line)
        return message


def _failed(name: str, why: str, at: state.Home, offset: int) -> EmulatorError:
    with at.log.open("rb") as file:
        file.seek(offset)
        said = file.read().decode(errors="replace").splitlines()[-LOG_TAIL:]
    return EmulatorError(
        f"virtual device {name} did not come up: {why}",
        remedy=f"Look at {at.log}; `adt doctor` shows what this machine lacks.",
        details="\n".join(said),
    )
