"""The CMake presets: which one a build takes, and what each of them switches on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from adt.bundle.libraries import LIBRARIES, Library
from adt.bundle.platforms import PLATFORMS, PRESETS, Platform, preset_named
from adt.errors import AdtError, ConfigError
from adt.host.directories import resource
from adt.host.ndk import find_ndk
from adt.host.tools import find_tool
from adt.options.sections import BuildSettings, Settings

FILE = "CMakePresets.json"


@dataclass(frozen=True)
class Choice:
    """The preset that a build takes."""

    name: str
    platform: Platform
    opencl: bool
    """The OpenCL runtime is built in."""
    libraries: tuple[Library, ...]
    """Libraries whose runtimes are built in; CLML's implies OpenCL."""

    @property
    def clml(self) -> bool:
        """True if the CLML runtime is built in."""
        return LIBRARIES["clml"] in self.libraries


def choose_preset(options: BuildSettings) -> Choice:
    """Choose the preset for *options*.

    A variant in the platform's name (``linux-aarch64-cpu``) decides; without one, ``clml`` and ``opencl`` do.
    With OpenCL and without CLML the preset is the one with the platform's own name.
    """
    platform, variant = preset_named(options.platform)
    if variant in ("cpu", "opencl") and options.clml:
        raise ConfigError(
            f"{options.platform} has no CLML, but a CLML SDK is given ({options.clml})",
            remedy=f"Choose --for {platform.name}, or leave --clml and build.clml out.",
        )
    clml = variant == "clml" or bool(options.clml)
    opencl = clml or variant == "opencl" or (options.opencl and variant != "cpu")
    if clml and "clml" not in platform.variants:
        having = ", ".join(p.name for p in PLATFORMS.values() if "clml" in p.variants)
        raise ConfigError(f"there is no CLML for {platform.name}", remedy=f"CLML is for {having}.")
    if options.opencl_sdk and (clml or not opencl):
        what = "CLML, which brings its own libOpenCL" if clml else "no OpenCL"
        raise ConfigError(
            f"an OpenCL SDK is given ({options.opencl_sdk}) for a build with {what}",
            remedy="Leave --opencl-sdk and build.opencl_sdk out.",
        )
    suffix = "-clml" if clml else ("" if opencl else "-cpu")
    name = options.platform if variant else platform.name + suffix
    libraries = [
        row for row in LIBRARIES.values() if (clml if row.name == "clml" else getattr(options, row.setting))
    ]
    if options.one_library and (apart := sorted({one.setting.upper() for one in libraries} - {"XNNPACK"})):
        raise ConfigError(
            f"--one-library goes with OpenCL and XNNPACK, not with {', '.join(apart)}",
            remedy="Leave --one-library and build.one_library out, or build without the others.",
        )
    return Choice(name, platform, opencl, tuple(libraries))


@dataclass(frozen=True)
class Preset:
    """One preset that can be named: ``adt build-target --for NAME``, ``cmake --preset NAME``."""

    name: str
    platform: str
    description: str
    opencl: bool
    clml: bool
    rpc: bool
    """True if tvm_rpc is built."""
    alignment: int
    """Bytes; tensor alignment of the runtime."""
    variables: Mapping[str, str]
    """Every cache variable, with what is inherited."""
    buildable: bool
    """This machine has what the build needs."""
    reason: str
    """The compiler that it would take, or what is missing."""
    remedy: str
    """Way to get what is missing; empty when nothing is."""


@cache
def _configure_presets() -> Mapping[str, Mapping[str, Any]]:
    document = json.loads((resource("cmake_presets") / FILE).read_text())
    return {preset["name"]: preset for preset in document["configurePresets"]}


def cache_variables(name: str) -> dict[str, str]:
    """Collect cache variables of the preset *name* and its parents, of which the first wins."""
    preset = _configure_presets()[name]
    inherits = preset.get("inherits", [])
    parents = [inherits] if isinstance(inherits, str) else inherits
    variables: dict[str, str] = {}
    for parent in reversed(parents):
        variables |= cache_variables(parent)
    own = preset.get("cacheVariables", {})
    return variables | {key: str(value["value"]) for key, value in own.items()}


def list_presets(settings: Settings) -> tuple[Preset, ...]:
    """List every preset that can be named, and whether this machine can build it."""
    return tuple(_described(name, settings) for name in PRESETS)


def _described(name: str, settings: Settings) -> Preset:
    platform, _ = PRESETS[name]
    variables = cache_variables(name)
    clml = variables.get("ADT_CLML") == "ON"
    try:
        buildable, reason, remedy = True, _compiler(platform, settings), ""
        if clml:
            from adt.host.opencl_sdk import find_clml

            sdk = find_clml(settings.build.clml, platform.machine)
            reason += f"; CLML SDK {sdk.version} from {sdk.origin}"
    except AdtError as error:
        buildable, reason, remedy = False, error.what, error.remedy
    return Preset(
        name=name,
        platform=platform.name,
        description=_configure_presets()[name]["displayName"],
        opencl=variables["USE_OPENCL"] == "ON",
        clml=clml,
        rpc=variables["USE_CPP_RPC"] == "ON",
        alignment=int(variables["USE_KALLOC_ALIGNMENT"]),
        variables=variables,
        buildable=buildable,
        reason=reason,
        remedy=remedy,
    )


def _compiler(platform: Platform, settings: Settings) -> str:
    if platform.android:
        ndk = find_ndk(settings.build.ndk)
        ndk.compiler(platform.ndk_triple, settings.build.api_level)
        return f"NDK {ndk.revision} from {ndk.origin}"
    return str(find_tool(platform.compiler, remedy=f"apt-get install {platform.packages}").path)
