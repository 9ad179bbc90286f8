"""Hold a device awake: a phone that sleeps answers late, and lowers its clocks.

Android's setting *stay on while plugged in* is set, the screen is woken, and the setting is put back when the
last who holds the device ends, also by ``kill -9``: by a shell on the device whose connection ends then. What
is no Android is left alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from adt.device.deploy.workspace import open_agent
from adt.device.device import Device
from adt.device.scripts import script
from adt.device.survey import TEMP

PARENT = f"{TEMP}/adt/.awake"
"""Directory where everybody who holds the device has a mark, whoever they are, and the former value lies."""


@contextlib.contextmanager
def awake(device: Device) -> Iterator[None]:
    """Hold *device* awake for as long as the block runs."""
    with open_agent(device, PARENT, script("awake")):
        yield
