"""The process that keeps one server running: ``python -m adt.rpc.watchdog DIRECTORY``.

It holds the connection in which the server runs, and with it the server's life: when the watchdog goes,
however that comes, the wrapper on the device ends the server. It starts a server that died again after a
pause that doubles, gives up after several quick deaths, waits for a device that is gone, and makes forwards
and reverses again that somebody removed. What it does, and why the last server ended, is in its record.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import queue
import secrets
import signal
import sys
import threading
import time
from pathlib import Path
from shlex import quote

from adt.device import selection
from adt.device.device import Device
from adt.device.transport import adb, forwards
from adt.device.transport.deadline import Cancelled, cancel_on
from adt.device.transport.forwards import Forward
from adt.errors import AdtError, DeviceNotReady, NoDevice, RpcError
from adt.options.sections import PortRange
from adt.rpc import state
from adt.rpc.instance import (
    ANSWER_SECONDS,
    HELLO_SECONDS,
    POLL_SECONDS,
    Death,
    Instance,
    ServerConfig,
    Stopped,
    clean,
)

log = logging.getLogger("adt.rpc.watchdog")

QUICK_SECONDS = 10.0
"""A server that was ready for less than this counts as a quick death."""
QUICK_DEATHS = 5
"""After so many in a row we give up."""
LONGEST_PAUSE = 30.0


class Watchdog:
    def __init__(self, config: ServerConfig, at: state.Home) -> None:
        self.config = config
        self.stopping = threading.Event()
        """We were asked to end; nothing but cleaning up is done any more."""
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._instance: Instance | None = None
        self._live = state.LiveRecord(
            state.ServerRecord(
                **{field.name: getattr(config, field.name) for field in dataclasses.fields(state.Server)},
                port=0,
                tag=f"adt{secrets.token_hex(8)}",
                process=state.this_process(),
                since=time.time(),
                state="starting",
            ),
            at,
        )

    @property
    def record(self) -> state.ServerRecord:
        return self._live.now

    def stop(self) -> None:
        """Ask it to end; may be called from a signal handler, so the queues are of a kind without locks."""
        self.stopping.set()
        self._wake.put(None)
        if self._instance is not None:
            self._instance.events.put(("stop", None))

    def run(self, starter: state.Starter) -> None:
        """Keep the server running until we are asked to end, or nothing helps; AdtError if never ready."""
        first, deaths, ports_tried = True, 0, 0
        ports = list(self.config.ports)
        while not self.stopping.is_set():
            device = self._device(first=first)
            if not first and not ports_tried:
                self._live.update(state="restarting", restarts=self.record.restarts + 1)
            begun = time.monotonic()
            self._instance = instance = Instance(self.config, self._live, self.stopping)
            try:
                death = instance.live(device, ports[0], starter if first else None)
            except (Stopped, Cancelled):
                return
            except AdtError as error:
                if first and not instance.ready:
                    raise
                death = Death(error.what, device_lost=True)
            log.warning("%s", death.reason)
            if death.port_taken:
                self._drop_forward()
                ports.append(ports.pop(0))
                ports_tried += 1
                if ports_tried < len(ports):
                    continue
                death = dataclasses.replace(death, reason=f"no port is free, {self.config.ports}")
            ports_tried = 0
            if first and not instance.ready:
                raise self._never_ready(death, instance)
            first = False
            if death.device_lost:
                self._drop_forward()  # by the time it is back, somebody else may have taken the port
                self._live.update(state="waiting", last_error=death.reason)
                self._pause(POLL_SECONDS / 2)
                continue
            # an app's server ends with any client that went without a word, and has served when it was ready
            quick = not instance.ready or (not self.config.app and time.monotonic() - begun < QUICK_SECONDS)
            deaths = deaths + 1 if quick else 1
            self._live.update(state="restarting", last_error=death.reason)
            if deaths >= QUICK_DEATHS or death.hopeless:
                log.error("giving up after %d quick deaths in a row", deaths)
                self._live.update(state="failed", last_error=death.reason)
                return
            self._pause(min(LONGEST_PAUSE, 2.0 ** (deaths - 1)))

    def _never_ready(self, death: Death, instance: Instance) -> RpcError:
        serial = self.config.serial
        if death.hopeless:
            remedy = f"Deploy again: adt rpc start --serial {quote(serial)}"
        elif death.port_taken:
            remedy = "Give other ports: --port and --port-end; `adt doctor rpc` shows who holds them."
        elif death.device_lost:
            remedy = f"Check the cable or network: adt adb -s {quote(serial)} -- get-state; then start again."
        elif self.config.app:
            remedy = (
                f"Unlock the device; its log is below, or: adt adb -s {quote(serial)} -- logcat -d adt:V "
                "libc:F DEBUG:V AndroidRuntime:E."
            )
        else:
            remedy = (
                "Its last words are below. Does the bundle fit the device (adt build-target --for PLATFORM)?"
            )
        return RpcError(
            f"the RPC server on {serial} did not start: {death.reason}",
            remedy=remedy,
            details="\n".join(instance.last_lines),
        )

    def _pause(self, seconds: float) -> None:
        """Wait, unless we are asked to end."""
        with contextlib.suppress(queue.Empty):
            self._wake.get(timeout=seconds)

    def _device(self, *, first: bool) -> Device:
        """Wait until the device is usable; connect a virtual or network one again."""
        while not self.stopping.is_set():
            reason = "the adb server does not run"
            if adb.server_listens():
                try:
                    serial = self.config.serial
                    if serial not in {d.serial for d in selection.listing()} and selection.is_address(serial):
                        with contextlib.suppress(NoDevice):
                            selection.connect(serial, seconds=HELLO_SECONDS)
                    return selection.select(serial)
                except (NoDevice, DeviceNotReady) as error:
                    if first:
                        raise
                    reason = error.what
                except AdtError as error:
                    reason = error.what
            if self.record.state != "waiting" or self.record.last_error == "":
                self._live.update(state="waiting", last_error=self.record.last_error or reason)
            self._pause(POLL_SECONDS)
        return Device(self.config.serial)

    def _drop_forward(self) -> None:
        """End the forward of the last life, if it had one."""
        if (port := self.record.port) and adb.server_listens():
            forwards.end(self.config.serial, Forward(port, port), seconds=ANSWER_SECONDS)
        self._live.update(port=0)


def main() -> int:
    """Watch until asked to end; then nothing of the server is left."""
    at = state.Home(Path(sys.argv[1]), "server")
    starter = state.Starter()
    plan = starter.plan()
    config = ServerConfig(**{**plan, "ports": PortRange(**plan["ports"])})
    state.log_to(at)
    watchdog = Watchdog(config, at)
    signal.signal(signal.SIGTERM, lambda *_: watchdog.stop())
    for ignored in (signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    starter.watch()
    code = 0
    try:
        with cancel_on(watchdog.stopping):
            watchdog.run(starter)
    except AdtError as error:
        log.error("%s", error.what)
        code = error.exit_code
        starter.failed(error)
    except Exception:
        log.exception("the watchdog itself failed")
        code = 1
    clean(watchdog.record)
    if watchdog.record.state != "failed":  # then the record says why
        at.record.unlink(missing_ok=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
