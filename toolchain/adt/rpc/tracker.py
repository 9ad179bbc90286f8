"""The tracker on this machine: start, stop, status.

It is TVM's own, in a background process (``python -m adt.rpc.tracker DIRECTORY``) with a record on disk. It
survives the terminal, and listens on 127.0.0.1 unless it is to be exposed.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import secrets
import signal
import socket
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NoReturn

from adt.errors import AdtError, TrackerError
from adt.host import cache
from adt.host.document import FLAT, OR_NULL
from adt.host.extras import install_command
from adt.options.sections import PortRange
from adt.rpc import state, wire
from adt.rpc.wire import Summary

log = logging.getLogger("adt.rpc")

PORTS = PortRange(9190, 9199)
LOOPBACK, EVERYWHERE = "127.0.0.1", "0.0.0.0"
LOCK_SECONDS = 120.0
EXPOSED = (
    "the %s listens on every address of this machine: TVM's RPC is remote code execution without a password. "
    "Do this only in a network in which everybody may run programs as you."
)


@dataclass(frozen=True)
class TrackerInfo:
    """The tracker that adt started on this machine, as far as there is one."""

    running: bool
    address: str = field(metadata=OR_NULL)
    """``host:port`` as this machine reaches it; empty when none was started."""
    exposed: bool = False
    """Other machines reach it too."""
    pid: int = field(default=0, metadata=OR_NULL)
    uptime: float = 0.0
    """Seconds."""
    log: Path | None = None
    already: bool = False
    """It ran before `start` was asked for."""
    summary: Summary | None = field(default=None, metadata=FLAT)
    """Summary of its servers; None when it was not asked or does not answer."""
    error: str = ""
    """Reason why it does not run or does not answer."""


def listen(ports: PortRange, host: str) -> socket.socket:
    """Return a socket that listens on the first free port of *ports*; raises TrackerError if none is free."""
    for port in ports:
        try:
            return socket.create_server((host, port), backlog=128)
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise TrackerError(
                    f"cannot listen on {host}:{port}: {os.strerror(error.errno or 0)}",
                    remedy="Choose other ports: --port.",
                ) from error
            log.info("port %d is taken or not allowed; trying the next", port)
    span = f"ports {ports} are" if len(ports) > 1 else f"port {ports.first} is"
    raise TrackerError(
        f"{span} in use on {host}",
        remedy="Give others with --port and --port-end; `adt doctor rpc` shows who holds them.",
    )


def start(ports: PortRange = PORTS, *, expose: bool = False) -> TrackerInfo:
    """Start the tracker, or return the one that runs; *expose*: on every address, not only on 127.0.0.1.

    *ports* are candidates; that one runs on another than an insisted port is said.
    """
    at = state.tracker_home()
    with cache.lock(at.directory, timeout=LOCK_SECONDS):
        record = state.read_tracker(at)
        if record is not None and record.process.alive:
            if (ports.insisted and record.port not in ports) or expose != (record.host == EVERYWHERE):
                log.warning("it keeps its address; `adt tracker stop` first to change it")
            return replace(_info(record, at), already=True)
        if record is not None:
            log.warning("the tracker at %s had died; starting a new one", record.address)
            at.record.unlink(missing_ok=True)
        if expose:
            log.warning(EXPOSED, "tracker")
        with listen(ports, EVERYWHERE if expose else LOOPBACK) as listening:
            fd, doing = listening.fileno(), "starting the tracker"
            # it imports TVM, which takes long
            state.launch(__name__, {"fd": fd}, at, seconds=60.0, doing=doing, pass_fds=(fd,))
        record = state.read_tracker(at)
        if record is None:
            raise state.not_up("the tracker ended right after its start", at, TrackerError)
        log.debug("the tracker listens on %s", record.address)
        return _info(record, at)


def running() -> str:
    """Return the address of the tracker that adt started; empty when it does not run."""
    record = state.read_tracker(state.tracker_home())
    return record.address if record is not None and record.process.alive else ""


def stop() -> TrackerInfo:
    """Stop the tracker and remove every trace of it; ``running`` of the result tells whether it had run."""
    at = state.tracker_home()
    before = TrackerInfo(False, "")
    if not at.directory.is_dir():
        return before
    with cache.lock(at.directory, timeout=LOCK_SECONDS):
        if record := state.read_tracker(at):
            before = _info(record, at)
            if not record.process.end(grace=5.0):
                raise TrackerError(
                    f"the tracker (pid {record.process.pid}) does not end",
                    remedy=f"As its user or root: kill -9 {record.process.pid}",
                )
        at.remove()
        return before


def status(address: str = "") -> TrackerInfo:
    """Return the state of the tracker, adt's or that at *address*; no error for one that does not run."""
    at = state.tracker_home()
    record = state.read_tracker(at)
    ours = record if record is not None and address in ("", record.address) else None
    if ours is None and not address:
        return TrackerInfo(False, "", error="none was started: adt tracker start")
    info = _info(ours, at) if ours else TrackerInfo(True, address)
    if not info.running:
        return replace(info, error="it has died; its last words are in its log")
    try:
        return replace(info, summary=wire.summary(info.address))
    except TrackerError as error:
        return replace(info, running=ours is not None, error=error.what)


def ensure(address: str = "", *, ports: PortRange = PORTS) -> str:
    """Return the address of a tracker that answers: *address*, or adt's own, started when it does not run."""
    tracker = address or start(ports).address
    try:
        wire.summary(tracker)
    except AdtError as error:
        if address:
            raise
        raise type(error)(error.what, remedy="adt tracker stop; adt tracker start") from error
    return tracker


def _info(record: state.TrackerRecord, at: state.Home) -> TrackerInfo:
    alive = record.process.alive
    return TrackerInfo(
        running=alive,
        address=record.address,
        exposed=record.host == EVERYWHERE,
        pid=record.process.pid,
        uptime=max(0.0, time.time() - record.since) if alive else 0.0,
        log=at.log,
    )


def main() -> int:
    """Serve TVM's own tracker until SIGTERM, on the socket of the starter, who alone decides about ports."""
    at = state.Home(Path(sys.argv[1]), "tracker")
    starter = state.Starter()
    plan = starter.plan()
    state.log_to(at)

    def stop(_signal: int, _frame: object) -> NoReturn:
        raise SystemExit(0)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    starter.watch()
    try:
        listening = socket.socket(fileno=plan["fd"])
        host, port = listening.getsockname()[:2]
        try:
            from tvm.rpc import tracker as tvm_tracker
        except Exception as error:  # whatever stops it from being imported
            raise TrackerError(
                f"TVM's tracker cannot be imported: {error}",
                remedy=install_command("tornado") + "   (`adt doctor` checks TVM's wheels)",
            ) from error
        tvm_tracker.logger.handlers.clear()
        tvm_tracker.logger.propagate = True
        asyncio.set_event_loop(asyncio.new_event_loop())
        handler = tvm_tracker.TrackerServerHandler(listening, secrets.token_hex(16))
        state.write(state.TrackerRecord(host, port, state.this_process(), time.time()), at)
        log.info("the tracker listens on %s:%d", host, port)
        starter.ready()
        handler.run()
        return 0
    except AdtError as error:
        starter.failed(error)
        return 1
    finally:
        at.record.unlink(missing_ok=True)
        log.info("the tracker ends")


if __name__ == "__main__":
    sys.exit(main())
