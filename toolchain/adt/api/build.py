"""Settings, the NDK, the TVM source and TargetBundles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypedDict, Unpack

from adt.config.load import Resolved, load_settings
from adt.config.settings import Settings
from adt.errors import ConfigError
from adt.host.ndk import Listed, find_ndk, list_ndks, tool_environment
from adt.host.tvm_source import TvmSource, find_source
from adt.target import build as target_build
from adt.target.build import BuildResult, build_bundle
from adt.target.layout import check_layout, export
from adt.target.plan import plan_build
from adt.target.platforms import platform_named
from adt.target.presets import Preset, list_presets

Progress = Callable[[str], None]


def quiet(_line: str) -> None:
    """The default progress callback."""


def settings(flags: Mapping[str, object] | None = None) -> Resolved:
    """Resolve every setting and say where each came from; *flags* are ``section.key`` to value."""
    return load_settings(flags)


def source(*, tvm_source: str | None = None, provider: str | None = None) -> TvmSource:
    """The TVM source tree that a build would take, obtained if it is not here yet."""
    resolved = load_settings({"tvm.source": tvm_source, "tvm.provider": provider})
    return find_source(resolved.settings.tvm)


def ndk_list(*, ndk: str | None = None) -> tuple[Listed, ...]:
    """Every place on this machine that could hold an Android NDK, in the order they are looked at."""
    return list_ndks(load_settings({"build.ndk": ndk}).settings.build.ndk)


def ndk_env(
    *, ndk: str | None = None, platform: str | None = None, api_level: int | None = None
) -> dict[str, str]:
    """Variables (CC, CXX, AR, TVM_NDK_CC, …) with which other build tools use the NDK that adt uses.

    Raises:
        NdkError: there is no NDK, or it has no compiler for the API level.
        ConfigError: *platform* is not Android.
    """
    build = load_settings(
        {"build.ndk": ndk, "build.platform": platform, "build.api_level": api_level}
    ).settings.build
    chosen = platform_named(build.platform)
    if not chosen.android:
        raise ConfigError(f"{chosen.name} is not built with an NDK", remedy="Choose an android-… platform.")
    return tool_environment(find_ndk(build.ndk), chosen.ndk_triple, build.api_level)


def presets(*, ndk: str | None = None, clml: str | None = None) -> tuple[Preset, ...]:
    """Every CMake preset: what it switches on, and whether this machine can build it."""
    return list_presets(load_settings({"build.ndk": ndk, "build.clml": clml}).settings)


class BuildFlags(TypedDict, total=False):
    """Options of :func:`build_target`; one that is absent or None is resolved as every setting is."""

    platform: str | None
    """``android-arm64-v8a``, ``linux-aarch64``, ``host``, …, or a preset such as ``linux-aarch64-cpu``."""
    ndk: str | None
    """Root of the Android NDK."""
    tvm_source: str | None
    """A TVM source tree."""
    api_level: int | None
    """Lowest Android API level."""
    alignment: int | None
    """Bytes; TVM_KALLOC_ALIGNMENT."""
    opencl: bool | None
    """Build the OpenCL runtime in."""
    opencl_sdk: str | None
    """An OpenCL SDK to link against, instead of opening the device's libOpenCL at run time."""
    clml: str | None
    """A CLML SDK, whose runtime is built in."""
    nnapi: bool | None
    """Build the runtime for Android's NNAPI in."""
    rpc: bool | None
    """Build tvm_rpc."""
    build_type: str | None
    """CMake's build type."""
    jobs: int | None
    """Parallel compiler processes."""


def _build_settings(flags: BuildFlags) -> Settings:
    named = {f"build.{name}": value for name, value in flags.items() if name != "tvm_source"}
    return load_settings(named | {"tvm.source": flags.get("tvm_source")}).settings


def build_target(
    *, out: Path | None = None, progress: Progress = quiet, **flags: Unpack[BuildFlags]
) -> BuildResult:
    """Build a TargetBundle, or return it at once when nothing changed.

    Args:
        out: also copy the bundle to this directory.
        progress: called with one line at a time while CMake and Ninja run.
        flags: see :class:`BuildFlags`.

    Raises:
        ToolNotFound, NdkError, SourceError, BuildError: see :mod:`adt.errors`.
    """
    result = build_bundle(plan_build(_build_settings(flags)), progress=progress)
    if out is not None:
        export([result.bundle], out, "bundle")
    return result


def build_abis(
    abis: Sequence[str],
    *,
    out: Path | None = None,
    layout: str = "bundle",
    progress: Progress = quiet,
    **flags: Unpack[BuildFlags],
) -> tuple[BuildResult, ...]:
    """Build the bundles of several Android ABIs from one source tree.

    Args:
        abis: Android's names, such as ``["arm64-v8a", "x86_64"]``, or with a variant: ``arm64-v8a-cpu``.
        out: write the bundles here, in *layout*: ``bundle`` (a directory for each ABI)
            or ``jni`` (``jniLibs/<abi>/*.so``).

    Raises:
        ConfigError: an ABI or the layout is unknown, or an ABI is named twice; nothing was built.
        ToolNotFound, NdkError, SourceError, BuildError: see :mod:`adt.errors`.
    """
    check_layout(layout)
    names = [f"android-{abi}" for abi in dict.fromkeys(abis)]
    if len({platform_named(name).abi for name in names}) < len(names):
        raise ConfigError(f"{', '.join(abis)}: an ABI is named twice", remedy="Choose one variant of each.")
    results = []
    for name in names:
        flags["platform"] = name
        results.append(build_bundle(plan_build(_build_settings(flags)), progress=progress))
    if out is not None:
        export([result.bundle for result in results], out, layout)
    return tuple(results)


def explain_build(**flags: Unpack[BuildFlags]) -> tuple[str, ...]:
    """What :func:`build_target` with the same *flags* would do now, and why; compiles nothing."""
    return target_build.explain_build(plan_build(_build_settings(flags)))
