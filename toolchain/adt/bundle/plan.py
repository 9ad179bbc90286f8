"""Decide what a build depends on and where it goes, before anything runs."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from adt.bundle.libraries import XNNPACK_VARIABLE
from adt.bundle.platforms import PLATFORMS, Platform
from adt.bundle.presets import Choice, choose_preset
from adt.errors import ConfigError
from adt.host import cache
from adt.host.contained import damaged
from adt.host.ndk import Ndk, find_ndk
from adt.host.tools import compiler_identity, find_tool
from adt.host.tvm_source import TvmSource, find_source
from adt.options.sections import BuildSettings, Settings

if TYPE_CHECKING:
    from adt.host.opencl_sdk import ClmlSdk, OpenClSdk


import zipfile

from adt.host import download

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
    clml: ClmlSdk | None
    options: BuildSettings
    identity: Mapping[str, str]
    """Everything that decides the bundle's bytes, by name; its digest names the directories.

    No path and no time is in it: a copied or moved environment has the same bundles.
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
    choice = choose_preset(settings.build)
    _check_cuda(settings.build, choice)
    platform = choice.platform
    ndk = find_ndk(settings.build.ndk) if platform.android else None
    if ndk:
        compiler = ndk.compiler(platform.ndk_triple, settings.build.api_level)
    else:
        native = os.environ.get("CXX") if platform.name == "host" else ""  # toolchain files name the others
        compiler = find_tool(native or platform.compiler, remedy=f"apt-get install {platform.packages}").path
    clml, opencl_sdk = _sdks(settings.build, choice)
    source = find_source(settings.tvm)
    options = _options(settings.build, choice, ndk)
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
    if settings.build.cuda:
        places["ADT_CUDA_HEADERS"] = cuda_headers()
        identity["CUDA headers"] = CUDA_WHEEL.sha256
    if settings.build.xnnpack:
        from adt.host.xnnpack_source import find_xnnpack

        xnnpack = find_xnnpack(settings.build.xnnpack_source)
        places["ADT_XNNPACK_SOURCE"] = xnnpack.path
        identity["XNNPACK"] = xnnpack.digest
    # They change nothing of the rest: a bundle with them is built where that without is, of the same objects.
    apart = ("XNNPACK", XNNPACK_VARIABLE, ONE_LIBRARY)
    rest = {name: value for name, value in identity.items() if name not in apart}
    root = cache.cache_dir()
    return BuildPlan(
        platform,
        choice.name,
        source,
        ndk,
        clml,
        settings.build,
        identity,
        tuple(f"-D{name}={value}" for name, value in {**options, **places}.items()),
        build_dir=root / "build" / _key(platform, rest),
        bundle_dir=root / "bundles" / _key(platform, identity),
    )


def _key(platform: Platform, identity: Mapping[str, str]) -> str:
    """Return the name of a directory for what has this *identity*."""
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
    return f"{platform.name}-{digest[:12]}"


def _check_cuda(options: BuildSettings, choice: Choice) -> None:
    """Refuse CUDA for what is not 64-bit Linux."""
    if options.cuda and not choice.platform.cuda:
        having = ", ".join(platform.name for platform in PLATFORMS.values() if platform.cuda)
        raise ConfigError(
            f"there is no CUDA for {choice.platform.name}",
            remedy=f"Leave --cuda and build.cuda out, or build for one of: {having}.",
        )


def _sdks(options: BuildSettings, choice: Choice) -> tuple[ClmlSdk | None, OpenClSdk | None]:
    """Find the SDKs that the build was asked to use; what reads them is imported only then."""
    if not choice.clml and not options.opencl_sdk:
        return None, None
    from adt.host.opencl_sdk import find_clml, find_opencl_sdk

    machine = choice.platform.machine
    clml = find_clml(options.clml, machine) if choice.clml else None
    return clml, find_opencl_sdk(options.opencl_sdk, machine)


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
