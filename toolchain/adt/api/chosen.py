"""The device that a verb works with."""

from __future__ import annotations

from dataclasses import replace

from adt.device import selection
from adt.device.device import Device
from adt.options.resolve import load_settings


def chosen_device(serial: str | None, timeout: float | None = None) -> Device:
    """The device *serial*; None: device.serial of the settings, else ANDROID_SERIAL, else the only one.

    Args:
        timeout: seconds that each step on it may take; None: device.timeout of the settings.

    Raises:
        NoDevice, AmbiguousDevice, DeviceNotReady, DeviceError: see :func:`adt.device.selection.select`.
    """
    flags = {"device.serial": serial, "device.timeout": timeout}
    settings = load_settings(flags).settings.device
    return replace(selection.select(settings.serial), timeout=settings.limit)
