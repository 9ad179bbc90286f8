"""Virtual devices, and the faults that tests inject into them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from adt.device import selection
from adt.errors import DeviceError, NoDevice
from adt.virtual import emulator
from adt.virtual.emulator import EmulatorInfo

log = logging.getLogger("adt.virtual")

SILENT = ("offline",)
"""Faults with which a device does not answer, so that there is no use in waiting for long."""
SHORT = 2.0
"""Seconds for connecting to such a device."""


def emulator_start(
    name: str = "default",
    *,
    port: int | None = None,
    rootfs: Path | None = None,
    data_size: str | None = None,
    abi: str | None = None,
    opencl: bool = False,
    fault: Sequence[str] = (),
) -> EmulatorInfo:
    """Start the virtual device *name* (a Linux, arm64 by default, behind real ADB) and connect adb to it.

    Args:
        name: its name.
        port: TCP port on 127.0.0.1; None for a free one.
        rootfs: an own userland in place of the default one.
        data_size: size of a tmpfs for /data; None for a directory that stays.
        abi: ``arm64-v8a``, or ``x86_64`` on such a machine; None for that of *rootfs*, or arm64.
        opencl: with OpenCL (PoCL) in the default userland.
        fault: what goes wrong on purpose, for tests; with some of these adb cannot connect, which is
            then said and no error.

    Raises:
        EmulatorError: this machine cannot run one; the message says what to install or switch on.
        ConfigError: an argument is not one.
    """
    info = emulator.start(
        name, port=port, rootfs=rootfs, data_size=data_size, abi=abi, opencl=opencl, fault=fault
    )
    try:
        selection.connect(
            info.serial, seconds=SHORT if any(one.startswith(SILENT) for one in fault) else None
        )
    except (NoDevice, DeviceError) as why:
        if not fault:
            raise
        log.warning("not connected, as was to be expected of these faults: %s", why.what)
    return info


def emulator_fault(name: str, specifications: Sequence[str] | None = None) -> tuple[str, ...]:
    """Change the faults of the running virtual device *name*, and give those that are armed.

    Args:
        name: its name.
        specifications: the faults to arm in place of the present ones; an empty sequence clears them,
            None only asks.

    Raises:
        ConfigError: not a fault.
        EmulatorError: no such device runs, or it cannot show the fault.
    """
    if specifications is None:
        return emulator.armed_faults(name)
    return emulator.set_faults(name, specifications)


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
