"""Look without changing: the doctor, the ELF audit, and what is in a package."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adt.checkup.check import Area, Check, Status, make_scope
from adt.cli.command import Rendering, command
from adt.errors import BuildError, ConfigError, DoctorFailed, dependent, exclusive
from adt.host.cache import write_text
from adt.host.disk import check_directory
from adt.host.document import aligned, document_of
from adt.options.option import (
    AnyPath,
    Directory,
    MaybePath,
    OneOrMorePaths,
    OneOrMoreTexts,
    Options,
    Real,
    Text,
    did_you_mean,
    option,
    options_of,
    python,
    values_of,
)
from adt.options.request import Request, takes
from adt.options.sections import FOR, BuildSettings, DeviceSettings
from adt.package.reports import Convolution, OffloadReport, TextureReport
from adt.verbs.options import BUNDLE, ELF_BUNDLE, PACKAGE, output, quiet

if TYPE_CHECKING:
    from adt.bundle.audit.report import ElfReport
    from adt.checkup.diagnosis import Diagnosis, Repair
    from adt.package.inspection.inspection import Inspection, PackageDiff, Param


class ElfRequest(Request):
    """Request of :func:`adt.elf`."""

    ndk: Directory = BuildSettings.ndk
    bundle: MaybePath = ELF_BUNDLE
    paths: OneOrMorePaths = option(
        "Files to judge: ELF, .aar, .apk, .jar, .whl, .zip, and directories of them.",
        kw_only=False,
        metavar="PATH",
    )
    platform: str | None = option(
        "What to judge them for; else what the bundle or package among them was made for, else what each "
        "file says of itself.",
        *FOR,
        default=None,
        help="Platform to judge them for; else what they say themselves.",
        offers="platform",
    )
    api_level: int | None = option(
        "Android API level to judge at; else the bundle's, else each file's own.",
        default=None,
        least=1,
    )


class DoctorRequest(Options):
    """Request of :func:`adt.doctor`, which looks at the settings itself: it says what is wrong with them."""

    serial: Text = DeviceSettings.serial
    timeout: Real = DeviceSettings.timeout
    ndk: Directory = BuildSettings.ndk
    bundle: MaybePath = BUNDLE
    areas: OneOrMoreTexts = option(
        "Areas to look at; else all.",
        default=(),
        kw_only=False,
        choices=["host", "ndk", "device", "rpc", "package"],
    )
    package: MaybePath = option("Package to check.", default=None, metavar="DIR")
    fix: bool = option("Mend what can be mended safely, say so, and look again.", default=False)
    on_check: Callable[[Check], None] = python("Called with each check as it comes.", default=quiet)
    on_repair: Callable[[Repair], None] = python("Called after each repair.", default=quiet)


@takes(DoctorRequest)
def doctor(request: DoctorRequest) -> Diagnosis:
    """Look at this machine, the NDK, the devices and a package: what is wrong, and what mends it.

    Raises:
        ConfigError: an area that is none. A failed check does not raise: look at ``result.passed``.
    """
    from adt.checkup.diagnosis import diagnose

    flags = {
        about.key: getattr(request, name) or None
        for name, about in options_of(DoctorRequest).items()
        if about.key
    }
    areas = tuple(map(Area, request.areas))
    scope = make_scope(flags, os.environ, areas=areas, package=request.package, bundle=request.bundle)
    return diagnose(scope, fix=request.fix, on_check=request.on_check, on_repair=request.on_repair)


@takes(ElfRequest)
def elf(request: ElfRequest) -> ElfReport:
    """Audit ELF files, and those in directories, bundles, packages (.tar, too) and archives: would they load?

    Raises:
        PackageError: there is nothing to audit. A file that would not load does not raise:
            look at ``report.verdict``.
    """
    from adt.bundle.audit.auditing import audit_paths
    from adt.package.files import is_archive
    from adt.package.package import load_package

    paths = tuple(load_package(p).path if is_archive(p) and p.is_file() else p for p in request.paths)
    return audit_paths(
        paths,
        platform=request.platform,
        api_level=request.api_level,
        settings=request.settings.build,
        bundle=request.bundle,
    )


def inspect(package: AnyPath) -> Inspection:
    """Open a package to look into it: graph, kernels, memory, code, parameters.

    Raises:
        PackageError: it is no package, or was changed.
    """
    from adt.package.inspection.inspection import open_inspection

    return open_inspection(Path(package))


def inspect_diff(before: AnyPath, after: AnyPath) -> PackageDiff:
    """Compare two packages: fields of mod.json, kernels, parameters, sizes, memory.

    Raises:
        PackageError: one of them is no package, or was changed.
    """
    from adt.package.inspection.inspection import compare

    return compare(inspect(before), inspect(after))


def inspect_html(package: AnyPath, out: AnyPath, *, profile: AnyPath | None = None) -> None:
    """Write one self-contained page with the graph, the kernels and the memory plan of a package.

    Args:
        profile: times of the calls on a device (schema ``adt.profile``).

    Raises:
        PackageError: it is no package, has no ``inspect/``, or *profile* is no profile.
        MismatchError: *profile* is of another package.
    """
    from adt.package.inspection.page import render
    from adt.package.inspection.profile import load_profile

    inspection = inspect(package)
    times = load_profile(Path(profile), inspection.package.manifest) if profile else None
    write_text(Path(out), render(inspection, times))


def named_kernels(inspection: Inspection, device: str, name: str | None) -> dict[str, str]:
    """Return the source of the kernel *name* for *device*, or of those a function launches; None: all."""
    texts = inspection.sources(device)
    if name is None:
        return texts
    chosen = (name,) if name in texts else inspection.by_function().get(name, ())
    if not chosen:
        raise ConfigError(
            f"there is no kernel {name!r}.{did_you_mean(name, texts)}",
            remedy=f"Its kernels are: {', '.join(texts)}.",
        )
    return {kernel: texts[kernel] for kernel in chosen}


def write_texts(texts: Mapping[str, str], out: Path) -> None:
    """Write each text to its name in the directory *out*; none, if one is not the name of a file."""
    from adt.host.contained import file_name

    files = [(out / file_name(name), text) for name, text in texts.items()]
    for path, text in files:
        write_text(path, text)


class InspectFlags(Options):
    """Choice of the view: those in :data:`VIEWS` exclude each other."""

    opencl: bool = option("Show the OpenCL source of the kernels.", default=False)
    cuda: bool = option("Show the CUDA source of the kernels.", default=False)
    offload: bool = option("Show as JSON what libraries compute, what not, and why.", default=False)
    relax: bool = option("Show the Relax function main after the last pass.", default=False)
    tir: bool = option("Show the scheduled kernels in TIR.", default=False)
    llvm: bool = option("Show the LLVM IR of the CPU's code.", default=False)
    asm: bool = option("Show the assembly of the CPU's code.", default=False)
    cpu: bool = option("Show how a CPU computes each kernel, and its share of the work.", default=False)
    int8: bool = option(
        "Show what of a quantized model a CPU computes in integers, and why not all.", default=False
    )
    params: bool = option("Show name, shape, size and range of each parameter.", default=False)
    textures: bool = option("Show which tensors are in textures, which are not, and why.", default=False)
    diff: MaybePath = option("Show what differs between this package and PKG2.", default=None, metavar="PKG2")
    html: MaybePath = output("Write a page with the graph for the browser.")
    kernel: str | None = option("Show this kernel alone, with --opencl or --cuda.", default=None)
    profile: MaybePath = option("Times for --html, written by `adt profile --json`.", default=None)
    out: MaybePath = option(
        "Write one file for each to this directory with --opencl, --cuda or --offload.",
        "--out",
        "-o",
        default=None,
        metavar="DIR",
        check=check_directory,
    )


@command("adt inspect model-pkg --html model.html")
def inspect_command(package: Annotated[Path, PACKAGE], flags: InspectFlags) -> Rendering:
    """Show what is in a package: kernels, textures, memory, code, parameters; or a page with the graph."""
    shown = [name for name, value in values_of(flags).items() if value and name in VIEWS]
    _check_flags(shown, flags)
    inspection = inspect(package)
    fields, lines = VIEWS[shown[0] if shown else "summary"](inspection, flags)
    return Rendering("inspect", {"path": inspection.package.place, **fields}, lines)


def _check_flags(shown: list[str], flags: InspectFlags) -> None:
    if len(shown) > 1:
        raise exclusive(f"--{shown[0]}", f"--{shown[1]}")
    for name, where in (
        ("kernel", ["opencl", "cuda"]),
        ("profile", ["html"]),
        ("out", ["opencl", "cuda", "offload"]),
    ):
        if getattr(flags, name) is not None and not set(shown) & set(where):
            raise dependent(f"--{name}", " or ".join(f"--{view}" for view in where))


View = tuple[dict[str, Any], Iterable[str]]
"""Fields of the document, and lines."""


def _text(name: str, method: str) -> Callable[[Inspection, InspectFlags], View]:
    """Make the view of a text that the inspection gives."""

    def view(inspection: Inspection, _flags: InspectFlags) -> View:
        text = getattr(inspection, method)()
        return {name: text}, [text.removesuffix("\n")]

    return view


def _kernels(inspection: Inspection, flags: InspectFlags) -> View:
    device = "cuda" if flags.cuda else "opencl"
    facts = {row.name: row for row in inspection.graph.kernels}
    texts = named_kernels(inspection, device, flags.kernel)
    rows = [document_of(facts[name]) | {"source": text} for name, text in texts.items()]
    if flags.out is None:
        return {device: rows}, ["\n".join(texts.values()).removesuffix("\n")]
    write_texts({Path(facts[name].file).name: text for name, text in texts.items()}, flags.out)
    return {device: rows}, [f"wrote {len(rows)} files to {flags.out}"]


def _offload(inspection: Inspection, flags: InspectFlags) -> View:
    import json

    report = inspection.package.manifest.made.offload
    if report is None:
        raise ConfigError(
            f"the package {inspection.package.manifest.name} hands nothing to a library",
            remedy="Compile the model with --offload LIBRARY (docs/libraries.md).",
        )
    libraries = inspection.subgraphs()
    fields = {"offload": report, "subgraphs": libraries}
    if flags.out is None:
        return fields, [*offload_lines(report, inspection), json.dumps(libraries, indent=2)]
    texts = {
        f"{name}.json": json.dumps(graph, indent=2) + "\n"
        for graphs in libraries.values()
        for name, graph in graphs.items()
    }
    write_texts(texts, flags.out)
    return fields, [*offload_lines(report, inspection), f"wrote {len(texts)} files to {flags.out}"]


def offload_lines(report: OffloadReport, inspection: Inspection) -> Iterator[str]:
    """Yield what libraries compute, call by call, and what they do not."""
    yield f"offload  {report.summary}"
    for name, counts in inspection.library_calls().items():
        parts = ", ".join(f"{count} × {kernel}" for kernel, count in counts.items())
        yield f"         {name} calls {parts}"
    for line in report.left:
        yield f"         stays in TVM's kernels: {line}"


def _params(inspection: Inspection, _flags: InspectFlags) -> View:
    rows = inspection.params()
    return {"params": rows}, _param_lines(rows)


def _cpu(inspection: Inspection, _flags: InspectFlags) -> View:
    kernels = inspection.cpu()
    total = sum(kernel.flops or 0 for kernel in kernels) or 1
    rows = [
        (
            kernel.name,
            f"{kernel.calls} x",
            "?" if kernel.flops is None else f"{kernel.flops / total:.1%}",
            kernel.schedule,
        )
        for kernel in kernels
    ]
    return {"cpu": kernels}, aligned(rows)


def _int8(inspection: Inspection, _flags: InspectFlags) -> View:
    facts = inspection.package.manifest
    operators = facts.made.integers
    if not operators:
        raise ConfigError(
            f"the package {facts.name} computes no integers: its model is not quantized, or "
            f"{facts.target.name} computes floats",
            remedy="Quantize the model (adt quantize), and compile it for what sums integers "
            "(docs/cpu.md): a CPU, or a GPU without textures (--target adreno-buffer, opencl).",
        )
    maps = inspection.float_maps()
    lines = [
        facts.made.integer_summary,
        "",
        OPERATORS,
        *aligned(_operator_rows(operators, ("integers", "floats"))),
        *(["", "floats that kernels write for others: elements"] if maps else []),
        *aligned([(name, f"{elements:,}") for name, elements in maps]),
    ]
    return {"int8": {"operators": operators, "float_maps": dict(maps)}}, lines


def _textures(inspection: Inspection, _flags: InspectFlags) -> View:
    made = inspection.package.manifest.made
    report = made.textures
    if report is None and made.blocked:
        rows = _operator_rows(made.blocked, ("blocked", "plain"))
        lines = [made.blocked_summary, "", OPERATORS, *(f"  {line}" for line in aligned(rows))]
        return {"blocked": made.blocked}, lines
    if report is None:
        target = inspection.package.manifest.target.name
        raise ConfigError(
            f"the package has no textures: its target is {target}",
            remedy="Compile the model with --target adreno.",
        )
    return {"textures": report}, _texture_lines(report)


def _diff(inspection: Inspection, flags: InspectFlags) -> View:
    assert flags.diff is not None
    difference = inspect_diff(inspection.package.place, flags.diff)
    return {"diff": difference}, _diff_lines(difference)


def _html(inspection: Inspection, flags: InspectFlags) -> View:
    assert flags.html is not None
    inspect_html(inspection.package.place, flags.html, profile=flags.profile)
    return {"html": flags.html}, [f"wrote {flags.html}"]


def _summary(inspection: Inspection, _flags: InspectFlags) -> View:
    manifest = inspection.package.manifest
    fields: dict[str, Any] = {
        "package": manifest,
        "recorded": inspection.recorded,
        "kernels": manifest.total,
        "textured": inspection.textured,
        "tuned": manifest.tuned,
        "sizes": inspection.sizes(),
    }
    if inspection.recorded:
        graph = inspection.graph
        memory = {name: getattr(graph, name) for name in ("total", "peak", "unplanned")}
        memory |= {"storages": len(graph.storages), "by_scope": graph.by_scope()}
        fields |= {"calls": len(graph.calls), "memory": memory, "device_kernels": graph.kernels}
    return fields, _summary_lines(inspection)


def _texture_lines(report: TextureReport) -> Iterator[str]:
    """Yield a row for each convolution, matrix product, kernel and weight, with what decided about it."""
    yield report.summary
    operators = _operator_rows(report.convolutions, ("textures", "buffers"))
    kernels = [
        (kernel.kernel, f"reads {kernel.reads}", f"writes {kernel.writes}", kernel.reason)
        for kernel in report.kernels
    ]
    weights = [
        (weight.name, "x".join(map(str, weight.shape)), "buffer" if weight.reason else "image", weight.reason)
        for weight in report.weights
    ]
    for title, rows in (
        (OPERATORS, operators),
        ("kernels: images, why the output is none", kernels),
        ("weights: layers x height x width x lanes", weights),
    ):
        if rows:
            yield f"\n{title}"
            yield from (f"  {line}" for line in aligned(rows))


OPERATORS = "operators: weight, multiplications, where, why"


def _operator_rows(operators: Sequence[Convolution], homes: tuple[str, str]) -> list[tuple[str, ...]]:
    """Make a row for each operator; *homes* names the places of blocked ones and of others."""
    return [
        (
            operator.name,
            operator.kind,
            "x".join(map(str, operator.weight)) + f", {operator.groups} groups" * (operator.groups > 1),
            f"{operator.macs:,}",
            homes[bool(operator.reason)],
            operator.reason or operator.grounds,
        )
        for operator in operators
    ]


def _summary_lines(inspection: Inspection) -> Iterator[str]:
    facts = inspection.package.manifest
    target = facts.target
    yield f"model       {facts.name}, from {facts.source.file}"
    yield f"target      {target.name} on {target.platform} ({target.triple})"
    for entry in facts.entries:
        for kind, specs in (("input", entry.inputs), ("output", entry.outputs)):
            for spec in specs:
                yield f"{kind:<11} {spec.name}: {spec.dtype}[{', '.join(map(str, spec.shape))}]"
    yield f"precision   {facts.precision}, tensors aligned to {facts.alignment} bytes"
    textures = f", {inspection.textured} of them with textures" if target.device == "opencl" else ""
    yield (f"kernels     {facts.total} on {target.device}{textures}; {facts.tuned} of {facts.total} tuned")
    if facts.made.textures:
        buffers = sum(bool(operator.reason) for operator in facts.made.textures.convolutions)
        yield f"textures    {facts.made.textures.summary}"
        yield (
            f"            {len(facts.made.textures.convolutions) - buffers} operators chosen for textures,"
            f" {buffers} for buffers (--textures says why)"
        )
    if facts.made.integers:
        yield f"int8        {facts.made.integer_summary} (--int8 says why)"
    if facts.made.blocked:
        yield f"blocked     {facts.made.blocked_summary} (--textures says why)"
    if facts.made.offload:
        yield f"offload     {facts.made.offload.summary} (--offload says why not more)"
    if facts.made.tuning:
        yield f"tuning      {facts.made.tuning.origin}"
    if inspection.recorded:
        graph = inspection.graph
        scopes = ", ".join(f"{scope} {size:,}" for scope, size in graph.by_scope().items())
        yield f"calls       {len(graph.calls)}"
        yield (
            f"memory      {graph.total:,} bytes in {len(graph.storages)} storages"
            f" ({graph.unplanned:,} without sharing); at once at most {graph.peak:,}"
        )
        if len(graph.by_scope()) > 1:
            yield f"            {scopes}"
    else:
        yield "memory      not recorded: inspect/ was left out; adt compile records it"
    sizes = ", ".join(f"{name} {size:,}" for name, size in inspection.sizes().items())
    yield f"bytes       {sizes}"
    yield (f"made by     adt {facts.adt_version}, TVM {facts.tvm.version}, tvm-ffi {facts.tvm.ffi_version}")


def _param_lines(rows: tuple[Param, ...]) -> Iterator[str]:
    wide = max((len(row.name) for row in rows), default=4)
    yield f"{'name':<{wide}}  {'type':<28} {'bytes':>12} {'min':>12} {'max':>12} {'mean':>12}"
    for row in rows:
        kind = f"{row.dtype}[{', '.join(map(str, row.shape))}]"
        numbers = " ".join("-".rjust(12) if v is None else f"{v:12.5g}" for v in (row.min, row.max, row.mean))
        odd = "  image" if row.image else ""
        odd += f"  {row.not_finite} not finite" if row.not_finite else ""
        yield f"{row.name:<{wide}}  {kind:<28} {row.bytes:>12,} {numbers}{odd}"
    yield f"{len(rows)} parameters, {sum(row.bytes for row in rows):,} bytes"


def _diff_lines(difference: PackageDiff) -> Iterator[str]:
    if difference.empty:
        yield "the packages are the same"
        return
    for row in difference.fields:
        yield f"{row.name}: {_plain(row.before)} → {_plain(row.after)}"
    for title, names in (("kernel", difference.kernels), ("parameter", difference.params)):
        for sign, group in (("+", names.added), ("-", names.removed)):
            for name in group:
                yield f"{sign} {title} {name}"
    for name in difference.kernels.changed:
        yield f"~ kernel {name}"
    for change in difference.changed_params:
        how = f"differs by at most {change.max_abs:g}" if change.max_abs is not None else f"is {change.after}"
        yield f"~ parameter {change.name}: {change.before} {how}"
    for row in (*difference.sizes, *difference.memory):
        yield f"{row.name}: {_count(row.before)} → {_count(row.after)}"


def _plain(value: Any) -> str:
    return "nothing" if value is None else str(value)


def _count(value: Any) -> str:
    return "nothing" if value is None else f"{value:,}"


VIEWS: dict[str, Callable[[Inspection, InspectFlags], View]] = {
    "summary": _summary,
    "opencl": _kernels,
    "cuda": _kernels,
    "offload": _offload,
    "relax": _text("relax", "relax"),
    "tir": _text("tir", "tir"),
    "llvm": _text("llvm", "llvm"),
    "asm": _text("asm", "assembly"),
    "cpu": _cpu,
    "int8": _int8,
    "params": _params,
    "textures": _textures,
    "diff": _diff,
    "html": _html,
}


MARKS = {Status.OK: ("✓", "green"), Status.WARNING: ("!", "yellow"), Status.FAILED: ("✗", "red")}


@command("adt doctor ndk --ndk $NDK")
def doctor_command(request: DoctorRequest, as_json: bool) -> Rendering:
    """Check this machine, the NDK, the devices and a package, and say what mends each fault."""
    lines = _Lines()
    on_check, on_repair = (quiet, quiet) if as_json else (lines.check, lines.repair)
    result = doctor(request.but(on_check=on_check, on_repair=on_repair))
    states = [check.status for check in result.checks]
    counts = ", ".join(f"{states.count(status)} {MARKS[status][0]}" for status in Status)
    error = None
    if not result.passed:
        mendable = not request.fix and any(check.fix for check in result.failed)
        names = ", ".join(f"{check.area}: {check.name}" for check in result.failed)
        error = DoctorFailed(
            f"{len(result.failed)} of {len(result.checks)} checks failed ({names})",
            remedy="Do what stands under each ✗" + (", or run it again with --fix." if mendable else "."),
        )
    return Rendering("doctor", result, [f"\n{len(result.checks)} checks: {counts}"], error)


class _Lines:
    """Prints one line per check under its area's heading, as the checks come."""

    def __init__(self) -> None:
        self._heading = ""
        if hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(errors="replace")  # a terminal without ✓ is no reason to fail

    def check(self, check: Check) -> None:
        """Show one check."""
        self._begin(check.area)
        mark, colour = MARKS[check.status]
        origin = typer.style(f"  ({check.origin})", dim=True) if check.origin else ""
        typer.echo(f"  {typer.style(mark, fg=colour, bold=True)} {check.name}: {check.found}{origin}")
        if check.remedy and check.status is not Status.OK:
            typer.echo(f"      → {check.remedy}")

    def repair(self, repair: Repair) -> None:
        """Show one repair; the checks that follow are a new round."""
        self._begin("fixing")
        mark, colour = MARKS[Status.OK if repair.done else Status.FAILED]
        typer.echo(f"  {typer.style(mark, fg=colour, bold=True)} {repair.said}")

    def _begin(self, heading: str) -> None:
        """Print *heading*, unless it is the last one."""
        if heading != self._heading:
            typer.secho(("\n" if self._heading else "") + heading, bold=True)
            self._heading = heading


@command("adt elf libfoo.so app.aar --for android-arm64-v8a")
def elf_command(request: ElfRequest) -> Rendering:
    """Say which libraries and programs would load on the device, why not, and what to send with them."""
    from adt.bundle.audit.report import table

    report = elf(request)
    return Rendering("elf", report, [table(report)], _failure(report))


def _failure(report: ElfReport) -> BuildError | None:
    if not report.refused:
        return None
    first = report.refused[0]
    count = f"{len(report.refused)} of {len(report.files)} files would not load"
    return BuildError(f"{count}; {first.name}: {first.reasons[0].what}", remedy=first.reasons[0].remedy)
