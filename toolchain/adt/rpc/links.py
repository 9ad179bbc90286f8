"""Ports that adb carries between this machine and a device, for as long as nobody removes them.

``adb forward`` and ``adb reverse`` vanish with the device's connection and with
the adb server, and may be removed by anybody; whoever needs one looks after it.
A port that is in use is never taken over.
"""

from __future__ import annotations

import contextlib
import re

from adt.device import adb
from adt.device.deadline import Deadline
from adt.errors import AdtError, DeviceError

SECONDS = 10.0
"""Budget for one request; a device that takes longer does not answer."""


def _taken(why: AdtError) -> bool:
    return re.search(r"cannot (re)?bind|in use", why.what) is not None


def forwards(serial: str) -> dict[int, str]:
    """Ports of this machine that lead to *serial*, and where to (``tcp:9090``)."""
    text = adb.query("host:list-forward", doing="listing forwards", seconds=SECONDS)
    rows = (row.split() for row in text.splitlines())
    return {
        int(row[1][4:]): row[2]
        for row in rows
        if len(row) == 3 and row[0] == serial and re.fullmatch(r"tcp:\d+", row[1])
    }


def add_forward(serial: str, local: int, remote: int) -> bool:
    """Let *local* of this machine lead to *remote* of the device; False when *local* is taken.

    Raises:
        NoDevice, DeviceNotReady, DeviceError: the device is not usable.
    """
    doing = f"forwarding port {local} to {serial}"
    try:
        with adb.open_wire(deadline=Deadline(SECONDS, doing), serial=serial) as wire:
            wire.request(f"host-serial:{serial}:forward:norebind:tcp:{local};tcp:{remote}")
            wire.status()
    except DeviceError as why:
        if _taken(why):
            return False
        raise
    return True


def remove_forward(serial: str, local: int) -> None:
    """Remove what :func:`add_forward` made; no error when it is gone already."""
    doing = f"removing the forward of port {local}"
    with (
        contextlib.suppress(AdtError),
        adb.open_wire(deadline=Deadline(SECONDS, doing), serial=serial) as wire,
    ):
        wire.request(f"host-serial:{serial}:killforward:tcp:{local}")
        wire.status()


def reverses(serial: str) -> dict[int, str]:
    """Ports of the device that lead here, and where to (``tcp:9190``)."""
    doing = f"listing reverses of {serial}"
    with adb.open_device(serial, deadline=Deadline(SECONDS, doing)) as wire:
        wire.request("reverse:list-forward")
        rows = [row.split()[-2:] for row in wire.read_text().splitlines()]
    return {int(row[0][4:]): row[1] for row in rows if len(row) == 2 and re.fullmatch(r"tcp:\d+", row[0])}


def add_reverse(serial: str, local: int, remote: int = 0) -> int:
    """Let the device's port *remote* lead to *local* of this machine; returns the device's port.

    Args:
        remote: 0 lets the device choose; one that is too old for that gets the same number as *local*.

    Raises:
        NoDevice, DeviceNotReady, DeviceError: the device is not usable, or the port is taken there.
    """
    doing = f"reversing a port of {serial}"
    with adb.open_device(serial, deadline=Deadline(SECONDS, doing)) as wire:
        wire.request(f"reverse:forward:norebind:tcp:{remote};tcp:{local}")
        try:
            wire.status()
            return int(wire.read_text()) if remote == 0 else remote
        except DeviceError:
            if remote != 0:
                raise
    return add_reverse(serial, local, local)


def remove_reverse(serial: str, remote: int) -> None:
    """Remove what :func:`add_reverse` made; no error when it is gone already."""
    doing = f"removing the reverse of port {remote}"
    with contextlib.suppress(AdtError), adb.open_device(serial, deadline=Deadline(SECONDS, doing)) as wire:
        wire.request(f"reverse:killforward:tcp:{remote}")
        wire.status()
