"""Servers on devices: start, stop, status.

Each is kept by a watchdog in the background (:mod:`adt.rpc.watchdog`). A server listens on the loopback of
its device; a forward with the same number leads to it from the loopback of this machine, because the tracker
tells clients the port by which the server knows itself.
"""

from __future__ import annotations

import dataclasses
import logging
import re
import time
from dataclasses import dataclass, field
from pathlib import Path

from adt.device.deploy.payload import user_directory
from adt.device.deploy.store import Deployment
from adt.device.device import Device
from adt.device.transport import adb
from adt.device.transport.deadline import allowed
from adt.errors import ConfigError, RpcError
from adt.host import cache
from adt.host.document import OR_NULL, in_document
from adt.options.sections import PortRange
from adt.rpc import state, tracker, wire
from adt.rpc.instance import ServerConfig, clean_elsewhere

log = logging.getLogger("adt.rpc")

PORTS = PortRange(9090, 9189)
"""Tried in this order; one is used, on this machine and on the device."""
STOP_SECONDS = 40.0
"""Seconds that the watchdog may take to clean up."""
LOCK_SECONDS = 300.0
KEY = re.compile(r"[A-Za-z0-9._/+-]{1,64}")


@dataclass(frozen=True)
class RpcServer:
    """A server that is ready."""

    serial: str
    key: str
    host: str
    port: int
    """Port on this machine and on the device."""
    tracker: str = field(metadata=OR_NULL)
    """``host:port``; empty for a server that is connected to directly."""
    pid: int
    """The watchdog."""
    log: Path
    already: bool = False
    """It ran before `start` was asked for."""

    @property
    @in_document()
    def address(self) -> str:
        """Return the address at which this machine reaches it, ``host:port``."""
        return f"{self.host}:{self.port}"

    @property
    def ready_line(self) -> str:
        """Return the line that a person or a script waits for."""
        where = f"tracker={self.tracker} " if self.tracker else ""
        return f"ready: key={self.key} {where}server={self.address} serial={self.serial}"


@dataclass(frozen=True)
class ServerStatus:
    """A server that adt started and that nobody stopped."""

    serial: str
    key: str
    state: str
    """``starting``, ``ready``, ``restarting``, ``waiting`` (for the device), ``failed`` or ``lost``."""
    address: str
    tracker: str
    pid: int
    """The watchdog; 0 when it is gone."""
    device_pid: int
    """Process id of tvm_rpc, or of what watches an app, on the device; 0 when it does not run."""
    uptime: float
    """Seconds for which the present tvm_rpc has been ready."""
    restarts: int
    last_error: str
    """Reason why tvm_rpc ended last; empty as long as nothing happened."""
    log: Path


def check_key(key: str) -> str:
    """Return *key* if it can be one; TVM pastes it into JSON and splits it at `` `` and ``:``."""
    if not KEY.fullmatch(key):
        raise ConfigError(
            f"{key!r} cannot be the key of a server",
            remedy="Use up to 64 letters, digits and . _ / + - (no spaces, no colons).",
        )
    return key


def start(
    device: Device,
    deployment: Deployment | str,
    *,
    key: str = "",
    tracker_address: str = "",
    use_tracker: bool = True,
    ports: PortRange = PORTS,
    tracker_ports: PortRange = tracker.PORTS,
) -> RpcServer:
    """Start a server on *device* with what is deployed there, and return when a client could use it.

    Ready means: it answered TVM's handshake through the forward, and the tracker has it under its key. A
    server that runs already is returned; one that runs with something else is replaced.

    Args:
        deployment: has ``bin/tvm_rpc`` and ``lib/``; or the activity of an app that serves, ``APP/CLASS``.
        tracker_address: of a tracker on this machine that runs already; empty: adt's own, started when
            it does not run.
        use_tracker: False for a server that clients connect to directly.
        ports: candidates, each the same on this machine and on the device; a server that runs on another
            than an insisted one is replaced.
    """
    key = check_key(key or ("android" if device.platform.startswith("android-") else device.platform))
    if tracker_address and wire.parse_address(tracker_address)[0] not in adb.LOOPBACK:
        raise ConfigError(
            f"the tracker at {tracker_address} is on another machine; adb carries ports of this one only",
            remedy="Bring its port here (`ssh -L 9190:127.0.0.1:9190 HOST`), or use adt's own tracker.",
        )
    if isinstance(deployment, str):
        directory, digest, base = deployment, "", user_directory()
    else:
        directory, digest, base = deployment.directory, deployment.digest, deployment.base
    at = state.server_home(device.serial)
    with cache.lock(at.directory, timeout=LOCK_SECONDS):
        tracker_address = tracker.ensure(tracker_address, ports=tracker_ports) if use_tracker else ""
        record = state.read_server(at)
        if record is not None:
            same = (record.key, record.tracker, record.deployment) == (key, tracker_address, directory)
            same &= record.port in ports or not ports.insisted
            if same and record.process.alive and record.state == "ready":
                return _running(record, at, already=True)
            log.info("ending the server on %s that was there (key %s)", device.serial, record.key)
            _end(at, record)
        config = ServerConfig(
            serial=device.serial,
            key=key,
            ports=ports,
            tracker=tracker_address,
            deployment=directory,
            digest=digest,
            parent=f"{base}/rpc",
            adb_port=adb.server_port(),
        )
        doing = f"starting the RPC server on {device.serial}"
        state.launch("adt.rpc.watchdog", dataclasses.asdict(config), at, seconds=240.0, doing=doing)
        record = state.read_server(at)
        if record is None:
            raise state.not_up(f"the RPC server on {device.serial} ended right after its start", at)
        return _running(record, at)


def _running(record: state.ServerRecord, at: state.Home, *, already: bool = False) -> RpcServer:
    return RpcServer(
        serial=record.serial,
        key=record.key,
        host="127.0.0.1",
        port=record.port,
        tracker=record.tracker,
        pid=record.process.pid,
        log=at.log,
        already=already,
    )


def stop(serial: str) -> bool:
    """End the server on *serial* and remove every trace of it, here and there; False when there is none.

    Also when its watchdog was killed. A device that is out of reach has ended the server by itself.
    """
    return bool(_stop(state.server_home(serial)))


def stop_all() -> tuple[str, ...]:
    """End every server, as :func:`stop` does, and remove failed starts' rests; return the ended serials."""
    return tuple(filter(None, map(_stop, state.server_homes())))


def _stop(at: state.Home) -> str:
    """End the server of *at*; its serial, empty when there is none."""
    if not at.directory.is_dir():
        return ""
    with cache.lock(at.directory, timeout=LOCK_SECONDS):
        record = state.read_server(at)
        if record is None or _end(at, record):
            at.remove()
        return record.serial if record is not None else ""


def _end(at: state.Home, record: state.ServerRecord) -> bool:
    """End the watchdog and what it left; False when it cleans up by itself, after ctrl-C."""
    seconds = allowed(STOP_SECONDS)
    hurried = seconds < STOP_SECONDS
    if not record.process.end(seconds, insist=not hurried):
        if hurried:
            return False
        raise RpcError(
            f"the watchdog of {record.serial} (pid {record.process.pid}) does not end",
            remedy=f"As its user or root: kill -9 {record.process.pid}, then adt rpc stop again.",
        )
    left = state.read_server(at)  # as the watchdog wrote it last; gone when it has cleaned up
    if left is not None:
        if hurried:
            return False  # its record says what is left, for the next start or stop
        clean_elsewhere(at, left)
        at.record.unlink(missing_ok=True)
    return True


def statuses() -> tuple[ServerStatus, ...]:
    """List every server that adt started and that nobody stopped, by serial."""
    servers = [_status(record, at) for at in state.server_homes() if (record := state.read_server(at))]
    return tuple(sorted(servers, key=lambda server: server.serial))


def _status(record: state.ServerRecord, at: state.Home) -> ServerStatus:
    alive = record.process.alive
    ready = alive and record.state == "ready"
    lost = not alive and record.state != "failed"
    error = "the watchdog was killed; `adt rpc stop` removes what it left" if lost else record.last_error
    return ServerStatus(
        serial=record.serial,
        key=record.key,
        state="lost" if lost else record.state,
        address=record.address if record.port else "",
        tracker=record.tracker,
        pid=record.process.pid if alive else 0,
        device_pid=record.there.pids[1] if ready and record.there.pids else 0,
        uptime=max(0.0, time.time() - record.ready_since) if ready else 0.0,
        restarts=record.restarts,
        last_error=error,
        log=at.log,
    )
