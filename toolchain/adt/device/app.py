"""Install an app on an Android device, start it, and fetch the files that it writes.

The device's own programs do the work: ``pm`` installs, ``am`` starts. What an
app writes to its directory of external files, ``/sdcard/Android/data/<app>/files``,
the shell user can read without root and without the app being debuggable.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from pathlib import Path

from adt.device.app_refusals import refused
from adt.device.device import Device
from adt.device.payload import user_directory
from adt.device.private import check_app
from adt.device.scripts import script
from adt.device.shell import Completed
from adt.device.sync import Progress
from adt.device.workspace import workspace
from adt.errors import AdtError, ConfigError, DeviceError, RunError

EXTERNAL_FILES = "/sdcard/Android/data/{app}/files"
"""An app's directory of external files, of the device's first user."""

STARTING_SECONDS = 5
"""So long an app may not be seen running before it counts as ended."""

GONE, TOO_LONG = 3, 4
"""Exit codes of the script: the app does not run, and did not write a file."""


def install(
    device: Device, apk: Path, *, timeout: float, app: str = "", progress: Progress | None = None
) -> None:
    """Install *apk*, in place of an older one.

    Args:
        timeout: seconds that the installation may take.
        app: its application id, for messages; empty: not known.

    Raises:
        DeviceError: the device has no package manager, or refuses the APK.
        MismatchError: the device is too old for it, or of another kind.
        DeviceFull: there is no room.
    """
    if device.script("command -v pm >/dev/null && command -v am >/dev/null", check=False).exit_code != 0:
        raise DeviceError(
            f"{device.serial} has no package manager, so no app can be installed: it is no Android "
            f"({device.facts.label})",
            remedy="Install on an Android device (`adt devices` lists what is connected); on this one "
            "`adt run` and `adt bench` run the package without an app.",
        )
    with workspace(device, f"{user_directory()}/runs") as there:
        device.push(apk, f"{there}/app.apk", mode=0o644, progress=progress)
        done = device.shell(
            ("pm", "install", "-r", "-t", f"{there}/app.apk"),
            timeout=timeout,
            check=False,
            doing=f"installing {apk.name} on {device.serial}",
        )
    if done.exit_code != 0 or not re.search(r"^Success", done.out, re.MULTILINE):
        raise refused(done, apk.name, app)


def run_app(
    device: Device,
    app: str,
    activity: str,
    *,
    results: str,
    files: Sequence[str],
    over: str,
    into: Path,
    timeout: float,
) -> tuple[Path, ...]:
    """Start the *activity* of *app* anew, wait until it has written all of *files*, and fetch them.

    Args:
        app: application id.
        activity: its class: ``android.app.NativeActivity``.
        results: directory below the app's external files that it writes to; emptied first.
        files: names in *results*.
        over: one more; once it is there, the others need not come.
        into: directory of this machine for what came.
        timeout: seconds that the app may take.

    The app is stopped at the end, however that comes.

    Returns:
        The files that are there, *over* last.

    Raises:
        ConfigError: *app* cannot be the name of an app, or the device has none of that name.
        RunError: the app ended, or took too long; with the end of its log.
    """
    there = f"{EXTERNAL_FILES.format(app=check_app(app))}/{results}"
    device.script(
        'am force-stop "$1" && rm -rf "$2"',
        app,
        there,
        what=f"the results of an earlier run of {app} cannot be removed from {device.serial}",
        remedy=f"Remove the app and install it again: adt adb -s {device.serial} -- uninstall {app}.",
    )
    try:
        started = device.shell(
            ("am", "start", "-n", f"{app}/{activity}"),
            check=False,
            timeout=60.0,
            doing=f"starting {app} on {device.serial}",
        )
        if started.exit_code != 0 or re.search(r"^(Error|Exception|java\.)", started.tail(), re.MULTILINE):
            raise _not_started(started, app)
        done = device.script(
            script("app_wait"),
            *(there, app, str(int(timeout)), str(STARTING_SECONDS), over, *files),
            timeout=timeout + 60.0,
            check=False,
            doing=f"waiting for {app} on {device.serial}",
        )
        if done.exit_code in (GONE, TOO_LONG):
            raise _no_results(device, app, done, timeout)
        if done.exit_code != 0:
            raise _unreadable(done, app, there)
        return _fetched(device, there, (*files, over), into)
    finally:
        with contextlib.suppress(AdtError):  # what came before it is what counts
            device.shell(("am", "force-stop", app), check=False)


def _fetched(device: Device, there: str, names: Sequence[str], into: Path) -> tuple[Path, ...]:
    listed = device.script('cd "$1" && for f in *; do echo "$f"; done', there).out.splitlines()
    came = [name for name in names if name in listed]
    for name in came:
        device.pull(f"{there}/{name}", into / name, timeout=60.0)
    return tuple(into / name for name in came)


def _not_started(done: Completed, app: str) -> AdtError:
    if re.search(r"does not exist|unable to resolve|has not been declared", done.tail()):
        return ConfigError(
            f"{done.serial} has no app {app} with the activity that measures",
            remedy="Install one that `adt apk` made: adt install APK.",
            details=done.tail(),
        )
    return RunError(
        f"{app} does not start on {done.serial}",
        remedy="Read the activity manager's own message above; unlock the device, then try again.",
        details=done.tail(),
    )


def _unreadable(done: Completed, app: str, there: str) -> DeviceError:
    return DeviceError(
        f"cannot look for the results of {app} on {done.serial} in {there} (exit code {done.exit_code})",
        remedy="Some devices keep the shell from apps' files: copy them with the device's own file manager.",
        details=done.tail(),
    )


def _no_results(device: Device, app: str, done: Completed, timeout: float) -> RunError:
    how = "ended" if done.exit_code == GONE else f"did not come to an end within {timeout:g} s"
    log = device.script("logcat -d -t 400 -s adt:V DEBUG:V AndroidRuntime:E libc:F | tail -n 40", check=False)
    return RunError(
        f"{app} {how} on {device.serial} without {done.out.strip() or 'its results'}",
        remedy=f"Look at its log: adt adb -s {device.serial} -- logcat -d adt:V DEBUG:V AndroidRuntime:E. "
        + (
            "An app that Android ended had mostly used up the device's memory."
            if done.exit_code == GONE
            else "Keep its screen on; large models need a longer --timeout."
        ),
        details=log.tail(),
    )
