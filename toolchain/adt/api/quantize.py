"""Quantize a model."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any

from adt.api.requests import QuantizeRequest
from adt.compiler.importers import formats
from adt.errors import ConfigError, ModelError
from adt.host.disk import disk_errors, library_files, scratch_directory
from adt.host.isolated import isolated
from adt.options.option import options_of, values_of
from adt.options.request import takes
from adt.package.inputs.pictures import PictureOptions
from adt.quantization.accuracy import LayerCost, OutputAccuracy

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


@takes(QuantizeRequest)
def quantize(request: QuantizeRequest) -> QuantizeResult:
    """Quantize an ONNX model with onnxruntime's quantizer, and measure what it costs.

    Raises:
        ModelError: the model is no ONNX model, not in float32, quantized already, or its shapes stay open.
        InputError: a sample is missing, damaged, of another shape or not finite.
        ConfigError: there is nothing to calibrate on, or nothing that *keep* names.
        VerifyFailed: a target cannot be reached; nothing is written then.
        DiskError: *out* cannot be written.
    """
    _check(request)
    with scratch_directory("quantize", beside=request.out) as scratch:
        values = values_of(request)
        result = _quantized(values, values.pop("picture"), scratch)
        (scratch / WRITTEN).replace(request.out)
    return result


@isolated("quantizing {values[model].name}", SECONDS, here=True)
def _quantized(values: dict[str, Any], picture: PictureOptions | None, scratch: Path) -> QuantizeResult:
    """Write the quantized model to the directory *scratch*; see :func:`quantize`.

    Args:
        values: those of the request but for *picture*.
    """
    import onnx

    from adt.compiler.importers.shapes import parse_shapes
    from adt.quantization import fidelity, quantizer
    from adt.quantization.accuracy import Target, attempt, unmeasured
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
        inputs = fidelity.check_prepared(model, prepared, samples.arrays)
        keep = fidelity.faithful(prepared, make, keep, inputs)
        if samples.held_back:
            target = Target(request.target_snr, request.target_top1)
            done, layers = attempt(model, make, keep, samples.held_back, target)
        else:
            done, layers = unmeasured(make, keep), ()
        fidelity.check(prepared, done.model, inputs)
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
    """Check what needs no model.

    Raises:
        ConfigError: a choice is unknown, or the output is no file.
        ModelError: the model is of a format that onnxruntime does not quantize.
    """
    for name, about in options_of(QuantizeRequest).items():
        if about.choices and (value := getattr(request, name)) and value not in about.choices:
            raise ConfigError(f"{about.flag} {value!r} is unknown", remedy=f"Use {', '.join(about.choices)}.")
    _check_weights(request)
    format = formats.format_of(request.model)
    if format != formats.ONNX:
        raise ModelError(
            f"{request.model.name} is a model of {format}; onnxruntime quantizes ONNX",
            remedy="Export it as ONNX, or quantize it with what it was made with: adt compiles that, too.",
        )
    if request.out.is_dir() or request.out.resolve() == request.model.resolve():
        raise ConfigError(
            f"{request.out} is {'a directory' if request.out.is_dir() else 'the model itself'}",
            remedy="Name another file: -o NAME.onnx",
        )
    if not (parent := request.out.absolute().parent).is_dir():
        raise ConfigError(f"there is no directory {parent}", remedy=f"mkdir -p {quote(str(parent))}")


def _check_weights(request: QuantizeRequest) -> None:
    """Check what does not go with quantizing weights alone.

    Raises:
        ConfigError: an option is of no effect then, or there is nothing to measure a target on.
    """
    if request.weights_only is None:
        return
    options = options_of(QuantizeRequest)
    for name in ("per_channel", "method", "activations"):
        if getattr(request, name) != options[name].default:
            raise ConfigError(
                f"{options[name].flag} is of no effect with --weights-only: 32 weights each have a scale, "
                "and no tensor is quantized",
                remedy=f"Leave {options[name].flag} out, or --weights-only.",
            )
    targets = [options[name].flag for name in ("target_snr", "target_top1") if getattr(request, name)]
    if targets and not request.calibrate:
        raise ConfigError(
            f"there is nothing to measure {targets[0]} on",
            remedy="Give what the model will see: --calibrate DIR of pictures, or .npz files.",
        )
