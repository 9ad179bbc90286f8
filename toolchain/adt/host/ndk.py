"""Find the Android NDK, and what makes an APK (an SDK's tools, or Debian's), and say how it was found."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from adt.errors import NdkError, SdkError, ToolNotFound
from adt.host.document import form
from adt.host.process import which

log = logging.getLogger("adt.ndk")

VARIABLES = ("ANDROID_NDK_HOME", "ANDROID_NDK_ROOT", "ANDROID_NDK_PATH", "NDK_HOME", "ANDROID_NDK")
"""Looked at in this order, after ``--ndk``; the last one is what the presets and generated projects read."""
SDK_VARIABLES = ("ANDROID_HOME", "ANDROID_SDK_ROOT")
DEFAULT_SDK = "~/Android/Sdk"
"""Path of Android Studio's SDK on Linux."""
LOWEST_API_LEVEL = 21
"""The first one whose bionic has all that adt's code and TVM's runtime call; 32-bit NDKs go lower."""
MINIMUM = 23
"""The first NDK with LLVM's binutils alone, which the toolchain file and our strip step count on."""
NEWEST_KNOWN = 30
"""A newer one is tried, with a warning."""
HOST_TAG = "linux-x86_64"


@dataclass(frozen=True)
class Known:
    """Facts about a range of NDK releases."""

    first: int
    last: int
    verdict: str
    """``too old``, ``known good``, ``not tried`` or ``too new``."""
    reason: str


_OLD_BINUTILS = "GNU binutils are still in it; the build uses LLVM's, which r23 made the only ones"
_SMALL_PAGES = "16 KB pages come from our linker flags; its libc++_shared.so has 4 KB pages"
_RAN = "TVM 0.25's runtime built with its sysroot ran on bionic; its libc++_shared.so has 4 KB pages"
KNOWN = (
    Known(0, MINIMUM - 1, "too old", _OLD_BINUTILS),
    Known(23, 23, "not tried", _SMALL_PAGES),
    Known(24, 24, "known good", _RAN),
    Known(25, 26, "not tried", _SMALL_PAGES),
    Known(27, 27, "not tried", "16 KB pages with ANDROID_SUPPORT_FLEXIBLE_PAGE_SIZES, which the presets set"),
    Known(28, NEWEST_KNOWN, "not tried", "16 KB pages are its default"),
    Known(NEWEST_KNOWN + 1, 999, "too new", "newer than this adt; it is tried as it is"),
)
"""Every NDK release, with what is known of it and why."""


@dataclass(frozen=True)
class Ndk:
    """An Android NDK on this machine."""

    path: Path
    revision: str
    """``Pkg.Revision``, e.g. ``27.2.12479018``."""
    description: str
    """``Pkg.Desc``: what the directory says it is."""
    origin: str
    """Source of the path: ``--ndk``, ``ANDROID_NDK_HOME``, …"""

    @property
    def major(self) -> int:
        """The number in r27, r28, …"""
        return int(self.revision.split(".")[0])

    @property
    def toolchain_file(self) -> Path:
        return self.path / "build/cmake/android.toolchain.cmake"

    @property
    def bin(self) -> Path:
        """Directory of clang and the binutils for this host."""
        return self.path / "toolchains/llvm/prebuilt" / HOST_TAG / "bin"

    @property
    def known(self) -> Known:
        """The row of :data:`KNOWN` for this release."""
        return next(row for row in KNOWN if row.first <= self.major <= row.last)

    def api_levels(self, triple: str = "aarch64-linux-android") -> tuple[int, int] | None:
        """Return the lowest and highest API level for *triple*; None without a compiler for it."""
        levels = sorted(
            int(found[1])
            for file in self.bin.glob(f"{triple}*-clang++")
            if (found := re.fullmatch(rf"{re.escape(triple)}(\d+)-clang\+\+", file.name))
            and int(found[1]) >= LOWEST_API_LEVEL
        )
        if not levels:
            return None
        try:
            stated = json.loads((self.path / "meta/platforms.json").read_text())
            return max(int(stated["min"]), levels[0]), min(int(stated["max"]), levels[-1])
        except (OSError, ValueError, KeyError, TypeError):
            return levels[0], levels[-1]

    def compiler(self, triple: str, api_level: int) -> Path:
        """Return the C++ compiler for *triple* (e.g. ``aarch64-linux-android``) at *api_level*."""
        wrapper = self.bin / f"{triple}{api_level}-clang++"
        levels = self.api_levels(triple)
        if levels and levels[0] <= api_level <= levels[1] and wrapper.is_file():
            return wrapper
        span = f"it has {levels[0]} to {levels[1]}" if levels else f"it has no {triple} compiler at all"
        raise NdkError(
            f"the NDK {self.path} cannot compile for API level {api_level}: {span}",
            remedy="Choose another --api-level, or another NDK.",
        )


def find_ndk(explicit: str = "", *, environ: Mapping[str, str] = os.environ) -> Ndk:
    """Return the NDK to use; a warning names other places that disagree."""
    places = list(_places(explicit, environ))
    if not places:
        looked = ", ".join(("--ndk", *VARIABLES, "$ANDROID_HOME/ndk", f"{DEFAULT_SDK}/ndk"))
        raise NdkError(
            f"no Android NDK was found (looked at {looked})",
            remedy="Install one (Android Studio's SDK manager, or sdkmanager 'ndk;28.2.13676358') and pass"
            " --ndk DIR. Without one, `--for linux-aarch64` builds with Debian's cross GCC.",
        )
    (origin, path), *others = places
    chosen = _validated(path, origin)
    if chosen.major > NEWEST_KNOWN:
        log.warning("NDK %s is %s: %s", chosen.revision, chosen.known.verdict, chosen.known.reason)
    for other_origin, other in others:
        if other.resolve() != path.resolve() and not other_origin.endswith("/ndk"):
            log.warning("%s names %s, but %s is used (from %s)", other_origin, other, path, origin)
    return chosen


def _facts(ndk: Ndk | None) -> dict[str, object] | None:
    if ndk is None:
        return None
    known = {"verdict": ndk.known.verdict, "reason": ndk.known.reason}
    return {"revision": ndk.revision, **known, "api_levels": ndk.api_levels()}


@dataclass(frozen=True)
class Listed:
    """One place that could hold an NDK, and what is there."""

    path: Path
    origin: str
    ndk: Ndk | None = field(metadata=form(convert=_facts))
    problem: str
    """Reason why it cannot be used; empty when it can."""
    chosen: bool
    """:func:`find_ndk` would take this one."""


def list_ndks(explicit: str = "", *, environ: Mapping[str, str] = os.environ) -> tuple[Listed, ...]:
    """List every place where an NDK could be, in the order in which they are looked at."""
    listed: list[Listed] = []
    for origin, path in _places(explicit, environ, all_versions=True):
        if any(path.resolve() == other.path.resolve() for other in listed):
            continue
        try:
            listed.append(Listed(path, origin, _validated(path, origin), "", not listed))
        except NdkError as error:
            listed.append(Listed(path, origin, None, error.what, not listed))
    return tuple(listed)


def tool_environment(ndk: Ndk, triple: str, api_level: int) -> dict[str, str]:
    """Return variables for other build tools that should use the same NDK: compilers, binutils, TVM's own."""
    cxx = ndk.compiler(triple, api_level)
    tools = {"AR": "llvm-ar", "RANLIB": "llvm-ranlib", "STRIP": "llvm-strip", "NM": "llvm-nm"}
    return {
        **dict.fromkeys(("ANDROID_NDK_HOME", "ANDROID_NDK_ROOT", "ANDROID_NDK"), str(ndk.path)),
        "CC": str(cxx.with_name(cxx.name.removesuffix("++"))),
        "CXX": str(cxx),
        **{name: str(ndk.bin / tool) for name, tool in tools.items()},
        "TVM_NDK_CC": str(cxx),
        "CMAKE_TOOLCHAIN_FILE": str(ndk.toolchain_file),
    }


def _places(
    explicit: str, environ: Mapping[str, str], *, all_versions: bool = False
) -> Iterator[tuple[str, Path]]:
    if explicit:
        yield "--ndk", Path(explicit).expanduser().absolute()
    for variable in VARIABLES:
        if value := environ.get(variable):
            yield variable, Path(value).expanduser().absolute()
    for origin, sdk in _sdk_places(environ):
        ndks = sorted(filter(Path.is_dir, sdk.glob("ndk/*")), key=_version, reverse=True)
        for directory in ndks if all_versions else ndks[:1]:
            yield f"{'$' if origin in SDK_VARIABLES else ''}{origin}/ndk", directory


def _sdk_places(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    for variable in SDK_VARIABLES:
        if value := environ.get(variable):
            yield variable, Path(value).expanduser().absolute()
    default = Path(DEFAULT_SDK).expanduser()
    if default.is_dir():
        yield DEFAULT_SDK, default


def _version(path: Path) -> tuple[list[int], bool, list[int]]:
    """Return the version in the name of *path*, for sorting; a release comes after its candidates."""
    name, candidate, number = path.name.partition("-rc")
    numbers = [[int(part) for part in re.findall(r"\d+", text)] for text in (name, number)]
    return numbers[0], not candidate, numbers[1]


def _validated(path: Path, origin: str) -> Ndk:
    if not path.is_dir():
        raise NdkError(f"{path} (from {origin}) is not a directory", remedy="Name the NDK's root directory.")
    properties = path / "source.properties"
    if not properties.is_file():
        nested = [d for d in sorted(path.glob("*/source.properties")) if "Pkg.Revision" in d.read_text()]
        hint = f" {nested[-1].parent} looks like one." if nested else ""
        raise NdkError(
            f"{path} (from {origin}) is no Android NDK: source.properties is missing.{hint}",
            remedy="Name the directory that holds source.properties, toolchains/ and build/.",
        )
    text = properties.read_text(errors="replace")
    facts = {k.strip(): v.strip() for k, _, v in (line.partition("=") for line in text.splitlines())}
    revision = facts.get("Pkg.Revision", "")
    if not re.match(r"\d+\.", revision):
        raise NdkError(
            f"{properties} has no Pkg.Revision", remedy="This NDK is damaged or is no NDK: install it again."
        )
    ndk = Ndk(path, revision, facts.get("Pkg.Desc", ""), origin)
    if ndk.major < MINIMUM:
        good = next(row.first for row in KNOWN if row.verdict == "known good")
        raise NdkError(
            f"NDK {revision} ({path}, from {origin}) is too old: TVM's runtime needs r{MINIMUM} or newer",
            remedy=f"Install r{good}, which is known to work; others from r{MINIMUM} to "
            f"r{NEWEST_KNOWN} are taken but were not tried.",
        )
    others = sorted(host.name for host in path.glob("toolchains/llvm/prebuilt/*") if host.is_dir())
    if others and not ndk.bin.is_dir():
        raise NdkError(
            f"the NDK {path} (from {origin}) is for {', '.join(others)}: it has no {HOST_TAG} tools",
            remedy="Install the NDK for Linux.",
        )
    for needed in (ndk.toolchain_file, ndk.bin / "clang++"):
        if not needed.exists():
            raise NdkError(
                f"the NDK {path} (from {origin}) is incomplete: {needed.relative_to(path)} is missing",
                remedy="Install it again, for a Linux x86_64 host.",
            )
    return ndk


DEBIAN_FRAMEWORK = Path("/usr/share/android-framework-res/framework-res.apk")
REMEDY = (
    "apt-get install --no-install-recommends aapt apksigner android-framework-res (Debian, Ubuntu), or "
    "install an Android SDK with build-tools and a platform "
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


def find_apk_tools(explicit: str = "", *, environ: Mapping[str, str] = os.environ) -> ApkTools:
    """Find the tools of the SDK *explicit*, else of the first SDK that has them all, else Debian's."""
    if explicit:
        return _of_sdk(Path(explicit).expanduser().absolute(), "--sdk")
    for origin, path in _sdk_places(environ):
        try:
            return _of_sdk(path, origin)
        except SdkError as error:
            log.debug("%s", error.what)
    return _of_debian()


def _of_sdk(sdk: Path, origin: str) -> ApkTools:
    """Find the newest build-tools and the newest platform of *sdk*."""
    named = f"the Android SDK {sdk} (from {origin})"
    if not sdk.is_dir():
        raise SdkError(f"{named} is not a directory", remedy="Name the SDK's root directory.")
    if (tools := _newest(sdk / "build-tools", ("aapt2", "apksigner"))) is None:
        remedy = 'Install them: sdkmanager "build-tools;35.0.0".'
        raise SdkError(f"{named} has no build-tools with aapt2 and apksigner", remedy=remedy)
    if (platform := _newest(sdk / "platforms", ("android.jar",))) is None:
        remedy = 'Install one: sdkmanager "platforms;android-35".'
        raise SdkError(f"{named} has no platform with android.jar", remedy=remedy)
    origin = f"{sdk} (from {origin}): build-tools {tools.name}, {platform.name}"
    return ApkTools(tools / "aapt2", tools / "apksigner", platform / "android.jar", origin)


def _newest(directory: Path, files: tuple[str, ...]) -> Path | None:
    """Return the subdirectory with the highest version in its name that has all *files*; None: none has."""
    whole = [path for path in directory.glob("*") if all((path / file).is_file() for file in files)]
    return max(whole, key=_version, default=None)


def _of_debian() -> ApkTools:
    """Find the same programs as Debian packages them."""
    aapt2, apksigner = which("aapt2"), which("apksigner")
    if aapt2 and apksigner and DEBIAN_FRAMEWORK.is_file():
        return ApkTools(Path(aapt2), Path(apksigner), DEBIAN_FRAMEWORK, "Debian's packages")
    parts = {"aapt2": aapt2, "apksigner": apksigner, str(DEBIAN_FRAMEWORK): DEBIAN_FRAMEWORK.is_file()}
    missing = ", ".join(name for name, present in parts.items() if not present)
    raise ToolNotFound(
        f"this machine cannot make an APK: no Android SDK with build-tools and a platform, and no {missing}",
        remedy=REMEDY,
    )
