"""Quantize a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from adt.cli.command import Rendering, command
from adt.compiler.importers.shapes import parse_shapes
from adt.errors import ConfigError, ModelError, dependent, exclusive
from adt.host.disk import check_output, disk_errors, library_files, scratch_directory, size_text
from adt.host.document import aligned, in_document
from adt.host.isolated import isolated
from adt.options.option import Files, PathTo, Shapes, Texts, option, options_of, python, values_of
from adt.options.request import Request, takes
from adt.options.sections import MOST_DECIBELS, CompileSettings
from adt.package.inputs.pictures import PictureOptions
from adt.quantization.accuracy import LayerCost, OutputAccuracy
from adt.verbs.arrays import PictureFlags, picture_options
from adt.verbs.options import INSECURE_NO_DIGEST, MODEL, PARAMS, TRUST, model_file


class QuantizeRequest(Request):
    """Request of :func:`adt.quantize`."""

    model: PathTo = option(MODEL, kw_only=False, complete=partial(model_file, runs=False))
    params: Mapping[str, Any] | None = PARAMS
    shapes: Shapes = CompileSettings.shapes
    out: PathTo = option("ONNX file to write.", "--out", "-o", check=check_output)
    calibrate: Files = option(
        "Samples of what the model will see: pictures, .npz or .npy files, directories of them, or for a "
        "trial random:N, N made-up ones.",
        default=(),
        metavar="DIR|FILE|random:N",
    )
    picture: PictureOptions | None = python("How pictures are prepared.", default=None)
    weights_only: str | None = option(
        "Quantize only constant weights of matrix products, with a scale for 32 of them; --calibrate then "
        "only measures the loss of accuracy.",
        default=None,
        choices=["int8", "int4"],
    )
    method: str = option(
        "Method that takes ranges from samples.",
        default="minmax",
        choices=["minmax", "entropy", "percentile"],
    )
    activations: str = option("Type of quantized tensors.", default="int8", choices=["int8", "uint8"])
    per_channel: bool = option("Give each channel of a weight its own scale.", default=False)
    keep: Texts = option(
        "Operators or nodes that stay float: Softmax.", default=(), metavar="NAME,…", separator=","
    )
    target_snr: float | None = option(
        "Keep the costliest layers in float until each output has this SNR.",
        default=None,
        metavar="DB",
        most=MOST_DECIBELS,
    )
    target_top1: float | None = option(
        "Keep the costliest layers in float until this share of held-back samples has the same best class.",
        default=None,
        metavar="SHARE",
        most=1,
    )
    trust: bool = TRUST
    insecure_no_digest: bool = INSECURE_NO_DIGEST


WRITTEN = "quantized.onnx"
SECONDS = 24 * 3600.0
"""Hundreds of layers may each be measured on many samples, and ctrl-C ends that."""


@dataclass(frozen=True)
class QuantizeResult:
    """A quantized model, and what it costs in accuracy."""

    path: Path
    bytes: int
    float_bytes: int
    """Bytes of the weights and the graph before."""
    weights_only: str | None
    """Type of the weights, if nothing else is quantized."""
    source: str
    """Origin of the samples; empty: there are none, and nothing was measured."""
    made_up: bool
    """They are random: neither the ranges nor the figures say anything of real inputs."""
    calibrated_on: int
    """Samples that ranges were taken from; …"""
    held_back: int
    """Number of samples that figures are of: …"""
    every: int
    """Interval of these samples: the last one of this number in a row."""
    outputs: tuple[OutputAccuracy, ...]
    """The worst first; empty: nothing was measured."""
    layers: tuple[LayerCost, ...]
    """Layers quantized before a target, those first that cost most."""
    kept: tuple[str, ...]
    """Nodes that stay float because of *keep* or of a target."""

    @property
    @in_document()
    def worst(self) -> str | None:
        """Name of the output that lost most."""
        return self.outputs[0].name if self.outputs else None


@takes(QuantizeRequest)
def quantize(request: QuantizeRequest) -> QuantizeResult:
    """Quantize an ONNX model with onnxruntime's quantizer, and measure what it costs.

    Raises:
        ModelError: the model is no ONNX model, not in float32, quantized already, or its shapes stay open.
        InputError: a sample is missing, damaged, of another shape or not finite.
        ConfigError: there is nothing to calibrate on, or nothing that *keep* names.
        VerifyFailed: a target cannot be reached; nothing is written then.
    """
    _check(request)
    with scratch_directory("quantize", beside=request.out) as scratch:
        values = values_of(request)
        result = _quantized(values, values.pop("picture"), scratch)
        (scratch / WRITTEN).replace(request.out)
    return result


@isolated("quantizing {values[model].name}", SECONDS, here=True)
def _quantized(values: dict[str, Any], picture: PictureOptions | None, scratch: Path) -> QuantizeResult:
    """Write the quantized model to the directory *scratch*; *values* are the request's but for *picture*."""
    import onnx

    from adt.quantization import accuracy, quantizer
    from adt.quantization.samples import read_samples

    request = QuantizeRequest(**values, picture=picture)
    model, entry = quantizer.read_float_model(request.model, parse_shapes(request.shapes))
    samples = read_samples(
        request.model.name,
        entry,
        request.calibrate,
        request.picture,
        calibrates=request.weights_only is None,
    )
    with library_files(scratch), disk_errors(f"writing {request.out}", request.out, temporary=scratch):
        prepared = quantizer.prepared(model, scratch)
        if request.weights_only:
            prepared = quantizer.with_products(prepared)
        keep = quantizer.kept_nodes(prepared, request.keep)
        if request.weights_only:
            make = partial(quantizer.with_few_bits, prepared, request.weights_only)
        else:
            ranges = quantizer.calibrated(prepared, samples.calibrating, request.method, scratch)
            keep |= quantizer.take_unbounded(ranges, prepared)
            make = partial(quantizer.quantized, prepared, ranges, request.activations, request.per_channel)
        inputs = accuracy.check_prepared(model, prepared, samples.arrays)
        keep = accuracy.faithful(prepared, make, keep, inputs)
        target = accuracy.Target(request.target_snr, request.target_top1)
        done, layers = accuracy.attempt(model, make, keep, samples.held_back, target)
        accuracy.check_faithful(prepared, done.model, inputs)
        onnx.save(done.model, scratch / WRITTEN)
    return QuantizeResult(
        request.out,
        (scratch / WRITTEN).stat().st_size,
        model.ByteSize(),
        request.weights_only,
        samples.what,
        samples.made_up,
        len(samples.calibrating),
        len(samples.held_back),
        samples.every,
        done.outputs,
        layers,
        tuple(sorted(done.kept)),
    )


def _check(request: QuantizeRequest) -> None:
    """Check what needs no model."""
    from adt.compiler.importers import formats

    _check_weights(request)
    format = formats.format_of(request.model)
    if format != formats.ONNX:
        raise ModelError(
            f"{request.model.name} is a model of {format}; onnxruntime quantizes ONNX",
            remedy="Export it as ONNX, or quantize it with what it was made with: adt compiles that, too.",
        )
    if request.out.resolve() == request.model.resolve():
        raise ConfigError(f"{request.out} is the model itself", remedy="Name another file: -o NAME.onnx")
    with disk_errors(f"writing {request.out}", request.out):
        request.out.absolute().parent.mkdir(parents=True, exist_ok=True)


def _check_weights(request: QuantizeRequest) -> None:
    """Check what does not go with quantizing weights alone."""
    if request.weights_only is None:
        return
    options = options_of(QuantizeRequest)
    for name in ("per_channel", "method", "activations"):
        if getattr(request, name) != options[name].default:
            raise exclusive(options[name].flag, "--weights-only", "no tensor is quantized then")
    targets = [options[name].flag for name in ("target_snr", "target_top1") if getattr(request, name)]
    if targets and not request.calibrate:
        raise dependent(" and ".join(targets), "--calibrate")


MOST_LAYERS_SHOWN = 5


@command("adt quantize model.onnx --calibrate pictures/ --per-channel -o int8.onnx")
def quantize_command(request: QuantizeRequest, flags: PictureFlags) -> Rendering:
    """Quantize an ONNX model to 8 bits on samples, or its weights alone, and measure the loss of accuracy."""
    result = quantize(request.but(picture=picture_options(flags)))
    return Rendering("quantize", result, _lines(result))


def _lines(result: QuantizeResult) -> Iterator[str]:
    if result.outputs:
        yield from _accuracy(result)
    else:
        yield "accuracy not measured: pass samples with --calibrate"
    if result.kept:
        yield f"{len(result.kept)} nodes stay float: {', '.join(result.kept)}"
    yield f"wrote {result.path}: {size_text(result.bytes)} instead of {size_text(result.float_bytes)}"


def _accuracy(result: QuantizeResult) -> Iterator[str]:
    made_up = "MADE-UP samples, which tell nothing of real ones"
    samples = made_up if result.made_up else f"samples of {result.source}"
    which = ""
    if not result.weights_only:
        yield f"calibrated on {result.calibrated_on} {samples}"
        which = f" that were held back (1 of {result.every})"
    yield f"compared with float on {result.held_back} {samples}{which}"
    for row in result.outputs:
        of = row.metrics
        top1 = "" if of.top1 is None else f" top-1 {of.top1:.1%}"
        yield f"  {row.name}: SNR {_db(of.snr_db)}{top1} max abs {of.max_abs:.3g} of {of.magnitude:.3g}"
    costs = [layer for layer in result.layers if layer.name not in result.kept]
    yield f"{len(costs)} layers are quantized; those that cost most (share of noise, SNR alone):"
    rows = [(f"  {cost.share:.1%}", _db(cost.snr_db), cost.operator, cost.name) for cost in costs]
    yield from aligned(rows[:MOST_LAYERS_SHOWN])


def _db(value: float) -> str:
    return f"{value:.1f} dB"
