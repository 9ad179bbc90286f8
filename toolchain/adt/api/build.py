"""Settings, the NDK, the TVM source and TargetBundles."""

from __future__ import annotations

from collections.abc import Mapping

from adt.api.requests import (
    AbisRequest,
    BuildRequest,
    NdkEnvRequest,
    NdkRequest,
    PresetsRequest,
    SourceRequest,
)
from adt.bundle import build as target_build
from adt.bundle.build import BuildResult, build_bundle
from adt.bundle.bundle import check_layout, export
from adt.bundle.plan import plan_build
from adt.bundle.platforms import platform_named
from adt.bundle.presets import Preset, list_presets
from adt.errors import ConfigError
from adt.host.ndk import Listed, find_ndk, list_ndks, tool_environment
from adt.host.tvm_source import TvmSource, find_source
from adt.options.request import takes
from adt.options.resolve import Resolved, load_settings


def settings(flags: Mapping[str, object] | None = None) -> Resolved:
    """Resolve every setting and say where each came from; *flags* are ``section.key`` to value."""
    return load_settings(flags)


@takes(SourceRequest)
def source(request: SourceRequest) -> TvmSource:
    """The TVM source tree that a build would take, obtained if it is not here yet."""
    return find_source(request.settings.tvm)


@takes(NdkRequest)
def ndk_list(request: NdkRequest) -> tuple[Listed, ...]:
    """Every place on this machine that could hold an Android NDK, in the order they are looked at."""
    return list_ndks(request.ndk)


@takes(NdkEnvRequest)
def ndk_env(request: NdkEnvRequest) -> dict[str, str]:
    """Variables (CC, CXX, AR, TVM_NDK_CC, …) with which other build tools use the NDK that adt uses.

    Raises:
        NdkError: there is no NDK, or it has no compiler for the API level.
        ConfigError: the platform is not Android.
    """
    chosen = platform_named(request.platform)
    if not chosen.android:
        raise ConfigError(f"{chosen.name} is not built with an NDK", remedy="Choose an android-… platform.")
    return tool_environment(find_ndk(request.ndk), chosen.ndk_triple, request.api_level)


@takes(PresetsRequest)
def presets(request: PresetsRequest) -> tuple[Preset, ...]:
    """Every CMake preset: what it switches on, and whether this machine can build it."""
    return list_presets(request.settings)


@takes(BuildRequest)
def build_target(request: BuildRequest) -> BuildResult:
    """Build a TargetBundle, or return it at once when nothing changed.

    Raises:
        ToolNotFound, NdkError, SourceError, BuildError: see :mod:`adt.errors`.
    """
    result = build_bundle(plan_build(request.settings), progress=request.progress)
    if request.out is not None:
        export([result.bundle], request.out, "bundle")
    return result


@takes(AbisRequest)
def build_abis(request: AbisRequest) -> tuple[BuildResult, ...]:
    """Build the bundles of several Android ABIs from one source tree.

    Raises:
        ConfigError: an ABI or the layout is unknown, or an ABI is named twice; nothing was built.
        ToolNotFound, NdkError, SourceError, BuildError: see :mod:`adt.errors`.
    """
    check_layout(request.layout)
    names = [f"android-{abi}" for abi in dict.fromkeys(request.abis)]
    if len({platform_named(name).abi for name in names}) < len(names):
        raise ConfigError(
            f"{', '.join(request.abis)}: an ABI is named twice", remedy="Choose one variant of each."
        )
    results = [
        build_bundle(plan_build(request.but(platform=name).settings), progress=request.progress)
        for name in names
    ]
    if request.out is not None:
        export([result.bundle for result in results], request.out, request.layout)
    return tuple(results)


@takes(BuildRequest)
def explain_build(request: BuildRequest) -> tuple[str, ...]:
    """Explain what :func:`build_target` would do now, and why; compiles nothing.

    Raises:
        ToolNotFound, NdkError, SourceError: see :mod:`adt.errors`.
    """
    return target_build.explain_build(plan_build(request.settings))
