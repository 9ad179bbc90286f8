"""``adt build-target``, ``adt bundles``, ``adt source``, ``adt presets`` and ``adt ndk``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from adt.api.requests import BuildRequest, Layout, NdkEnvRequest, NdkRequest, PresetsRequest, SourceRequest
from adt.cli.app import Commands, app, emit_json
from adt.cli.command import Keywords, command
from adt.cli.terminal import status_line
from adt.options.option import Options, Texts, option

if TYPE_CHECKING:
    from adt.bundle.build import BuildResult
    from adt.bundle.bundle import TargetBundle


class BuildFlags(Layout):
    """Which of the functions is called."""

    abi: str | None = option("Several Android ABIs at once.", default=None, metavar="arm64-v8a,x86_64")
    explain: bool = option("Only say what would be done, and why.", default=False)


@command("adt build-target --for android-arm64-v8a --ndk $NDK", BuildRequest, BuildFlags)
def build_target(keywords: Keywords, flags: BuildFlags, as_json: bool) -> None:
    """Build TVM's runtime, tvm_rpc and the runner for a device: a TargetBundle."""
    import adt

    if flags.explain:
        steps = adt.explain_build(**keywords)
        if as_json:
            emit_json("build-target-explain", {"steps": steps})
        else:
            typer.echo("\n".join(steps))
        return
    with status_line("build-target") as progress:
        if flags.abi is None and flags.layout == "bundle":
            results: tuple[BuildResult, ...] = (adt.build_target(**keywords, progress=progress),)
        else:
            platform = keywords["platform"] or "android-arm64-v8a"
            abis = flags.abi.split(",") if flags.abi else [platform.removeprefix("android-")]
            results = adt.build_abis(abis, layout=flags.layout, progress=progress, **keywords)
    out = keywords["out"]
    if as_json:
        documents = [_build_fields(result, out) for result in results]
        emit_json("build-target", documents[0] if len(documents) == 1 else {"bundles": documents})
        return
    for result in results:
        _show_build(result)
    typer.echo(f"bundle      {out or results[-1].bundle.path}")


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


def _show_build(result: BuildResult) -> None:
    source, bundle = result.source, result.bundle.manifest
    ndk = f", NDK {bundle.ndk_revision}" if bundle.ndk_revision else ""
    outcome = "up to date" if result.reused else f"{result.compiled} translation units compiled"
    typer.echo(f"TVM source  {source.version} ({source.provider}: {source.reason})")
    typer.echo(f"compiler    {bundle.compiler}{ndk}")
    typer.echo(f"built       {bundle.preset}: {outcome} in {result.seconds:.1f} s")
    for name, facts in bundle.all_files.items():
        typer.echo(f"  {name:<24} {facts.size:>10,} bytes")


@command("adt source --provider registry", SourceRequest)
def source(keywords: Keywords, as_json: bool) -> None:
    """Show the TVM source tree that a build takes, obtaining it if need be."""
    import adt

    tree = adt.source(**keywords)
    if as_json:
        emit_json("source", vars(tree))
        return
    typer.echo(f"path      {tree.path}")
    typer.echo(f"provider  {tree.provider}: {tree.reason}")
    typer.echo(f"version   TVM {tree.version}, tvm-ffi {tree.ffi_version}")
    typer.echo(f"digest    {tree.digest}")


class BundlesFlags(Options):
    """What is removed."""

    remove: Texts = option(
        "Remove this one, and what it was built in.", default=(), metavar="NAME", offers="bundle"
    )
    remove_superseded: bool = option(
        "Remove those that a newer one of equal options replaces.", default=False
    )


@command("adt bundles --remove linux-aarch64-0123456789ab", flags=BundlesFlags)
def bundles(flags: BundlesFlags, as_json: bool) -> None:
    """List the bundles that were built on this machine, newest first, or remove some."""
    import adt

    removed: tuple[TargetBundle, ...] = ()
    if flags.remove or flags.remove_superseded:
        removed = adt.bundles_remove(flags.remove, superseded=flags.remove_superseded)
    left = adt.bundles()
    if as_json:
        rows = [_bundle_fields(bundle) for bundle in left]
        emit_json("bundles", {"bundles": rows, "removed": [bundle.path for bundle in removed]})
        return
    for bundle in removed:
        typer.echo(f"removed  {bundle.path}")
    if removed or flags.remove_superseded:
        typer.echo(f"left     {len(left)} bundles")
        return
    if not left:
        typer.echo("no bundle was built here: adt build-target --for PLATFORM")
    for bundle in left:
        typer.echo(f"{bundle.path.name}  {_local_time(bundle)}  {bundle.size / 1e6:,.1f} MB")
        typer.echo(f"    {bundle.manifest.summary}")
        typer.echo(f"    {bundle.path}")


def _local_time(bundle: TargetBundle) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(bundle.built))


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
def presets(keywords: Keywords, as_json: bool) -> None:
    """List the presets: what each of them switches on, and whether this machine can build it."""
    import adt

    rows = adt.presets(**keywords)
    if as_json:
        emit_json("presets", {"presets": [vars(preset) for preset in rows]})
        return
    missing: dict[str, str] = {}
    typer.echo(f"{'preset':<28} {'OpenCL':<7} {'CLML':<5} {'RPC':<4} {'align':>5}  buildable here")
    for preset in rows:
        opencl, with_clml, rpc = ("yes" if on else "-" for on in (preset.opencl, preset.clml, preset.rpc))
        verdict = f"yes: {preset.reason}" if preset.buildable else "no"
        typer.echo(f"{preset.name:<28} {opencl:<7} {with_clml:<5} {rpc:<4} {preset.alignment:>5}  {verdict}")
        if not preset.buildable:
            missing.setdefault(preset.reason, preset.remedy)
    for reason, remedy in missing.items():
        typer.echo(f"\nno: {reason}\n    {remedy}")


ndk = typer.Typer(cls=Commands, help="The Android NDKs of this machine.")
app.add_typer(ndk, name="ndk", no_args_is_help=True)


@command("adt ndk list", NdkRequest, group=ndk, name="list")
def ndk_list(keywords: Keywords, as_json: bool) -> None:
    """List every place that could hold an NDK, what is there, and which one is taken."""
    import adt

    ndks = adt.ndk_list(**keywords)
    if as_json:
        rows = [
            {
                "path": row.path,
                "origin": row.origin,
                "chosen": row.chosen,
                "problem": row.problem,
                "revision": row.ndk.revision if row.ndk else None,
                "verdict": row.ndk.known.verdict if row.ndk else None,
                "reason": row.ndk.known.reason if row.ndk else None,
                "api_levels": row.ndk.api_levels() if row.ndk else None,
            }
            for row in ndks
        ]
        emit_json("ndk-list", {"ndks": rows})
        return
    if not ndks:
        typer.echo("no NDK: install one and pass --ndk DIR, or set ANDROID_NDK_HOME")
    for row in ndks:
        typer.echo(f"{'→' if row.chosen else ' '} {row.path}  (from {row.origin})")
        if row.ndk:
            levels = row.ndk.api_levels()
            span = f", API levels {levels[0]} to {levels[1]}" if levels else ""
            typer.echo(f"    {row.ndk.revision}{span}; {row.ndk.known.verdict}: {row.ndk.known.reason}")
        else:
            typer.echo(f"    ✗ {row.problem}")


@command("adt ndk env --api-level 30", NdkEnvRequest, group=ndk, name="env")
def ndk_env(keywords: Keywords, as_json: bool) -> None:
    """Print the variables with which other build tools use the same NDK."""
    import shlex

    import adt

    variables = adt.ndk_env(**keywords)
    if as_json:
        emit_json("ndk-env", {"variables": variables})
        return
    for name, value in variables.items():
        typer.echo(f"export {name}={shlex.quote(value)}")
