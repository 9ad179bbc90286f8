"""Devices: the list of them, one of them, and the adb program with one of them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from adt.api.chosen import chosen_device
from adt.device.device import Device as Device
from adt.device.overview import ASK_SECONDS, DeviceOverview, overview
from adt.device.transport import adb
from adt.errors import DeviceNotReady
from adt.options.resolve import load_settings

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


def devices(*, timeout: float | None = None) -> tuple[DeviceOverview, ...]:
    """The devices that the adb server sees, and what each one is; they are asked at the same time.

    A device that does not answer costs a few seconds and has a ``problem`` in its row.

    Args:
        timeout: seconds that each one has; None: a few.

    Raises:
        ToolNotFound, DeviceError, ConfigError: there is no adb, or its server does not answer.
    """
    return overview(seconds=timeout or ASK_SECONDS)


def adb_command(arguments: Sequence[str], *, serial: str | None = None) -> AdbCommand:
    """The command line that runs the adb of :func:`find_adb` with *arguments*; runs nothing.

    Args:
        arguments: as adb takes them: ``["shell", "ls"]``. Those that begin with an option of adb's own, and
            :data:`SERVER_COMMANDS`, get no device but *serial*.
        serial: the device; None: device.serial of the settings, else ANDROID_SERIAL, else the only one.

    Raises:
        ToolNotFound, ConfigError: there is no adb, or the server's address cannot be used.
        NoDevice, AmbiguousDevice, DeviceNotReady, DeviceError: no device can be chosen.
    """
    program = str(adb.find_adb().path)
    chosen = _serial(arguments, serial)
    words = ["-s", chosen] if chosen else []
    return AdbCommand((program, *words, *arguments), adb.server_environment())


def _serial(arguments: Sequence[str], serial: str | None) -> str:
    """The device that adb is told; empty for none."""
    first = arguments[0] if arguments else "help"
    if first.startswith("-") or first in SERVER_COMMANDS:
        return serial or ""
    named = load_settings({"device.serial": serial}).settings.device.serial
    named = named or os.environ.get("ANDROID_SERIAL", "")
    if first.startswith("wait-for-"):  # it need not be there yet
        return named
    try:
        return chosen_device(serial).serial
    except DeviceNotReady:  # what is offline or in recovery can be reconnected or restarted
        if not named:
            raise
        return named
