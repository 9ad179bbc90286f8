"""The device that a verb works with."""

from __future__ import annotations

from dataclasses import replace

from adt.api.requests import DeviceRequest
from adt.device import selection
from adt.device.device import Device
from adt.options.sections import DeviceSettings


def chosen_device(serial: str | None = None, timeout: float | None = None) -> Device:
    """The device *serial*; None: device.serial of the settings, else ANDROID_SERIAL, else the only one.

    Args:
        timeout: seconds that each step on it may take; None: device.timeout of the settings.

    Raises:
        NoDevice, AmbiguousDevice, DeviceNotReady, DeviceError: see :func:`adt.device.selection.select`.
    """
    return device_of(DeviceRequest(serial=serial, timeout=timeout))


def device_of(settings: DeviceSettings) -> Device:
    """The device of *settings*, else that of ANDROID_SERIAL, else the only one."""
    return open_device(settings.serial, settings.limit)


def open_device(serial: str, limit: float | None) -> Device:
    """The device *serial*, with *limit* seconds for each step on it."""
    return replace(selection.select(serial), timeout=limit)
