"""Cost of quantizing: the outputs against the float model's, of the whole and of each layer alone.

Layers stay in float, those first that cost most, until the outputs are as near as was asked for. Nodes stay
in float that a quantizer changes by more than rounding: QuantizeLinear and DequantizeLinear are taken out of
what it made, weights are the float model's where they are within a quantization step of these, and each node
that it changed gets the float model's tensors.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from adt.compiler.importers.onnx.blockwise import OPERATOR, form_of
from adt.compiler.importers.onnx.comparison import random_inputs, run, session_of
from adt.compiler.importers.onnx.graph import Graph, attribute, operand, opset, with_inputs
from adt.compiler.passes.weight_bits import unpacked
from adt.errors import ConfigError, ModelError, VerifyFailed
from adt.host.document import FLAT
from adt.numerics import Array, Metrics, difference, joined, metrics
from adt.quantization.quantizer import is_quantized, onnxruntime_errors

log = logging.getLogger("adt.quantize")

Samples = Sequence[Mapping[str, Array]]
Quantize = Callable[[frozenset[str]], onnx.ModelProto]
"""Quantizes a model but for the nodes of these names."""
LAYER_SAMPLES = 8  # on so many samples at most a layer is measured
MADE = " of the quantized model"
PAIR = ("QuantizeLinear", "DequantizeLinear")
STEP = 1.001  # a quantization step, with rounding: so far off is a number at the end of a block's range
KEEP = "Keep the node that it names float: --keep NAME"
MOST_ROUNDS = 3  # most rounds: where a node stays float, another may be changed


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


def outputs_on(model: onnx.ModelProto, samples: Samples) -> dict[str, Array]:
    """Compute the outputs of *model* on each of *samples*, one behind the other.

    Node by node, quanta as the floats that they stand for: that is what the format says, and the same on
    every processor. Integer kernels of x86 without VNNI would saturate, and onnxruntime's folding of
    constants fails at some models of which one node is quantized.
    """
    with onnxruntime_errors("onnxruntime cannot run what its quantizer made", f"{KEEP}."):
        session = session_of(model, optimize=False)
        names = [output.name for output in session.get_outputs()]
        return joined([dict(zip(names, session.run(names, dict(each)), strict=True)) for each in samples])


def compared(got: Mapping[str, Array], reference: Mapping[str, Array]) -> tuple[OutputAccuracy, ...]:
    """Compare the outputs *got* with *reference*, the worst first."""
    rows = [OutputAccuracy(name, metrics(got[name], right)) for name, right in reference.items()]
    return tuple(sorted(rows, key=lambda row: row.metrics.snr_db))


def layer_costs(
    original: onnx.ModelProto,
    model: onnx.ModelProto,
    quantize: Quantize,
    keep: frozenset[str],
    samples: Samples,
) -> tuple[LayerCost, ...]:
    """Measure what each layer of a quantized *model* costs, but those in *keep*, the costliest first.

    Each is quantized alone: the noise that a layer adds to its own output does not tell the model's.
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


BATCHES = 10  # number of times that layers go back to float
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
        bounds = [f"an SNR of {self.snr_db:g} dB"] if self.snr_db is not None else []
        return " and ".join(bounds + ([f"top-1 {self.top1:.1%}"] if self.top1 is not None else []))


@dataclass(frozen=True)
class Attempt:
    """A quantized model, and how near it is."""

    model: onnx.ModelProto
    kept: frozenset[str]
    """Nodes that stay float."""
    outputs: tuple[OutputAccuracy, ...]
    """The worst first; none without samples."""


def attempt(
    original: onnx.ModelProto, quantize: Quantize, keep: frozenset[str], samples: Samples, target: Target
) -> tuple[Attempt, tuple[LayerCost, ...]]:
    """Quantize with *keep* and as many more nodes in float as *target* needs; return each layer's cost, too.

    Outputs are compared with those of *original* on *samples* that were not calibrated on; without any,
    nothing is measured. VerifyFailed if half of the layers in float are not enough.
    """
    right = outputs_on(original, samples) if samples else {}

    def tried(kept: frozenset[str]) -> Attempt:
        model = quantize(kept)
        return Attempt(model, kept, compared(outputs_on(model, samples), right) if samples else ())

    best = done = tried(keep)
    if not is_quantized(done.model):
        raise ModelError(
            "onnxruntime quantizes none of the operators, but for those that are kept",
            remedy="Compile the model as it is: adt compile MODEL.",
        )
    if not samples:
        return done, ()
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
    worst = best.outputs[0].metrics
    top1 = "" if worst.top1 is None else f", top-1 {worst.top1:.1%}"
    raise VerifyFailed(
        f"{target} was not reached; at best it was SNR {worst.snr_db:.1f} dB{top1}"
        f" with {len(best.kept)} nodes in float",
        remedy="Give more samples, --per-channel or another --method, or ask for less. Nothing was written.",
    )


def check_prepared(
    model: onnx.ModelProto, prepared: onnx.ModelProto, samples: Samples
) -> Mapping[str, Array]:
    """Check that *prepared* computes what *model* does; return inputs: the first of *samples*, or random."""
    inputs = samples[0] if samples else random_inputs(model, -1.0, 2)
    got = _run(prepared, inputs)
    for name, reference in _run(model, inputs).items():
        if reason := difference(got[name], reference):
            raise ModelError(
                f"converted to opset {opset(prepared)} the model computes something else: {name}: {reason}",
                remedy="Export it with that opset, or compile it as it is: adt compile MODEL.",
            )
    return inputs


def _run(
    model: onnx.ModelProto, inputs: Mapping[str, Array], observed: Sequence[str] = ()
) -> dict[str, Array]:
    """Run *model* node by node: onnxruntime's folding of constants fails at some prepared models."""
    what = "onnxruntime cannot run the model as its quantizer takes it or makes it"
    with onnxruntime_errors(what, f"{KEEP}. Or give samples: --calibrate FILE.npz"):
        return run(model, dict(inputs), observed, optimize=False)


def faithful(
    original: onnx.ModelProto, quantize: Quantize, keep: frozenset[str], inputs: Mapping[str, Array]
) -> frozenset[str]:
    """Return *keep* and the nodes that *quantize* would change or fails at; a warning names each."""
    nodes = frozenset(node.name for node in original.graph.node)
    for _ in range(MOST_ROUNDS):
        try:
            model = quantize(keep)
        except Exception as error:  # the quantizers' have no base in common
            changes = _failing(quantize, nodes, nodes - keep)
            if not changes:
                raise _refused(repr(error)) from error
        else:
            changes = changed(original, model, inputs)
        for name, reason in changes.items():
            log.warning("%s stays float; onnxruntime's quantizer does not do it right: %s", name, reason)
        if changes.keys() <= keep:
            break
        keep |= changes.keys()
    return keep


def check_faithful(original: onnx.ModelProto, model: onnx.ModelProto, inputs: Mapping[str, Array]) -> None:
    """Check that each node of a quantized *model* computes what it does in *original*."""
    for name, reason in changed(original, model, inputs).items():
        raise _refused(f"{name}: {reason}")


def _refused(reason: str) -> ModelError:
    return ModelError(
        f"onnxruntime's quantizer does not do the model right: {reason}",
        remedy="Nothing was written. Compile the float model as it is: adt compile MODEL.",
    )


def _failing(quantize: Quantize, nodes: frozenset[str], tried: frozenset[str]) -> dict[str, str]:
    """Find those of *tried* at which *quantize* fails when nothing else is quantized, and its errors."""
    errors = {}
    for name in sorted(tried):
        try:
            quantize(nodes - {name})
        except Exception as error:  # see above
            errors[name] = repr(error)
    return errors


def changed(original: onnx.ModelProto, model: onnx.ModelProto, inputs: Mapping[str, Array]) -> dict[str, str]:
    """Find the nodes of *original* that compute something else in a quantized *model*, and what differs."""
    makers = {name: node.name for node in original.graph.node for name in node.output if name}
    sequences = {each.name for each in original.graph.value_info if not each.type.HasField("tensor_type")}
    values = {**inputs, **_run(original, inputs, [*makers.keys() - sequences])}
    separate, ranges = _separate(original, model, values)
    outputs = _run(separate, values) if separate.graph.node else {}
    reasons: dict[str, str] = {}
    for made, got in outputs.items():
        right = values[name := made.removesuffix(MADE)]
        if ends := ranges.get(name):  # an activation may have become part of them
            got, right = (np.clip(array, ends[0], ends[1]) for array in (got, right))
        if reason := difference(got, right):
            reasons.setdefault(makers[name], reason)
    return reasons


def _separate(
    original: onnx.ModelProto, model: onnx.ModelProto, values: dict[str, Array]
) -> tuple[onnx.ModelProto, dict[str, tuple[float, ...]]]:
    """Return the nodes that a quantized *model* changed, each by itself on *values*; and by tensor the
    least and the greatest number that its quantization steps stand for.
    """
    floats, quantized = Graph(original, original.graph), Graph(model, model.graph)
    before = {node.name: node for node in original.graph.node}
    names: dict[str, str] = {}
    weights: dict[str, onnx.NodeProto] = {}
    ranges: dict[str, tuple[float, ...]] = {}
    for node in (node for node in model.graph.node if node.op_type in PAIR):
        root = names.get(node.input[0], node.input[0])
        if quantized.constant(root) is not None:
            weights[node.output[0]] = node
        elif node.output[0] in values:  # an output keeps its name, and has another before
            names[root] = node.output[0]
        else:
            names[node.output[0]] = root
        if node.op_type == PAIR[0]:
            scale, zero = (np.asarray(quantized.constant(name)) for name in node.input[1:3])
            limits = np.iinfo(zero.dtype.name)
            ranges[root] = tuple((end - int(zero)) * float(scale) for end in (limits.min, limits.max))
    result, outputs = with_inputs(model, values), list[str]()
    unchanged = {node.SerializeToString(deterministic=True) for node in original.graph.node}
    for node in model.graph.node:
        if node.op_type in PAIR or node.SerializeToString(deterministic=True) in unchanged:
            continue
        result.graph.node.append(node)
        copy = result.graph.node[-1]
        if node.op_type == OPERATOR:
            weights[node.input[1]] = node
            copy.CopyFrom(helper.make_node("MatMul", node.input[:2], node.output))
        for place, name in enumerate(copy.input):
            copy.input[place] = names.get(names.get(name, name), names.get(name, name))
            if name in weights:
                exact = floats.constant(operand(before[node.name], place)) if node.name in before else None
                copy.input[place] = f"{len(result.graph.initializer)}{MADE}"
                weight = numpy_helper.from_array(_weight(quantized, weights[name], exact), copy.input[place])
                result.graph.initializer.append(weight)
        for place, name in enumerate(node.output):
            if (tensor := names.get(name, name)) in values:
                copy.output[place] = tensor + MADE
                outputs.append(tensor + MADE)
    result.graph.output.extend(map(helper.make_empty_tensor_value_info, outputs))
    return result, {names.get(root, root): ends for root, ends in ranges.items()}


def _weight(graph: Graph, node: onnx.NodeProto, exact: Array | None) -> NDArray[np.float32]:
    """Compute the weight that *node* dequantizes; take *exact* where that is a step off at most."""
    constants = [graph.constant(name) for name in node.input]
    quanta, scale, *zeros = (np.asarray(each, np.float64) for each in constants if each is not None)
    if node.op_type == OPERATOR:
        form = form_of(node)
        unsigned = unpacked(quanta, form.bits).astype(np.float64)
        quanta = unsigned.reshape(-1, form.blocks, form.block) - form.middle
        value = (quanta * scale.reshape(-1, form.blocks, 1)).reshape(len(quanta), -1)[:, : form.terms].T
    else:
        axis = attribute(node, "axis", 1) % max(quanta.ndim, 1)
        spread = (-1, *[1] * (quanta.ndim - axis - 1)) if scale.size > 1 else ()
        value = (quanta - zeros[0].reshape(spread)) * scale.reshape(spread)
    if exact is not None and exact.shape == value.shape:
        value = np.where(np.abs(value - exact.astype(np.float64)) <= np.abs(scale).max() * STEP, exact, value)
    return np.asarray(value, np.float32)
