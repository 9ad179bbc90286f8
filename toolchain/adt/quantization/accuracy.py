"""Cost of quantizing: the outputs against the float model's, of the whole and of each layer alone.

Layers stay in float, those first that cost most, until the outputs are as near as was asked for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import onnx

from adt.compiler.importers.onnx.comparison import session_of
from adt.errors import ConfigError, ModelError, VerifyFailed
from adt.host.document import FLAT
from adt.numerics import Array, Metrics, joined, metrics
from adt.quantization.quantizer import is_quantized

log = logging.getLogger("adt.quantize")

LAYER_SAMPLES = 8  # on so many samples at most a layer is measured


@dataclass(frozen=True)
class OutputAccuracy:
    """One output on all samples that were held back, against the float model's."""

    name: str
    metrics: Metrics = field(metadata=FLAT)


@dataclass(frozen=True)
class LayerCost:
    """Loss of the outputs by one layer."""

    name: str
    operator: str
    snr_db: float
    """Ratio of signal to noise of the worst output when nothing but this layer is quantized."""
    share: float
    """Share of the noise of all layers, each quantized alone."""


def outputs_on(model: onnx.ModelProto, samples: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    """Compute the outputs of *model* on each of *samples*, one behind the other.

    Node by node, quanta as the floats that they stand for: that is what the format says, and the same on
    every processor. Integer kernels of x86 without VNNI would saturate, and onnxruntime's folding of
    constants fails at some models of which one node is quantized.
    """
    try:
        session = session_of(model, optimize=False)
        names = [output.name for output in session.get_outputs()]
        return joined([dict(zip(names, session.run(names, dict(each)), strict=True)) for each in samples])
    except Exception as error:  # onnxruntime's own exceptions have no public base
        raise ModelError(
            "onnxruntime cannot run what its quantizer made",
            remedy="Keep the node that it names float: --keep NAME.",
            details=str(error),
        ) from error


def compared(got: Mapping[str, Array], reference: Mapping[str, Array]) -> tuple[OutputAccuracy, ...]:
    """Compare the outputs *got* with *reference*, the worst first."""
    rows = [OutputAccuracy(name, metrics(got[name], right)) for name, right in reference.items()]
    return tuple(sorted(rows, key=lambda row: row.metrics.snr_db))


def layer_costs(
    original: onnx.ModelProto,
    model: onnx.ModelProto,
    quantize: Callable[[frozenset[str]], onnx.ModelProto],
    keep: frozenset[str],
    samples: Sequence[Mapping[str, Array]],
) -> tuple[LayerCost, ...]:
    """Measure what each layer of a quantized *model* costs, the costliest first.

    Each is quantized alone, by *quantize*, which gets the nodes that stay float (*keep* in *model*): the
    noise that a layer adds to its own output does not tell the model's.
    """
    layers = {name: operator for name, operator in _layers(model).items() if name not in keep}
    samples = samples[:LAYER_SAMPLES]
    nodes = {node.name for node in model.graph.node}
    right = outputs_on(original, samples)
    log.info("measuring what each of %d layers costs", len(layers))
    worst, noise = {}, {}
    for name in layers:
        alone = quantize(frozenset(nodes - {name}))
        if is_quantized(alone):  # what moves quanta does nothing where there are none
            rows = compared(outputs_on(alone, samples), right)
            worst[name] = rows[0].metrics.snr_db
            noise[name] = sum(10 ** (-row.metrics.snr_db / 10) for row in rows)
    total = sum(noise.values()) or 1.0
    costs = [LayerCost(name, layers[name], worst[name], noise[name] / total) for name in noise]
    return tuple(sorted(costs, key=lambda cost: -cost.share))


def _layers(model: onnx.ModelProto) -> dict[str, str]:
    """Find the nodes of *model* that take what is quantized, or have it, and their operators."""
    nodes = model.graph.node
    dequantized = {name for node in nodes if node.op_type == "DequantizeLinear" for name in node.output}
    return {
        node.name: node.op_type
        for node in nodes
        if node.op_type == "MatMulNBits"
        or (not node.op_type.endswith("uantizeLinear") and not dequantized.isdisjoint(node.input))
    }


BATCHES = 10
"""Number of times that layers go back to float …"""
BATCH = 20  # divisor of the number of layers that go back each time, at least one


@dataclass(frozen=True)
class Target:
    """Bound on the distance of each output from the float model's, on the samples that were held back."""

    snr_db: float | None = None
    top1: float | None = None

    def held(self, outputs: Sequence[OutputAccuracy]) -> bool:
        """Return True if all outputs hold the target; ConfigError for a top class where none has classes."""
        shares = [row.metrics.top1 for row in outputs if row.metrics.top1 is not None]
        if self.top1 is not None and not shares:
            raise ConfigError(
                "no output has scores of classes, whose best could be the same",
                remedy="Ask for decibels: --target-snr 20.",
            )
        near = self.snr_db is None or all(row.metrics.snr_db >= self.snr_db for row in outputs)
        return near and (self.top1 is None or min(shares) >= self.top1)

    def __str__(self) -> str:
        asked = [f"an SNR of {self.snr_db:g} dB"] if self.snr_db is not None else []
        return " and ".join(asked + ([f"top-1 {self.top1:.1%}"] if self.top1 is not None else []))


@dataclass(frozen=True)
class Attempt:
    """A quantized model, and how near it is."""

    model: onnx.ModelProto
    kept: frozenset[str]
    """Nodes that stay float."""
    outputs: tuple[OutputAccuracy, ...]
    """The worst first."""

    @property
    def summary(self) -> str:
        """The worst output, for an error."""
        worst = self.outputs[0].metrics
        top1 = "" if worst.top1 is None else f", top-1 {worst.top1:.1%}"
        return f"SNR {worst.snr_db:.1f} dB{top1} with {len(self.kept)} nodes in float"


def unmeasured(quantize: Callable[[frozenset[str]], onnx.ModelProto], keep: frozenset[str]) -> Attempt:
    """Make the model that *quantize* gives with *keep* in float."""
    model = quantize(keep)
    _check(model)
    return Attempt(model, keep, ())


def _check(model: onnx.ModelProto) -> None:
    if not is_quantized(model):
        raise ModelError(
            "onnxruntime quantizes none of the operators, but for those that are kept",
            remedy="Compile the model as it is: adt compile MODEL.",
        )


def attempt(
    original: onnx.ModelProto,
    quantize: Callable[[frozenset[str]], onnx.ModelProto],
    keep: frozenset[str],
    samples: Sequence[Mapping[str, Array]],
    target: Target,
) -> tuple[Attempt, tuple[LayerCost, ...]]:
    """Quantize with *keep* and as many more nodes in float as *target* needs; return each layer's cost, too.

    Outputs are compared with those of *original* on *samples* that were not calibrated on. VerifyFailed if
    half of the layers in float are not enough.
    """
    right = outputs_on(original, samples)

    def tried(kept: frozenset[str]) -> Attempt:
        model = quantize(kept)
        return Attempt(model, kept, compared(outputs_on(model, samples), right))

    best = done = tried(keep)
    _check(done.model)
    layers = layer_costs(original, done.model, quantize, keep, samples)
    costly = [layer.name for layer in layers if layer.share]
    size = max(1, len(layers) // BATCH)
    for batch in range(BATCHES + 1):
        if batch:
            done = tried(keep.union(costly[: batch * size]))
        if not is_quantized(done.model):
            break
        if target.held(done.outputs):
            return done, layers
        best = max(best, done, key=lambda each: each.outputs[0].metrics.snr_db)
    raise VerifyFailed(
        f"{target} was not reached; at best it was {best.summary}",
        remedy="Give more samples, --per-channel or another --method, or ask for less. Nothing was written.",
    )
