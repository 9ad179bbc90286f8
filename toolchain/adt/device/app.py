"""Apps on an Android device: install one, start it, fetch what it writes, give it a deployment of its own.

The device's own programs do the work: ``pm`` installs, ``am`` starts. What an app writes to its directory of
media, ``/sdcard/Android/media/<app>``, the shell user can read without root and without the app being
debuggable; ``Android/data`` it cannot on Android 11 and later.

Into an app's private directory only the app may write: a deployment goes to /data/local/tmp first, as ever;
then a shell that runs as the app (``run-as``, so the app must be debuggable) copies it to
``files/adt/<digest>``, hashes every copy, and only then gives it its name.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from adt.device.deploy.payload import Payload, user_directory
from adt.device.deploy.store import Deployment
from adt.device.deploy.workspace import workspace
from adt.device.device import Device
from adt.device.scripts import script
from adt.device.transport.shell import Completed
from adt.device.transport.sync import Progress
from adt.errors import AdtError, ConfigError, DeviceError, DeviceFull, MismatchError, RunError

MEDIA_FILES = "/sdcard/Android/media/{app}"
"""The first of an app's ``getExternalMediaDirs()``, of the device's first user."""

STARTING_SECONDS = 5
"""Seconds for which an app may not be seen running before it counts as ended."""

GONE, TOO_LONG = 3, 4
"""Exit codes of the script: the app does not run, and did not write a file."""


def install(
    device: Device, apk: Path, *, timeout: float, app: str = "", progress: Progress | None = None
) -> None:
    """Install *apk*, in place of an older one, within *timeout* seconds; messages name it by *app*, if
    known."""
    if device.script("command -v pm >/dev/null && command -v am >/dev/null", check=False).exit_code != 0:
        raise DeviceError(
            f"{device.serial} has no package manager, so no app can be installed: it is no Android "
            f"({device.facts.label})",
            remedy="Install on an Android device (`adt devices` lists what is connected); on this one "
            "`adt run` and `adt bench` run the package without an app.",
        )
    with workspace(device, f"{user_directory()}/runs") as directory:
        device.push(apk, f"{directory}/app.apk", mode=0o644, progress=progress)
        done = device.shell(
            ("pm", "install", "-r", "-t", f"{directory}/app.apk"),
            timeout=timeout,
            check=False,
            doing=f"installing {apk.name} on {device.serial}",
        )
    if done.exit_code != 0 or not re.search(r"^Success", done.out, re.MULTILINE):
        raise _refusal(done, apk.name, app)


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

    The app is stopped at the end, however that comes. Returns the files that exist, *over* last.

    Args:
        activity: its class: ``android.app.NativeActivity``.
        results: directory below the app's media that it writes to; emptied first.
        over: another file of *results*; once it exists, the others need not come.

    Raises:
        RunError: the app ended, or took too long; with the end of its log.
    """
    directory = f"{MEDIA_FILES.format(app=check_app(app))}/{results}"
    device.script(
        'am force-stop "$1" && rm -rf "$2"',
        app,
        directory,
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
            *(directory, app, str(int(timeout)), str(STARTING_SECONDS), over, *files),
            timeout=timeout + 60.0,
            check=False,
            doing=f"waiting for {app} on {device.serial}",
        )
        if done.exit_code in (GONE, TOO_LONG):
            raise _no_results(device, app, done, timeout)
        if done.exit_code != 0:
            raise _unreadable(done, app, directory)
        return _fetched(device, directory, (*files, over), into)
    finally:
        with contextlib.suppress(AdtError):  # what came before it is what counts
            device.shell(("am", "force-stop", app), check=False)


def _fetched(device: Device, directory: str, names: Sequence[str], into: Path) -> tuple[Path, ...]:
    present = device.script('cd "$1" && for f in *; do echo "$f"; done', directory).out.splitlines()
    came = [name for name in names if name in present]
    for name in came:
        device.pull(f"{directory}/{name}", into / name, timeout=60.0)
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


def _unreadable(done: Completed, app: str, directory: str) -> DeviceError:
    return DeviceError(
        f"cannot look for the results of {app} on {done.serial} in {directory} (exit code {done.exit_code})",
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


@dataclass(frozen=True)
class _Refusal:
    """Meaning of some of the codes."""

    codes: str
    """A pattern of what follows INSTALL_."""
    error: type[AdtError]
    what: str
    remedy: str
    """With SERIAL and APP in it."""


_REFUSALS = (
    _Refusal(
        codes="FAILED_UPDATE_INCOMPATIBLE|FAILED_SHARED_USER_INCOMPATIBLE"
        "|PARSE_FAILED_INCONSISTENT_CERTIFICATES",
        error=DeviceError,
        what="an app of this name is there, signed with another key",
        remedy="Remove it, which also removes its data: adt adb -s SERIAL -- uninstall APP; or make the "
        "APK with the same key (--keystore) or another name (--package).",
    ),
    _Refusal(
        codes="FAILED_VERSION_DOWNGRADE",
        error=DeviceError,
        what="a newer version of this app is there",
        remedy="Remove it, which also removes its data: adt adb -s SERIAL -- uninstall APP.",
    ),
    _Refusal(
        codes="FAILED_NO_MATCHING_ABIS|FAILED_CPU_ABI_INCOMPATIBLE",
        error=MismatchError,
        what="it has no libraries for the ABIs of the device",
        remedy="Make it with a bundle and a package for one: adt build-target --for PLATFORM, adt compile.",
    ),
    _Refusal(
        codes="FAILED_OLDER_SDK",
        error=MismatchError,
        what="the device's Android is older than the APK allows",
        remedy="Build the bundle for that level (adt build-target --api-level LEVEL); make the APK again.",
    ),
    _Refusal(
        codes="FAILED_DEPRECATED_SDK_VERSION|FAILED_NEWER_SDK",
        error=MismatchError,
        what="the device's Android refuses the API level that the APK is made for",
        remedy="Make the APK with a newer adt.",
    ),
    _Refusal(
        codes="FAILED_INSUFFICIENT_STORAGE|FAILED_MEDIA_UNAVAILABLE",
        error=DeviceFull,
        what="there is no room for the app",
        remedy="Make room on the device: remove apps, or `adt clean --serial SERIAL`.",
    ),
    _Refusal(
        codes="FAILED_USER_RESTRICTED|FAILED_VERIFICATION_(FAILURE|TIMEOUT)|FAILED_ABORTED",
        error=DeviceError,
        what="the device's user, or a check of its own, did not allow it",
        remedy='Unlock the device and accept what it shows; "Install via USB" (Xiaomi, Oppo and others) and '
        '"Verify apps over USB" are in its developer options.',
    ),
    _Refusal(
        codes="PARSE_FAILED_NO_CERTIFICATES",
        error=DeviceError,
        what="the APK is not signed so that this Android takes it",
        remedy="Sign it (apksigner sign), or make it with `adt apk`.",
    ),
    _Refusal(
        codes=r"PARSE_FAILED_\w+|FAILED_INVALID_APK|FAILED_BAD_SIGNATURE",
        error=DeviceError,
        what="the device cannot read the APK",
        remedy="Make it again; `apksigner verify APK` and `adt elf APK` say whether it is whole.",
    ),
    _Refusal(
        codes="FAILED_DUPLICATE_PERMISSION|FAILED_CONFLICTING_PROVIDER"
        "|FAILED_MISSING_(SHARED_LIBRARY|SPLIT|FEATURE)",
        error=DeviceError,
        what="something that the APK's manifest names is missing on the device, or belongs to another app",
        remedy="Read the package manager's own words above.",
    ),
)


def _refusal(done: Completed, apk: str, app: str) -> AdtError:
    """Make the error for the output of ``pm install`` of the file *apk* with the application id *app*."""
    output = done.tail()
    begin = f"{apk} was not installed on {done.serial}"
    code = re.search(r"INSTALL_(\w+)|$", output)
    assert code is not None  # the end is always there
    for refusal in _REFUSALS:
        if re.fullmatch(refusal.codes, code[1] or ""):
            remedy = refusal.remedy.replace("SERIAL", done.serial).replace("APP", app or "APP")
            return refusal.error(f"{begin}: {refusal.what}", remedy=remedy, details=output)
    if re.search(r"not enough space|No space left|ENOSPC", output):
        return DeviceFull(
            f"{begin}: there is no room", remedy="Make room on the device: remove apps.", details=output
        )
    return DeviceError(
        f"{begin} (exit code {done.exit_code})",
        remedy="Read the package manager's own message above; `adt adb -- install` of the same file says "
        "the same.",
        details=output,
    )


PACKAGE = re.compile(r"[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z][A-Za-z0-9_]*)+")
"""Names that Android takes for an app."""

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
    """Return *app* if it can be the name of an app, else raise ConfigError."""
    if not PACKAGE.fullmatch(app):
        raise ConfigError(
            f"{app!r} is not the name of an app", remedy="Give its application id, e.g. com.example.app."
        )
    return app


def copy_into_app(device: Device, deployment: Deployment, payload: Payload, app: str) -> PrivateCopy:
    """Copy *deployment* into the directory of *app*, a debuggable app on the device, unless it is there
    already."""
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
    match = re.search(r"^at (/.*)$", done.out, re.MULTILINE)
    if done.exit_code != 0 or match is None:
        raise _copy_failure(done, app)
    return PrivateCopy(app, match[1], copied="copied" in done.out.splitlines())


def _copy_failure(done: Completed, app: str) -> ConfigError | DeviceError | DeviceFull:
    output = f"{done.out}\n{done.err}"
    if re.search(r"unknown package|is unknown", output):
        return ConfigError(
            f"there is no app {app} on {done.serial}",
            remedy=f"Install it first (`adt adb -s {done.serial} -- install APK`); `adt adb -s "
            f"{done.serial} -- shell pm list packages` shows what is there.",
            details=done.tail(),
        )
    if re.search(r"not debuggable|not an application", output):
        return ConfigError(
            f"the app {app} on {done.serial} is not debuggable: only itself may write to its directory",
            remedy="Install its debug variant (android:debuggable), or let the app fetch the files itself.",
            details=done.tail(),
        )
    if re.search(r"run-as: (inaccessible or )?not found|run-as: No such file", output):
        return DeviceError(
            f"device {done.serial} has no run-as",
            remedy="Only Android has it; deploy without --run-as.",
            details=done.tail(),
        )
    if "No space left" in output:
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
