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
    """Install *apk* over an older one, within *timeout* seconds; messages name it by *app*, if known."""
    if device.script("command -v pm >/dev/null && command -v am >/dev/null", check=False).exit_code != 0:
        raise DeviceError(
            f"{device.serial} has no package manager, so no app can be installed: it is no Android "
            f"({device.facts.label})",
            remedy="Install on an Android device (`adt devices` lists what is connected); on this one "
            "`adt run` and `adt bench` run the package without an app.",
        )
    with workspace(device, f"{user_directory()}/runs") as directory:
        device.push(apk, f"{directory}/app.apk", mode=0o644, progress=progress)
        words = ("pm", "install", "-r", "-t", f"{directory}/app.apk")
        doing = f"installing {apk.name} on {device.serial}"
        done = device.shell(words, timeout=timeout, check=False, doing=doing)
    if done.exit_code != 0 or not re.search(r"^Success", done.out, re.MULTILINE):
        begin = f"{apk.name} was not installed on {device.serial}"
        raise _failure(done, _NOT_INSTALLED, app=app, begin=begin)


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

    It writes to the directory *results* below its media, which is emptied first. The app is stopped at the
    end, however that comes. Once the file *over* exists, the others need not come. Returns the files that
    exist, *over* last; RunError with the end of its log if the app ended, or took too long.
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
        words, doing = ("am", "start", "-n", f"{app}/{activity}"), f"starting {app} on {device.serial}"
        started = device.shell(words, check=False, timeout=60.0, doing=doing)
        if started.exit_code != 0 or re.search(r"^(Error|Exception|java\.)", started.tail(), re.MULTILINE):
            raise _failure(started, _NOT_STARTED, app=app)
        arguments = (directory, app, str(int(timeout)), str(STARTING_SECONDS), over, *files)
        limit, doing = timeout + 60.0, f"waiting for {app} on {device.serial}"
        done = device.script(script("app_wait"), *arguments, timeout=limit, check=False, doing=doing)
        if done.exit_code in (GONE, TOO_LONG):
            raise _no_results(device, app, done, timeout)
        if done.exit_code != 0:
            raise DeviceError(
                f"cannot look for the results of {app} on {done.serial} in {directory} (exit code "
                f"{done.exit_code})",
                remedy="Some devices keep the shell from apps' files: copy them with the device's own file "
                "manager.",
                details=done.tail(),
            )
        present = device.script('cd "$1" && for f in *; do echo "$f"; done', directory).out.splitlines()
        came = [name for name in (*files, over) if name in present]
        for name in came:
            device.pull(f"{directory}/{name}", into / name, timeout=60.0)
        return tuple(into / name for name in came)
    finally:
        with contextlib.suppress(AdtError):  # what came before it is what counts
            device.shell(("am", "force-stop", app), check=False)


def _no_results(device: Device, app: str, done: Completed, timeout: float) -> RunError:
    if done.exit_code == GONE:
        how, advice = "ended", "An app that Android ended had mostly used up the device's memory."
    else:
        how = f"did not come to an end within {timeout:g} s"
        advice = "Keep its screen on; large models need a longer --timeout."
    log = device.script("logcat -d -t 400 -s adt:V DEBUG:V AndroidRuntime:E libc:F | tail -n 40", check=False)
    return RunError(
        f"{app} {how} on {device.serial} without {done.out.strip() or 'its results'}",
        remedy=f"Look at its log: adt adb -s {device.serial} -- logcat -d adt:V DEBUG:V AndroidRuntime:E. "
        + advice,
        details=log.tail(),
    )


@dataclass(frozen=True)
class _Failure:
    """Meaning of the output of a program that failed on the device."""

    pattern: str
    what: str
    """With ``{app}``, ``{serial}`` and ``{code}``, as *remedy*."""
    remedy: str
    error: type[AdtError] = DeviceError


_NOT_STARTED = (
    _Failure(
        "does not exist|unable to resolve|has not been declared",
        "{serial} has no app {app} with the activity that measures",
        "Install one that `adt apk` made: adt install APK.",
        ConfigError,
    ),
    _Failure(
        "",
        "{app} does not start on {serial}",
        "Read the activity manager's own message above; unlock the device, then try again.",
        RunError,
    ),
)
_NOT_INSTALLED = (
    _Failure(
        r"INSTALL_(FAILED_UPDATE_INCOMPATIBLE|FAILED_SHARED_USER_INCOMPATIBLE"
        r"|PARSE_FAILED_INCONSISTENT_CERTIFICATES)\b",
        ": an app of this name is there, signed with another key",
        "Remove it, which also removes its data: adt adb -s {serial} -- uninstall {app}; or make the "
        "APK with the same key (--keystore) or another name (--package).",
    ),
    _Failure(
        r"INSTALL_FAILED_VERSION_DOWNGRADE\b",
        ": a newer version of this app is there",
        "Remove it, which also removes its data: adt adb -s {serial} -- uninstall {app}.",
    ),
    _Failure(
        r"INSTALL_FAILED_(NO_MATCHING_ABIS|CPU_ABI_INCOMPATIBLE)\b",
        ": it has no libraries for the ABIs of the device",
        "Make it with a bundle and a package for one: adt build-target --for PLATFORM, adt compile.",
        MismatchError,
    ),
    _Failure(
        r"INSTALL_FAILED_OLDER_SDK\b",
        ": the device's Android is older than the APK allows",
        "Build the bundle for that level (adt build-target --api-level LEVEL); make the APK again.",
        MismatchError,
    ),
    _Failure(
        r"INSTALL_FAILED_(DEPRECATED_SDK_VERSION|NEWER_SDK)\b",
        ": the device's Android refuses the API level that the APK is made for",
        "Make the APK with a newer adt.",
        MismatchError,
    ),
    _Failure(
        r"INSTALL_FAILED_(INSUFFICIENT_STORAGE|MEDIA_UNAVAILABLE)\b|not enough space|No space left|ENOSPC",
        ": there is no room for the app",
        "Make room on the device: remove apps, or `adt clean --serial {serial}`.",
        DeviceFull,
    ),
    _Failure(
        r"INSTALL_FAILED_(USER_RESTRICTED|VERIFICATION_(FAILURE|TIMEOUT)|ABORTED)\b",
        ": the device's user, or a check of its own, did not allow it",
        'Unlock the device and accept what it shows; "Install via USB" (Xiaomi, Oppo and others) and '
        '"Verify apps over USB" are in its developer options.',
    ),
    _Failure(
        r"INSTALL_PARSE_FAILED_NO_CERTIFICATES\b",
        ": the APK is not signed so that this Android takes it",
        "Sign it (apksigner sign), or make it with `adt apk`.",
    ),
    _Failure(
        r"INSTALL_(PARSE_FAILED_|FAILED_INVALID_APK\b|FAILED_BAD_SIGNATURE\b)",
        ": the device cannot read the APK",
        "Make it again; `apksigner verify APK` and `adt elf APK` say whether it is whole.",
    ),
    _Failure(
        r"INSTALL_FAILED_(DUPLICATE_PERMISSION|CONFLICTING_PROVIDER|MISSING_(SHARED_LIBRARY|SPLIT|FEATURE))\b",
        ": something that the APK's manifest names is missing on the device, or belongs to another app",
        "Read the package manager's own words above.",
    ),
    _Failure(
        "",
        " (exit code {code})",
        "Read the package manager's own message above; `adt adb -- install` of the same file says the same.",
    ),
)
_NOT_COPIED = (
    _Failure(
        "unknown package|is unknown",
        "there is no app {app} on {serial}",
        "Install it first (`adt adb -s {serial} -- install APK`); `adt adb -s {serial} -- shell pm list "
        "packages` shows what is there.",
        ConfigError,
    ),
    _Failure(
        "not debuggable|not an application",
        "the app {app} on {serial} is not debuggable: only itself may write to its directory",
        "Install its debug variant (android:debuggable), or let the app fetch the files itself.",
        ConfigError,
    ),
    _Failure(
        "run-as: (inaccessible or )?not found|run-as: No such file",
        "device {serial} has no run-as",
        "Only Android has it; deploy without --run-as.",
    ),
    _Failure(
        "No space left",
        "device {serial} is full: there is no room for a copy in {app}",
        "Make room on the device: `adt clean --serial {serial}`, or remove apps.",
        DeviceFull,
    ),
    _Failure(
        "",
        "the copy into {app} on {serial} failed (exit code {code})",
        "Read run-as' own message above. A work profile's app or a device policy may forbid it: then "
        "deploy without --run-as.",
    ),
)


def _failure(done: Completed, meanings: Sequence[_Failure], *, app: str = "", begin: str = "") -> AdtError:
    """Make the error of the first of *meanings* that fits the output of *done*; *begin* precedes its text."""
    output = done.tail()
    meaning = next(meaning for meaning in meanings if re.search(meaning.pattern, output))
    names = {"app": app or "APP", "code": done.exit_code}
    what = begin + meaning.what.format(serial=done.serial, **names)
    remedy = meaning.remedy.format(serial=quote(done.serial), **names)
    return meaning.error(what, remedy=remedy, details=output)


PACKAGE = re.compile(r"[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z][A-Za-z0-9_]*)+")

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
    """Copy *deployment* into the directory of *app*, a debuggable app, unless it is there already."""
    check_app(app)
    pairs = [word for file in payload.files for word in (file.sha256, file.name)]
    copy = ("run-as", app, "sh", "-c", script("private_copy"), "sh")
    words = (*copy, deployment.directory, deployment.digest, *pairs)
    limit, doing = device.allow(COPY_SECONDS), f"copying {deployment.name} into {app} on {device.serial}"
    with workspace(device, f"{deployment.base}/runs", uses=deployment.digest):
        done = device.shell(words, timeout=limit, check=False, doing=doing)
    match = re.search(r"^at (/.*)$", done.out, re.MULTILINE)
    if done.exit_code == DAMAGED:
        raise DeviceError(
            f"{done.out.strip()} was copied into {app} with other contents",
            remedy="Try again; if it happens twice, the device's storage is failing.",
        )
    if done.exit_code != 0 or match is None:
        raise _failure(done, _NOT_COPIED, app=app)
    return PrivateCopy(app, match[1], copied="copied" in done.out.splitlines())
