"""Platform that a verb works for where none was named: one rule for all verbs."""

from __future__ import annotations

import contextlib
import logging
import os
from concurrent.futures import ThreadPoolExecutor

from adt.bundle.bundle import cached_bundles, load_bundle
from adt.bundle.platforms import ANDROID, HOST, PLATFORMS
from adt.errors import AdtError, AmbiguousDevice, ConfigError
from adt.options.option import values_of
from adt.options.request import Request
from adt.options.resolve import Resolved, override
from adt.options.sections import DeviceSettings

log = logging.getLogger("adt.platform")

SECONDS = 2.0
"""Seconds that a device has to say what it is; a slower one decides nothing."""


def with_platform(request: Request) -> Resolved:
    """Return the settings of *request*, with the platform of its bundle or the default if they name none."""
    from adt.compiler.targets.parser import parse_target

    options, resolved = values_of(request), request.resolved
    if options["platform"] or parse_target(options.get("target") or "cpu").platform:
        return resolved
    if bundle := options.get("bundle"):
        name = load_bundle(bundle, check_hashes=False).manifest.platform
    else:
        name = default_platform(resolved)
    return override(resolved, {"build.platform": name})


def default_platform(resolved: Resolved, *, android: bool = False) -> str:
    """Return the platform of the settings, else of the devices, else of the bundles here; log the reason.

    With *android*, or an NDK or API level that the caller names, only Android's platforms count.
    """
    from adt.host.ndk import list_ndks

    build = resolved.settings.build
    if build.platform:
        return build.platform
    android = android or any(resolved.given(key) for key in ("build.ndk", "build.api_level"))
    compiles_android = android or bool(list_ndks(build.ndk))
    eligible = {name for name, platform in PLATFORMS.items() if platform.android or not android}
    connected = _connected(resolved.settings.device, eligible)
    built = {bundle.manifest.platform for bundle in cached_bundles()} & eligible
    built -= set() if compiles_android else {name for name in built if PLATFORMS[name].android}
    built = built - {HOST} or built  # it counts where there is no other
    if connected:
        name, reason = connected, "the connected device"
    elif len(built) == 1:
        name, reason = built.pop(), "the bundle that was built here"
    elif compiles_android:
        name, reason = ANDROID, "as most phones are"
    else:
        bundles = f"bundles for {' and '.join(sorted(built))} were" if built else "no bundle was"
        raise ConfigError(
            f"no platform is named, no usable device is connected, {bundles} built here and there is no NDK",
            remedy="Without an NDK: --for linux-aarch64 (a board or the virtual device) or --for host (this "
            f"machine); with one: --for {ANDROID}, after `adt build-target --ndk DIR`.",
        )
    log.info("for %s (%s)", name, reason)
    return name


def _connected(settings: DeviceSettings, eligible: set[str]) -> str:
    """Return the platform of the connected devices, or of the one that is named; empty without any.

    No adb server is started: where none answers, other things decide.
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
    with ThreadPoolExecutor() as pool:
        answers = zip(serials, pool.map(_platform_of, serials), strict=True)
    platforms = {serial: name for serial, name in answers if name in eligible}
    names = sorted(set(platforms.values()))
    if len(names) > 1:
        raise AmbiguousDevice(
            f"no platform is named: {', '.join(f'{serial} is {name}' for serial, name in platforms.items())}",
            remedy=f"Give {' or '.join(f'--for {name}' for name in names)}, or set ANDROID_SERIAL.",
        )
    return "".join(names)


def _platform_of(serial: str) -> str:
    """Ask a device for its platform alone, in a third of the time of all facts; empty without an answer."""
    from adt.device import device, survey
    from adt.device.scripts import script

    parts = survey.arguments(["machine", "properties"])
    with contextlib.suppress(AdtError):
        answer = device.Device(serial).script(script("survey"), *parts, timeout=SECONDS, check=False)
        return survey.parse(answer.out).facts.platforms[0]
    return ""
