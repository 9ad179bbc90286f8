"""The process that keeps one server running: ``python -m adt.rpc.watchdog DIRECTORY``.

It holds the connection in which the server runs, and with it the server's life:
when the watchdog goes, however that comes, the guardian on the device ends the
server. It starts a server that died again after a pause that doubles, gives up
after several quick deaths, waits for a device that is gone, and makes forwards
and reverses again that somebody removed. What it does, and why the last server
ended, is in its record.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import queue
import re
import secrets
import signal
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

from adt.device import selection
from adt.device.device import Device
from adt.device.scripts import script
from adt.device.transport import adb, forwards
from adt.device.transport.deadline import Cancelled, Deadline, cancelling
from adt.device.transport.forwards import Forward
from adt.device.transport.shell import STDERR, STDOUT, RemoteCommand
from adt.errors import AdtError, DeviceError, DeviceNotReady, NoDevice, RpcError, TrackerError
from adt.rpc import cleaning, guardian, handshake, launch, state, wire
from adt.rpc.cleaning import ANSWER_SECONDS
from adt.rpc.handshake import Answer

log = logging.getLogger("adt.rpc.watchdog")

READY_SECONDS = 60.0
"""In which a server must answer and be registered."""
HELLO_SECONDS = 5.0
POLL_SECONDS = 2.0
"""How often forwards, reverses and the device are looked at."""
LOOK_SECONDS = 30.0
"""How often the process of a server that is in use is looked at."""
STOP_SECONDS = 5.0
"""In which a server must end that was asked to."""
QUICK_SECONDS = 10.0
"""A server that was ready for less than this counts as a quick death."""
QUICK_DEATHS = 5
"""After so many in a row we give up."""
LONGEST_PAUSE = 30.0
LAST_LINES = 8
"""Of a server's output, for the reason why it ended."""


CHATTER = re.compile(r"^\[\d\d:\d\d:\d\d\] \S+:\d+: (?!.*([Ee]rror|Check failed))|^(Killed|Terminated)\b")
"""What tvm_rpc logs when all is well, and what the shell says of a signal."""


@dataclass(frozen=True)
class Plan:
    """What a watchdog is told."""

    serial: str
    key: str
    ports: tuple[int, ...]
    """Candidates, in order; each the same on this machine and on the device."""
    tracker: str
    """``host:port``; empty for none."""
    deployment: str
    digest: str
    parent: str
    adb_port: int

    @staticmethod
    def of(raw: dict[str, Any]) -> Plan:
        """From its JSON."""
        return Plan(**{**raw, "ports": tuple(raw["ports"])})


@dataclass(frozen=True)
class Death:
    """How one life of a server ended."""

    why: str
    device_lost: bool = False
    """The connection broke: no fault of the server."""
    port_taken: bool = False
    hopeless: bool = False
    """Starting it again changes nothing."""


class _Stopped(Exception):
    """We were asked to end."""


def _follow(command: RemoteCommand, events: queue.SimpleQueue[tuple[str, Any]]) -> None:
    """Pass on what the server says, and how it ended."""
    command.set_deadline(Deadline(None, "serving"))
    try:
        for kind, data in command.output():
            events.put(("output", (kind, data)))
        events.put(("end", command.exit_code))
    except AdtError as why:
        events.put(("lost", why.what))
    except Exception as why:  # the socket was closed under us
        events.put(("lost", str(why)))


class Watchdog:
    """See the module."""

    def __init__(self, plan: Plan, at: state.Home) -> None:
        self.plan = plan
        self._at = at
        self._events: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self.stopping = threading.Event()
        """We were asked to end; nothing but cleaning up is done any more."""
        self._ready = False  # this life of the server
        self._verified = False  # it has opened a session for us
        self._looked = 0.0  # at the server's process, monotonic
        self._offered = 0.0  # when the tracker showed it first, monotonic
        self._last = deque[str](maxlen=LAST_LINES)
        self._partial = {STDOUT: b"", STDERR: b""}
        self._bound: int | None = None
        self.record = state.ServerRecord(
            serial=plan.serial,
            key=plan.key,
            port=0,
            tracker=plan.tracker,
            deployment=plan.deployment,
            parent=plan.parent,
            tag=f"adt{secrets.token_hex(8)}",
            adb_port=plan.adb_port,
            process=state.this_process(),
            since=time.time(),
            state="starting",
        )
        self._note()

    def _note(self, **changes: Any) -> None:
        """Put *changes* on record."""
        self.record = dataclasses.replace(self.record, **changes)
        try:
            state.write(self.record, self._at)
        except AdtError as why:  # a full disk must not end the server
            log.warning("%s", why.what)

    def stop(self) -> None:
        """Ask it to end; may be called from a signal handler."""
        self.stopping.set()
        self._events.put(("stop", None))

    # one life of a server -----------------------------------------------------------------------

    def live(self, device: Device, port: int, starter: launch.Starter | None) -> Death:
        """Start the server on *port*, stay with it to its end, and say how it ended.

        Args:
            starter: is told once the server answers and is registered.

        Raises:
            _Stopped: we were asked to end; the server has ended.
            NoDevice, DeviceNotReady, DeviceError: the device is gone or refuses.
        """
        self._ready, self._verified, self._offered, self._bound = False, False, 0.0, None
        self._last.clear()
        events: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._events = events
        if self.stopping.is_set():  # asked before there was this queue
            raise _Stopped
        # one that leads the same way may be that of a server which somebody else has on this device
        ours = self.record.port == port and self._listed().get(port) == f"tcp:{port}"
        if not ours and not self._forward(port):
            return Death(f"port {port} of this machine is in use", port_taken=True)
        # on record before anything else is done, so that it can be undone
        self._note(port=port, there=dataclasses.replace(self.record.there, directory="", pids=()))
        tracker_port = self._reverse()
        arguments = guardian.server_arguments(key=self.plan.key, port=port, tracker_port=tracker_port)
        words = (self.plan.parent, self.record.tag, self.plan.deployment, str(port), self.plan.digest)
        argv = ("sh", "-c", script("server_start"), "sh", *words, *arguments)
        with device.start(argv, timeout=ANSWER_SECONDS, keep_stdin=True) as command:
            threading.Thread(target=_follow, args=(command, events), daemon=True).start()
            try:
                death = self._await_ready(port)
                if death is None:
                    log.info("ready on port %d", port)
                    self._ready = True
                    self._looked = time.monotonic()
                    self._note(state="ready", ready_since=time.time())
                    if starter is not None:
                        starter.ready(port=port)
                    death = self._stay()
            except _Stopped:
                self._end(command)
                raise
        self._note(ready_since=0.0)
        return death

    def _listed(self, *, reverse: bool = False) -> dict[int, str]:
        return forwards.listed(self.plan.serial, reverse=reverse, seconds=ANSWER_SECONDS)

    def _forward(self, port: int) -> bool:
        """Let *port* of this machine lead to the same one of the device; False when it is taken."""
        try:
            forwards.make(self.plan.serial, Forward(port, port), seconds=ANSWER_SECONDS)
        except DeviceError as why:
            if forwards.taken(why):
                return False
            raise
        return True

    def _reverse(self) -> int:
        """The device's port that leads to the tracker, made when it is not there; 0 without a tracker."""
        if not self.plan.tracker:
            return 0
        wanted = self._to_tracker()
        there = self.record.there.tracker_port
        if not there or self._listed(reverse=True).get(there) != wanted.leads:
            there = forwards.make(self.plan.serial, wanted, seconds=ANSWER_SECONDS).remote
            self._note(there=dataclasses.replace(self.record.there, tracker_port=there))
        return there

    def _to_tracker(self, there: int = 0) -> Forward:
        """What leads from the device's port *there* to the tracker."""
        return Forward(int(self.plan.tracker.rpartition(":")[2]), there, reverse=True)

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
        return Death(f"tvm_rpc did not become ready within {READY_SECONDS:g} s: {missing}")

    def _unready(self, port: int) -> str:
        """What is missing for the server to be ready; empty for nothing."""
        if not self.plan.tracker:
            answer = handshake.try_server("127.0.0.1", port, key=self.plan.key, seconds=HELLO_SECONDS)
            return "" if answer is Answer.SESSION else f"it opens no session ({answer.value})"
        try:
            found = wire.summary(self.plan.tracker)
            if not any(one.key == self.plan.key and one.port == port for one in found.servers):
                return f"it has not registered with the tracker at {self.plan.tracker}"
            mine = found.queue(self.plan.key)
            self._offered = self._offered or time.monotonic()
            if mine.free == 0 and time.monotonic() - self._offered < HELLO_SECONDS:
                return f"the tracker at {self.plan.tracker} does not show it as free"
            if self._verified:
                return ""
            if (mine.total, mine.free, mine.pending) == (1, 1, 0):  # nobody else is meant or waits
                grant = wire.request(self.plan.tracker, self.plan.key, seconds=HELLO_SECONDS)
                if grant is not None and grant.port == port:
                    answer = handshake.try_server(
                        "127.0.0.1", port, key=grant.match_key, seconds=HELLO_SECONDS
                    )
                    if answer is Answer.SESSION:  # after which it registers once more
                        self._verified, self._offered = True, 0.0
                        return "it has not registered again"
                    return f"it opens no session ({answer.value})"
        except TrackerError as why:
            return why.what
        answer = handshake.try_server("127.0.0.1", port, seconds=HELLO_SECONDS)
        if answer is Answer.OTHER and mine.free < mine.total:
            return ""  # somebody has a session with it already
        return "" if answer is Answer.MISMATCH else f"it does not answer on port {port} ({answer.value})"

    def _stay(self) -> Death:
        """Look after ports until the server ends."""
        looked = time.monotonic()
        while True:
            if death := self._next(POLL_SECONDS):
                return death
            if time.monotonic() - looked >= POLL_SECONDS:
                self._mend()
                if self._doubtful() and self._vanished():
                    return Death("tvm_rpc is gone, and the shell that was to end what it leaves")
                looked = time.monotonic()

    def _next(self, seconds: float) -> Death | None:
        """Take in what happens within *seconds*; how the server ended, if it has."""
        try:
            kind, what = self._events.get(timeout=seconds)
        except queue.Empty:
            return None
        if kind == "stop" or self.stopping.is_set():
            raise _Stopped
        if kind == "output":
            self._heard(*what)
            return None
        for stream in (STDOUT, STDERR):  # a line without an end
            self._heard(stream, b"\n" if self._partial[stream] else b"")
        if kind == "lost":
            return Death(f"the connection to the device was lost: {what}", device_lost=True)
        return Death(
            self._reason(what),
            port_taken=what == guardian.PORT_TAKEN,
            hopeless=what == guardian.NOT_THERE,
        )

    def _reason(self, code: int) -> str:
        said = [line for line in self._last if not CHATTER.search(line)]
        because = f": {' | '.join(said[-3:])}" if said else ""
        return guardian.explain_exit(code) + because

    def _heard(self, kind: int, data: bytes) -> None:
        lines = (self._partial[kind] + data).split(b"\n")
        self._partial[kind] = lines.pop()[-4096:]
        for raw in lines:
            line = raw.decode(errors="replace").rstrip()
            if kind == STDOUT and (found := re.fullmatch(r"guardian (\d+) (\d+) (/.*)", line)):
                there = dataclasses.replace(
                    self.record.there, pids=(int(found[1]), int(found[2])), directory=found[3]
                )
                self._note(there=there)
                continue
            if found := re.search(r"bind to \S+:(-?\d+)\s*$", line):
                self._bound = int(found[1])
            if line:
                self._last.append(line)
                log.info("tvm_rpc: %s", line)

    def _mend(self) -> None:
        """Make forward and reverse again when somebody removed them."""
        port = self.record.port
        if not adb.server_listens():
            return  # the end of our connection says so too
        try:
            if port not in self._listed():
                log.warning("the forward of port %d was removed; making it again", port)
                if not self._forward(port):
                    self._note(last_error=f"the forward of port {port} was removed and the port is in use")
            there = self.record.there.tracker_port
            if there and there not in self._listed(reverse=True):
                log.warning("the reverse to the tracker was removed; making it again")
                forwards.make(self.plan.serial, self._to_tracker(there), seconds=ANSWER_SECONDS)
            if self.record.state == "waiting":
                self._note(state="ready")
        except AdtError as why:  # it is there, but does not answer
            log.warning("looking after ports: %s", why.what)
            self._note(state="waiting", last_error=why.what)

    def _doubtful(self) -> bool:
        """Whether the server may be gone although our connection is there.

        Asked of the tracker, so that a device that measures is left in peace: a server that is free
        is there. One that is in use, or has no tracker, is worth a look now and then.
        """
        late = time.monotonic() - self._looked > LOOK_SECONDS
        if self.plan.tracker:
            try:
                found = wire.summary(self.plan.tracker)
            except TrackerError:
                return late
            mine = (self.plan.key, self.record.port)
            if not any((one.key, one.port) == mine for one in found.servers):
                return True
            queue = found.queue(self.plan.key)
            late = late and queue.free < queue.total
        return late

    def _vanished(self) -> bool:
        """Whether the server's process is gone, though our connection does not say so.

        That is so when its guardian was killed: what serves a session then outlives the server and
        keeps the connection open. (A server that lost its tracker is alive, and registers again.)
        """
        self._looked = time.monotonic()
        pids = self.record.there.pids
        device = cleaning.usable(self.plan.serial)
        if device is None or not pids:
            return False
        try:
            asked = device.shell(["kill", "-0", str(pids[1])], timeout=ANSWER_SECONDS, check=False)
            return asked.exit_code != 0
        except AdtError:
            return False

    def _end(self, command: RemoteCommand) -> None:
        """Let the guardian end the server."""
        with contextlib.suppress(AdtError):
            if not command.close_stdin():
                command.kill()
        end = time.monotonic() + STOP_SECONDS
        while (left := end - time.monotonic()) > 0:
            with contextlib.suppress(queue.Empty):
                if self._events.get(timeout=left)[0] in ("end", "lost"):
                    return
        command.kill()

    # all lives ----------------------------------------------------------------------------------

    def run(self, starter: launch.Starter) -> None:
        """Keep the server running until we are asked to end, or nothing helps.

        Raises:
            AdtError: it never became ready, for a reason that is not to be waited for.
        """
        first, deaths, tried = True, 0, 0
        ports = list(self.plan.ports)
        while not self.stopping.is_set():
            device = self._device(first=first)
            if not first and not tried:
                self._note(state="restarting", restarts=self.record.restarts + 1)
            begun = time.monotonic()
            try:
                death = self.live(device, ports[0], starter if first else None)
            except (_Stopped, Cancelled):
                return
            except AdtError as why:
                if first and not self._ready:
                    raise
                death = Death(why.what, device_lost=True)
            log.warning("%s", death.why)
            if death.port_taken:
                self._drop_forward()
                ports.append(ports.pop(0))
                tried += 1
                if tried < len(ports):
                    continue
                death = dataclasses.replace(death, why=f"no port is free, {min(ports)} to {max(ports)}")
            tried = 0
            if first and not self._ready:
                raise self._never_ready(death)
            first = False
            if death.device_lost:
                self._drop_forward()  # by the time it is back, somebody else may have taken the port
                self._note(state="waiting", last_error=death.why)
                self._pause(POLL_SECONDS / 2)
                continue
            quick = not self._ready or time.monotonic() - begun < QUICK_SECONDS
            deaths = deaths + 1 if quick else 1
            self._note(state="restarting", last_error=death.why)
            if deaths >= QUICK_DEATHS or death.hopeless:
                log.error("giving up after %d quick deaths in a row", deaths)
                self._note(state="failed", last_error=death.why)
                return
            self._pause(min(LONGEST_PAUSE, 2.0 ** (deaths - 1)))

    def _never_ready(self, death: Death) -> RpcError:
        serial = self.plan.serial
        if death.hopeless:
            remedy = f"Deploy again: adt rpc start --serial {quote(serial)}"
        elif death.port_taken:
            remedy = "Give other ports: --port and --port-end; `adt doctor rpc` shows who holds them."
        elif death.device_lost:
            remedy = f"Check the cable or network: adt adb -s {serial} -- get-state; then start again."
        else:
            remedy = (
                "Its last words are below. Does the bundle fit the device (adt build-target --for PLATFORM)?"
            )
        return RpcError(
            f"the RPC server on {serial} did not start: {death.why}",
            remedy=remedy,
            details="\n".join(self._last),
        )

    def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self.stopping.is_set() and (left := end - time.monotonic()) > 0:
            with contextlib.suppress(queue.Empty):
                self._events.get(timeout=left)

    def _device(self, *, first: bool) -> Device:
        """The device, once it is usable; a virtual or network one is connected again.

        No adb server is started: who ended it may have meant to.
        """
        while not self.stopping.is_set():
            why = "the adb server does not run"
            if adb.server_listens():
                try:
                    serial = self.plan.serial
                    known = {one.serial for one in selection.listing()}
                    if serial not in known and selection.is_address(serial):
                        with contextlib.suppress(NoDevice):
                            selection.connect(serial, seconds=HELLO_SECONDS)
                    return selection.select(serial)
                except (NoDevice, DeviceNotReady) as error:
                    if first:
                        raise
                    why = error.what
                except AdtError as error:
                    why = error.what
            if self.record.state != "waiting" or self.record.last_error == "":
                self._note(state="waiting", last_error=self.record.last_error or why)
            self._pause(POLL_SECONDS)
        return Device(self.plan.serial)

    def _drop_forward(self) -> None:
        """End the forward of the last life, if it had one."""
        port = self.record.port
        if port and adb.server_listens():
            forwards.end(self.plan.serial, Forward(port, port), seconds=ANSWER_SECONDS)
        self._note(port=0)


def main() -> int:
    """Watch until asked to end; then nothing of the server is left."""
    at = state.Home(Path(sys.argv[1]), "server")
    starter = launch.Starter()
    plan = Plan.of(starter.plan())
    launch.log_to(at)
    watchdog = Watchdog(plan, at)
    signal.signal(signal.SIGTERM, lambda *_: watchdog.stop())
    for ignored in (signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    starter.watch()
    code = 0
    try:
        with cancelling(watchdog.stopping):
            watchdog.run(starter)
    except AdtError as why:
        log.error("%s", why.what)
        code = why.exit_code
        starter.failed(why)
    except Exception:
        log.exception("the watchdog itself failed")
        code = 1
    cleaning.clean(watchdog.record)
    if watchdog.record.state != "failed":  # then the record says why
        at.record.unlink(missing_ok=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
