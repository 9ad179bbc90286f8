"""Platform that a verb works for where none was named: one rule for all verbs."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from adt.bundle.platforms import HOST, PLATFORMS
from adt.errors import AdtError, AmbiguousDevice, ConfigError
from adt.options.option import values_of
from adt.options.request import Request
from adt.options.resolve import Resolved
from adt.options.sections import DeviceSettings, Settings

log = logging.getLogger("adt.platform")

AskedT = TypeVar("AskedT", bound=Request)
ANDROID = "android-arm64-v8a"
SECONDS = 2.0
"""Seconds that a device has to say what it is; a slower one decides nothing."""
WORKERS = 16
"""Devices that are asked at once."""


def with_platform(request: AskedT) -> AskedT:
    """Return *request* with a platform, which its target or bundle may name; else see the rule below."""
    options = values_of(request)
    if options["platform"] or _target_decides(options.get("target")):
        return request
    if bundle := options.get("bundle"):
        from adt.bundle.bundle import load_bundle

        return request.but(platform=load_bundle(bundle, check_hashes=False).manifest.platform)
    return request.but(platform=default_platform(request.resolved))


def _target_decides(target: str | None) -> bool:
    from adt.compiler.targets.parser import parse_target

    return bool(target and parse_target(target).platform)


def default_platform(resolved: Resolved, *, android: bool = False) -> str:
    """Return the platform of the settings, else choose one and log the reason.

    With *android*, or an NDK or API level that the caller names, only Android's platforms count.
    """
    if named := resolved.settings.build.platform:
        return named
    android = android or any(resolved.given(key) for key in ("build.ndk", "build.api_level"))
    name, reason = _chosen(resolved.settings, android)
    log.info("for %s (%s)", name, reason)
    return name


def _chosen(settings: Settings, android: bool) -> tuple[str, str]:
    """Choose the platform of the connected devices, else of the bundles here, else that of most phones."""
    from adt.host.ndk import list_ndks

    devices = _connected(settings.device, android)
    names = sorted(set(devices.values()))
    if len(names) > 1:
        raise AmbiguousDevice(
            "the devices are of several platforms: "
            + ", ".join(f"{serial} is {name}" for serial, name in devices.items()),
            remedy=f"Name one: {' or '.join(f'--for {name}' for name in names)}; or set ANDROID_SERIAL.",
        )
    if names:
        return names[0], "the connected device" + ("s" if len(devices) > 1 else "")
    absent = f"no {'Android ' if android else ''}device is connected"
    ndk = bool(list_ndks(settings.build.ndk))
    built = _built(android, ndk)
    if len(built) == 1:
        return built[0], f"{absent}; {'only ' if built == (HOST,) else ''}a bundle for it was built here"
    if android or ndk:
        return ANDROID, f"{absent}; {'most phones are' if android else 'an NDK is here'}"
    bundles = f"bundles for {' and '.join(built)} were built here" if built else "no bundle was built here"
    raise ConfigError(
        f"no platform is named, {absent}, {bundles} and there is no NDK",
        remedy=f"Without an NDK: --for linux-aarch64 (a board or the virtual device) or --for {HOST} (this "
        f"machine); with one: --for {ANDROID}, once `adt build-target --ndk DIR` has made its bundle.",
    )


def _connected(settings: DeviceSettings, android: bool) -> Mapping[str, str]:
    """Return the platform of each usable device, or of the one that is named, by serial.

    No adb server is started, and where there is no answer from one, other things decide.
    """
    from adt.device import selection
    from adt.device.transport.adb import server_listens

    named = settings.serial or os.environ.get("ANDROID_SERIAL")
    serials: list[str] = []
    with contextlib.suppress(AdtError):
        devices = selection.reachable() if server_listens() else ()
        devices = tuple(device for device in devices if named in (None, "", device.serial))
        for device in devices:
            if not device.ready:
                log.warning("passing over %s: %s", device.serial, device.state)
        serials = [device.serial for device in devices if device.ready]
    with ThreadPoolExecutor(WORKERS) as pool:
        names = list(pool.map(_platform_of, serials))
    return {serial: name for serial, name in zip(serials, names, strict=True) if _counts(name, android)}


def _platform_of(serial: str) -> str:
    """Ask a device for its platform and no more, which takes a third of the time of all its facts."""
    from adt.device import survey
    from adt.device.device import Device
    from adt.device.scripts import script

    try:
        parts = survey.arguments(["machine", "properties"])
        answer = Device(serial).script(script("survey"), *parts, timeout=SECONDS, check=False)
        return survey.parse(answer.out).facts.platforms[0]
    except AdtError as error:
        log.debug("%s: %s", serial, error)
        return ""


def _built(android: bool, ndk: bool) -> tuple[str, ...]:
    """Return the platforms of the bundles here that a verb can work for; this machine's only if alone.

    Without an *ndk* nothing is compiled for Android, though an app can be made of what there is.
    """
    from adt.bundle.bundle import cached_bundles

    names = {bundle.manifest.platform for bundle in cached_bundles()}
    names = {name for name in names if _counts(name, android)}
    if not (android or ndk):
        names = {name for name in names if not PLATFORMS[name].android}
    return tuple(sorted(names - {HOST} or names))


def _counts(name: str, android: bool) -> bool:
    return name in PLATFORMS and (PLATFORMS[name].android or not android)
