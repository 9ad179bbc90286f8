"""``adt build-target`` and ``adt source``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adt.cli import completions
from adt.cli.app import Json, Verbose, app, emit_json
from adt.cli.completions import one_of
from adt.cli.progress import status_line

if TYPE_CHECKING:
    from adt.api.build import BuildFlags
    from adt.target.build import BuildResult

Platform = Annotated[
    str | None,
    typer.Option(
        "--for",
        help="android-arm64-v8a, linux-aarch64, host, …; see adt presets.",
        metavar="PLATFORM",
        autocompletion=completions.platform,
    ),
]
Ndk = Annotated[
    str | None,
    typer.Option("--ndk", help="Root of the Android NDK; else found as Android tools do.", metavar="DIR"),
]
ApiLevel = Annotated[int | None, typer.Option(help="Lowest Android API level.")]
Clml = Annotated[
    str | None,
    typer.Option(
        "--clml", help="Build CLML in, with this SDK; a -clml preset looks in the environment.", metavar="DIR"
    ),
]
TvmSource = Annotated[
    str | None, typer.Option(help="A TVM source tree; else TVM_HOME, else one is obtained.", metavar="DIR")
]


@app.command("build-target", epilog="Example: adt build-target --for android-arm64-v8a --ndk $NDK")
def build_target(
    platform: Platform = None,
    ndk: Ndk = None,
    tvm_source: TvmSource = None,
    api_level: ApiLevel = None,
    alignment: Annotated[int | None, typer.Option(help="Bytes; tensor alignment of the runtime.")] = None,
    opencl: Annotated[bool | None, typer.Option(help="Build the OpenCL runtime in.")] = None,
    opencl_sdk: Annotated[
        str | None, typer.Option(help="Link libOpenCL from this SDK.", metavar="DIR")
    ] = None,
    clml: Clml = None,
    nnapi: Annotated[bool | None, typer.Option(help="Build the runtime for Android's NNAPI in.")] = None,
    rpc: Annotated[bool | None, typer.Option(help="Build tvm_rpc.")] = None,
    build_type: Annotated[str | None, typer.Option(help="CMake's build type.")] = None,
    jobs: Annotated[int | None, typer.Option("--jobs", "-j", help="Parallel compiler processes.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Also copy the bundle here.")] = None,
    abi: Annotated[
        str | None, typer.Option(help="Several Android ABIs at once.", metavar="arm64-v8a,x86_64")
    ] = None,
    layout: Annotated[str, typer.Option(help="What --out holds.", **one_of("bundle", "jni"))] = "bundle",
    explain: Annotated[bool, typer.Option("--explain", help="Only say what would be done, and why.")] = False,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Build TVM's runtime, tvm_rpc and the runner for a device: a TargetBundle."""
    import adt

    flags: BuildFlags = {
        "platform": platform,
        "ndk": ndk,
        "tvm_source": tvm_source,
        "api_level": api_level,
        "alignment": alignment,
        "opencl": opencl,
        "opencl_sdk": opencl_sdk,
        "clml": clml,
        "nnapi": nnapi,
        "rpc": rpc,
        "build_type": build_type,
        "jobs": jobs,
    }
    if explain:
        steps = adt.explain_build(**flags)
        if as_json:
            emit_json("build-target-explain", {"steps": steps})
        else:
            typer.echo("\n".join(steps))
        return
    with status_line("build-target") as progress:
        if abi is None and layout == "bundle":
            results: tuple[BuildResult, ...] = (adt.build_target(out=out, progress=progress, **flags),)
        else:
            abis = abi.split(",") if abi else [(platform or "android-arm64-v8a").removeprefix("android-")]
            results = adt.build_abis(abis, out=out, layout=layout, progress=progress, **flags)
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


@app.command(epilog="Example: adt source --provider registry")
def source(
    tvm_source: TvmSource = None,
    provider: Annotated[str | None, typer.Option(help="auto, git or registry.")] = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Show the TVM source tree that a build takes, obtaining it if need be."""
    import adt

    found = adt.source(tvm_source=tvm_source, provider=provider)
    if as_json:
        emit_json("source", vars(found))
        return
    typer.echo(f"path      {found.path}")
    typer.echo(f"provider  {found.provider}: {found.why}")
    typer.echo(f"version   TVM {found.version}, tvm-ffi {found.ffi_version}")
    typer.echo(f"digest    {found.digest}")
