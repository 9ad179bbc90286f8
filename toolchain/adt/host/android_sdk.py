"""Find what an APK is linked and signed with: the user's Android SDK, or Debian's packages of the same."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from adt.errors import SdkError, ToolNotFound
from adt.host.ndk import DEFAULT_SDK, SDK_VARIABLES
from adt.host.process import which

log = logging.getLogger("adt.sdk")

DEBIAN_PACKAGES = ("aapt", "apksigner", "android-framework-res")
"""Debian's packages with these tools; aapt brings aapt2, too."""
DEBIAN_FRAMEWORK = Path("/usr/share/android-framework-res/framework-res.apk")
INSTALL_DEBIAN = f"apt-get install --no-install-recommends {' '.join(DEBIAN_PACKAGES)}"
REMEDY = (
    f"{INSTALL_DEBIAN} (Debian, Ubuntu), or install an Android SDK with build-tools and a platform "
    '(sdkmanager "build-tools;35.0.0" "platforms;android-35") and name it with --sdk or ANDROID_HOME.'
)


@dataclass(frozen=True)
class ApkTools:
    """The programs that make an APK, and the framework whose resources a manifest refers to."""

    aapt2: Path
    apksigner: Path
    framework: Path
    """``android.jar`` of a platform, or Debian's ``framework-res.apk``."""
    origin: str
    """Source of the tools, for people."""


def find_apk_tools(explicit: str = "", *, environ: Mapping[str, str] | None = None) -> ApkTools:
    """Find the tools of the SDK *explicit*, else of the first SDK that has them all, else Debian's."""
    environ = os.environ if environ is None else environ
    if explicit:
        return _of_sdk(Path(explicit).expanduser().absolute(), "--sdk")
    for origin, path in _places(environ):
        try:
            return _of_sdk(path, origin)
        except SdkError as error:
            log.debug("%s", error.what)
    return _of_debian()


def _places(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    for variable in SDK_VARIABLES:
        if value := environ.get(variable):
            yield variable, Path(value).expanduser().absolute()
    default = Path(DEFAULT_SDK).expanduser()
    if default.is_dir():
        yield DEFAULT_SDK, default


def _of_sdk(sdk: Path, origin: str) -> ApkTools:
    """Find the newest build-tools and the newest platform of *sdk*."""
    named = f"the Android SDK {sdk} (from {origin})"
    if not sdk.is_dir():
        raise SdkError(f"{named} is not a directory", remedy="Name the SDK's root directory.")
    tools = _newest(sdk / "build-tools", ("aapt2", "apksigner"))
    if tools is None:
        raise SdkError(
            f"{named} has no build-tools with aapt2 and apksigner",
            remedy='Install them: sdkmanager "build-tools;35.0.0".',
        )
    platform = _newest(sdk / "platforms", ("android.jar",))
    if platform is None:
        raise SdkError(
            f"{named} has no platform with android.jar",
            remedy='Install one: sdkmanager "platforms;android-35".',
        )
    return ApkTools(
        tools / "aapt2",
        tools / "apksigner",
        platform / "android.jar",
        f"{sdk} (from {origin}): build-tools {tools.name}, {platform.name}",
    )


def _newest(directory: Path, files: tuple[str, ...]) -> Path | None:
    """Return the subdirectory with the highest version in its name that has all *files*; None: none has."""

    def version(path: Path) -> tuple[list[int], bool, list[int]]:
        name, candidate, number = path.name.partition("-rc")  # it comes before its release
        numbers = [[int(part) for part in re.findall(r"\d+", text)] for text in (name, number)]
        return numbers[0], not candidate, numbers[1]

    whole = [path for path in directory.glob("*") if all((path / file).is_file() for file in files)]
    return max(whole, key=version, default=None)


def _of_debian() -> ApkTools:
    """Find the same programs as Debian packages them."""
    programs = {name: which(name) for name in ("aapt2", "apksigner")}
    missing = [name for name, path in programs.items() if path is None]
    missing += [] if DEBIAN_FRAMEWORK.is_file() else [str(DEBIAN_FRAMEWORK)]
    aapt2, apksigner = programs["aapt2"], programs["apksigner"]
    if missing or aapt2 is None or apksigner is None:
        raise ToolNotFound(
            f"this machine cannot make an APK: no Android SDK with build-tools and a platform, and no "
            f"{', '.join(missing)}",
            remedy=REMEDY,
        )
    return ApkTools(Path(aapt2), Path(apksigner), DEBIAN_FRAMEWORK, "Debian's packages")
