"""Virtual devices, and the faults that tests inject into them."""

from __future__ import annotations

import logging

from adt.api.requests import EmulatorName, EmulatorRequest, FaultRequest
from adt.device import selection
from adt.errors import DeviceError, NoDevice
from adt.options.option import values_of
from adt.options.request import takes
from adt.virtual import emulator
from adt.virtual.emulator import EmulatorInfo

log = logging.getLogger("adt.virtual")

SILENT = ("offline",)
"""Faults with which a device does not answer, so that there is no use in waiting for long."""
SHORT = 2.0
"""Seconds for connecting to such a device."""


@takes(EmulatorRequest)
def emulator_start(request: EmulatorRequest) -> EmulatorInfo:
    """Start a virtual device (a Linux, arm64 by default, behind real ADB) and connect adb to it.

    With some faults adb cannot connect, which is then said and no error.

    Raises:
        EmulatorError: this machine cannot run one; the message says what to install or switch on.
        ConfigError: an argument is not one.
    """
    info, fault = emulator.start(**values_of(request)), request.fault
    try:
        selection.connect(
            info.serial, seconds=SHORT if any(one.startswith(SILENT) for one in fault) else None
        )
    except (NoDevice, DeviceError) as error:
        if not fault:
            raise
        log.warning("not connected, as was to be expected of these faults: %s", error.what)
    return info


@takes(FaultRequest)
def emulator_fault(request: FaultRequest) -> tuple[str, ...]:
    """Change the faults of a running virtual device, and give those that are armed.

    Raises:
        ConfigError: not a fault.
        EmulatorError: no such device runs, or it cannot show the fault.
    """
    if request.specifications is None:
        return emulator.armed_faults(request.name)
    return emulator.set_faults(request.name, request.specifications)


@takes(EmulatorName)
def emulator_stop(request: EmulatorName) -> EmulatorInfo:
    """Stop a virtual device and disconnect adb from it.

    Raises:
        EmulatorError: there is none of that name.
    """
    info = emulator.stop(request.name)
    selection.disconnect(info.serial)
    return info


def emulator_list() -> tuple[EmulatorInfo, ...]:
    """Every virtual device on this machine."""
    return emulator.listing()
