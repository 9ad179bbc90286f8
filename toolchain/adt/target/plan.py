"""Decide what a build depends on and where it goes, before anything runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from adt.config.settings import BuildSettings, Settings
from adt.errors import ConfigError
from adt.host import cache
from adt.host.ndk import Ndk, find_ndk
from adt.host.tools import find_tool
from adt.host.tvm_source import TvmSource, find_source
from adt.target.platforms import NNAPI_API_LEVEL, Platform
from adt.target.presets import Choice, choose_preset

if TYPE_CHECKING:
    from adt.host.clml import ClmlSdk
    from adt.host.opencl_sdk import OpenClSdk


@dataclass(frozen=True)
class BuildPlan:
    """Everything a build depends on, before anything runs."""

    platform: Platform
    preset: str
    """Name of the CMake preset."""
    source: TvmSource
    ndk: Ndk | None
    clml: ClmlSdk | None
    options: BuildSettings
    identity: Mapping[str, str]
    """Everything that decides the result, by name; its digest names the directories."""
    definitions: tuple[str, ...]
    """``-D`` arguments on top of the preset."""
    build_dir: Path
    bundle_dir: Path

    @property
    def presets(self) -> Path:
        """The build's own copy of cmake_presets/, with cpp_runner/ beside it."""
        return self.build_dir / "source/cmake_presets"


def plan_build(settings: Settings) -> BuildPlan:
    """Find the tools and the source, and name the directories; builds nothing.

    Raises:
        ConfigError: the platform is unknown, or options contradict each other.
        ToolNotFound, NdkError, SourceError, SdkError: something that the build needs is missing.
    """
    choice = choose_preset(settings.build)
    _check_nnapi(settings.build, choice)
    platform = choice.platform
    ndk = find_ndk(settings.build.ndk) if platform.android else None
    if ndk:
        compiler = ndk.compiler(platform.ndk_triple, settings.build.api_level)
    else:
        compiler = find_tool(platform.compiler, remedy=f"apt-get install {platform.packages}").path
    clml, opencl_sdk = _sdks(settings.build, choice)
    source = find_source(settings.tvm)
    definitions = _definitions(settings.build, choice, source, ndk, clml, opencl_sdk)
    stat = compiler.stat()
    identity = {
        **dict(word.removeprefix("-D").split("=", 1) for word in definitions),
        "TVM source": source.digest,
        "compiler": f"{compiler}, {stat.st_size} bytes, of {stat.st_mtime_ns}",
        "NDK": ndk.revision if ndk else "",
    }
    if clml:
        identity["CLML SDK"] = f"version {clml.version}, {clml.digest}"
    if opencl_sdk:
        identity["OpenCL SDK"] = opencl_sdk.digest
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
    key = f"{platform.name}-{digest[:12]}"
    root = cache.cache_dir()
    return BuildPlan(
        platform,
        choice.name,
        source,
        ndk,
        clml,
        settings.build,
        identity,
        definitions,
        build_dir=root / "build" / key,
        bundle_dir=root / "bundles" / key,
    )


def _check_nnapi(options: BuildSettings, choice: Choice) -> None:
    """NNAPI is Android's, and TVM's runtime for it calls functions of API level 29."""
    if options.nnapi and not choice.platform.android:
        raise ConfigError(
            f"NNAPI is Android's, and the platform is {choice.platform.name}",
            remedy="Leave --nnapi and build.nnapi out, or build --for android-arm64-v8a.",
        )
    if options.nnapi and options.api_level < NNAPI_API_LEVEL:
        raise ConfigError(
            f"NNAPI takes what TVM gives it from API level {NNAPI_API_LEVEL}; this is {options.api_level}",
            remedy=f"Add --api-level {NNAPI_API_LEVEL}, or leave --nnapi out.",
        )


def _sdks(options: BuildSettings, choice: Choice) -> tuple[ClmlSdk | None, OpenClSdk | None]:
    """The SDKs that the build was asked to use; what reads them is imported only then."""
    clml = opencl_sdk = None
    if choice.clml:
        from adt.host.clml import find_clml

        clml = find_clml(options.clml, choice.platform.machine)
    if options.opencl_sdk:
        from adt.host.opencl_sdk import find_opencl_sdk

        opencl_sdk = find_opencl_sdk(options.opencl_sdk, choice.platform.machine)
    return clml, opencl_sdk


def _definitions(
    options: BuildSettings,
    choice: Choice,
    source: TvmSource,
    ndk: Ndk | None,
    clml: ClmlSdk | None,
    opencl_sdk: OpenClSdk | None,
) -> tuple[str, ...]:
    values = {
        "ADT_TVM_SOURCE": str(source.path),
        "USE_OPENCL": "ON" if choice.opencl else "OFF",
        "USE_CPP_RPC": "ON" if options.rpc else "OFF",
        "USE_KALLOC_ALIGNMENT": str(options.alignment or choice.platform.alignment),
        "CMAKE_BUILD_TYPE": options.build_type,
    }
    if ndk:
        values |= {"ADT_NDK": str(ndk.path), "ANDROID_PLATFORM": f"android-{options.api_level}"}
    if clml:
        values |= {"ADT_CLML": "ON", "ADT_CLML_SDK": str(clml.path)}
    if options.nnapi:
        values["USE_NNAPI_RUNTIME"] = "ON"
    if opencl_sdk:
        values["ADT_OPENCL_SDK"] = str(opencl_sdk.path)
    return tuple(f"-D{name}={value}" for name, value in values.items())
