"""Devices: the list of them, one of them, and the adb program with one of them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from adt.api.requests import AdbRequest, DevicesRequest
from adt.device import selection
from adt.device.device import Device as Device
from adt.device.overview import ASK_SECONDS, DeviceOverview, overview
from adt.device.transport import adb
from adt.errors import DeviceNotReady
from adt.options.request import takes

SERVER_COMMANDS = frozenset(
    (
        *("connect", "devices", "disconnect", "fork-server", "help", "host-features", "keygen"),
        *("kill-server", "mdns", "nodaemon", "pair", "server", "server-status", "start-server"),
        *("track-devices", "version"),
    )
)
"""What adb does without a device."""


@dataclass(frozen=True)
class AdbCommand:
    """A command line of adb, ready to be run."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    """Variables on top of one's own: the server that adt uses."""


@takes(DevicesRequest)
def devices(request: DevicesRequest) -> tuple[DeviceOverview, ...]:
    """The devices that the adb server sees, and what each one is; they are asked at the same time.

    A device that does not answer costs a few seconds and has a ``problem`` in its row.

    Raises:
        ToolNotFound, DeviceError, ConfigError: there is no adb, or its server does not answer.
    """
    return overview(seconds=request.timeout or ASK_SECONDS)


@takes(AdbRequest)
def adb_command(request: AdbRequest) -> AdbCommand:
    """The command line that runs the adb of :func:`adt.device.adb.find_adb`; runs nothing.

    Arguments that begin with an option of adb's own, and :data:`SERVER_COMMANDS`, get no device but one
    that was given as *serial*.

    Raises:
        ToolNotFound, ConfigError: there is no adb, or the server's address cannot be used.
        NoDevice, AmbiguousDevice, DeviceNotReady, DeviceError: no device can be chosen.
    """
    program = str(adb.find_adb().path)
    serial = _serial(request)
    words = ["-s", serial] if serial else []
    return AdbCommand((program, *words, *request.arguments), adb.server_environment())


def _serial(request: AdbRequest) -> str:
    """The device that adb is told; empty for none."""
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
