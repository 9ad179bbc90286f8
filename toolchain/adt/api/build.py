"""Settings, the NDK, the TVM source and TargetBundles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from adt.api.requests import AbisRequest, BuildRequest
from adt.bundle import build as target_build
from adt.bundle.build import BuildResult, build_bundle
from adt.bundle.bundle import check_layout, export
from adt.bundle.plan import plan_build
from adt.bundle.platforms import platform_named
from adt.bundle.presets import Preset, list_presets
from adt.errors import ConfigError
from adt.host.ndk import Listed, find_ndk, list_ndks, tool_environment
from adt.host.tvm_source import TvmSource, find_source
from adt.options.request import resolve_settings, takes
from adt.options.resolve import Resolved, load_settings

if TYPE_CHECKING:
    from adt.options.option import AnyPath


def settings(flags: Mapping[str, object] | None = None) -> Resolved:
    """Resolve every setting and say where each came from; *flags* are ``section.key`` to value."""
    return load_settings(flags)


def source(*, tvm_source: AnyPath | None = None, provider: str | None = None) -> TvmSource:
    """Find the TVM source tree that a build would take; obtain it if it is not here yet.

    Args:
        tvm_source, provider: tvm.source and tvm.provider; None: those of the settings.
    """
    return find_source(resolve_settings({"tvm.source": tvm_source, "tvm.provider": provider}).settings.tvm)


def ndk_list(*, ndk: AnyPath | None = None) -> tuple[Listed, ...]:
    """List every directory that could hold an Android NDK, in the order in which they are looked at.

    Args:
        ndk: build.ndk; None: that of the settings.
    """
    return list_ndks(resolve_settings({"build.ndk": ndk}).settings.build.ndk)


def ndk_env(
    *, ndk: AnyPath | None = None, platform: str | None = None, api_level: int | None = None
) -> dict[str, str]:
    """Return the variables (CC, CXX, AR, TVM_NDK_CC, …) with which other build tools use adt's NDK.

    Args:
        ndk, platform, api_level: build.ndk, build.platform, build.api_level; None: those of the settings.

    Raises:
        NdkError: there is no NDK, or it has no compiler for the API level.
        ConfigError: the platform is not Android.
    """
    flags = {"build.ndk": ndk, "build.platform": platform, "build.api_level": api_level}
    settings = resolve_settings(flags).settings.build
    chosen = platform_named(settings.platform)
    if not chosen.android:
        raise ConfigError(f"{chosen.name} is not built with an NDK", remedy="Choose an android-… platform.")
    return tool_environment(find_ndk(settings.ndk), chosen.ndk_triple, settings.api_level)


def presets(*, ndk: AnyPath | None = None, clml: AnyPath | None = None) -> tuple[Preset, ...]:
    """List the CMake presets: what each switches on, and whether this machine can build it.

    Args:
        ndk, clml: build.ndk and build.clml; None: those of the settings.
    """
    return list_presets(resolve_settings({"build.ndk": ndk, "build.clml": clml}).settings)


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
