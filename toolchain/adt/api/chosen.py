"""The device that a verb works with."""

from __future__ import annotations

from adt.config.load import load_settings
from adt.device import selection
from adt.device.device import Device


def chosen_device(serial: str | None) -> Device:
    """The device *serial*; None: device.serial of the settings, else ANDROID_SERIAL, else the only one.

    Raises:
        NoDevice, AmbiguousDevice, DeviceNotReady, DeviceError: see :func:`adt.device.selection.select`.
    """
    return selection.select(load_settings({"device.serial": serial}).settings.device.serial)
