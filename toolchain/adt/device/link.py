"""What has to come back after a drop: the device itself, and the ports that adb carries.

Forwards and reverses vanish when the device or the adb server goes away, if
only for a moment. :class:`Links` remembers those that are in force and makes
them again, with the same ports. Only what may be done twice is tried again.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from adt.device import adb, selection, states
from adt.device.adb import ConnectionLost
from adt.device.deadline import SHORT, Deadline
from adt.errors import AdtError, DeviceNotReady, NoDevice

if TYPE_CHECKING:
    from adt.device.device import Device

log = logging.getLogger("adt.device.link")

T = TypeVar("T")

BROKEN = (ConnectionLost, NoDevice, DeviceNotReady)
"""What a drop looks like from here."""
RETURN_SECONDS = 30.0
"""How long we wait for a device to come back."""
CONNECT_SECONDS = 5.0
"""Budget for one attempt to connect a device on the network again."""


@dataclass(frozen=True)
class Forward:
    """One TCP port that adb carries from one side to the other, both on 127.0.0.1."""

    local: int
    """Port on this machine."""
    remote: int
    """Port on the device."""
    reverse: bool = False
    """Connections are made on the device, not here."""

    def __str__(self) -> str:
        arrow = "<-" if self.reverse else "->"
        return f"127.0.0.1:{self.local} {arrow} device's {self.remote}"


class Links:
    """The forwards and reverses of one device that are in force. It may be used from several threads."""

    def __init__(self, serial: str) -> None:
        self.serial = serial
        self._lock = threading.Lock()
        self._links: list[Forward] = []

    @property
    def in_force(self) -> tuple[Forward, ...]:
        """Every one that was made and not yet removed, the oldest first."""
        with self._lock:
            return tuple(self._links)

    def forward(self, remote: int) -> Forward:
        """Let a port of this machine, which adb chooses, lead to the device's port *remote*."""
        return self._add(Forward(0, remote))

    def reverse(self, local: int, remote: int = 0) -> Forward:
        """Let the device's port *remote* (0: the device chooses) lead to port *local* of this machine.

        Raises:
            DeviceError: the device's port is taken (it is never taken over).
        """
        return self._add(Forward(local, remote, reverse=True))

    def remove(self, link: Forward) -> None:
        """End *link*; no error when it vanished with the device or the server."""
        with self._lock:
            if link in self._links:
                self._links.remove(link)
        listening = link.remote if link.reverse else link.local
        try:
            with self._service(link, f"killforward:tcp:{listening}") as wire:
                wire.status()
        except AdtError as why:
            log.debug("%s was already gone: %s", link, why)

    def close(self) -> None:
        """End all of them."""
        for link in reversed(self.in_force):
            self.remove(link)

    def restore(self, *, timeout: float = RETURN_SECONDS) -> tuple[Forward, ...]:
        """Wait for the device, then make again what is missing, with the same ports.

        Returns:
            Those that had to be made again.

        Raises:
            NoDevice, DeviceNotReady: it does not come back within *timeout* seconds.
            DeviceError: a port was taken in the meantime.
        """
        wait_ready(self.serial, timeout=timeout)
        wanted = self.in_force
        there = self._there(reverse=False) | self._there(reverse=True) if wanted else set()
        missing = tuple(link for link in wanted if link not in there)
        for link in missing:
            self._make(link)
            log.info("made again: %s (%s)", link, self.serial)
        return missing

    def _add(self, wanted: Forward) -> Forward:
        made = self._make(wanted)
        with self._lock:
            self._links.append(made)
        return made

    def _make(self, link: Forward) -> Forward:
        """Make *link*; a port that is 0 in it is filled in."""
        ends = (link.remote, link.local) if link.reverse else (link.local, link.remote)
        with self._service(link, "forward:norebind:tcp:{};tcp:{}".format(*ends)) as wire:
            wire.status()  # the OKAY before took the request, this one is its result
            if ends[0] != 0:
                return link
            chosen = int(wire.read_text())
        return replace(link, remote=chosen) if link.reverse else replace(link, local=chosen)

    def _there(self, *, reverse: bool) -> set[Forward]:
        """What adb has now, of this device."""
        with self._service(Forward(0, 0, reverse), "list-forward") as wire:
            rows = [line.split() for line in wire.read_text().splitlines()]
        found = set()
        for owner, here, leads in (row for row in rows if len(row) == 3):
            if here.startswith("tcp:") and leads.startswith("tcp:") and (reverse or owner == self.serial):
                ends = int(here[4:]), int(leads[4:])
                found.add(Forward(ends[1], ends[0], True) if reverse else Forward(*ends))
        return found

    @contextlib.contextmanager
    def _service(self, link: Forward, request: str) -> Iterator[adb.Wire]:
        doing = f"{'reversing' if link.reverse else 'forwarding'} a port of {self.serial}"
        deadline = Deadline(SHORT, doing)
        if link.reverse:  # the device's daemon answers
            with adb.open_device(self.serial, deadline=deadline) as wire:
                wire.request(f"reverse:{request}")
                yield wire
        else:
            prefix = "host" if request == "list-forward" else f"host-serial:{self.serial}"
            with adb.open_wire(deadline=deadline, serial=self.serial) as wire:
                wire.request(f"{prefix}:{request}")
                yield wire


def wait_ready(serial: str, *, timeout: float = RETURN_SECONDS) -> None:
    """Wait until the device *serial* is usable; one at HOST:PORT is connected again.

    Raises:
        NoDevice, DeviceNotReady: it is not within *timeout* seconds.
    """
    end = time.monotonic() + timeout
    while True:
        state = ""
        try:
            state = next((d.state for d in selection.listing() if d.serial == serial), "")
        except ConnectionLost as why:  # the server is being restarted
            log.debug("%s", why)
        if state == states.READY:
            return
        if time.monotonic() > end:
            if state:
                raise states.not_ready(serial, state)
            raise NoDevice(
                f"device {serial} did not come back within {timeout:g} s",
                remedy="Check its cable or network, and that it is switched on; `adt devices` lists what is "
                "there.",
            )
        if selection.is_address(serial) and state in ("", "offline"):
            selection.disconnect(serial)  # the server takes an offline device for connected
            with contextlib.suppress(AdtError):
                selection.connect(serial, seconds=min(CONNECT_SECONDS, max(1.0, end - time.monotonic())))
                continue
        time.sleep(0.2)


def retry_idempotent(
    device: Device,
    doing: str,
    call: Callable[[], T],
    *,
    attempts: int = 3,
    timeout: float = RETURN_SECONDS,
) -> T:
    """Do *call*, again after each drop: only for what may be done twice.

    Between attempts the device is waited for, and its forwards and reverses are made again.

    Args:
        doing: what it is, for the log.
        attempts: how often it is done at most.
        timeout: seconds to wait for the device each time.

    Raises:
        NoDevice, DeviceNotReady, DeviceError: what the last attempt raised, or the waiting.
    """
    for attempt in range(1, attempts + 1):
        try:
            return call()
        except BROKEN as why:
            if attempt == attempts:
                raise
            log.warning("%s: %s; trying again", doing, why.what)
        device.links.restore(timeout=timeout)
    raise AssertionError("unreachable: attempts is at least 1")
