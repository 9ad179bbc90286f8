"""What each bad state of a device means, and what its owner can do about it."""

from __future__ import annotations

import re

from adt.errors import AdtError, DeviceError, DeviceNotReady, NoDevice

READY = "device"
"""adb's name for a state in which commands and files go through."""

SETTLING = frozenset({"authorizing", "connecting"})
"""States that pass by themselves within moments."""

_REMEDIES = {
    "offline": "Unplug the cable and plug it in again, or `adt adb -s SERIAL -- reconnect`; for a device "
    "on the network `adt adb -- connect SERIAL`; for a virtual device `adt emulator start`.",
    "unauthorized": 'Unlock the phone and accept "Allow USB debugging"; if nothing is shown, '
    '"Revoke USB debugging authorizations" in the developer options, then plug it in again.',
    "authorizing": 'Unlock the phone and accept "Allow USB debugging", then run the same command again.',
    "connecting": "Wait a moment and run the same command again; if it stays so, plug the device in again.",
    "no permissions": "This user may not open the USB device: install udev rules for it (Debian: "
    "`apt install android-sdk-platform-tools-common`), be in the group `plugdev`, plug it in again.",
    "recovery": "The device is in recovery: `adt adb -s SERIAL -- reboot`, then wait until it has started.",
    "sideload": "The device waits for a sideload: leave that on its screen, or `adt adb -s SERIAL -- "
    "reboot`.",
    "rescue": "The device is in rescue mode: restart it from its screen.",
    "bootloader": "The device is in its bootloader: `fastboot reboot`.",
    "host": "This is not a device but a host in device mode: unplug it.",
    "detached": "Another program holds the device: `adt adb -s SERIAL -- attach`.",
}


def remedy(state: str, serial: str) -> str:
    """What to do about a device in *state*."""
    text = _REMEDIES.get(state, "Plug the device in again, or restart it; `adt devices` shows its state.")
    return text.replace("SERIAL", serial)


def not_ready(serial: str, state: str) -> DeviceNotReady:
    """The error for a device that is there but cannot be used."""
    return DeviceNotReady(f"device {serial} is not usable: {state}", remedy=remedy(state, serial))


def refused(text: str, *, serial: str, doing: str) -> AdtError:
    """Turn the adb server's own refusal (its FAIL text) into an error with a remedy."""
    said = text.strip()
    if re.search(r"^device '.*' not found|^no devices|^device not found|unknown device", said):
        return NoDevice(
            f"device {serial} is not connected",
            remedy="Plug it in, `adt adb -- connect HOST:PORT` if it is on the network, or `adt emulator "
            "start`; `adt devices` lists what is there.",
        )
    for state in _REMEDIES:
        if re.search(rf"\bdevice (still )?{state}\b", said):
            return not_ready(serial, state)
    if "insufficient permissions" in said:
        return not_ready(serial, "no permissions")
    return DeviceError(
        f"adb refused while {doing}: {said}",
        remedy=f"Check the device with `adt adb -s {serial} -- shell true`; run again with -v to see "
        "every step.",
    )
