"""Compare a device's outputs with a reference, whole or kernel by kernel."""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

from adt.cli.command import Rendering, command
from adt.errors import AdtError, ConfigError, PackageError, VerifyFailed, dependent, exclusive
from adt.host.document import FLAT, HIDDEN, document_of, form, in_document
from adt.numerics import Array, joined
from adt.options.option import Flag, MaybePath, Number, PathTo, Real, Text, option, options_of
from adt.options.request import Request, takes
from adt.options.sections import DeviceSettings, Settings, VerifySettings
from adt.verbs import options as shared
from adt.verbs.deploy import open_place
from adt.verbs.options import Arrays, fetched, load_npz

if TYPE_CHECKING:
    from adt.device.place import Opened
    from adt.measure.layers import CallComparison, LayerScan
    from adt.measure.verify import OutputComparison, Verification
    from adt.package.package import ModelPackage


def call_span(text: str) -> tuple[int, int]:
    """Parse ``A:B``, two numbers."""
    numbers = re.fullmatch("([0-9]{1,9}):([0-9]{1,9})", text)
    if not numbers or int(numbers[1]) >= int(numbers[2]):
        raise ConfigError(f"--calls {text[:80]!r} are none", remedy="Give two numbers: 10:20 is 10 to 19.")
    return int(numbers[1]), int(numbers[2])


class VerifyRequest(Request):
    """Request of :func:`adt.verify`."""

    package: PathTo = option(shared.PACKAGE, kw_only=False)
    serial: Text = DeviceSettings.serial
    timeout: Real = DeviceSettings.timeout
    bundle: MaybePath = shared.BUNDLE
    model: MaybePath = shared.SOURCE_MODEL
    seed: Number = VerifySettings.seed
    fill_mode: Text = VerifySettings.fill_mode
    max_abs: Real = VerifySettings.max_abs
    max_rel: Real = VerifySettings.max_rel
    max_steps: Number = VerifySettings.max_steps
    max_changed: Real = VerifySettings.max_changed
    allow_nonfinite: Flag = VerifySettings.allow_nonfinite
    reference: Text = VerifySettings.reference
    min_snr: Real = VerifySettings.min_snr
    min_top1: Real = VerifySettings.min_top1
    inputs: Arrays | Sequence[Arrays] | None = option(
        "Name to array, list or number, or several such sets.",
        "--input",
        "-i",
        default=None,
        help="Inputs by name, as .npz; repeatable, each one set; else made up from the seed.",
        cli=list[Path],
        parse=lambda paths: [load_npz(path) for path in paths],
        metavar="FILE",
    )
    seeds: int = option(
        "Number of sets of made-up inputs, of which the worst is shown.",
        default=1,
        metavar="N",
        least=1,
    )
    trust: bool = shared.TRUST
    insecure_no_digest: bool = shared.INSECURE_NO_DIGEST

    def _complete(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Put the local copy of a reference in the place of its address."""
        reference = fetched(arguments["reference"], any_digest=bool(arguments["insecure_no_digest"]))
        return super()._complete({**arguments, "reference": reference and os.fspath(reference)})


class LayersRequest(Request):
    """Request of :func:`adt.verify_layers`."""

    package: PathTo = option(shared.PACKAGE, kw_only=False)
    serial: Text = DeviceSettings.serial
    timeout: Real = DeviceSettings.timeout
    bundle: MaybePath = shared.BUNDLE
    inputs: Arrays | None = shared.INPUTS
    seed: Number = VerifySettings.seed
    fill_mode: Text = VerifySettings.fill_mode
    max_rel: Real = VerifySettings.max_rel
    max_steps: Number = VerifySettings.max_steps
    calls: tuple[int, int] | None = option(
        "Compare only these calls of the run, B excluded, with --layers.",
        default=None,
        metavar="A:B",
        cli=str,
        parse=call_span,
    )
    all: bool = option(
        "Go on after a wrong kernel, and show every call, with --layers.", "--all", default=False
    )
    chunk_bytes: int | None = option(
        "Bytes of the device's tensors that are fetched at a time.",
        "--chunk-mb",
        default=None,
        help="MiB of tensors to fetch at a time with --layers; else 256 MiB.",
        metavar="MIB",
        least=1,
        parse=lambda mebibytes: mebibytes << 20,
    )
    trust: bool = shared.TRUST


def _run_fields(runs: Sequence[tuple[str, Verification]]) -> list[dict[str, Any]]:
    """Return each of several sets of inputs for documents; none where the only one is the whole."""
    return [{"inputs": name, **document_of(run)} for name, run in runs] if len(runs) > 1 else []


@dataclass(frozen=True)
class VerifyResult:
    """A device's outputs against the reference."""

    serial: str
    verification: Verification = field(metadata=FLAT)
    """Worst comparison of each output over several sets of inputs; with a model as the reference, of all
    together."""
    outputs: Mapping[str, Array] = field(metadata=HIDDEN)
    """Outputs of the device, by name, on the first set of inputs."""
    emulated: bool
    """The device was a virtual one: right or wrong counts, time does not."""
    reference: str = "onnxruntime"
    """Kind of the reference: ``onnxruntime``, ``tflite``, ``torch``, ``keras``, ``host``, ``file``,
    ``model``."""
    reference_what: str = "onnxruntime on this machine"
    runs: tuple[tuple[str, Verification], ...] = field(default=(), metadata=form(convert=_run_fields))
    """Each set of inputs by name, and what came of it."""
    right: Mapping[str, Array] = field(default_factory=dict, metadata=HIDDEN)
    """Outputs of the reference, by name, on the first set of inputs."""

    @property
    @in_document("inputs")
    def input_sets(self) -> list[str]:
        """Names of the sets of inputs."""
        return [name for name, _ in self.runs]


@dataclass(frozen=True)
class LayersResult:
    """A device's kernels against the same kernels on this machine's CPU."""

    serial: str
    emulated: bool
    layers: LayerScan = field(metadata=FLAT)


@takes(VerifyRequest)
def verify(request: VerifyRequest) -> VerifyResult:
    """Run the package where it belongs and the reference here, on the same inputs, and compare.

    A difference over the tolerance does not raise: look at ``result.verification.passed``.

    Raises:
        ConfigError: sets of inputs that contradict each other.
    """
    from adt.compiler.importers import model_store
    from adt.package.package import load_package

    package = load_package(request.package)
    sets = (request.inputs,) if isinstance(request.inputs, Mapping) else request.inputs
    _check_sets(package, request, sets)
    opened = open_place(package, request, request.bundle, measures=False)
    return verify_at(
        opened,
        request.settings,
        lambda: model_store.source_model(opened.package, request.model),
        sets,
        seeds=request.seeds,
        trust=request.trust,
    )


def _check_sets(package: ModelPackage, request: VerifyRequest, sets: Sequence[Arrays] | None) -> None:
    """Refuse sets of inputs and of right outputs that do not fit, before a device is looked for."""
    from adt.measure.reference import read_outputs
    from adt.package.manifest import check_inputs, taken_inputs

    entry = package.manifest.entry()
    if request.seeds > 1 and request.fill_mode != "random":
        raise exclusive("--seeds", f"--fill-mode {request.fill_mode}", "only random inputs have seeds")
    if sets is not None and not sets:
        raise ConfigError("inputs is an empty list of sets", remedy="Give one set or more, or leave it away.")
    if sets is not None and request.seeds > 1:
        raise exclusive("--seeds", "--input", "sets are made up, or given")
    for arrays in sets or ():
        check_inputs(package.manifest.name, entry, taken_inputs(entry, arrays))
    if request.reference.endswith(".npz"):
        read_outputs(Path(request.reference), package)
        if max(request.seeds, len(sets or ())) > 1:
            raise exclusive("several sets of inputs", f"--reference {request.reference}", "it has one set")


def verify_at(
    opened: Opened,
    resolved: Settings,
    find_model: Callable[[], Path],
    inputs: Sequence[Arrays] | None,
    *,
    seeds: int = 1,
    trust: bool = False,
) -> VerifyResult:
    """Run a package where it is ready and its reference on the same inputs, and compare.

    Seed, tolerances, reference and time limit are those of *resolved*; *find_model* is asked where the
    reference needs the model, which may be code with *trust*; None as *inputs* makes *seeds* sets up.
    """
    from adt.device.place import RtvmOptions
    from adt.measure.reference import MODEL, reference_named, with_unused
    from adt.measure.roundings import explained
    from adt.measure.verify import accuracy, compare, worst_of
    from adt.package.inputs.random import random_inputs
    from adt.package.manifest import taken_inputs

    manifest = opened.package.manifest
    entry = manifest.entry()
    first, fill = resolved.verify.seed, resolved.verify.fill_mode
    sets = (
        [(f"input {number}", taken_inputs(entry, arrays)) for number, arrays in enumerate(inputs, start=1)]
        if inputs is not None
        else [
            (f"seed {seed}" if fill == "random" else fill, random_inputs(entry.inputs, seed, fill))
            for seed in range(first, first + seeds)
        ]
    )
    reference = reference_named(resolved.verify.reference, opened.package, find_model, resolved, trust=trust)
    options = RtvmOptions(entry=entry.name, device=manifest.target.device)
    near, limits = reference.name == MODEL, resolved.verify

    def judged(
        arrays: Mapping[str, Array], got: Mapping[str, Array], right: Mapping[str, Array]
    ) -> Verification:
        if near:
            return accuracy(got, right, limits)
        quanta = manifest.made.quanta
        comparison = compare(got, right, limits, manifest.precision, quanta)
        if not comparison.passed and reference.model is not None:
            whole = with_unused(arrays, opened.package)
            with contextlib.suppress(AdtError):  # onnxruntime that crashes at that is no evidence
                return explained(
                    comparison, got, right, reference.model, whole, limits, manifest.precision, quanta
                )
        return comparison

    runs: list[tuple[str, Verification]] = []
    given, rights = [], []
    for name, arrays in sets:
        given.append(opened.place.run(options, arrays, timeout=resolved.device.run_seconds).outputs)
        rights.append(reference.run(arrays))
        runs.append((name, judged(arrays, given[-1], rights[-1])))
    return VerifyResult(
        opened.place.name,
        accuracy(joined(given), joined(rights), limits) if near else worst_of(runs),
        given[0],
        opened.place.emulated,
        reference.name,
        reference.what,
        tuple(runs),
        rights[0],
    )


@takes(LayersRequest)
def verify_layers(request: LayersRequest) -> LayersResult:
    """Compare each kernel that the device runs with the same kernel on this machine's CPU.

    Without *max_rel* a difference passes as the kernel's types allow (docs/verify.md). A wrong kernel does
    not raise: look at ``result.layers.passed``.

    Raises:
        PackageError: the package does not have its kernels from before their schedules, or was not compiled
            here and is not to be trusted.
    """
    from adt.measure.layers import Scan, compare_layers
    from adt.package.inputs.random import random_inputs
    from adt.package.integrity import is_known
    from adt.package.manifest import taken_inputs
    from adt.package.package import load_package

    package, inputs = load_package(request.package), request.inputs
    if not (request.trust or is_known(package.manifest)):
        raise PackageError(
            f"the package {request.package} was not compiled here, and --layers runs its kernels on "
            "this machine",
            remedy="Compile it again from its source model, or add --trust if you know who made it.",
        )
    opened = open_place(package, request, request.bundle)
    entry = package.manifest.entry()
    arrays = (
        taken_inputs(entry, inputs)
        if inputs is not None
        else random_inputs(entry.inputs, request.seed, request.fill_mode)
    )
    scan = Scan(
        max_rel=request.max_rel,
        max_steps=request.max_steps,
        calls=request.calls,
        everything=request.all,
        timeout=request.settings.device.run_seconds,
        **({"chunk_bytes": request.chunk_bytes} if request.chunk_bytes else {}),
    )
    layers = compare_layers(opened.place, package, arrays, scan)
    return LayersResult(opened.place.name, opened.place.emulated, layers)


@command("adt verify model-pkg --layers", phone=True)
def verify_command(
    parsed: partial[VerifyRequest],
    calls: Annotated[tuple[int, int] | None, LayersRequest.calls],
    everything: Annotated[bool, LayersRequest.all],
    chunk_bytes: Annotated[int | None, LayersRequest.chunk_bytes],
    layers: Annotated[bool, option("Compare each kernel with the same one on this machine.", default=False)],
) -> Rendering:
    """Compare the device's outputs, or with --layers each kernel's, with a reference on the same inputs."""
    single = {"calls": calls, "all": everything, "chunk_bytes": chunk_bytes}
    if layers:
        if whole_only := as_whole(parsed.keywords):
            raise exclusive(" and ".join(whole_only), "--layers", "kernels are compared on one set of inputs")
        both = options_of(VerifyRequest).keys() & options_of(LayersRequest).keys()
        shared = {name: parsed.keywords[name] for name in both}
        request = LayersRequest(**shared | single | {"inputs": next(iter(shared["inputs"] or ()), None)})
        comparison = verify_layers(request)
        wrong = comparison.layers.wrong
        steps = next_steps(request.package, comparison.layers, wrong[0]) if wrong else []
        return Rendering(
            "verify-layers",
            document_of(comparison) | {"next_steps": steps},
            _layers_lines(comparison, everything),
            _layers_failure(request.package, comparison.layers),
        )
    if kernels := [options_of(LayersRequest)[name].flag for name, value in single.items() if value]:
        raise dependent(" and ".join(kernels), "--layers")
    result = verify(whole := parsed())
    return Rendering(
        "verify",
        result,
        verification_lines(result),
        failure(result, whole.package, same_command=True),
    )


def as_whole(keywords: Mapping[str, Any]) -> list[str]:
    """Return the options that were given and say nothing about single kernels."""
    kernels = options_of(LayersRequest)
    asked = {
        about.flag: keywords[name] not in (None, about.default)
        for name, about in options_of(VerifyRequest).items()
        if name not in kernels
    }
    asked["several --input"] = len(keywords["inputs"] or ()) > 1
    return [name for name, there in asked.items() if there]


def verification_lines(result: VerifyResult) -> Iterator[str]:
    """Yield each output and its figures."""
    for output in result.verification.outputs:
        yield from _output_lines(output)
    note = ", emulated: right or wrong counts here, time does not" if result.emulated else ""
    how = "; {} sets of inputs together" if result.reference == "model" else "; worst of {} sets of inputs"
    sets = how.format(len(result.runs)) if len(result.runs) > 1 else ""
    yield f"ran on {result.serial}{note}; reference: {result.reference_what}{sets}"


def _output_lines(output: OutputComparison) -> Iterator[str]:
    mark = "✓" if output.passed else "✗"
    shape = ", ".join(map(str, output.shape))
    note = f"  ({output.reason or output.note})" if output.reason or output.note else ""
    yield (
        f"{mark} {output.name}: {output.dtype}[{shape}] max abs {output.max_abs:.2e} "
        f"max rel {output.max_rel:.2e} cosine {output.metrics.cosine:.8f}{note}"
    )
    metrics = output.metrics
    if not metrics.elements:
        return
    words = [f"mean abs {metrics.mean_abs:.2e}", f"RMS {metrics.rmse:.2e}"]
    if math.isfinite(metrics.snr_db):
        words += [f"SNR {metrics.snr_db:.1f} dB", f"PSNR {metrics.psnr_db:.1f} dB"]
    words += [f"top-1 {metrics.top1:.1%}"] if metrics.top1 is not None else []
    odd = (metrics.nan, metrics.infinite, metrics.reference_nan, metrics.reference_infinite)
    words += [f"NaN {odd[0]} (reference {odd[2]})", f"Inf {odd[1]} (reference {odd[3]})"] if any(odd) else []
    yield f"    {' '.join(words)}" + (f"  [{output.inputs}]" if output.inputs else "")
    if metrics.worst is not None:
        place = ", ".join(map(str, metrics.worst.index))
        yield (
            f"    worst element [{place}]: {metrics.worst.got:.9g}, reference {metrics.worst.reference:.9g}; "
            f"{metrics.differing} of {metrics.elements} differ in some bit"
        )


def failure(result: VerifyResult, package: Path, *, same_command: bool = False) -> VerifyFailed | None:
    """Say what is wrong with the outputs, if not all passed; *same_command* takes what lets them pass."""
    outputs = result.verification.outputs
    failed = [output for output in outputs if not output.passed]
    if result.verification.passed:
        return None
    names = ", ".join(output.name for output in failed)
    if all(output.metrics.nothing_finite for output in failed):
        return VerifyFailed(
            f"nothing finite to compare in {len(failed)} of {len(outputs)} outputs: {names}",
            remedy="Give inputs for which the model gives numbers: --input FILE.npz.",
        )
    command = f"adt verify {quote(str(package))}"
    options = allowing(outputs)
    if all(output.options == ("--allow-nonfinite",) for output in failed):
        what = f"NaN or infinity in {len(failed)} of {len(outputs)} outputs, in the reference, too: {names}"
        remedy = "Give other inputs: --input FILE.npz; or, if the model is to give them"
    else:
        what = f"{len(failed)} of {len(outputs)} outputs differ: {names}"
        remedy = (
            f"{command} --layers names the kernel that computes wrongly; {command} --reference host tells a "
            "fault of the importer from one of the device"
            if result.reference != "model"
            else f"{command} tells whether that is the device or what quantizing costs, and of that "
            "--per-channel and --target-snr save some"
        )
    if not options:
        return VerifyFailed(what, remedy=f"{remedy}.")
    passing = ":" if same_command else f": {command} {' '.join(options)}"
    return VerifyFailed(
        what, remedy=f"{remedy}; to let them pass{passing}", options=options if same_command else ()
    )


def allowing(outputs: Sequence[OutputComparison]) -> tuple[str, ...]:
    """Find options with which *outputs* pass; none where no option lets one pass."""
    failed = [output for output in outputs if not output.passed]
    if not all(output.options and "--input" not in output.options for output in failed):
        return ()
    limits: dict[str, float] = {}
    for output in outputs:
        metrics = output.metrics
        if "--min-snr" in output.options and math.isfinite(metrics.snr_db):
            limits["--min-snr"] = min(limits.get("--min-snr", math.inf), math.floor(metrics.snr_db))
        if "--min-top1" in output.options and metrics.top1 is not None:
            limits["--min-top1"] = min(limits.get("--min-top1", 1.0), math.floor(metrics.top1 * 100) / 100)
        if output.options[:1] in (("--max-abs",), ("--max-steps",)) or output.note:
            # What passes by a remark passes by limits alone where one is given.
            is_float = output.dtype.startswith("float")
            if is_float:
                limits["--max-abs"] = max(limits.get("--max-abs", 0.0), metrics.max_abs * ROUNDED_UP)
            else:
                changed = max(limits.get("--max-changed", 0.0), output.changed * ROUNDED_UP)
                limits["--max-changed"] = min(changed, 1.0)
    words = [word for name, value in limits.items() if value for word in (name, f"{value:.2g}")]
    nonfinite = any(output.metrics.partly_finite for output in failed)
    return (*words, *(["--allow-nonfinite"] if nonfinite else []))


ROUNDED_UP = 1.06
"""Factor with which a number is no less after it is written with two digits."""
MOST_SHOWN = 12
"""Calls that are shown where something is wrong, without ``--all``."""
MARKS = {"right": "✓", "passes on": "~", "wrong": "✗", "not compared": "?"}


def _layers_failure(package: Path, layers: LayerScan) -> VerifyFailed | None:
    if layers.passed:
        return None
    if not layers.wrong and layers.first_nan is not None:
        call = layers.first_nan
        return VerifyFailed(
            f"the kernel {call.name} (call {call.index}) gives nothing finite, on this machine, too: that is "
            "not compared, nor is what follows from it",
            remedy="Give inputs for which the model gives numbers: --input FILE.npz.",
        )
    if not layers.wrong:
        return VerifyFailed(
            f"none of the {len(layers.calls)} calls could be compared",
            remedy="Compile without --offload, and with fixed shapes (--shape NAME:1,3,224,224).",
        )
    first = layers.wrong[0]
    names = list(dict.fromkeys(call.name for call in layers.wrong))
    return VerifyFailed(
        f"the kernel {first.name} computes wrong numbers (call {first.index})"
        + (f", and so do {', '.join(names[1:4])}" if len(names) > 1 else ""),
        remedy=" ".join(next_steps(package, layers, first)),
    )


def next_steps(package: Path, layers: LayerScan, call: CallComparison) -> list[str]:
    """Say what to do about a wrong kernel, each step a sentence."""
    steps = []
    if any(argument.scope != "global" for argument in call.arguments):
        steps.append("Keep tensors in buffers: adt compile MODEL --target adreno-buffer.")
    if call.half:
        steps.append("Keep its operators in float32: adt compile MODEL --keep-float32 NAME.")
    source = "--tir" if layers.device == "cpu" else f"--{layers.device} --kernel {call.name}_kernel"
    steps.append(f"Look at it: adt inspect {quote(str(package))} {source}.")
    steps.append("Report it with the package; --reference host and --opt-level 0 narrow it down.")
    return steps


def _layers_lines(result: LayersResult, everything: bool = False) -> Iterator[str]:
    layers = result.layers
    odd = [call for call in layers.calls if call.verdict != "right"]
    calls = list(layers.calls) if everything else odd[:MOST_SHOWN]
    if calls:
        yield "  call   alone     along the run  kernel"
    yield from map(_call_line, calls)
    if len(odd) > MOST_SHOWN and not everything:
        yield f"  … and {len(odd) - MOST_SHOWN} more (--all shows every call)"
    if layers.wrong:
        yield from _explanation(layers.wrong[0])
    elif layers.compared:
        left = len(layers.calls) - layers.compared
        last = next(call for call in reversed(layers.calls) if call.verdict != "not compared")
        yield (
            f"no kernel diverges: {layers.compared} of {layers.total} calls computed what they should"
            + (f", {left} could not be compared" if left else "")
            + f"; at the last one the run is off by {last.along:.1e} of its magnitude"
        )
    note = ", emulated: right or wrong counts here, time does not" if result.emulated else ""
    yield f"ran on {result.serial}{note}; reference: the same kernels, unscheduled, on this machine's CPU"


def _call_line(call: CallComparison) -> str:
    head = f"{MARKS[call.verdict]} {call.index:<5}"
    if call.reason:
        return f"{head}  –         –              {call.name}: not compared, {call.reason}"
    note = " (right on the numbers it got)" if call.verdict == "passes on" else ""
    return f"{head}  {call.alone:<8.1e}  {call.along:<13.1e}  {call.name}{note}"


def _explanation(call: CallComparison) -> Iterator[str]:
    """Yield the first wrong call in full."""
    yield f"first wrong kernel: {call.name} (call {call.index})"
    yield f"    computes  {', '.join(call.operators)}"
    for number, argument in enumerate(call.arguments):
        shape = ", ".join(map(str, argument.shape))
        role = "writes" if argument.written else "reads"
        where = "texture" if "texture" in argument.scope else "buffer"
        yield f"    {role:<6} {number:<2} {argument.dtype}[{shape}], {where} ({argument.scope})"
    metrics = call.metrics
    if metrics is None:
        return
    yield (
        f"    alone     max abs {metrics.max_abs:.3g}, {call.alone:.3g} of the largest, "
        f"limit {call.limit:g}, cosine {metrics.cosine:.6f}, "
        f"{metrics.differing} of {metrics.elements} elements differ"
    )
    if metrics.worst is not None:
        place = ", ".join(map(str, metrics.worst.index))
        yield f"    worst     [{place}]: {metrics.worst.got:.9g} for {metrics.worst.reference:.9g}"
