"""``adt compile`` and ``adt networks``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from adt.api.requests import CompileRequest, ExplainRequest
from adt.cli.command import Rendering, command
from adt.cli.endings import command_with
from adt.options.option import option

if TYPE_CHECKING:
    from adt.compiler.importers.importer import Explanation
    from adt.compiler.networks.known import NetworkSummary
    from adt.package.package import ModelPackage
    from adt.package.reports import Accuracy


@command("adt compile model.onnx --for linux-aarch64 -o model-pkg", name="compile")
def compile_(
    request: CompileRequest,
    explain: Annotated[bool, option("Only say what the import does with each operator.", default=False)],
) -> Rendering:
    """Compile a model to a ModelPackage: mod.so, mod.json and mod.params."""
    from adt.api import model

    if explain:
        explanation = model.explain(ExplainRequest(**request.keywords_of(ExplainRequest)))
        return Rendering(
            "compile-explain",
            lambda: asdict(explanation),
            _explanation_lines(explanation),
            exit_code=explanation.exit_code,
        )
    package = model.compile(request)
    return Rendering("compile", lambda: _fields(package), _lines(package))


def _fields(package: ModelPackage) -> dict[str, Any]:
    from adt.host.manifest import fields_of

    return {
        "path": package.place,
        "cached": package.cached,
        "checked": asdict(package.checked) if package.checked else None,
        "package": fields_of(package.manifest),
    }


def _explanation_lines(explanation: Explanation) -> Iterator[str]:
    """Yield a line on each operator."""
    from adt.host.columns import aligned

    yield from aligned([(row.status, str(row.count), row.op, row.note) for row in explanation.ops])
    yield f"{explanation.file} ({explanation.format}) " + (explanation.problem or "can be imported")
    if explanation.remedy:
        yield f"remedy: {explanation.remedy}"
    if explanation.options:
        yield f"  {command_with(explanation.options)}"


def _lines(package: ModelPackage) -> Iterator[str]:
    facts, compilation = package.manifest, package.manifest.made
    for kind, specs in (("input", facts.entry().inputs), ("output", facts.entry().outputs)):
        for spec in specs:
            yield f"{kind:<8} {spec.name}: {spec.dtype}[{', '.join(map(str, spec.shape))}]"
    yield f"kernels  {facts.total} for {facts.target.device} ({facts.target.triple}), {facts.tuned} tuned"
    if compilation.tuning:
        yield f"tuning   {compilation.tuning.origin}"
        for kernel in compilation.tuning.kept:
            yield f"         {kernel} keeps the untuned schedule: it was the fastest"
        for kernel in compilation.tuning.refused:
            yield f"         {kernel} is untuned: its record does not apply any more"
    if compilation.textures:
        yield f"textures {compilation.textures.summary}"
        for operator in compilation.textures.convolutions:
            if operator.reason:
                yield f"         {operator.name} stays in buffers: {operator.reason}"
    if compilation.integers:
        yield f"int8     {compilation.integer_summary}"
    if compilation.blocked:
        yield f"blocked  {compilation.blocked_summary}"
        for operator in compilation.blocked:
            if operator.reason:
                yield f"         {operator.name} stays plain: {operator.reason}"
    if compilation.offload:
        from adt.cli.inspect import offload_lines
        from adt.package.inspection.inspection import Inspection

        yield from offload_lines(compilation.offload, Inspection(package))
    yield from _check_lines(package)
    if compilation.accuracy:
        yield from _accuracy_lines(compilation.accuracy)
    yield f"package  {package.place}{' (from the cache)' * package.cached}"


def _check_lines(package: ModelPackage) -> Iterator[str]:
    """Yield the result of running the kernels here."""
    from adt.package.package import KernelCheck

    checked = package.checked
    if isinstance(checked, KernelCheck):
        yield (
            f"checked  right on {checked.device}: off the CPU by {checked.worst:.2g} of an output's"
            f" magnitude at most (limit {checked.limit:g})"
        )
    elif checked is not None:
        yield f"checked  no: {checked.reason}"


def _accuracy_lines(accuracy: Accuracy) -> Iterator[str]:
    for output in accuracy.outputs:
        yield (
            f"accuracy {output.name}: {accuracy.precision} against float32 on {accuracy.inputs}: max abs "
            f"{output.max_abs:.3g} of {output.magnitude:.3g} (rel {output.max_rel:.3g}), mean abs "
            f"{output.mean_abs:.3g}, cosine {output.cosine:.8g}"
            + ("" if output.top1 is None else f", same top class {output.top1:.0%}")
            + ("" if output.finite else ", NaN or infinite where float32 is not")
            + ("" if output.compared else ", nothing finite to compare")
        )


@command("adt networks")
def networks() -> Rendering:
    """List the untrained networks that can be compiled, tuned and measured by name."""
    from adt.api import model

    networks = model.networks()
    return Rendering("networks", lambda: {"networks": list(map(asdict, networks))}, _network_lines(networks))


def _network_lines(networks: Sequence[NetworkSummary]) -> Iterator[str]:
    yield f"{'network':<20} {'picture':>9} {'parameters':>12} {'million MACs':>13}"
    for network in networks:
        picture = f"{network.size}x{network.size}"
        yield f"{network.name:<20} {picture:>9} {network.parameters:>12,} {network.macs / 1e6:>13,.1f}"
