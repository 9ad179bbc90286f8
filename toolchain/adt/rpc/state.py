"""The records of tracker and servers on this machine.

``$XDG_STATE_HOME/adt/rpc/`` (default ``~/.local/state``):

``tracker/``         ``tracker.json``, ``tracker.log``
``servers/SERIAL/``  ``server.json``, ``server.log``

Each record is written by the process that it describes, before that process does
anything which would have to be undone, and removed by it at its end. A record
whose process is gone therefore says what is left to be cleaned up.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import logging
import os
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from adt.errors import AdtError
from adt.host import manifest, process
from adt.host.directories import state_dir

log = logging.getLogger("adt.rpc")

TRACKER, SERVER = "adt.rpc-tracker-record", "adt.rpc-server-record"
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
        """Return True if it still runs."""
        return self.boot == process.boot_id() and process.start_time(self.pid) == self.start_time

    def end(self, grace: float, *, insist: bool = True) -> bool:
        """End it, after *grace* seconds by force if we *insist*; True once it is gone."""
        if self.boot != process.boot_id():
            return True
        return process.end(self.pid, self.start_time, grace, insist=insist)


def this_process() -> Process:
    """Describe this process."""
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
    schema: str = TRACKER
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
class ServerRecord:
    """A server on a device and the watchdog that keeps it."""

    serial: str
    key: str
    port: int
    """Port on this machine and on the device; 0 before one was found."""
    tracker: str
    """``host:port`` as this machine reaches it; empty for a server that is connected to directly."""
    deployment: str
    """Its directory on the device; or the activity of an app that serves: ``com.example.app/CLASS``."""
    parent: str
    """The directory on the device that holds working directories of servers."""
    tag: str
    """Names this server among all on the device."""
    adb_port: int
    """The adb server through which the device is reached."""
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
    schema: str = SERVER
    schema_version: int = 1

    @property
    def serves(self) -> bool:
        """Its watchdog keeps a server there, or is about to."""
        return self.process.alive and self.state != "failed"

    @property
    def app(self) -> str:
        """The app that serves; empty: it is a tvm_rpc."""
        return serving_app(self.deployment)

    @property
    def address(self) -> str:
        """Return the address at which this machine reaches the server."""
        return f"127.0.0.1:{self.port}"


def serving_app(deployment: str) -> str:
    """Return the app of a :attr:`ServerRecord.deployment`; empty if it is a directory."""
    return "" if deployment.startswith("/") else deployment.partition("/")[0]


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
    """Return the directory of the tracker's record."""
    return Home(rpc_directory() / "tracker", "tracker")


def server_home(serial: str) -> Home:
    """Return the directory of the record of the server on *serial*."""
    name = re.sub(r"[^A-Za-z0-9.-]", "_", serial)
    digest = hashlib.sha256(serial.encode()).hexdigest()[:8]  # two serials may look the same now
    return Home(rpc_directory() / "servers" / f"{name}-{digest}", "server")


def server_homes() -> list[Home]:
    """List the directory of each server, and of those whose start failed, which hold a log only."""
    parent = rpc_directory() / "servers"
    paths = sorted(parent.iterdir()) if parent.is_dir() else []
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


def _read(kind: type[Record], at: Home, schema: str) -> Record | None:
    if not at.record.is_file():
        return None
    try:
        return manifest.load(kind, at.record, schema=schema, version=1, remedy=REMEDY)
    except AdtError as error:
        if at.record.is_file():  # else it was removed just now
            log.warning("%s is unreadable and is removed: %s", at.record, error.what)
            at.record.unlink(missing_ok=True)
        return None


def read_tracker(at: Home) -> TrackerRecord | None:
    """Read the tracker's record, whether it still runs or not; None when there is none."""
    return _read(TrackerRecord, at, TRACKER)


def read_server(at: Home) -> ServerRecord | None:
    """Read a server's record, whether its watchdog still runs or not; None when there is none."""
    return _read(ServerRecord, at, SERVER)


def tail(path: Path) -> str:
    """Return the last 20 lines of a log; empty when there is none."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - (1 << 16)))
        return "\n".join(file.read().decode(errors="replace").splitlines()[-20:])
    return ""
