"""Decide, before anything runs, which preset a build takes, what it depends on and where it goes."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adt.bundle.libraries import LIBRARIES, Library
from adt.bundle.platforms import PLATFORMS, PRESETS, Platform, preset_named
from adt.errors import AdtError, ConfigError
from adt.host import cache, download
from adt.host.contained import damaged
from adt.host.directories import resource
from adt.host.ndk import Ndk, find_ndk
from adt.host.process import compiler_identity, find_tool
from adt.host.sources import TvmSource, find_source, find_xnnpack
from adt.options.sections import BuildSettings, Settings

if TYPE_CHECKING:
    from adt.host.opencl_sdk import OpenClSdk

FILE = "CMakePresets.json"
CLML, XNNPACK = LIBRARIES["clml"], LIBRARIES["xnnpack"]


@dataclass(frozen=True)
class Choice:
    """The preset that a build takes."""

    name: str
    platform: Platform
    opencl: bool
    libraries: tuple[Library, ...]
    """Libraries whose runtimes are built in; CLML's implies OpenCL."""

    @property
    def clml(self) -> bool:
        """True if the CLML runtime is built in."""
        return CLML in self.libraries


def choose_preset(options: BuildSettings) -> Choice:
    """Choose the preset for *options*; first a variant in the platform's name decides (``host-cpu``)."""
    platform, variant = preset_named(options.platform)
    if variant in ("cpu", "opencl") and options.clml:
        raise ConfigError(
            f"{options.platform} has no CLML, but a CLML SDK is given ({options.clml})",
            remedy=f"Choose --for {platform.name}, or leave --clml and build.clml out.",
        )
    clml = variant == CLML.name or bool(options.clml)
    opencl = clml or variant == "opencl" or (options.opencl and variant != "cpu")
    if clml and CLML.name not in platform.variants:
        having = ", ".join(p.name for p in PLATFORMS.values() if CLML.name in p.variants)
        raise ConfigError(f"there is no CLML for {platform.name}", remedy=f"CLML is for {having}.")
    if options.cuda and not platform.cuda:
        having = ", ".join(p.name for p in PLATFORMS.values() if p.cuda)
        raise ConfigError(
            f"there is no CUDA for {platform.name}",
            remedy=f"Leave --cuda and build.cuda out, or build for one of: {having}.",
        )
    if options.opencl_sdk and (clml or not opencl):
        what = "CLML, which brings its own libOpenCL" if clml else "no OpenCL"
        raise ConfigError(
            f"an OpenCL SDK is given ({options.opencl_sdk}) for a build with {what}",
            remedy="Leave --opencl-sdk and build.opencl_sdk out.",
        )
    suffix = "-clml" if clml else ("" if opencl else "-cpu")
    name = options.platform if variant else platform.name + suffix
    libraries = [
        row for row in LIBRARIES.values() if (clml if row is CLML else getattr(options, row.setting))
    ]
    if options.one_library and (others := sorted({r.setting.upper() for r in libraries if not r.separate})):
        raise ConfigError(
            f"--one-library goes with OpenCL and XNNPACK, not with {', '.join(others)}",
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


@functools.cache
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
    clml = variables.get(CLML.variable) == "ON"
    try:
        compiler, ndk = _compiler(platform, settings.build)
        buildable, remedy = True, ""
        reason = f"NDK {ndk.revision} from {ndk.origin}" if ndk else str(compiler)
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


def _compiler(platform: Platform, options: BuildSettings) -> tuple[Path, Ndk | None]:
    if platform.android:
        ndk = find_ndk(options.ndk)
        return ndk.compiler(platform.ndk_triple, options.api_level), ndk
    native = os.environ.get("CXX") if platform.name == "host" else ""  # toolchain files name the others
    remedy = f"apt-get install {platform.packages}"
    return find_tool(native or platform.compiler, remedy=remedy).path, None


ONE_LIBRARY = "ADT_ONE_LIBRARY"
"""CMake's variable, which links TVM's runtime into libadt_runner."""
FLAGS = ("CFLAGS", "CXXFLAGS", "LDFLAGS")
"""Variables of the environment that CMake takes compiler and linker flags from."""


@dataclass(frozen=True)
class BuildPlan:
    """Everything a build depends on, before anything runs."""

    platform: Platform
    preset: str
    source: TvmSource
    ndk: Ndk | None
    clml: OpenClSdk | None
    options: BuildSettings
    identity: Mapping[str, str]
    """Everything that decides the bundle's bytes, by name; its digest names the directories.

    No path or time is in it: a copied cache has the same bundles.
    """
    definitions: tuple[str, ...]
    """``-D`` arguments on top of the preset."""
    build_dir: Path
    bundle_dir: Path

    @property
    def presets(self) -> Path:
        """The build's own copy of cmake_presets/, with cpp_runner/ beside it."""
        return self.build_dir / "source/cmake_presets"


def plan_build(settings: Settings) -> BuildPlan:
    """Find the tools and the source, and name the directories; builds nothing."""
    build = settings.build
    choice = choose_preset(build)
    platform = choice.platform
    compiler, ndk = _compiler(platform, build)
    clml = opencl_sdk = None
    if choice.clml or build.opencl_sdk:
        from adt.host.opencl_sdk import find_clml, find_opencl_sdk  # only where a build takes an SDK

        clml = find_clml(build.clml, platform.machine) if choice.clml else None
        opencl_sdk = find_opencl_sdk(build.opencl_sdk, platform.machine)
    source = find_source(settings.tvm)
    options = _options(build, choice, ndk)
    places = {"ADT_TVM_SOURCE": source.path}
    identity = {
        **options,
        "TVM source": source.digest,
        "compiler": compiler_identity(compiler),
        "NDK": ndk.revision if ndk else "",
        **{name: os.environ[name] for name in FLAGS if os.environ.get(name)},
    }
    if ndk:
        places["ADT_NDK"] = ndk.path
    if clml:
        places["ADT_CLML_SDK"] = clml.path
        identity["CLML SDK"] = f"version {clml.version}, {clml.digest}"
    if opencl_sdk:
        places["ADT_OPENCL_SDK"] = opencl_sdk.path
        identity["OpenCL SDK"] = opencl_sdk.digest
    if build.cuda:
        places["ADT_CUDA_HEADERS"] = cuda_headers()
        identity["CUDA headers"] = CUDA_WHEEL.sha256
    if build.xnnpack:
        xnnpack = find_xnnpack(build.xnnpack_source)
        places["ADT_XNNPACK_SOURCE"] = xnnpack.path
        identity[XNNPACK.title] = xnnpack.digest
    apart = {ONE_LIBRARY, *(name for r in LIBRARIES.values() if r.separate for name in (r.title, r.variable))}
    rest = {name: value for name, value in identity.items() if name not in apart}
    root = cache.cache_dir()
    return BuildPlan(
        platform,
        choice.name,
        source,
        ndk,
        clml,
        build,
        identity,
        tuple(f"-D{name}={value}" for name, value in {**options, **places}.items()),
        build_dir=root / "build" / _key(platform, rest),
        bundle_dir=root / "bundles" / _key(platform, identity),
    )


def _key(platform: Platform, identity: Mapping[str, str]) -> str:
    """Return the name of a directory for what has this *identity*."""
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
    return f"{platform.name}-{digest[:12]}"


def _options(options: BuildSettings, choice: Choice, ndk: Ndk | None) -> dict[str, str]:
    """Return the CMake variables that decide the result, besides those that say where something lies."""
    values = {
        "USE_OPENCL": "ON" if choice.opencl else "OFF",
        "USE_CPP_RPC": "ON" if options.rpc else "OFF",
        **({ONE_LIBRARY: "ON"} if options.one_library else {}),
        "USE_KALLOC_ALIGNMENT": str(options.alignment or choice.platform.alignment),
        "CMAKE_BUILD_TYPE": options.build_type,
    }
    if ndk:
        values["ANDROID_PLATFORM"] = f"android-{options.api_level}"
    return values | {library.variable: "ON" for library in choice.libraries}


CUDA_WHEEL = download.RegistryFile(
    project="nvidia-cuda-runtime-cu12",
    filename="nvidia_cuda_runtime_cu12-12.9.79-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl",
    sha256="25bba2dfb01d48a9b59ca474a1ac43c6ebf7011f1b0b8cc44f54eb6ac48a96c3",
)
"""Package of CUDA's headers, which are the same for each machine. 3.5 MB."""
CUDA_HEADER = "nvidia/cuda_runtime/include/cuda.h"


def cuda_headers() -> Path:
    """Return the directory with ``cuda.h``, fetched once."""
    path, _ = cache.entry(f"cuda-headers/{CUDA_WHEEL.sha256[:12]}", _unpack_cuda_headers)
    return path


def _unpack_cuda_headers(directory: Path) -> None:
    archive = download.fetch(CUDA_WHEEL)
    try:
        with zipfile.ZipFile(archive) as wheel:
            text = wheel.read(CUDA_HEADER)
    except (zipfile.BadZipFile, KeyError) as error:
        raise damaged(archive, error) from error
    (directory / "cuda.h").write_bytes(text)
