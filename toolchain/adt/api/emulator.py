"""Virtual devices."""

from __future__ import annotations

from adt.api.requests import EmulatorName, EmulatorRequest
from adt.device import selection
from adt.options.option import values_of
from adt.options.request import takes
from adt.virtual import emulator
from adt.virtual.emulator import EmulatorInfo


@takes(EmulatorRequest)
def emulator_start(request: EmulatorRequest) -> EmulatorInfo:
    """Start a virtual device (a Linux, arm64 by default, behind real ADB) and connect adb to it.

    Raises:
        EmulatorError: this machine cannot run one; the message says what to install or switch on.
        ConfigError: an argument is not one.
    """
    info = emulator.start(**values_of(request))
    selection.connect(info.serial)
    return info


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
