"""``adt inspect``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from adt.api.requests import InspectRequest
from adt.cli.app import emit_json
from adt.cli.command import Keywords, command
from adt.errors import ConfigError
from adt.options.option import MaybePath, Options, option, values_of

if TYPE_CHECKING:
    from adt.model.inspection.diff import PackageDiff
    from adt.model.inspection.inspection import Inspection, Param
    from adt.model.passes.reports import TextureReport

TEXTS = ("relax", "tir", "llvm", "asm")


class InspectFlags(Options):
    """What is shown; the first ten exclude each other."""

    opencl: bool = option("The source of the OpenCL kernels.", default=False)
    clml: bool = option("The subgraphs that CLML computes, as JSON.", default=False)
    relax: bool = option("main after the last Relax pass.", default=False)
    tir: bool = option("The scheduled kernels.", default=False)
    llvm: bool = option("LLVM IR of the host's code.", default=False)
    asm: bool = option("Assembly of the host's code.", default=False)
    params: bool = option("Name, shape, size and range of each one.", default=False)
    textures: bool = option("What is in textures, what is not, and why.", default=False)
    diff: MaybePath = option("What differs between this package and PKG2.", default=None, metavar="PKG2")
    html: MaybePath = option("Write a page for the browser.", default=None, metavar="FILE")
    kernel: str | None = option("Only this kernel, with --opencl.", default=None, metavar="NAME")
    profile: MaybePath = option("Times of the calls, for --html.", default=None, metavar="FILE")
    out: MaybePath = option(
        "With --opencl, --clml: a file for each, here.", "--out", "-o", default=None, metavar="DIR"
    )


@command("adt inspect model-pkg --html model.html", InspectRequest, InspectFlags)
def inspect(keywords: Keywords, flags: InspectFlags, as_json: bool) -> None:
    """Show what is in a package: kernels, textures, memory, code, parameters; or a page with the graph."""
    import adt
    from adt.host.manifest import fields_of

    shown = [name for name, value in list(values_of(flags).items())[:10] if value]
    _check_flags(shown, flags)
    inspection = adt.inspect(**keywords)
    what = shown[0] if shown else ""
    fields: dict[str, Any] = {}
    if what in TEXTS:
        text = {
            "relax": inspection.relax,
            "tir": inspection.tir,
            "llvm": inspection.llvm,
            "asm": inspection.assembly,
        }[what]()
        fields = {what: text}
    elif what == "opencl":
        fields = {"opencl": _sources(inspection, flags.kernel, flags.out)}
    elif what == "clml":
        fields = {"clml": _subgraphs(inspection, flags.out)}
    elif what == "params":
        rows = inspection.params()
        fields = {"params": [vars(row) for row in rows]}
    elif what == "textures":
        report = _textures(inspection)
        fields = {"textures": {"share": report.share, **asdict(report)}}
    elif flags.diff:
        difference = adt.inspect_diff(keywords["package"], flags.diff)
        fields = {"diff": _diff_fields(difference)}
    elif flags.html:
        adt.inspect_html(keywords["package"], flags.html, profile=flags.profile)
        fields = {"html": flags.html}
    if as_json:
        summary = (
            {} if what else {"package": fields_of(inspection.package.manifest), **_summary_fields(inspection)}
        )
        emit_json("inspect", {"path": inspection.package.place, **summary, **fields})
    elif not what:
        _show_summary(inspection)
    elif what in TEXTS:
        typer.echo(fields[what], nl=False)
    elif what == "params":
        _show_params(rows)
    elif what == "textures":
        _show_textures(report)
    elif what == "diff":
        _show_diff(difference)
    elif what == "html":
        typer.echo(f"wrote {flags.html}")
    elif flags.out is not None:
        typer.echo(f"wrote {len(fields[what])} files to {flags.out}")
    elif what == "opencl":
        typer.echo("\n".join(row["source"] for row in fields["opencl"]), nl=False)
    else:
        import json

        typer.echo(json.dumps(fields["clml"], indent=2))


def _check_flags(shown: list[str], flags: InspectFlags) -> None:
    if len(shown) > 1:
        raise ConfigError(
            f"--{shown[0]} and --{shown[1]} cannot be shown at once", remedy="Choose one; run adt again."
        )
    for name, where in (("kernel", ["opencl"]), ("profile", ["html"]), ("out", ["opencl", "clml"])):
        if getattr(flags, name) is not None and not set(shown) & set(where):
            raise ConfigError(
                f"--{name} goes with {' or '.join(f'--{view}' for view in where)}",
                remedy="Add it, or leave this out.",
            )


def _sources(inspection: Inspection, kernel: str | None, out: Path | None) -> list[dict[str, Any]]:
    from adt.api.inspect import named_kernels, write_texts

    facts = {row.name: row for row in inspection.graph.kernels}
    texts = named_kernels(inspection, kernel)
    if out is not None:
        write_texts({f"{Path(facts[name].file).stem}.cl": text for name, text in texts.items()}, out)
    return [
        {
            "name": name,
            "function": facts[name].function,
            "textures": facts[name].textures,
            "buffers": facts[name].buffers,
            "work_groups": facts[name].grid,
            "work_items": facts[name].block,
            "source": text,
        }
        for name, text in texts.items()
    ]


def _textures(inspection: Inspection) -> TextureReport:
    report = inspection.package.manifest.made.textures
    if report is None:
        target = inspection.package.manifest.target.name
        raise ConfigError(
            f"the package has no textures: its target is {target}",
            remedy="Compile the model with --target adreno.",
        )
    return report


def _show_textures(report: TextureReport) -> None:
    """Print a row for each convolution, matrix product, kernel and weight, with what decided about it."""
    from adt.host.columns import aligned

    typer.echo(report.summary)
    operators = [
        (
            operator.name,
            operator.kind,
            "x".join(map(str, operator.weight)) + f", {operator.groups} groups" * (operator.groups > 1),
            f"{operator.macs:,}",
            "buffers" if operator.reason else "textures",
            operator.reason or operator.grounds,
        )
        for operator in report.convolutions
    ]
    kernels = [
        (kernel.kernel, f"reads {kernel.reads}", f"writes {kernel.writes}", kernel.reason)
        for kernel in report.kernels
    ]
    weights = [
        (weight.name, "x".join(map(str, weight.shape)), "buffer" if weight.reason else "image", weight.reason)
        for weight in report.weights
    ]
    for title, rows in (
        ("operators: weight, multiplications, where, why", operators),
        ("kernels: images, why the output is none", kernels),
        ("weights: layers x height x width x lanes", weights),
    ):
        if rows:
            typer.echo(f"\n{title}")
            for line in aligned(rows):
                typer.echo(f"  {line}")


def _subgraphs(inspection: Inspection, out: Path | None) -> dict[str, Any]:
    import json

    from adt.api.inspect import write_texts

    graphs = inspection.clml()
    if out is not None:
        write_texts(
            {f"{name}.json": json.dumps(graph, indent=2) + "\n" for name, graph in graphs.items()}, out
        )
    return graphs


def _summary_fields(inspection: Inspection) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "recorded": inspection.recorded,
        "kernels": inspection.package.manifest.total,
        "textured": inspection.textured,
        "tuned": inspection.package.manifest.tuned,
        "sizes": inspection.sizes(),
    }
    if inspection.recorded:
        graph = inspection.graph
        fields["calls"] = len(graph.calls)
        fields["memory"] = {
            "storages": len(graph.storages),
            "total": graph.total,
            "peak": graph.peak,
            "unplanned": graph.unplanned,
            "by_scope": graph.by_scope(),
        }
        fields["device_kernels"] = [
            {"name": k.name, "textures": k.textures, "work_groups": k.grid, "work_items": k.block}
            for k in graph.kernels
        ]
    return fields


def _show_summary(inspection: Inspection) -> None:
    facts = inspection.package.manifest
    target = facts.target
    typer.echo(f"model       {facts.name}, from {facts.source.file}")
    typer.echo(f"target      {target.name} on {target.platform} ({target.triple})")
    for entry in facts.entries:
        for kind, specs in (("input", entry.inputs), ("output", entry.outputs)):
            for spec in specs:
                typer.echo(f"{kind:<11} {spec.name}: {spec.dtype}[{', '.join(map(str, spec.shape))}]")
    typer.echo(
        f"precision   {facts.precision}, offload {facts.offload}, tensors aligned to {facts.alignment} bytes"
    )
    textures = f", {inspection.textured} of them with textures" if target.device == "opencl" else ""
    typer.echo(
        f"kernels     {facts.total} on {target.device}{textures}; {facts.tuned} of {facts.total} tuned"
    )
    if facts.made.textures:
        buffers = sum(bool(operator.reason) for operator in facts.made.textures.convolutions)
        typer.echo(f"textures    {facts.made.textures.summary}")
        typer.echo(
            f"            {len(facts.made.textures.convolutions) - buffers} operators chosen for textures,"
            f" {buffers} for buffers (--textures says why)"
        )
    if facts.made.tuning:
        typer.echo(f"tuning      {facts.made.tuning.origin}")
    if inspection.recorded:
        graph = inspection.graph
        scopes = ", ".join(f"{scope} {size:,}" for scope, size in graph.by_scope().items())
        typer.echo(f"calls       {len(graph.calls)}")
        typer.echo(
            f"memory      {graph.total:,} bytes in {len(graph.storages)} storages"
            f" ({graph.unplanned:,} without sharing); at once at most {graph.peak:,}"
        )
        if len(graph.by_scope()) > 1:
            typer.echo(f"            {scopes}")
    else:
        typer.echo("memory      not recorded: inspect/ was left out; adt compile records it")
    sizes = ", ".join(f"{name} {size:,}" for name, size in inspection.sizes().items())
    typer.echo(f"bytes       {sizes}")
    typer.echo(
        f"made by     adt {facts.adt_version}, TVM {facts.tvm.version}, tvm-ffi {facts.tvm.ffi_version}"
    )


def _show_params(rows: tuple[Param, ...]) -> None:
    wide = max((len(row.name) for row in rows), default=4)
    typer.echo(f"{'name':<{wide}}  {'type':<28} {'bytes':>12} {'min':>12} {'max':>12} {'mean':>12}")
    for row in rows:
        kind = f"{row.dtype}[{', '.join(map(str, row.shape))}]"
        numbers = " ".join("-".rjust(12) if v is None else f"{v:12.5g}" for v in (row.min, row.max, row.mean))
        odd = "  image" if row.image else ""
        odd += f"  {row.not_finite} not finite" if row.not_finite else ""
        typer.echo(f"{row.name:<{wide}}  {kind:<28} {row.bytes:>12,} {numbers}{odd}")
    typer.echo(f"{len(rows)} parameters, {sum(row.bytes for row in rows):,} bytes")


def _diff_fields(difference: PackageDiff) -> dict[str, Any]:
    return asdict(difference)


def _show_diff(difference: PackageDiff) -> None:
    if difference.empty:
        typer.echo("the packages are the same")
        return
    for row in difference.fields:
        typer.echo(f"{row.name}: {_plain(row.before)} → {_plain(row.after)}")
    for title, names in (("kernel", difference.kernels), ("parameter", difference.params)):
        for sign, group in (("+", names.added), ("-", names.removed)):
            for name in group:
                typer.echo(f"{sign} {title} {name}")
    for name in difference.kernels.changed:
        typer.echo(f"~ kernel {name}")
    for change in difference.changed_params:
        how = f"differs by at most {change.max_abs:g}" if change.max_abs is not None else f"is {change.after}"
        typer.echo(f"~ parameter {change.name}: {change.before} {how}")
    for row in (*difference.sizes, *difference.memory):
        typer.echo(f"{row.name}: {_count(row.before)} → {_count(row.after)}")


def _plain(value: Any) -> str:
    return "nothing" if value is None else str(value)


def _count(value: Any) -> str:
    return "nothing" if value is None else f"{value:,}"
