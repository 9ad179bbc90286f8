"""``adt compile``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from adt.api.requests import CompileRequest
from adt.cli.app import emit_json
from adt.cli.command import Keywords, command
from adt.cli.endings import command_with
from adt.options.option import Options, option

if TYPE_CHECKING:
    from adt.model.importers.importer import Explanation
    from adt.model.package.manifest import PackageManifest
    from adt.model.package.package import ModelPackage
    from adt.model.passes.reports import Accuracy


class CompileFlags(Options):
    """Which of the functions is called."""

    explain: bool = option("Only say what the import does with each operator.", default=False)


@command(
    "adt compile model.onnx --for linux-aarch64 -o model-pkg", CompileRequest, CompileFlags, name="compile"
)
def compile_(keywords: Keywords, flags: CompileFlags, as_json: bool) -> None:
    """Compile a model to a ModelPackage: mod.so, mod.json and mod.params."""
    import adt

    if flags.explain:
        show_explanation(adt.explain(keywords["model"], shapes=keywords["shapes"]), as_json=as_json)
        return
    package = adt.compile(**keywords)
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


def show_explanation(explanation: Explanation, *, as_json: bool) -> None:
    """Print what becomes of each operator; exit as compiling would where the import fails."""
    if as_json:
        from dataclasses import asdict

        emit_json("compile-explain", asdict(explanation))
    else:
        from adt.host.columns import aligned

        for line in aligned([(row.status, str(row.count), row.op, row.note) for row in explanation.ops]):
            typer.echo(line)
        typer.echo(f"{explanation.file} ({explanation.format}) " + (explanation.problem or "can be imported"))
        if explanation.remedy:
            typer.echo(f"remedy: {explanation.remedy}")
        if explanation.options:
            typer.echo(f"  {command_with(explanation.options)}")
    if explanation.exit_code:
        raise typer.Exit(explanation.exit_code)


def show_tuning(facts: PackageManifest) -> None:
    """Print whose records the kernels are from, and which kernels have none of theirs applied."""
    tuning = facts.made.tuning
    if tuning is None:
        return
    typer.echo(f"tuning   {tuning.origin}")
    for kernel in tuning.kept:
        typer.echo(f"         {kernel} keeps the untuned schedule: it was the fastest")
    for kernel in tuning.refused:
        typer.echo(f"         {kernel} is untuned: its record does not apply any more")


def show_textures(facts: PackageManifest) -> None:
    """Print how much is in textures, and why convolutions are not."""
    textures = facts.made.textures
    if textures is None:
        return
    typer.echo(f"textures {textures.summary}")
    for operator in textures.convolutions:
        if operator.reason:
            typer.echo(f"         {operator.name} stays in buffers: {operator.reason}")


def show_offload(facts: PackageManifest) -> None:
    """Print what a vendor's library computes, and what was left."""
    offload = facts.made.offload
    if offload is None:
        return
    typer.echo(
        f"offload  {offload.ops} of {offload.total} operators to {offload.wanted} "
        f"in {offload.subgraphs} subgraphs"
    )
    for line in offload.left:
        typer.echo(f"         stays in TVM's kernels: {line}")


def show_check(package: ModelPackage) -> None:
    """Print whether the kernels ran here."""
    from adt.model.package.package import KernelCheck

    checked = package.checked
    if isinstance(checked, KernelCheck):
        typer.echo(
            f"checked  right on {checked.device}: off the CPU by {checked.worst:.2g} of an output's"
            f" magnitude at most (limit {checked.limit:g})"
        )
    elif checked is not None:
        typer.echo(f"checked  no: {checked.reason}")


def show_accuracy(accuracy: Accuracy) -> None:
    """Print one line per output."""
    for output in accuracy.outputs:
        typer.echo(
            f"accuracy {output.name}: {accuracy.precision} against float32 on {accuracy.inputs}: max abs "
            f"{output.max_abs:.3g} of {output.magnitude:.3g} (rel {output.max_rel:.3g}), mean abs "
            f"{output.mean_abs:.3g}, cosine {output.cosine:.8g}"
            + ("" if output.top1 is None else f", same top class {output.top1:.0%}")
            + ("" if output.finite else ", NaN or infinite where float32 is not")
            + ("" if output.compared else ", nothing finite to compare")
        )
