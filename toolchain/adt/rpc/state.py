"""The processes of tracker and servers on this machine: their records, and how they are started.

``$XDG_STATE_HOME/adt/rpc/`` (default ``~/.local/state``):

``tracker/``         ``tracker.json``, ``tracker.log``
``servers/SERIAL/``  ``server.json``, ``server.log``

Each record is written by the process that it describes, before that process does anything which would have
to be undone, and removed by it at its end. The record of a process that is gone says what to clean up.

A process stays when its starter goes. The starter sends one message (:mod:`adt.host.messages`) to its
standard input and takes one from its standard output: ``{"ready": true}`` or ``{"error": …}``. It then sends
``commit``. Until it has, the end of standard input (the starter was interrupted or killed) ends the process,
which cleans up behind itself: nothing runs that nobody asked for to the end.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import logging
import logging.handlers
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from adt import errors
from adt.device.transport.deadline import Deadline, DeviceTimeout, allowed
from adt.errors import AdtError, RpcError
from adt.host import manifest, process
from adt.host.directories import state_dir
from adt.host.disk import disk_errors
from adt.host.messages import COMMIT, BadMessage, committed, encode, receive, send

log = logging.getLogger("adt.rpc")

REMEDY = "Remove it; `adt rpc stop --all` and `adt tracker stop` then clean up what they find."


@dataclass(frozen=True)
class Process:
    """A process of this machine, and no other that gets its pid later."""

    pid: int
    start_time: int
    """Clock ticks from boot to its start, from /proc."""
    boot: str
    """The kernel's boot_id."""

    @property
    def alive(self) -> bool:
        return self.boot == process.boot_id() and process.start_time(self.pid) == self.start_time

    def end(self, grace: float, *, insist: bool = True) -> bool:
        """End it, after *grace* seconds by force if we *insist*; True once it is gone."""
        if self.boot != process.boot_id():
            return True
        return process.end(self.pid, self.start_time, grace, insist=insist)


def this_process() -> Process:
    started = process.start_time(os.getpid())
    assert started is not None
    return Process(os.getpid(), started, process.boot_id())


@dataclass(frozen=True)
class TrackerRecord:
    """A tracker that adt started."""

    host: str
    """Address that it is bound to: 127.0.0.1 unless it was exposed."""
    port: int
    process: Process
    since: float
    """Time of its start, in seconds since the epoch."""
    schema: str = "adt.rpc-tracker-record"
    schema_version: int = 1

    @property
    def address(self) -> str:
        """Return the address at which this machine reaches it."""
        host = "127.0.0.1" if self.host == "0.0.0.0" else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True)
class DeviceSide:
    """Objects that one life of a server has on its device."""

    directory: str = ""
    """Its working directory there; empty before it runs."""
    pids: tuple[int, ...] = ()
    """Its wrapper and the server, as the device counts."""
    tracker_port: int = 0
    """The device's port that leads to the tracker; 0 for none."""


@dataclass(frozen=True)
class Server:
    """A server on a device."""

    serial: str
    key: str
    tracker: str
    """``host:port`` as this machine reaches it; empty for a server that is connected to directly."""
    deployment: str
    """Its directory on the device; or the activity of an app that serves: ``com.example.app/CLASS``."""
    parent: str
    """The directory on the device that holds working directories of servers."""
    adb_port: int
    """The adb server through which the device is reached."""

    @property
    def app(self) -> str:
        """The app that serves; empty: it is a tvm_rpc."""
        return "" if self.deployment.startswith("/") else self.deployment.partition("/")[0]


@dataclass(frozen=True)
class ServerRecord(Server):
    """A server on a device and the watchdog that keeps it."""

    port: int
    """Port on this machine and on the device; 0 before one was found."""
    tag: str
    """Names this server among all on the device."""
    process: Process
    """The watchdog."""
    since: float
    """Time of the watchdog's start, in seconds since the epoch."""
    state: str
    """``starting``, ``ready``, ``restarting``, ``waiting`` (for the device) or ``failed``."""
    ready_since: float = 0.0
    """Time at which the server that runs became ready; 0 while none is."""
    restarts: int = 0
    last_error: str = ""
    """Reason why the server ended last, or what is missing; empty as long as nothing happened."""
    there: DeviceSide = field(default_factory=DeviceSide)
    schema: str = "adt.rpc-server-record"
    schema_version: int = 1

    @property
    def serves(self) -> bool:
        """Its watchdog keeps a server there, or is about to."""
        return self.process.alive and self.state != "failed"

    @property
    def address(self) -> str:
        """Return the address at which this machine reaches the server."""
        return f"127.0.0.1:{self.port}"


Record = TypeVar("Record", TrackerRecord, ServerRecord)


@dataclass(frozen=True)
class Home:
    """The directory of the tracker or of one server."""

    directory: Path
    name: str
    """``tracker`` or ``server``."""

    @property
    def record(self) -> Path:
        return self.directory / f"{self.name}.json"

    @property
    def log(self) -> Path:
        """Return the log of the process and of its server."""
        return self.directory / f"{self.name}.log"

    def remove(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)


def rpc_directory() -> Path:
    """Return the directory of everything that adt knows of running RPC."""
    return state_dir() / "rpc"


def tracker_home() -> Home:
    return Home(rpc_directory() / "tracker", "tracker")


def server_home(serial: str) -> Home:
    """Return the directory of the record of the server on *serial*."""
    name = re.sub(r"[^A-Za-z0-9.-]", "_", serial)
    digest = hashlib.sha256(serial.encode()).hexdigest()[:8]  # two serials may look the same now
    return Home(rpc_directory() / "servers" / f"{name}-{digest}", "server")


def server_homes() -> list[Home]:
    """List the directory of each server, and of those whose start failed, which hold a log only."""
    base = rpc_directory() / "servers"
    paths = sorted(base.iterdir()) if base.is_dir() else []  # one that cannot be read is an error
    return [Home(path, "server") for path in paths if path.is_dir()]


def write(record: TrackerRecord | ServerRecord, at: Home) -> None:
    """Write *record*; it appears complete or not at all."""
    manifest.write(record, at.record)


class LiveRecord:
    """A server's record in the process that it describes, and on disk."""

    def __init__(self, record: ServerRecord, at: Home) -> None:
        self.now = record
        self._at = at
        self.update()

    def update(self, **changes: Any) -> None:
        """Put *changes* on record."""
        self.now = dataclasses.replace(self.now, **changes)
        try:
            write(self.now, self._at)
        except AdtError as error:  # a full disk must not end the server
            log.warning("%s", error.what)


def _read(kind: type[Record], at: Home) -> Record | None:
    if not at.record.is_file():
        return None
    try:
        return manifest.load(kind, at.record, schema=kind.schema, version=1, remedy=REMEDY)
    except AdtError as error:
        if at.record.is_file():  # else it was removed just now
            log.warning("%s is unreadable and is removed: %s", at.record, error.what)
            at.record.unlink(missing_ok=True)
        return None


def read_tracker(at: Home) -> TrackerRecord | None:
    """Read the tracker's record, whether it still runs or not; None when there is none."""
    return _read(TrackerRecord, at)


def read_server(at: Home) -> ServerRecord | None:
    """Read a server's record, whether its watchdog still runs or not; None when there is none."""
    return _read(ServerRecord, at)


def tail(path: Path) -> str:
    """Return the last 20 lines of a log; empty when there is none."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - (1 << 16)))
        return "\n".join(file.read().decode(errors="replace").splitlines()[-20:])
    return ""


def not_up(what: str, at: Home, error: type[AdtError] = RpcError) -> AdtError:
    """Return the error *what* about a process that ended before it was of use, with its last words."""
    return error(what, remedy=f"Its last words are below and in {at.log}.", details=tail(at.log))


LOG_LIMIT = 4 << 20
"""Bytes after which a log is begun anew; one older log is kept."""
END_SECONDS = 20.0
"""Seconds that a process that is not wanted any more may take to clean up."""


def launch(
    module: str,
    plan: Mapping[str, Any],
    at: Home,
    *,
    seconds: float,
    doing: str,
    pass_fds: Sequence[int] = (),
) -> None:
    """Run *module* in the background with *plan*, and wait up to *seconds* until it is ready.

    AdtError of the class and text that it reports; RpcError if it ended without a word, or took too long.
    """
    with disk_errors(f"writing {at.log}", at.log):
        at.directory.mkdir(parents=True, exist_ok=True)
        output = at.log.open("ab")
    with output:
        child = process.start(
            [sys.executable, "-P", "-m", module, at.directory],
            cwd=at.directory,
            env=process.python_path(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output.fileno(),
            pass_fds=pass_fds,
        )
    assert child.stdin is not None and child.stdout is not None
    stays = False
    try:
        with contextlib.suppress(BrokenPipeError):
            send(child.stdin.fileno(), encode(plan))
        report = _report(child.stdout.fileno(), Deadline(seconds, doing))
        if "error" in report:
            raise _reported(report)
        if "ready" not in report:
            raise not_up(f"{module} did not come up", at)
        send(child.stdin.fileno(), encode(COMMIT))
        stays = True
    finally:
        for pipe in (child.stdin, child.stdout):
            with contextlib.suppress(OSError):
                pipe.close()
        if stays:  # should it end before us, its exit status is collected
            threading.Thread(target=child.wait, daemon=True).start()
        else:
            _wait(child)


def _wait(child: subprocess.Popen[bytes]) -> None:
    """Let the process, whose input has ended, clean up, then end it; after ctrl-C it goes on by itself."""
    seconds = allowed(END_SECONDS)
    try:
        child.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        if seconds == END_SECONDS:
            process.kill_group(child)
    except BaseException:
        process.kill_group(child)
        raise


def _report(fd: int, deadline: Deadline) -> dict[str, Any]:
    """Read the report of the process; empty when there was none in time."""
    try:
        while not select.select([fd], [], [], deadline.patience())[0]:
            pass
        return dict(receive(fd, time.monotonic() + (deadline.remaining() or END_SECONDS)))
    except (DeviceTimeout, OSError, EOFError, BadMessage):
        return {}


def _reported(report: Mapping[str, Any]) -> AdtError:
    kinds = {kind.__name__: kind for kind in errors.all_errors()}
    kind = kinds.get(str(report.get("kind")), RpcError)
    return kind(str(report["error"]), remedy=str(report["remedy"]), details=str(report.get("details", "")))


class Starter:
    """The process that started this one, as seen from here."""

    def __init__(self) -> None:
        self._out = os.dup(1)
        os.dup2(2, 1)  # what anybody prints goes to the log
        self._in = os.dup(0)
        with open(os.devnull) as nothing:  # noqa: PTH123 - a descriptor is wanted, not a path
            os.dup2(nothing.fileno(), 0)

    def plan(self) -> dict[str, Any]:
        plan: dict[str, Any] = receive(self._in)
        return plan

    def watch(self) -> None:
        """End this process (by SIGTERM) from now on if the starter goes before it has said ``commit``."""

        def wait() -> None:
            if not committed(self._in):
                os.kill(os.getpid(), signal.SIGTERM)
            os.close(self._in)

        threading.Thread(target=wait, name="starter", daemon=True).start()

    def ready(self) -> None:
        self._say({"ready": True})

    def failed(self, error: AdtError) -> None:
        """Report what went wrong, with the class that the other side knows, too."""
        kind = next(kind.__name__ for kind in errors.all_errors() if isinstance(error, kind))
        self._say({"error": error.what, "kind": kind, "remedy": error.remedy, "details": error.details})

    def _say(self, message: Mapping[str, object]) -> None:
        with contextlib.suppress(OSError):  # nobody listens any more: `watch` deals with that
            send(self._out, encode(message))
        with contextlib.suppress(OSError):
            os.close(self._out)


def log_to(at: Home) -> None:
    """Write what this process logs to its own log, which never grows beyond twice LOG_LIMIT."""
    handler = logging.handlers.RotatingFileHandler(at.log, maxBytes=LOG_LIMIT, backupCount=1)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
