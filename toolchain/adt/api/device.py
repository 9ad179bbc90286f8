"""Devices: the list of them, and virtual ones."""

from __future__ import annotations

from pathlib import Path

from adt.device import selection
from adt.device.selection import DeviceInfo
from adt.device.virtual import emulator
from adt.device.virtual.emulator import EmulatorInfo


def devices() -> tuple[DeviceInfo, ...]:
    """The devices that the adb server sees."""
    return selection.listing()


def emulator_start(
    name: str = "default",
    *,
    port: int | None = None,
    rootfs: Path | None = None,
    data_size: str | None = None,
) -> EmulatorInfo:
    """Start the virtual device *name* (an arm64 Linux behind real ADB) and connect adb to it.

    Raises:
        EmulatorError: this machine cannot run one; the message says what to install or switch on.
    """
    info = emulator.start(name, port=port, rootfs=rootfs, data_size=data_size)
    selection.connect(info.serial)
    return info


def emulator_stop(name: str = "default") -> EmulatorInfo:
    """Stop the virtual device *name* and disconnect adb from it.

    Raises:
        EmulatorError: there is none of that name.
    """
    info = emulator.stop(name)
    selection.disconnect(info.serial)
    return info


def emulator_list() -> tuple[EmulatorInfo, ...]:
    """Every virtual device on this machine."""
    return emulator.listing()
