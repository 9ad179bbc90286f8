"""TCP ports that adb carries between this machine and a device: what is asked of it, one at a time.

Forwards and reverses vanish with the device's connection and with the adb server, and may be removed by
anybody; whoever needs one looks after it (see :mod:`adt.rpc.watchdog`).
A port that is in use is never taken over.
"""

from __future__ import annotations

import contextlib
import logging
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from adt.device.transport import adb
from adt.device.transport.deadline import SHORT, Cancelled, Deadline
from adt.errors import AdtError, DeviceError

log = logging.getLogger("adt.device.transport.forwards")

DEVICE_PORTS = range(20000, 30000)
"""Ports of which a reverse gets one where none is asked for: below Linux's ephemeral ports, above
services'."""
ATTEMPTS = 20
"""Ports of a device that are tried before all of them count as taken."""


@dataclass(frozen=True)
class Forward:
    """One TCP port that adb carries from one side to the other, both on 127.0.0.1."""

    local: int
    """Port on this machine."""
    remote: int
    """Port on the device."""
    reverse: bool = False
    """Connections are made on the device, not here."""

    @property
    def listening(self) -> int:
        """The port that connections are made to; 0: adb, or :func:`make` for a device, chooses."""
        return self.remote if self.reverse else self.local

    @property
    def leads(self) -> str:
        """Return where it leads to, as adb says it: ``tcp:9090``."""
        return f"tcp:{self.local if self.reverse else self.remote}"

    def __str__(self) -> str:
        arrow = "<-" if self.reverse else "->"
        return f"127.0.0.1:{self.local} {arrow} device's {self.remote}"


def make(serial: str, link: Forward, *, seconds: float = SHORT) -> Forward:
    """Have adb carry *link*; returns it with its number where its listening port was 0.

    A device is never asked to choose a port itself (``tcp:0``): adb's server remembers reverses by the name
    that they were asked for with, so that the second ``tcp:0`` replaces the first, and a connection to the
    first then ends the server, for every device and user of it (seen with adb 29 and 36).
    """
    if not link.reverse or link.remote != 0:
        return _made(serial, link, seconds)
    for port in random.sample(DEVICE_PORTS, ATTEMPTS - 1):
        try:
            return _made(serial, replace(link, remote=port), seconds)
        except DeviceError as error:
            if not taken(error):
                raise
    return _made(serial, replace(link, remote=random.choice(DEVICE_PORTS)), seconds)


def _made(serial: str, link: Forward, seconds: float) -> Forward:
    doing = f"{'reversing' if link.reverse else 'forwarding'} a port of {serial}"
    request = f"forward:norebind:tcp:{link.listening};{link.leads}"
    with _service(serial, link.reverse, request, Deadline(seconds, doing)) as wire:
        wire.status()  # the OKAY before took the request, this one is its result
        return link if link.listening != 0 else replace(link, local=int(wire.read_text()))


def taken(error: DeviceError) -> bool:
    """Return True if :func:`make` failed because something else has the port."""
    return re.search(r"cannot (re)?bind|in use", error.what) is not None


def end(serial: str, link: Forward, *, seconds: float = SHORT) -> None:
    """Let adb carry *link* no more; no error when it vanished with the device or the server."""
    deadline = Deadline(seconds, f"removing {link} ({serial})")
    try:
        with _service(serial, link.reverse, f"killforward:tcp:{link.listening}", deadline) as wire:
            wire.status()
    except Cancelled:  # it is still there, for who cleans up
        raise
    except AdtError as error:
        log.debug("%s was already gone: %s", link, error)


def listed(serial: str, *, reverse: bool = False, seconds: float = SHORT) -> dict[int, str]:
    """List the ports that adb listens on for *serial* (*reverse*: on the device), and where each leads."""
    deadline = Deadline(seconds, f"listing the {'reverses' if reverse else 'forwards'} of {serial}")
    with _service(serial, reverse, "list-forward", deadline) as wire:
        rows = [line.rsplit(maxsplit=2) for line in wire.read_text().splitlines()]
    if not reverse:  # of all devices, and the owner comes first: nothing for one without a serial
        owner = [] if serial == adb.NO_SERIAL else [serial]
        rows = [row for row in rows if row[:-2] == owner]
    ends = [row[-2:] for row in rows if len(row) >= 2]
    return {int(port[4:]): leads for port, leads in ends if re.fullmatch(r"tcp:\d{1,5}", port)}


@contextlib.contextmanager
def _service(serial: str, reverse: bool, request: str, deadline: Deadline) -> Iterator[adb.Wire]:
    """Connect to the device's daemon (*reverse*) or the adb server, which has taken *request*."""
    if reverse:
        with adb.open_device(serial, f"reverse:{request}", deadline=deadline) as wire:
            yield wire
    else:
        whole = f"host:{request}" if request == "list-forward" else adb.host_service(serial, request)
        with adb.open_wire(deadline=deadline, serial=serial) as wire:
            wire.request(whole)
            yield wire
