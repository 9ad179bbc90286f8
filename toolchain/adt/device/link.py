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
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from adt.device import forwards, selection, states
from adt.device.adb import ConnectionLost
from adt.device.forwards import Forward as Forward
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
        """Let the device's port *remote* lead to port *local* of this machine.

        Args:
            remote: 0 takes a free one.

        Raises:
            DeviceError: the device's port is taken (it is never taken over).
        """
        return self._add(Forward(local, remote, reverse=True))

    def remove(self, link: Forward) -> None:
        """End *link*; no error when it vanished with the device or the server."""
        with self._lock:
            if link in self._links:
                self._links.remove(link)
        forwards.end(self.serial, link)

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
        there = {back: forwards.listed(self.serial, reverse=back) for back in (False, True)} if wanted else {}
        missing = tuple(link for link in wanted if there[link.reverse].get(link.listening) != link.leads)
        for link in missing:
            forwards.make(self.serial, link)
            log.info("made again: %s (%s)", link, self.serial)
        return missing

    def _add(self, wanted: Forward) -> Forward:
        made = forwards.make(self.serial, wanted)
        with self._lock:
            self._links.append(made)
        return made


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
            # What happened is said once, by the last attempt's error.
            log.warning("%s: interrupted; trying again (%d of %d)", doing, attempt + 1, attempts)
            log.debug("%s", why.what)
        device.links.restore(timeout=timeout)
    raise AssertionError("unreachable: attempts is at least 1")
