"""One tvm_rpc on a device, from its start to its end, and the wrapper around it there (server_start.sh).

Or an app that serves: then the wrapper starts that, and ends when it does.

A server never runs alone: a shell on the device, its wrapper, starts it in a fresh directory and waits for
two things: the server's end, and the end of its own standard input, which comes when the watchdog, the adb
server or the cable is gone. Either way it ends all processes that the server left, removes the directory, and
exits with the server's exit code. Should the wrapper itself be killed, whoever comes next finds its directory
and does the same.

What a server left (its forward, its reverse, its processes and its directory) is removed by :func:`clean`.
Where the watchdog was killed that is a program, ``python -m adt.rpc.instance DIRECTORY``, which uses the adb
server that the watchdog used, whatever the environment of the one who cleans says.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import queue
import re
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adt.device import selection
from adt.device.deploy.workspace import awake
from adt.device.device import Device
from adt.device.place import signal_name
from adt.device.scripts import script
from adt.device.transport import adb, forwards
from adt.device.transport.deadline import Deadline
from adt.device.transport.forwards import Forward
from adt.device.transport.shell import STDERR, STDOUT, RemoteCommand
from adt.errors import AdtError, DeviceError, TrackerError
from adt.host import process
from adt.options.sections import PortRange
from adt.rpc import board, state, wire

log = logging.getLogger("adt.rpc.watchdog")

READY_SECONDS = 60.0
"""In which a server must answer and be registered."""
HELLO_SECONDS = 5.0
ANSWER_SECONDS = 10.0
"""For one short request; a device that takes longer does not answer."""
CLEAN_SECONDS = 30.0
"""For ending what is on the device."""
POLL_SECONDS = 2.0
"""Interval at which forwards, reverses and the device are looked at, in seconds."""
CHATTER = re.compile(r"^\[\d\d:\d\d:\d\d\] \S+:\d+: (?!.*([Ee]rror|Check failed))|^(Killed|Terminated)\b")
"""Lines that tvm_rpc logs when all is well, and those of the shell about a signal."""

NOT_THERE, PORT_TAKEN = 96, 98
EXITS = {
    95: "the app ended",
    NOT_THERE: "tvm_rpc is no longer on the device",
    97: "the device does not let us make a working directory",
    PORT_TAKEN: "the port is in use on the device",
    126: "tvm_rpc may not be executed on the device",
    127: "tvm_rpc could not be started",
}
"""Meaning of exit codes: server_start.sh's own, and the shell's."""


@dataclass(frozen=True)
class ServerConfig(state.Server):
    """Configuration of a server that a watchdog keeps running."""

    ports: PortRange
    """Candidates, each the same on this machine and on the device."""
    digest: str
    """Digest of the deployment; empty for an app."""


@dataclass(frozen=True)
class Death:
    """End of one life of a server."""

    reason: str
    device_lost: bool = False
    """The connection broke: no fault of the server."""
    port_taken: bool = False
    hopeless: bool = False
    """Starting it again changes nothing."""


class Stopped(Exception):
    """We were asked to end."""


def _follow(command: RemoteCommand, events: queue.SimpleQueue[tuple[str, Any]]) -> None:
    """Pass on what the server prints, and how it ended."""
    command.set_deadline(Deadline(None, "serving"))
    try:
        for kind, data in command.output():
            events.put(("output", (kind, data)))
        events.put(("end", command.exit_code))
    except AdtError as error:
        events.put(("lost", error.what))
    except Exception as error:  # the socket was closed under us
        events.put(("lost", str(error)))


class Instance:
    """See the module; an object is good for one life of a server."""

    def __init__(self, config: ServerConfig, record: state.LiveRecord, stopping: threading.Event) -> None:
        self.config = config
        self.record = record
        self.stopping = stopping
        """We were asked to end; nothing but cleaning up is done any more."""
        self.events: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        """Events by kind: ``output``, ``end``, ``lost`` and, from the watchdog, ``stop``."""
        self.ready = False
        self.last_lines = deque[str](maxlen=8)  # of its output: they explain its end
        self._verified = False  # it has opened a session for us
        self._looked = 0.0  # at the server's process, monotonic
        self._offered = 0.0  # when the tracker showed it first, monotonic
        self._partial = {STDOUT: b"", STDERR: b""}
        self._bound: int | None = None

    def live(self, device: Device, port: int, starter: state.Starter | None) -> Death:
        """Start the server on *port*, tell *starter* once it answers, wait for its end; or raise Stopped."""
        if self.stopping.is_set():  # asked before there was this object
            raise Stopped
        # one that leads the same way may be that of a server which somebody else has on this device
        ours = self.record.now.port == port and self._listed().get(port) == f"tcp:{port}"
        if not ours and not self._forward(port):
            return Death(f"port {port} of this machine is in use", port_taken=True)
        # on record before anything else is done, so that it can be undone
        self.record.update(port=port, there=dataclasses.replace(self.record.now.there, directory="", pids=()))
        tracker_port = self._reverse()
        config = self.config
        words = [config.parent, self.record.now.tag, config.deployment, str(port), config.digest]
        if config.app:  # extras of `am start` (server.h)
            words += ["--es", "key", config.key, "--ei", "port", str(port)]
            words += ["--ei", "tracker_port", str(tracker_port)]
        else:
            tracker = f"127.0.0.1:{tracker_port}" if tracker_port else ""
            words += board.arguments(key=config.key, port=port, tracker=tracker)
        argv = ("sh", "-c", script("server_start"), "sh", *words)
        with awake(device), device.start(argv, timeout=ANSWER_SECONDS, keep_stdin=True) as command:
            threading.Thread(target=_follow, args=(command, self.events), daemon=True).start()
            try:
                death = self._await_ready(port)
                if death is None:
                    log.info("ready on port %d", port)
                    self.ready = True
                    self._looked = time.monotonic()
                    self.record.update(state="ready", ready_since=time.time())
                    if starter is not None:
                        starter.ready()
                    death = self._stay()
            except Stopped:
                self._end(command)
                raise
        self.record.update(ready_since=0.0)
        return death

    def _listed(self, *, reverse: bool = False) -> dict[int, str]:
        return forwards.listed(self.config.serial, reverse=reverse, seconds=ANSWER_SECONDS)

    def _forward(self, port: int) -> bool:
        """Let *port* of this machine lead to the same one of the device; False when it is taken."""
        try:
            forwards.make(self.config.serial, Forward(port, port), seconds=ANSWER_SECONDS)
        except DeviceError as error:
            if forwards.taken(error):
                return False
            raise
        return True

    def _reverse(self) -> int:
        """Return the device's port that leads to the tracker, reversed when needed; 0 without a tracker."""
        if not self.config.tracker:
            return 0
        forward = self._to_tracker()
        port = self.record.now.there.tracker_port
        if not port or self._listed(reverse=True).get(port) != forward.leads:
            port = forwards.make(self.config.serial, forward, seconds=ANSWER_SECONDS).remote
            self.record.update(there=dataclasses.replace(self.record.now.there, tracker_port=port))
        return port

    def _to_tracker(self, device_port: int = 0) -> Forward:
        """Make what leads from the device's port *device_port* to the tracker."""
        return Forward(int(self.config.tracker.rpartition(":")[2]), device_port, reverse=True)

    def _await_ready(self, port: int) -> Death | None:
        end = time.monotonic() + READY_SECONDS
        missing = "it does not say on which port it listens"
        while time.monotonic() < end:
            if death := self._next(0.05 if self._bound is None else 0.2):
                return death
            if self._bound is None:
                continue
            if self._bound != port:  # TVM then listens on some port of every address
                return Death(f"port {port} is in use on the device", port_taken=True)
            missing = self._unready(port)
            if not missing:
                return None
        return Death(f"it did not become ready within {READY_SECONDS:g} s: {missing}")

    def _unready(self, port: int) -> str:
        """Return what is missing for the server to be ready; empty for nothing."""
        if not self.config.tracker:
            answer = wire.try_server("127.0.0.1", port, key=self.config.key, seconds=HELLO_SECONDS)
            return "" if answer is wire.Answer.SESSION else f"it opens no session ({answer.value})"
        try:
            summary = wire.summary(self.config.tracker)
            if not any(server.key == self.config.key and server.port == port for server in summary.servers):
                return f"it has not registered with the tracker at {self.config.tracker}"
            queue = summary.queue(self.config.key)
            self._offered = self._offered or time.monotonic()
            if queue.free == 0 and time.monotonic() - self._offered < HELLO_SECONDS:
                return f"the tracker at {self.config.tracker} does not show it as free"
            if self._verified:
                return ""
            if (queue.total, queue.free, queue.pending) == (1, 1, 0):  # nobody else is meant or waits
                grant = wire.request(self.config.tracker, self.config.key, seconds=HELLO_SECONDS)
                if grant is not None and grant.port == port:
                    answer = wire.try_server("127.0.0.1", port, key=grant.match_key, seconds=HELLO_SECONDS)
                    if answer is wire.Answer.SESSION:  # after which it registers once more
                        self._verified, self._offered = True, 0.0
                        return "it has not registered again"
                    return f"it opens no session ({answer.value})"
        except TrackerError as error:
            return error.what
        answer = wire.try_server("127.0.0.1", port, seconds=HELLO_SECONDS)
        if answer is wire.Answer.OTHER and queue.free < queue.total:
            return ""  # somebody has a session with it already
        return "" if answer is wire.Answer.MISMATCH else f"it does not answer on port {port} ({answer.value})"

    def _stay(self) -> Death:
        """Look after ports until the server ends."""
        looked, gone = time.monotonic(), 0
        while True:
            if death := self._next(POLL_SECONDS):
                return death
            if time.monotonic() - looked >= POLL_SECONDS:
                self._mend()
                gone = gone + 1 if (gone or self._doubtful()) and self._vanished() else 0
                if gone > 1:  # the shell, which knows why, has had its time to say so
                    return Death("tvm_rpc is gone, and the shell that was to end what it leaves")
                looked = time.monotonic()

    def _next(self, seconds: float) -> Death | None:
        """Take in what happens within *seconds*; how the server ended, if it has."""
        try:
            kind, data = self.events.get(timeout=seconds)
        except queue.Empty:
            return None
        if kind == "stop" or self.stopping.is_set():
            raise Stopped
        if kind == "output":
            self._read(*data)
            return None
        for stream in (STDOUT, STDERR):  # a line without an end
            self._read(stream, b"\n" if self._partial[stream] else b"")
        if kind == "lost":
            return Death(f"the connection to the device was lost: {data}", device_lost=True)
        return Death(self._reason(data), port_taken=data == PORT_TAKEN, hopeless=data == NOT_THERE)

    def _reason(self, code: int) -> str:
        lines = [line for line in self.last_lines if not CHATTER.search(line)]
        return explain_exit(code) + (f": {' | '.join(lines[-3:])}" if lines else "")

    def _read(self, kind: int, data: bytes) -> None:
        lines = (self._partial[kind] + data).split(b"\n")
        self._partial[kind] = lines.pop()[-4096:]
        for raw in lines:
            line = raw.decode(errors="replace").rstrip()
            if kind == STDOUT and (match := re.fullmatch(r"wrapper (\d{1,9}) (\d{1,9}) (/.*)", line)):
                there = dataclasses.replace(
                    self.record.now.there, pids=(int(match[1]), int(match[2])), directory=match[3]
                )
                self.record.update(there=there)
                continue
            if match := re.search(r"bind to \S+:(-?\d{1,9})\s*$", line):
                self._bound = int(match[1])
            if line:
                self.last_lines.append(line)
                log.info("said: %s", line)

    def _mend(self) -> None:
        """Make forward and reverse again when somebody removed them."""
        port = self.record.now.port
        if not adb.server_listens():
            return  # the end of our connection says so too
        try:
            if port not in self._listed():
                log.warning("the forward of port %d was removed; making it again", port)
                if not self._forward(port):
                    error = f"the forward of port {port} was removed and the port is in use"
                    self.record.update(last_error=error)
            reverse_port = self.record.now.there.tracker_port
            if reverse_port and reverse_port not in self._listed(reverse=True):
                log.warning("the reverse to the tracker was removed; making it again")
                forwards.make(self.config.serial, self._to_tracker(reverse_port), seconds=ANSWER_SECONDS)
            if self.record.now.state == "waiting":
                self.record.update(state="ready")
        except AdtError as error:  # it is there, but does not answer
            log.warning("looking after ports: %s", error.what)
            self.record.update(state="waiting", last_error=error.what)

    def _doubtful(self) -> bool:
        """Return True if the server may be gone although our connection is there.

        The tracker tells, so that a device that measures is left in peace: a server that is free is there.
        One that is in use, or has no tracker, is worth a look now and then.
        """
        late = time.monotonic() - self._looked > 30.0
        if not self.config.tracker:
            return late
        try:
            summary = wire.summary(self.config.tracker)
        except TrackerError:
            return late
        queue = summary.queue(self.config.key)
        servers = {(server.key, server.port) for server in summary.servers}
        gone = (self.config.key, self.record.now.port) not in servers
        return gone or (late and queue.free < queue.total)

    def _vanished(self) -> bool:
        """Return True if the server's process is gone, though our connection does not say so.

        That is so when its wrapper was killed: what serves a session then outlives the server and keeps the
        connection open. (A server that lost its tracker is alive, and registers again.)
        """
        self._looked = time.monotonic()
        pids = self.record.now.there.pids
        if not pids or (device := usable(self.config.serial)) is None:
            return False
        with contextlib.suppress(AdtError):
            probe = ["kill", "-0", str(pids[1])]
            return device.shell(probe, timeout=ANSWER_SECONDS, check=False).exit_code != 0
        return False

    def _end(self, command: RemoteCommand) -> None:
        """Let the wrapper end the server, which has 5 s for it."""
        with contextlib.suppress(AdtError):
            if not command.close_stdin():
                command.kill()
        end = time.monotonic() + 5.0
        while (left := end - time.monotonic()) > 0:
            with contextlib.suppress(queue.Empty):
                if self.events.get(timeout=left)[0] in ("end", "lost"):
                    return
        command.kill()


def explain_exit(code: int) -> str:
    if code > 128:
        return f"tvm_rpc was ended by {signal_name(code - 128) or f'signal {code - 128}'}"
    return EXITS.get(code, f"tvm_rpc ended with exit code {code}")


def usable(serial: str) -> Device | None:
    """Return the device when it is connected and usable; start no adb server and connect nothing."""
    if not adb.server_listens():
        return None
    with contextlib.suppress(AdtError):
        if any(device.serial == serial and device.ready for device in selection.listing()):
            return Device(serial)
    return None


def clean(record: state.ServerRecord) -> bool:
    """Remove what *record* speaks of; False when the device is out of reach.

    Then nothing is left: adb's ports go with the device, whose wrapper has seen its connection end.
    """
    if not adb.server_listens():
        return False
    serial = record.serial
    try:
        if record.port:
            _end(serial, Forward(record.port, record.port))
        if (device := usable(serial)) is None:
            return False
        device.shell(["true"], timeout=ANSWER_SECONDS)  # one that hangs is not asked for more
        if record.there.tracker_port and record.tracker:
            local = int(record.tracker.rpartition(":")[2])
            _end(serial, Forward(local, record.there.tracker_port, reverse=True))
        words = (record.parent, record.tag, record.app)
        device.script(script("server_end"), *words, timeout=CLEAN_SECONDS, check=False)
    except AdtError as error:
        log.warning("cleaning up on %s: %s", serial, error.what)
        return False
    return True


def _end(serial: str, link: Forward) -> None:
    """End *link* unless its port leads elsewhere by now: then it is somebody else's."""
    ports = forwards.listed(serial, reverse=link.reverse, seconds=ANSWER_SECONDS)
    if ports.get(link.listening) == link.leads:
        forwards.end(serial, link, seconds=ANSWER_SECONDS)


def clean_elsewhere(at: state.Home, record: state.ServerRecord) -> None:
    """Run :func:`clean` in a process that talks to the adb server of the record."""
    done = process.run(
        [sys.executable, "-P", "-m", "adt.rpc.instance", at.directory],
        env={**process.python_path(), "ADB_SERVER_SOCKET": f"tcp:{record.adb_port}"},
        timeout=2 * CLEAN_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        log.warning("%s is not reached; the server there ends by itself when it is", record.serial)
        log.debug("%s", done.tail())


def main() -> int:
    """Clean up behind the server whose directory is named."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(message)s")
    record = state.read_server(state.Home(Path(sys.argv[1]), "server"))
    return 0 if record is None or clean(record) else 1


if __name__ == "__main__":
    sys.exit(main())
