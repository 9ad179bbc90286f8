"""Devices on the network: connect, disconnect, pair.

adb reports a failure in the text of an answer that says OKAY (and its program
exits with 0), so the text decides.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from adt.device import adb, selection, states
from adt.device.deadline import Deadline
from adt.errors import ConfigError, DeviceError, NoDevice

PAIR_SECONDS = 20.0
"""Budget for pairing: adb itself would wait for ever for an address that is silent."""
CONNECT_SECONDS = 15.0
"""Budget for connecting: adb itself gives up on a silent address after about 10 s."""

_CODE = re.compile(r"\w{1,64}", re.ASCII)


@dataclass(frozen=True)
class Connection:
    """A device on the network that is connected."""

    serial: str
    already: bool
    """It was connected before."""


def check_address(address: str) -> str:
    """*address* with a port.

    Raises:
        ConfigError: it is not HOST:PORT.
    """
    if not selection.is_address(address) or not 0 < int(address.rpartition(":")[2]) < 65536:
        raise ConfigError(
            f"{address!r} is not HOST:PORT",
            remedy="Give an address such as 192.168.1.20:5555; the phone shows it under wireless debugging.",
        )
    return address


def connect(address: str) -> Connection:
    """Connect the adb server to the device at HOST:PORT and wait until it is usable.

    One that is connected but offline is connected anew.

    Raises:
        ConfigError: *address* is not HOST:PORT.
        NoDevice: nothing answers there, or not as a device does.
        DeviceNotReady: it is connected but not usable: offline, unauthorized, …
        DeviceError: neither adb nor the device came to an end within CONNECT_SECONDS.
    """
    check_address(address)
    before = _state(address)
    if before == "offline":
        selection.disconnect(address)
    try:
        selection.connect(address, seconds=CONNECT_SECONDS)
    except (NoDevice, DeviceError) as why:
        now = _state(address)
        if now in ("unauthorized", *states.SETTLING):
            raise states.not_ready(address, now) from why
        if now == "offline":
            selection.disconnect(address)  # the server would list it so from now on
        raise
    state = next((d.state for d in selection.handshaken([address]) if d.serial == address), "")
    if state != states.READY:
        raise states.not_ready(address, state or "offline")
    return Connection(address, already=before == states.READY)


def _state(address: str) -> str:
    """adb's word for the device at *address*; empty when it does not know it."""
    return next((device.state for device in selection.listing() if device.serial == address), "")


def disconnect(address: str) -> None:
    """Make the adb server forget the device at HOST:PORT.

    Raises:
        ConfigError: *address* is not HOST:PORT.
        NoDevice: it was not connected.
    """
    check_address(address)
    said = "no adb server runs"
    if adb.server_listens():
        try:
            said = adb.query(f"host:disconnect:{address}", doing=f"disconnecting {address}").strip()
            if said.startswith("disconnected "):
                return
        except (NoDevice, DeviceError) as why:
            said = why.what
    raise NoDevice(
        f"{address} is not connected ({said})",
        remedy="`adt devices` shows what is; nothing had to be done.",
    )


def pair(address: str, code: str) -> str:
    """Pair this machine with the phone that shows *code* and HOST:PORT under "Pair device with pairing code".

    Returns:
        What adb says about it, with the phone's identity.

    Raises:
        ConfigError: *address* or *code* cannot be right.
        ToolNotFound, DeviceError: there is no adb, or its server is older than 30 and cannot pair.
        NoDevice: nothing answers there, or the code was wrong.
    """
    check_address(address)
    if not _CODE.fullmatch(code):
        raise ConfigError(f"{code!r} is no pairing code", remedy="Type the six digits that the phone shows.")
    try:
        with adb.open_wire(deadline=Deadline(PAIR_SECONDS, f"pairing with {address}")) as wire:
            wire.request(f"host:pair:{code}:{address}")
            succeeded = wire.outcome()
            said = wire.read_text().strip()
    except DeviceError as why:
        if re.search("unknown host service", why.what):
            raise DeviceError(
                "the adb server that runs is too old to pair (it takes adb 30 or newer)",
                remedy="End it with `adb kill-server` and run this again: adt starts the newest adb it "
                "finds, and the one of `pip install adbutils` can pair. Unset ADBUTILS_ADB_PATH if it names "
                "an old one.",
            ) from why
        raise
    if succeeded and said.startswith("Successfully paired"):
        return said
    raise NoDevice(
        f"pairing with {address} failed: {said.removeprefix('Failed: ') or 'no answer'}",
        remedy="Pairing has a port and a code of its own, which the phone shows only while its dialog is "
        "open: open it again and take both from there; the phone must be in this network.",
    )
