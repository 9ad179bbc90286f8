"""What a device is made of."""

from __future__ import annotations

from adt.api.chosen import device_of
from adt.api.requests import ProbeRequest
from adt.bundle.bundle_cache import newest_with
from adt.device import probe as device_probe
from adt.device.device import Device
from adt.device.opencl import PROGRAM
from adt.device.probe import Probe
from adt.options.request import takes


@takes(ProbeRequest)
def probe(request: ProbeRequest) -> Probe:
    """Look at a device: CPU clusters, memory, temperatures, GPU, and what OpenCL offers.

    The last part needs a bundle for the device that was built here, and is
    remembered until the device restarts; nothing is left on the device.

    Raises:
        NoDevice, AmbiguousDevice, DeviceNotReady, DeviceError: see :mod:`adt.errors`. A part that
            cannot be read does not raise: it is None, and ``probe.missing`` says why.
    """
    return probe_device(device_of(request), fresh=request.fresh)


def probe_device(device: Device, *, fresh: bool = False) -> Probe:
    """As :func:`probe`, for a device that was chosen already."""
    hardware = device_probe.survey_hardware(device)
    bundle = newest_with(PROGRAM, device.facts.platforms)
    return device_probe.probe(device, bundle, hardware=hardware, fresh=fresh)
