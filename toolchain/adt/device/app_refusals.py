"""Why Android's package manager did not install an app: its codes, with what to do about each."""

from __future__ import annotations

import re
from dataclasses import dataclass

from adt.device.shell import Completed
from adt.errors import AdtError, DeviceError, DeviceFull, MismatchError


@dataclass(frozen=True)
class Refusal:
    """What some of the codes mean."""

    codes: str
    """A pattern of what follows INSTALL_."""
    error: type[AdtError]
    what: str
    remedy: str
    """With SERIAL and APP in it."""


REFUSALS = (
    Refusal(
        codes="FAILED_UPDATE_INCOMPATIBLE|FAILED_SHARED_USER_INCOMPATIBLE"
        "|PARSE_FAILED_INCONSISTENT_CERTIFICATES",
        error=DeviceError,
        what="an app of this name is there, signed with another key",
        remedy="Remove it, which also removes its data: adt adb -s SERIAL -- uninstall APP; or make the "
        "APK with the same key (--keystore) or another name (--package).",
    ),
    Refusal(
        codes="FAILED_VERSION_DOWNGRADE",
        error=DeviceError,
        what="a newer version of this app is there",
        remedy="Remove it, which also removes its data: adt adb -s SERIAL -- uninstall APP.",
    ),
    Refusal(
        codes="FAILED_NO_MATCHING_ABIS|FAILED_CPU_ABI_INCOMPATIBLE",
        error=MismatchError,
        what="it has no libraries for the ABIs of the device",
        remedy="Make it with a bundle and a package for one: adt build-target --for PLATFORM, adt compile.",
    ),
    Refusal(
        codes="FAILED_OLDER_SDK",
        error=MismatchError,
        what="the device's Android is older than the APK allows",
        remedy="Build the bundle for that level (adt build-target --api-level LEVEL); make the APK again.",
    ),
    Refusal(
        codes="FAILED_DEPRECATED_SDK_VERSION|FAILED_NEWER_SDK",
        error=MismatchError,
        what="the device's Android refuses the API level that the APK is made for",
        remedy="Make the APK with a newer adt.",
    ),
    Refusal(
        codes="FAILED_INSUFFICIENT_STORAGE|FAILED_MEDIA_UNAVAILABLE",
        error=DeviceFull,
        what="there is no room for the app",
        remedy="Make room on the device: remove apps, or `adt clean --serial SERIAL`.",
    ),
    Refusal(
        codes="FAILED_USER_RESTRICTED|FAILED_VERIFICATION_(FAILURE|TIMEOUT)|FAILED_ABORTED",
        error=DeviceError,
        what="the device's user, or a check of its own, did not allow it",
        remedy='Unlock the device and accept what it shows; "Install via USB" (Xiaomi, Oppo and others) and '
        '"Verify apps over USB" are in its developer options.',
    ),
    Refusal(
        codes="PARSE_FAILED_NO_CERTIFICATES",
        error=DeviceError,
        what="the APK is not signed so that this Android takes it",
        remedy="Sign it (apksigner sign), or make it with `adt apk`.",
    ),
    Refusal(
        codes=r"PARSE_FAILED_\w+|FAILED_INVALID_APK|FAILED_BAD_SIGNATURE",
        error=DeviceError,
        what="the device cannot read the APK",
        remedy="Make it again; `apksigner verify APK` and `adt elf APK` say whether it is whole.",
    ),
    Refusal(
        codes="FAILED_DUPLICATE_PERMISSION|FAILED_CONFLICTING_PROVIDER"
        "|FAILED_MISSING_(SHARED_LIBRARY|SPLIT|FEATURE)",
        error=DeviceError,
        what="something that the APK's manifest names is missing on the device, or belongs to another app",
        remedy="Read the package manager's own words above.",
    ),
)


def refused(done: Completed, apk: str, app: str) -> AdtError:
    """The error for what ``pm install`` said.

    Args:
        apk: the file's name.
        app: application id; empty: not known.
    """
    said = done.tail()
    begin = f"{apk} was not installed on {done.serial}"
    code = re.search(r"INSTALL_(\w+)|$", said)
    assert code is not None  # the end is always there
    for refusal in REFUSALS:
        if re.fullmatch(refusal.codes, code[1] or ""):
            remedy = refusal.remedy.replace("SERIAL", done.serial).replace("APP", app or "APP")
            return refusal.error(f"{begin}: {refusal.what}", remedy=remedy, details=said)
    if re.search(r"not enough space|No space left|ENOSPC", said):
        return DeviceFull(
            f"{begin}: there is no room", remedy="Make room on the device: remove apps.", details=said
        )
    return DeviceError(
        f"{begin} (exit code {done.exit_code})",
        remedy="Read the package manager's own message above; `adt adb -- install` of the same file says "
        "the same.",
        details=said,
    )
