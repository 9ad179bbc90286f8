"""Devices: the list of them, those on the network, and their logs."""

from __future__ import annotations

from collections.abc import Sequence

from adt.api.chosen import chosen_device
from adt.device import network
from adt.device.device import Device as Device
from adt.device.logcat import Logcat
from adt.device.network import Connection
from adt.device.overview import DeviceOverview, overview


def devices() -> tuple[DeviceOverview, ...]:
    """The devices that the adb server sees, and what each one is; they are asked at the same time.

    A device that does not answer costs a few seconds and has a ``problem`` in its row.

    Raises:
        ToolNotFound, DeviceError, ConfigError: there is no adb, or its server does not answer.
    """
    return overview()


def connect(address: str) -> Connection:
    """Connect adb to the device at HOST:PORT and wait until it is usable.

    Raises:
        ConfigError, NoDevice, DeviceNotReady, DeviceError: see :func:`adt.device.network.connect`.
    """
    return network.connect(address)


def disconnect(address: str) -> None:
    """Make adb forget the device at HOST:PORT.

    Raises:
        ConfigError: *address* is not HOST:PORT.
        NoDevice: it was not connected.
    """
    network.disconnect(address)


def pair(address: str, code: str) -> str:
    """Pair with the phone that shows *code*; returns what adb says about it.

    Raises:
        ConfigError, ToolNotFound, NoDevice, DeviceError: see :func:`adt.device.network.pair`.
    """
    return network.pair(address, code)


def logcat(
    filters: Sequence[str] = (),
    *,
    serial: str | None = None,
    since: str | None = None,
    pid: int | None = None,
    dump: bool = False,
) -> Logcat:
    """A device's log: a context manager, and an iterator over its lines.

    Args:
        filters: ``TAG:PRIORITY``, as logcat takes them.
        since: a time on the device's clock (``MM-DD hh:mm:ss.mmm``), or a number of last lines.
        dump: end after what is there already.

    Raises:
        ConfigError: a filter or *since* cannot be read.
        NoDevice, AmbiguousDevice, DeviceNotReady, DeviceError: see :mod:`adt.errors`.
    """
    return chosen_device(serial).logcat(filters, since=since, pid=pid, dump=dump)
