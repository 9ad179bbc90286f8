"""Settings (``adt config``, ``adt init``), the NDK, the TVM source and TargetBundles."""

from __future__ import annotations

import json
import textwrap
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adt.bundle.platforms import platform_named
from adt.cli.app import Commands, app
from adt.cli.command import Rendering, command
from adt.cli.terminal import status_line
from adt.errors import ConfigError
from adt.host.cache import write_text
from adt.host.directories import resource
from adt.host.disk import check_directory
from adt.host.document import document_of
from adt.options.option import AnyPath, Directory, Flag, MaybePath, Number, Text, Texts, option, options_of
from adt.options.request import Request, resolve_settings, takes
from adt.options.resolve import Resolved, load_settings
from adt.options.sections import SECTIONS, BuildSettings, TvmSettings
from adt.verbs.default_platform import default_platform, with_platform
from adt.verbs.options import PROGRESS

if TYPE_CHECKING:
    from adt.bundle.build import BuildResult
    from adt.bundle.bundle import TargetBundle
    from adt.bundle.plan import Preset
    from adt.host.ndk import Listed
    from adt.host.sources import TvmSource


class BuildRequest(Request):
    """Request of :func:`adt.build_target`."""

    platform: Text = BuildSettings.platform
    ndk: Directory = BuildSettings.ndk
    api_level: Number = BuildSettings.api_level
    clml: Directory = BuildSettings.clml
    xnnpack_source: Directory = BuildSettings.xnnpack_source
    alignment: Number = BuildSettings.alignment
    opencl: Flag = BuildSettings.opencl
    opencl_sdk: Directory = BuildSettings.opencl_sdk
    xnnpack: Flag = BuildSettings.xnnpack
    cuda: Flag = BuildSettings.cuda
    one_library: Flag = BuildSettings.one_library
    rpc: Flag = BuildSettings.rpc
    build_type: Text = BuildSettings.build_type
    jobs: Number = BuildSettings.jobs
    tvm_source: Directory = TvmSettings.tvm_source
    progress: Callable[[str], None] = PROGRESS
    out: MaybePath = option(
        "Copy the bundle here, too.", "--out", "-o", default=None, check=check_directory, metavar="DIR"
    )
    layout: str = option(
        "Layout of --out: a directory for each ABI, or jniLibs/ABI/*.so.",
        default="bundle",
        choices=["bundle", "jni"],
    )
    abis: Texts = option(
        "Several Android ABIs at once, of :func:`adt.build_abis`, each possibly a variant: arm64-v8a-cpu.",
        "--abi",
        default=(),
        kw_only=False,
        help="Several Android ABIs at once.",
        metavar="arm64-v8a,x86_64",
        cli=str,
        separator=",",
    )


def settings(flags: Mapping[str, object] | None = None) -> Resolved:
    """Resolve every setting and say where each came from; *flags* are ``section.key`` to value."""
    return load_settings(flags)


def source(*, tvm_source: AnyPath | None = None, provider: str | None = None) -> TvmSource:
    """Find the TVM source tree that a build would take; obtain it if it is not here yet."""
    from adt.host.sources import find_source

    return find_source(resolve_settings({"tvm.source": tvm_source, "tvm.provider": provider}).settings.tvm)


def ndk_list(*, ndk: AnyPath | None = None) -> tuple[Listed, ...]:
    """List every directory that could hold an Android NDK, in the order in which they are looked at."""
    from adt.host.ndk import list_ndks

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
    from adt.host.ndk import find_ndk, tool_environment

    flags = {"build.ndk": ndk, "build.platform": platform, "build.api_level": api_level}
    resolved = resolve_settings(flags)
    settings, chosen = resolved.settings.build, platform_named(default_platform(resolved, android=True))
    if not chosen.android:
        raise ConfigError(f"{chosen.name} is not built with an NDK", remedy="Choose an android-… platform.")
    return tool_environment(find_ndk(settings.ndk), chosen.ndk_triple, settings.api_level)


def presets(*, ndk: AnyPath | None = None, clml: AnyPath | None = None) -> tuple[Preset, ...]:
    """List the CMake presets: what each switches on, and whether this machine can build it."""
    from adt.bundle.plan import list_presets

    return list_presets(resolve_settings({"build.ndk": ndk, "build.clml": clml}).settings)


@takes(BuildRequest)
def build_target(request: BuildRequest) -> BuildResult:
    """Build a TargetBundle, or return it at once when nothing changed.

    Raises:
        BuildError: CMake or Ninja failed, or a result would not load on the device.
    """
    from adt.bundle.build import build_bundle
    from adt.bundle.bundle import export
    from adt.bundle.plan import plan_build

    if request.abis or request.layout != "bundle":
        raise ConfigError("several ABIs, or a layout of them", remedy="Call adt.build_abis.")
    result = build_bundle(plan_build(with_platform(request).settings), progress=request.progress)
    if request.out is not None:
        export([result.bundle], request.out, "bundle")
    return result


@takes(BuildRequest)
def build_abis(request: BuildRequest) -> tuple[BuildResult, ...]:
    """Build the bundles of several Android ABIs from one source tree.

    Raises:
        ConfigError: an ABI or the layout is unknown, or an ABI is named twice; nothing was built.
    """
    from adt.bundle.build import build_bundle
    from adt.bundle.bundle import export
    from adt.bundle.plan import plan_build

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
    """Explain what :func:`build_target` would do now, and why; compiles nothing."""
    from adt.bundle import build as target_build
    from adt.bundle.plan import plan_build

    return target_build.explain_build(plan_build(with_platform(request).settings))


@command("adt build-target --for linux-aarch64", "adt build-target --ndk $NDK --for android-arm64-v8a")
def build_target_command(
    request: BuildRequest,
    explain: Annotated[bool, option("Only say what would be done and why.", default=False)],
) -> Rendering:
    """Build TVM's runtime, tvm_rpc and the runner for a device: a TargetBundle."""
    if explain:
        steps = explain_build(request)
        return Rendering("build-target-explain", {"steps": steps}, steps)
    with status_line("build-target") as progress:
        if not request.abis and request.layout == "bundle":
            results: tuple[BuildResult, ...] = (build_target(request.but(progress=progress)),)
        else:
            abis = request.abis or [default_platform(request.resolved, android=True).removeprefix("android-")]
            results = build_abis(request.but(abis=abis, progress=progress))
    out = request.out

    documents = [document_of(result) | {"path": out or result.bundle.path} for result in results]
    document = documents[0] if len(documents) == 1 else {"bundles": documents}
    lines = [line for result in results for line in _build_lines(result)]
    return Rendering("build-target", document, [*lines, f"bundle      {out or results[-1].bundle.path}"])


def _build_lines(result: BuildResult) -> Iterator[str]:
    source, bundle = result.source, result.bundle.manifest
    ndk = f", NDK {bundle.ndk_revision}" if bundle.ndk_revision else ""
    work = "up to date" if result.reused else f"{result.compiled} translation units compiled"
    yield f"TVM source  {source.version} ({source.provider}: {source.reason})"
    yield f"compiler    {bundle.compiler}{ndk}"
    yield f"built       {bundle.preset}: {work} in {result.seconds:.1f} s"
    for name, facts in bundle.all_files.items():
        yield f"  {name:<24} {facts.size:>10,} bytes"


@command("adt source --provider registry")
def source_command(
    tvm_source: Annotated[str | None, TvmSettings.tvm_source],
    provider: Annotated[str | None, TvmSettings.provider],
) -> Rendering:
    """Show the TVM source tree that a build takes, obtaining it if need be."""
    tree = source(tvm_source=tvm_source, provider=provider)
    lines = (
        f"path      {tree.path}",
        f"provider  {tree.provider}: {tree.reason}",
        f"version   TVM {tree.version}, tvm-ffi {tree.ffi_version}",
        f"digest    {tree.digest}",
    )
    return Rendering("source", tree, lines)


@command("adt bundles --remove linux-aarch64-0123456789ab")
def bundles_command(
    remove: Annotated[
        tuple[str, ...] | None,
        option("Bundle to remove, with its build; repeatable.", default=(), metavar="NAME", offers="bundle"),
    ],
    remove_superseded: Annotated[
        bool, option("Remove bundles that a newer one of equal options replaces.", default=False)
    ],
) -> Rendering:
    """List the bundles that were built on this machine, newest first, or remove some."""
    from adt.verbs import bundles as cached

    removed: tuple[TargetBundle, ...] = ()
    removes = bool(remove) or remove_superseded
    if removes:
        removed = cached.bundles_remove(remove or (), superseded=remove_superseded)
    left = cached.bundles()
    document = {"bundles": left, "removed": [bundle.path for bundle in removed]}
    lines = [f"removed  {bundle.path}" for bundle in removed] + [f"left     {len(left)} bundles"]
    return Rendering("bundles", document, lines if removes else _bundle_lines(left))


def _bundle_lines(bundles: Sequence[TargetBundle]) -> Iterator[str]:
    if not bundles:
        yield "no bundle was built here: adt build-target --for PLATFORM"
    for bundle in bundles:
        built = time.strftime("%Y-%m-%d %H:%M", time.localtime(bundle.built))
        yield f"{bundle.path.name}  {built}  {bundle.size / 1e6:,.1f} MB"
        yield f"    {bundle.manifest.summary}"
        yield f"    {bundle.path}"


@command("adt presets --ndk $NDK")
def presets_command(
    ndk: Annotated[str | None, BuildSettings.ndk], clml: Annotated[str | None, BuildSettings.clml]
) -> Rendering:
    """List the presets: what each of them switches on, and whether this machine can build it."""
    rows = presets(ndk=ndk, clml=clml)
    return Rendering("presets", {"presets": rows}, _preset_lines(rows))


def _preset_lines(presets: Sequence[Preset]) -> Iterator[str]:
    missing: dict[str, str] = {}
    yield f"{'preset':<28} {'OpenCL':<7} {'CLML':<5} {'RPC':<4} {'align':>5}  buildable here"
    for preset in presets:
        opencl, with_clml, rpc = ("yes" if on else "-" for on in (preset.opencl, preset.clml, preset.rpc))
        verdict = f"yes: {preset.reason}" if preset.buildable else "no"
        yield f"{preset.name:<28} {opencl:<7} {with_clml:<5} {rpc:<4} {preset.alignment:>5}  {verdict}"
        if not preset.buildable:
            missing.setdefault(preset.reason, preset.remedy)
    for reason, remedy in missing.items():
        yield f"\nno: {reason}\n    {remedy}"


ndk = typer.Typer(
    cls=Commands, help="List the Android NDKs of this machine, or print the variables that name one."
)
app.add_typer(ndk, name="ndk", no_args_is_help=True)


@command("adt ndk list", group=ndk, name="list")
def ndk_list_command(ndk: Annotated[str | None, BuildSettings.ndk]) -> Rendering:
    """List every place that could hold an NDK, what is there, and which one is taken."""
    ndks = ndk_list(ndk=ndk)
    return Rendering("ndk-list", {"ndks": ndks}, _ndk_lines(ndks))


def _ndk_lines(ndks: Sequence[Listed]) -> Iterator[str]:
    if not ndks:
        yield "no NDK: install one and pass --ndk DIR, or set ANDROID_NDK_HOME"
    for row in ndks:
        yield f"{'→' if row.chosen else ' '} {row.path}  (from {row.origin})"
        if row.ndk:
            levels = row.ndk.api_levels()
            span = f", API levels {levels[0]} to {levels[1]}" if levels else ""
            yield f"    {row.ndk.revision}{span}; {row.ndk.known.verdict}: {row.ndk.known.reason}"
        else:
            yield f"    ✗ {row.problem}"


@command("adt ndk env --api-level 30", group=ndk, name="env")
def ndk_env_command(
    platform: Annotated[str | None, BuildSettings.platform],
    ndk: Annotated[str | None, BuildSettings.ndk],
    api_level: Annotated[int | None, BuildSettings.api_level],
) -> Rendering:
    """Print the variables with which other build tools use the same NDK."""
    import shlex

    variables = ndk_env(ndk=ndk, platform=platform, api_level=api_level)
    lines = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    return Rendering("ndk-env", {"variables": variables}, lines)


WIDTH = 108
"""Columns of the comments in adt.toml."""


@command("ADT_BUILD_JOBS=2 adt config")
def config() -> Rendering:
    """Show every setting, its value and where it came from."""
    resolved = load_settings()
    texts = {
        key: ";".join(value) if isinstance(value, tuple) else str(value)
        for key, value in resolved.values.items()
    }
    return Rendering(
        "config",
        {"settings": resolved.values, "origins": resolved.origins},
        (f"{key:<20} {text:<24} {resolved.origins[key]}" for key, text in texts.items()),
    )


@command("adt init --for linux-aarch64", json=False)
def init(
    platform: Annotated[str | None, BuildSettings.platform],
    directory: Annotated[
        Path, option("Directory for adt.toml.", default=Path(), kw_only=False, check=check_directory)
    ],
) -> None:
    """Write an adt.toml with every setting, its meaning and its default."""
    if platform:
        platform_named(platform)
    typer.echo(f"wrote {write_initial(directory, platform)}")


def write_initial(directory: Path, platform: str | None) -> Path:
    """Write a new ``adt.toml`` into *directory* and return its path; an existing one is left alone."""
    from jinja2 import Environment, StrictUndefined

    path = directory / "adt.toml"
    if path.exists():
        raise ConfigError(f"{path} exists; it was left alone", remedy="Edit it, or remove it first.")
    sections = [
        {
            "name": name,
            "keys": [
                {
                    "name": about.key.partition(".")[2],
                    "doc": textwrap.fill(about.doc, WIDTH),
                    "default": json.dumps(about.default),
                }
                for about in options_of(section).values()
            ],
        }
        for name, section in SECTIONS.items()
    ]
    template = (resource("templates") / "adt.toml.j2").read_text()
    environment = Environment(undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False)
    text = environment.from_string(template).render(sections=sections, platform=json.dumps(platform or ""))
    tomllib.loads(text)
    write_text(path, text)
    return path
