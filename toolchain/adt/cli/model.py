"""``adt compile``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from adt.cli.app import Json, Verbose, app, emit_json
from adt.cli.build import Ndk, Platform

Shapes = Annotated[
    list[str] | None,
    typer.Option("--shape", help="Fix an input's shape; repeat for each.", metavar="NAME:1,3,224,224"),
]
Target = Annotated[str | None, typer.Option(help="What computes: cpu or opencl.")]


@app.command("compile", epilog="Example: adt compile model.onnx --for linux-aarch64 -o model-pkg")
def compile_(
    model: Annotated[Path, typer.Argument(help="An ONNX file.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Directory of the package.")] = None,
    platform: Platform = None,
    target: Target = None,
    shape: Shapes = None,
    bundle: Annotated[
        Path | None, typer.Option(help="The bundle it will run with; Android needs one.", metavar="DIR")
    ] = None,
    ndk: Ndk = None,
    api_level: Annotated[int | None, typer.Option(help="Lowest Android API level.")] = None,
    like: Annotated[
        str | None,
        typer.Option(help="Compile for this device: its platform, CPU features, limits.", metavar="SERIAL"),
    ] = None,
    opt_level: Annotated[int | None, typer.Option(help="TVM's optimisation level, 0 to 3.")] = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Compile a model to a ModelPackage: mod.so, mod.json and mod.params."""
    import adt

    package = adt.compile(
        model,
        out=out,
        platform=platform,
        target=target,
        shapes=shape,
        bundle=bundle,
        ndk=ndk,
        api_level=api_level,
        opt_level=opt_level,
        like=like,
    )
    facts = package.manifest
    if as_json:
        from adt.host.manifest import fields_of

        emit_json("compile", {"path": package.path, "package": fields_of(facts)})
        return
    for kind, specs in (("input", facts.entry().inputs), ("output", facts.entry().outputs)):
        for spec in specs:
            typer.echo(f"{kind:<8} {spec.name}: {spec.dtype}[{', '.join(map(str, spec.shape))}]")
    typer.echo(
        f"kernels  {facts.total} for {facts.target.device} ({facts.target.triple}), {facts.tuned} tuned"
    )
    typer.echo(f"package  {package.path}")
