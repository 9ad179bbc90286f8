"""Devices: the list of them, one of them, its hardware, and the adb program with it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

from adt.api.requests import AdbRequest
from adt.bundle.bundle_cache import newest_with
from adt.device import probe as device_probe
from adt.device import selection
from adt.device.device import Device as Device
from adt.device.opencl import PROGRAM
from adt.device.overview import ASK_SECONDS, DeviceOverview, overview
from adt.device.probe import Probe
from adt.device.transport import adb
from adt.errors import DeviceNotReady
from adt.options.request import resolve_settings, takes
from adt.options.sections import DeviceSettings


def chosen_device(serial: str | None = None, timeout: float | None = None) -> Device:
    """The device *serial*; None: device.serial of the settings, else ANDROID_SERIAL, else the only one.

    Args:
        timeout: seconds that each step on it may take; None: device.timeout of the settings.

    Raises:
        NoDevice, AmbiguousDevice, DeviceNotReady, DeviceError: see :func:`adt.device.selection.select`.
    """
    flags = {"device.serial": serial, "device.timeout": timeout}
    return device_of(resolve_settings(flags).settings.device)


def device_of(settings: DeviceSettings) -> Device:
    """The device of *settings*, else that of ANDROID_SERIAL, else the only one."""
    return open_device(settings.serial, settings.limit)


def open_device(serial: str, limit: float | None) -> Device:
    """The device *serial*, with *limit* seconds for each step on it."""
    return replace(selection.select(serial), timeout=limit)


SERVER_COMMANDS = frozenset(
    (
        *("connect", "devices", "disconnect", "fork-server", "help", "host-features", "keygen"),
        *("kill-server", "mdns", "nodaemon", "pair", "server", "server-status", "start-server"),
        *("track-devices", "version"),
    )
)
"""Commands of adb that need no device."""


@dataclass(frozen=True)
class AdbCommand:
    """A command line of adb, ready to be run."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    """Variables on top of one's own: the server that adt uses."""


def devices(*, timeout: float | None = None) -> tuple[DeviceOverview, ...]:
    """List the devices that the adb server sees, and what each one is; they are asked at the same time.

    A device that does not answer costs a few seconds and has a ``problem`` in its row.

    Args:
        timeout: seconds that each device has; None: a few.

    Raises:
        ToolNotFound, DeviceError, ConfigError: there is no adb, or its server does not answer.
    """
    return overview(seconds=timeout or ASK_SECONDS)


@takes(AdbRequest)
def adb_command(request: AdbRequest) -> AdbCommand:
    """The command line that runs the adb of :func:`adt.device.transport.adb.find_adb`; runs nothing.

    Arguments that begin with an option of adb's own, and :data:`SERVER_COMMANDS`, get no device but one
    that was given as *serial*.

    Raises:
        ToolNotFound, ConfigError: there is no adb, or the server's address cannot be used.
        NoDevice, AmbiguousDevice, DeviceNotReady, DeviceError: no device can be chosen.
    """
    program = str(adb.find_adb().path)
    serial = _serial(request)
    words = ["-s", serial] if serial else []
    if serial == adb.NO_SERIAL:
        words = ["-t", adb.connection_number()]
    return AdbCommand((program, *words, *request.arguments), adb.server_environment())


def _serial(request: AdbRequest) -> str:
    """The serial for adb's ``-s``; empty for none."""
    first = next(iter(request.arguments), "help")
    if first.startswith("-") or first in SERVER_COMMANDS:
        return request.named("serial") or ""
    named = request.serial or os.environ.get("ANDROID_SERIAL", "")
    if first.startswith("wait-for-"):  # it need not be there yet
        return named
    try:
        return selection.select(request.serial).serial
    except DeviceNotReady:  # what is offline or in recovery can be reconnected or restarted
        if not named:
            raise
        return named


def probe(serial: str | None = None, *, timeout: float | None = None, fresh: bool = False) -> Probe:
    """Look at a device: CPU clusters, memory, temperatures, GPU, and what OpenCL offers.

    The last part needs a bundle for the device that was built here, and is
    remembered until the device restarts; nothing is left on the device.

    Args:
        serial, timeout: see :func:`chosen_device`.
        fresh: look for OpenCL again, not only once per boot of the device.

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
