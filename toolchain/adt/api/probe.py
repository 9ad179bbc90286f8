"""What a device is made of."""

from __future__ import annotations

from adt.api.chosen import chosen_device
from adt.bundle.bundle_cache import newest_with
from adt.device import probe as device_probe
from adt.device.device import Device
from adt.device.opencl import PROGRAM
from adt.device.probe import Probe


def probe(*, serial: str | None = None, fresh: bool = False, timeout: float | None = None) -> Probe:
    """Look at a device: CPU clusters, memory, temperatures, GPU, and what OpenCL offers.

    The last part needs a bundle for the device that was built here, and is
    remembered until the device restarts; nothing is left on the device.

    Args:
        fresh: ask for OpenCL again.
        timeout: seconds that each step on the device may take; None: device.timeout of the settings.

    Raises:
        NoDevice, AmbiguousDevice, DeviceNotReady, DeviceError: see :mod:`adt.errors`. A part that
            cannot be read does not raise: it is None, and ``probe.missing`` says why.
    """
    return probe_device(chosen_device(serial, timeout), fresh=fresh)


def probe_device(device: Device, *, fresh: bool = False) -> Probe:
    """As :func:`probe`, for a device that was chosen already."""
    hardware = device_probe.survey_hardware(device)
    bundle = newest_with(PROGRAM, device.facts.platforms)
    return device_probe.probe(device, bundle, hardware=hardware, fresh=fresh)
