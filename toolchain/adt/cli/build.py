"""``adt build-target`` and ``adt source``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from adt.cli.app import Json, Verbose, app, emit_json
from adt.cli.progress import status_line

Platform = Annotated[
    str | None,
    typer.Option("--for", help="android-arm64-v8a, linux-aarch64 or host.", metavar="PLATFORM"),
]
Ndk = Annotated[
    str | None,
    typer.Option("--ndk", help="Root of the Android NDK; else found as Android tools do.", metavar="DIR"),
]
TvmSource = Annotated[
    str | None, typer.Option(help="A TVM source tree; else TVM_HOME, else one is obtained.", metavar="DIR")
]


@app.command("build-target", epilog="Example: adt build-target --for android-arm64-v8a --ndk $NDK")
def build_target(
    platform: Platform = None,
    ndk: Ndk = None,
    tvm_source: TvmSource = None,
    api_level: Annotated[int | None, typer.Option(help="Lowest Android API level.")] = None,
    alignment: Annotated[int | None, typer.Option(help="Bytes; tensor alignment of the runtime.")] = None,
    opencl: Annotated[bool | None, typer.Option(help="Build the OpenCL runtime in.")] = None,
    rpc: Annotated[bool | None, typer.Option(help="Build tvm_rpc.")] = None,
    build_type: Annotated[str | None, typer.Option(help="CMake's build type.")] = None,
    jobs: Annotated[int | None, typer.Option("--jobs", "-j", help="Parallel compiler processes.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Also copy the bundle here.")] = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Build TVM's runtime, tvm_rpc and the runner for a device: a TargetBundle."""
    from adt import api

    with status_line("build-target") as progress:
        result = api.build_target(
            platform=platform,
            ndk=ndk,
            tvm_source=tvm_source,
            api_level=api_level,
            alignment=alignment,
            opencl=opencl,
            rpc=rpc,
            build_type=build_type,
            jobs=jobs,
            out=out,
            progress=progress,
        )
    bundle = result.bundle.manifest
    if as_json:
        fields = {
            "path": out or result.bundle.path,
            "build_dir": result.build_dir,
            "reused": result.reused,
            "compiled": result.compiled,
            "seconds": result.seconds,
        }
        from adt.host.manifest import fields_of

        emit_json("build-target", fields | {"bundle": fields_of(bundle)})
        return
    source = result.source
    typer.echo(f"TVM source  {source.version} ({source.provider}: {source.why})")
    typer.echo(
        f"compiler    {bundle.compiler}" + (f", NDK {bundle.ndk_revision}" if bundle.ndk_revision else "")
    )
    made = "up to date" if result.reused else f"{result.compiled} translation units compiled"
    typer.echo(f"built       {made} in {result.seconds:.1f} s")
    for name, facts in bundle.files.items():
        typer.echo(f"  {name:<24} {facts.size:>10,} bytes")
    typer.echo(f"bundle      {out or result.bundle.path}")


@app.command(epilog="Example: adt source --provider registry")
def source(
    tvm_source: TvmSource = None,
    provider: Annotated[str | None, typer.Option(help="auto, git or registry.")] = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Show the TVM source tree that a build takes, obtaining it if need be."""
    from adt import api

    found = api.source(tvm_source=tvm_source, provider=provider)
    if as_json:
        emit_json("source", vars(found))
        return
    typer.echo(f"path      {found.path}")
    typer.echo(f"provider  {found.provider}: {found.why}")
    typer.echo(f"version   TVM {found.version}, tvm-ffi {found.ffi_version}")
    typer.echo(f"digest    {found.digest}")
