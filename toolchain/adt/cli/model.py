"""``adt compile``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adt.cli import completions
from adt.cli.app import Json, Verbose, app, emit_json
from adt.cli.build import ApiLevel, Ndk, Platform
from adt.cli.completions import one_of
from adt.cli.endings import command_with
from adt.cli.texture_report import show_textures

if TYPE_CHECKING:
    from adt.model.importers.any import Explanation
    from adt.model.package import ModelPackage, PackageManifest
    from adt.model.precision.accuracy_report import Accuracy

Model = Annotated[
    Path, typer.Argument(help="An .onnx, .tflite, .pt2, .keras or .h5 file, or module:function.")
]
Shapes = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        help="Fix an input's shape, or open dimensions by their symbols; repeat for each.",
        metavar="NAME:1,3,224,224|SYMBOL=1,…",
    ),
]
Target = Annotated[
    str | None,
    typer.Option(
        help="What computes; or TVM's own words.",
        metavar="cpu|opencl|adreno|adreno-buffer|mali|host|…",
        autocompletion=completions.target,
    ),
]
Cpu = Annotated[
    str | None,
    typer.Option(
        help="Processor: a core, a chip, native, +features.",
        metavar="cortex-a76,+dotprod|rk3588|…",
        autocompletion=completions.processor,
    ),
]
Like = Annotated[
    str | None,
    typer.Option(
        help="Compile for this device: its platform, CPU features, limits.",
        metavar="SERIAL",
        autocompletion=completions.serial,
    ),
]
OptLevel = Annotated[int | None, typer.Option(help="TVM's optimisation level, 0 to 3.")]
Precision = Annotated[
    str | None,
    typer.Option(
        help="Computing in half precision.",
        **one_of("float32", "float16", "float16_acc32"),
    ),
]
KeepFloat32 = Annotated[
    list[str] | None,
    typer.Option(help="Operators that stay float32 in half precision.", metavar="nn.softmax,exp,…"),
]
Offload = Annotated[
    str | None, typer.Option(help="Hand operators to a vendor's library.", **one_of("clml", "nnapi", "none"))
]
TextureChoice = Annotated[
    str | None,
    typer.Option(help="Textures where they are faster, or wherever they can be.", **one_of("auto", "always")),
]
Db = Annotated[
    Path | None, typer.Option(help="Take tuned schedules from this database (adt tune).", metavar="DIR")
]
TunedOn = Annotated[str | None, typer.Option(help="… those of this device.", metavar="NAME[, DRIVER]")]


def each_name(texts: list[str] | None) -> list[str]:
    """The names in *texts*, each of which may hold several: ``nn.softmax,exp``."""
    return [name for text in texts or () for name in text.split(",") if name]


@app.command("compile", epilog="Example: adt compile model.onnx --for linux-aarch64 -o model-pkg")
def compile_(
    model: Model,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Directory of the package, or x.tar for one file.")
    ] = None,
    platform: Platform = None,
    target: Target = None,
    cpu: Cpu = None,
    shape: Shapes = None,
    bundle: Annotated[
        Path | None, typer.Option(help="The bundle it will run with; Android needs one.", metavar="DIR")
    ] = None,
    ndk: Ndk = None,
    api_level: ApiLevel = None,
    like: Like = None,
    opt_level: OptLevel = None,
    precision: Precision = None,
    keep_float32: KeepFloat32 = None,
    accuracy: Annotated[
        bool | None,
        typer.Option("--accuracy/--no-accuracy", help="Compare half precision with float32 here."),
    ] = None,
    accuracy_inputs: Annotated[
        list[Path] | None, typer.Option(help="… on this sample; repeat for more.", metavar="FILE.npz")
    ] = None,
    offload: Offload = None,
    texture_choice: TextureChoice = None,
    check: Annotated[
        bool | None,
        typer.Option("--check/--no-check", help="Run OpenCL kernels here and compare them with the CPU."),
    ] = None,
    db: Db = None,
    tuned_on: TunedOn = None,
    use_cache: Annotated[
        bool, typer.Option("--cache/--no-cache", help="Copy what was compiled before with all the same.")
    ] = True,
    explain: Annotated[
        bool, typer.Option("--explain", help="Only say what the import does with each operator.")
    ] = False,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Compile a model to a ModelPackage: mod.so, mod.json and mod.params."""
    import adt

    if explain:
        show_explanation(adt.explain(model, shapes=shape), as_json=as_json)
        return
    package = adt.compile(
        model,
        out=out,
        platform=platform,
        target=target,
        cpu=cpu,
        shapes=shape,
        bundle=bundle,
        ndk=ndk,
        api_level=api_level,
        opt_level=opt_level,
        like=like,
        precision=precision,
        keep_float32=each_name(keep_float32),
        accuracy=accuracy,
        accuracy_inputs=accuracy_inputs or (),
        offload=offload,
        texture_choice=texture_choice,
        check=check,
        db=db,
        tuned_on=tuned_on,
        use_cache=use_cache,
    )
    facts = package.manifest
    if as_json:
        from dataclasses import asdict

        from adt.host.manifest import fields_of

        fields = {
            "path": package.place,
            "cached": package.cached,
            "checked": asdict(package.checked) if package.checked else None,
            "package": fields_of(facts),
        }
        emit_json("compile", fields)
        return
    for kind, specs in (("input", facts.entry().inputs), ("output", facts.entry().outputs)):
        for spec in specs:
            typer.echo(f"{kind:<8} {spec.name}: {spec.dtype}[{', '.join(map(str, spec.shape))}]")
    typer.echo(
        f"kernels  {facts.total} for {facts.target.device} ({facts.target.triple}), {facts.tuned} tuned"
    )
    show_tuning(facts)
    show_textures(facts)
    show_offload(facts)
    show_check(package)
    if facts.made.accuracy:
        show_accuracy(facts.made.accuracy)
    typer.echo(f"package  {package.place}{' (from the cache)' * package.cached}")


def show_explanation(found: Explanation, *, as_json: bool) -> None:
    """Print what becomes of each operator; exit as compiling would where the import fails."""
    if as_json:
        from dataclasses import asdict

        emit_json("compile-explain", asdict(found))
    else:
        from adt.host.columns import aligned

        for line in aligned([(row.status, str(row.count), row.op, row.note) for row in found.ops]):
            typer.echo(line)
        typer.echo(f"{found.file} ({found.format}) " + (found.problem or "can be imported"))
        if found.remedy:
            typer.echo(f"remedy: {found.remedy}")
        if found.options:
            typer.echo(f"  {command_with(found.options)}")
    if found.exit_code:
        raise typer.Exit(found.exit_code)


def show_tuning(facts: PackageManifest) -> None:
    """Print whose records the kernels are from, and which kernels have none of theirs applied."""
    found = facts.made.tuning
    if found is None:
        return
    typer.echo(f"tuning   {found.told}")
    for kernel in found.kept:
        typer.echo(f"         {kernel} keeps the untuned schedule: it was the fastest")
    for kernel in found.refused:
        typer.echo(f"         {kernel} is untuned: its record does not apply any more")


def show_offload(facts: PackageManifest) -> None:
    """Print what a vendor's library computes, and what was left."""
    found = facts.made.offload
    if found is None:
        return
    typer.echo(
        f"offload  {found.ops} of {found.total} operators to {found.wanted} in {found.subgraphs} subgraphs"
    )
    for line in found.left:
        typer.echo(f"         stays in TVM's kernels: {line}")


def show_check(package: ModelPackage) -> None:
    """Print whether the kernels ran here."""
    from adt.model.checked import Checked

    checked = package.checked
    if isinstance(checked, Checked):
        typer.echo(
            f"checked  right on {checked.device}: off the CPU by {checked.worst:.2g} of an output's"
            f" magnitude at most (limit {checked.limit:g})"
        )
    elif checked is not None:
        typer.echo(f"checked  no: {checked.reason}")


def show_accuracy(found: Accuracy) -> None:
    """Print one line per output."""
    for output in found.outputs:
        typer.echo(
            f"accuracy {output.name}: {found.precision} against float32 on {found.inputs}: max abs "
            f"{output.max_abs:.3g} of {output.magnitude:.3g} (rel {output.max_rel:.3g}), mean abs "
            f"{output.mean_abs:.3g}, cosine {output.cosine:.8g}"
            + ("" if output.top1 is None else f", same top class {output.top1:.0%}")
            + ("" if output.finite else ", NaN or infinite where float32 is not")
            + ("" if output.compared else ", nothing finite to compare")
        )
