"""``adt build-target`` and ``adt source``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from adt.api.requests import BuildRequest, Layout, SourceRequest
from adt.cli.app import emit_json
from adt.cli.command import Given, command
from adt.cli.progress import status_line
from adt.options.option import option

if TYPE_CHECKING:
    from adt.bundle.build import BuildResult


class BuildFlags(Layout):
    """Which of the functions is called."""

    abi: str | None = option("Several Android ABIs at once.", default=None, metavar="arm64-v8a,x86_64")
    explain: bool = option("Only say what would be done, and why.", default=False)


@command("adt build-target --for android-arm64-v8a --ndk $NDK", BuildRequest, BuildFlags)
def build_target(given: Given, flags: BuildFlags, as_json: bool) -> None:
    """Build TVM's runtime, tvm_rpc and the runner for a device: a TargetBundle."""
    import adt

    if flags.explain:
        steps = adt.explain_build(**given)
        if as_json:
            emit_json("build-target-explain", {"steps": steps})
        else:
            typer.echo("\n".join(steps))
        return
    with status_line("build-target") as progress:
        if flags.abi is None and flags.layout == "bundle":
            results: tuple[BuildResult, ...] = (adt.build_target(**given, progress=progress),)
        else:
            platform = given["platform"] or "android-arm64-v8a"
            abis = flags.abi.split(",") if flags.abi else [platform.removeprefix("android-")]
            results = adt.build_abis(abis, layout=flags.layout, progress=progress, **given)
    out = given["out"]
    if as_json:
        documents = [_fields(result, out) for result in results]
        emit_json("build-target", documents[0] if len(documents) == 1 else {"bundles": documents})
        return
    for result in results:
        _show(result)
    typer.echo(f"bundle      {out or results[-1].bundle.path}")


def _fields(result: BuildResult, out: Path | None) -> dict[str, Any]:
    from adt.host.manifest import fields_of

    return {
        "path": out or result.bundle.path,
        "build_dir": result.build_dir,
        "reused": result.reused,
        "compiled": result.compiled,
        "seconds": result.seconds,
        "bundle": fields_of(result.bundle.manifest),
    }


def _show(result: BuildResult) -> None:
    source, bundle = result.source, result.bundle.manifest
    ndk = f", NDK {bundle.ndk_revision}" if bundle.ndk_revision else ""
    made = "up to date" if result.reused else f"{result.compiled} translation units compiled"
    typer.echo(f"TVM source  {source.version} ({source.provider}: {source.why})")
    typer.echo(f"compiler    {bundle.compiler}{ndk}")
    typer.echo(f"built       {bundle.preset}: {made} in {result.seconds:.1f} s")
    for name, facts in bundle.all_files.items():
        typer.echo(f"  {name:<24} {facts.size:>10,} bytes")


@command("adt source --provider registry", SourceRequest)
def source(given: Given, as_json: bool) -> None:
    """Show the TVM source tree that a build takes, obtaining it if need be."""
    import adt

    found = adt.source(**given)
    if as_json:
        emit_json("source", vars(found))
        return
    typer.echo(f"path      {found.path}")
    typer.echo(f"provider  {found.provider}: {found.why}")
    typer.echo(f"version   TVM {found.version}, tvm-ffi {found.ffi_version}")
    typer.echo(f"digest    {found.digest}")
