"""Copy a deployment into the private directory of a debuggable app, with the device's ``run-as``.

adb may write to /data/local/tmp alone. So the deployment goes there first, as
ever; then a shell that runs as the app copies it to ``files/adt/<digest>`` in
the app's own directory, hashes every copy, and only then gives it its name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from shlex import quote

from adt.device.deploy import Deployment
from adt.device.device import Device
from adt.device.payload import Payload
from adt.device.scripts import script
from adt.device.shell import Completed
from adt.device.workspace import workspace
from adt.errors import ConfigError, DeviceError, DeviceFull

PACKAGE = re.compile(r"[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z][A-Za-z0-9_]*)+")
"""What Android takes for the name of an app."""

COPY_SECONDS = 600.0

DAMAGED = 3
"""Exit code of the script when a copy has other contents than it should; its name is on stdout."""


@dataclass(frozen=True)
class PrivateCopy:
    """A deployment in an app's own directory."""

    app: str
    directory: str
    """Absolute path on the device; only the app can read it."""
    copied: bool
    """False: it was there already, intact."""


def check_app(app: str) -> str:
    """*app* if it can be the name of an app.

    Raises:
        ConfigError: it cannot.
    """
    if not PACKAGE.fullmatch(app):
        raise ConfigError(
            f"{app!r} is not the name of an app", remedy="Give its application id, e.g. com.example.app."
        )
    return app


def copy_into_app(device: Device, deployment: Deployment, payload: Payload, app: str) -> PrivateCopy:
    """Copy *deployment* into the directory of *app*, unless it is there already.

    Raises:
        ConfigError: *app* cannot be the name of an app, or is not debuggable or not on the device.
        DeviceFull: there is no room for it.
        DeviceError: the copy failed or has other contents.
    """
    check_app(app)
    pairs = [word for file in payload.files for word in (file.sha256, file.name)]
    with workspace(device, f"{deployment.base}/runs", uses=deployment.digest):
        done = device.shell(
            (
                "run-as",
                app,
                "sh",
                "-c",
                script("private_copy"),
                "sh",
                deployment.directory,
                deployment.digest,
                *pairs,
            ),
            timeout=device.allow(COPY_SECONDS),
            check=False,
            doing=f"copying {deployment.name} into {app} on {device.serial}",
        )
    found = re.search(r"^at (/.*)$", done.out, re.MULTILINE)
    if done.exit_code != 0 or found is None:
        raise _explain(done, app)
    return PrivateCopy(app, found[1], copied="copied" in done.out.splitlines())


def _explain(done: Completed, app: str) -> ConfigError | DeviceError | DeviceFull:
    said = f"{done.out}\n{done.err}"
    if re.search(r"unknown package|is unknown", said):
        return ConfigError(
            f"there is no app {app} on {done.serial}",
            remedy=f"Install it first (`adt adb -s {done.serial} -- install APK`); `adt adb -s "
            f"{done.serial} -- shell pm list packages` shows what is there.",
            details=done.tail(),
        )
    if re.search(r"not debuggable|not an application", said):
        return ConfigError(
            f"the app {app} on {done.serial} is not debuggable: only itself may write to its directory",
            remedy="Install its debug variant (android:debuggable), or let the app fetch the files itself.",
            details=done.tail(),
        )
    if re.search(r"run-as: (inaccessible or )?not found|run-as: No such file", said):
        return DeviceError(
            f"device {done.serial} has no run-as",
            remedy="Only Android has it; deploy without --run-as.",
            details=done.tail(),
        )
    if "No space left" in said:
        return DeviceFull(
            f"device {done.serial} is full: there is no room for a copy in {app}",
            remedy=f"Make room on the device: `adt clean --serial {quote(done.serial)}`, or remove apps.",
            details=done.tail(),
        )
    if done.exit_code == DAMAGED:
        return DeviceError(
            f"{done.out.strip()} was copied into {app} with other contents",
            remedy="Try again; if it happens twice, the device's storage is failing.",
        )
    return DeviceError(
        f"the copy into {app} on {done.serial} failed (exit code {done.exit_code})",
        remedy="Read run-as' own message above. A work profile's app or a device policy may forbid it: then "
        "deploy without --run-as.",
        details=done.tail(),
    )
