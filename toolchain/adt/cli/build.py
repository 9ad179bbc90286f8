"""``adt build-target``, ``adt bundles``, ``adt source``, ``adt presets`` and ``adt ndk``."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from adt.api.requests import BuildRequest, Layout, NdkEnvRequest, NdkRequest, PresetsRequest, SourceRequest
from adt.cli.app import Commands, app
from adt.cli.command import Keywords, Rendering, command
from adt.cli.terminal import status_line
from adt.options.option import Options, Texts, option

if TYPE_CHECKING:
    from adt.bundle.build import BuildResult
    from adt.bundle.bundle import TargetBundle
    from adt.bundle.presets import Preset
    from adt.host.ndk import Listed


class BuildFlags(Layout):
    """Choice of the function that is called."""

    abi: str | None = option("Several Android ABIs at once.", default=None, metavar="arm64-v8a,x86_64")
    explain: bool = option("Only say what would be done, and why.", default=False)


@command("adt build-target --for android-arm64-v8a --ndk $NDK", BuildRequest, BuildFlags)
def build_target(keywords: Keywords, flags: BuildFlags) -> Rendering:
    """Build TVM's runtime, tvm_rpc and the runner for a device: a TargetBundle."""
    import adt

    if flags.explain:
        steps = adt.explain_build(**keywords)
        return Rendering("build-target-explain", lambda: {"steps": steps}, steps)
    with status_line("build-target") as progress:
        if flags.abi is None and flags.layout == "bundle":
            results: tuple[BuildResult, ...] = (adt.build_target(**keywords, progress=progress),)
        else:
            platform = keywords["platform"] or "android-arm64-v8a"
            abis = flags.abi.split(",") if flags.abi else [platform.removeprefix("android-")]
            results = adt.build_abis(abis, layout=flags.layout, progress=progress, **keywords)
    out = keywords["out"]

    def fields() -> dict[str, Any]:
        documents = [_build_fields(result, out) for result in results]
        return documents[0] if len(documents) == 1 else {"bundles": documents}

    return Rendering("build-target", fields, _build_lines(results, out))


def _build_fields(result: BuildResult, out: Path | None) -> dict[str, Any]:
    from adt.host.manifest import fields_of

    return {
        "path": out or result.bundle.path,
        "build_dir": result.build_dir,
        "reused": result.reused,
        "compiled": result.compiled,
        "seconds": result.seconds,
        "bundle": fields_of(result.bundle.manifest),
    }


def _build_lines(results: Sequence[BuildResult], out: Path | None) -> Iterator[str]:
    for result in results:
        source, bundle = result.source, result.bundle.manifest
        ndk = f", NDK {bundle.ndk_revision}" if bundle.ndk_revision else ""
        work = "up to date" if result.reused else f"{result.compiled} translation units compiled"
        yield f"TVM source  {source.version} ({source.provider}: {source.reason})"
        yield f"compiler    {bundle.compiler}{ndk}"
        yield f"built       {bundle.preset}: {work} in {result.seconds:.1f} s"
        for name, facts in bundle.all_files.items():
            yield f"  {name:<24} {facts.size:>10,} bytes"
    yield f"bundle      {out or results[-1].bundle.path}"


@command("adt source --provider registry", SourceRequest)
def source(keywords: Keywords) -> Rendering:
    """Show the TVM source tree that a build takes, obtaining it if need be."""
    import adt

    tree = adt.source(**keywords)
    lines = (
        f"path      {tree.path}",
        f"provider  {tree.provider}: {tree.reason}",
        f"version   TVM {tree.version}, tvm-ffi {tree.ffi_version}",
        f"digest    {tree.digest}",
    )
    return Rendering("source", lambda: vars(tree), lines)


class BundlesFlags(Options):
    """Choice of what is removed."""

    remove: Texts = option(
        "Remove this one, and what it was built in.", default=(), metavar="NAME", offers="bundle"
    )
    remove_superseded: bool = option(
        "Remove those that a newer one of equal options replaces.", default=False
    )


@command("adt bundles --remove linux-aarch64-0123456789ab", flags=BundlesFlags)
def bundles(flags: BundlesFlags) -> Rendering:
    """List the bundles that were built on this machine, newest first, or remove some."""
    import adt

    removed: tuple[TargetBundle, ...] = ()
    removes = bool(flags.remove) or flags.remove_superseded
    if removes:
        removed = adt.bundles_remove(flags.remove, superseded=flags.remove_superseded)
    left = adt.bundles()

    def fields() -> dict[str, Any]:
        rows = [_bundle_fields(bundle) for bundle in left]
        return {"bundles": rows, "removed": [bundle.path for bundle in removed]}

    lines = [f"removed  {bundle.path}" for bundle in removed] + [f"left     {len(left)} bundles"]
    return Rendering("bundles", fields, lines if removes else _bundle_lines(left))


def _bundle_lines(bundles: Sequence[TargetBundle]) -> Iterator[str]:
    if not bundles:
        yield "no bundle was built here: adt build-target --for PLATFORM"
    for bundle in bundles:
        built = time.strftime("%Y-%m-%d %H:%M", time.localtime(bundle.built))
        yield f"{bundle.path.name}  {built}  {bundle.size / 1e6:,.1f} MB"
        yield f"    {bundle.manifest.summary}"
        yield f"    {bundle.path}"


def _bundle_fields(bundle: TargetBundle) -> dict[str, Any]:
    from adt.host.manifest import fields_of

    about = fields_of(bundle.manifest)
    names = ("platform", "preset", "abi", "api_level", "ndk_revision", "compiler", "tvm", "options")
    return {
        "name": bundle.path.name,
        "path": bundle.path,
        "summary": bundle.manifest.summary,
        "built": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(bundle.built)),
        "size": bundle.size,
        **{name: about[name] for name in names},
    }


@command("adt presets --ndk $NDK", PresetsRequest)
def presets(keywords: Keywords) -> Rendering:
    """List the presets: what each of them switches on, and whether this machine can build it."""
    import adt

    presets = adt.presets(**keywords)
    return Rendering(
        "presets", lambda: {"presets": [vars(preset) for preset in presets]}, _preset_lines(presets)
    )


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


ndk = typer.Typer(cls=Commands, help="The Android NDKs of this machine.")
app.add_typer(ndk, name="ndk", no_args_is_help=True)


@command("adt ndk list", NdkRequest, group=ndk, name="list")
def ndk_list(keywords: Keywords) -> Rendering:
    """List every place that could hold an NDK, what is there, and which one is taken."""
    import adt

    ndks = adt.ndk_list(**keywords)
    return Rendering("ndk-list", lambda: {"ndks": [_ndk_fields(row) for row in ndks]}, _ndk_lines(ndks))


def _ndk_fields(row: Listed) -> dict[str, Any]:
    ndk = row.ndk
    return {
        "path": row.path,
        "origin": row.origin,
        "chosen": row.chosen,
        "problem": row.problem,
        "revision": ndk.revision if ndk else None,
        "verdict": ndk.known.verdict if ndk else None,
        "reason": ndk.known.reason if ndk else None,
        "api_levels": ndk.api_levels() if ndk else None,
    }


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


@command("adt ndk env --api-level 30", NdkEnvRequest, group=ndk, name="env")
def ndk_env(keywords: Keywords) -> Rendering:
    """Print the variables with which other build tools use the same NDK."""
    import shlex

    import adt

    variables = adt.ndk_env(**keywords)
    lines = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    return Rendering("ndk-env", lambda: {"variables": variables}, lines)
