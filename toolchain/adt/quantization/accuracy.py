"""Cost of quantizing: the outputs against the float model's, of the whole and of each layer alone."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from adt.errors import ModelError
from adt.numerics import Metrics, joined, metrics
from adt.quantization.quantizer import is_quantized

if TYPE_CHECKING:
    import numpy as np
    import onnx
    from numpy.typing import NDArray

    Array = NDArray[np.generic]

log = logging.getLogger("adt.quantize")

LAYER_SAMPLES = 8
"""On so many samples at most a layer is measured."""


@dataclass(frozen=True)
class OutputAccuracy:
    """One output on all samples that were held back, against the float model's."""

    name: str
    metrics: Metrics


@dataclass(frozen=True)
class LayerCost:
    """Loss of the outputs by one layer."""

    name: str
    """Name of the node."""
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
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        names = [output.name for output in session.get_outputs()]
        return joined([dict(zip(names, session.run(names, dict(each)), strict=True)) for each in samples])
    except Exception as error:  # onnxruntime's own exceptions have no public base
        raise ModelError(
            "onnxruntime cannot run what its quantizer made",
            remedy="Keep the node that it names float: --keep NAME.",
            details=str(error),
        ) from error


def compared(got: Mapping[str, Array], reference: Mapping[str, Array]) -> tuple[OutputAccuracy, ...]:
    """The outputs *got*, the worst first."""
    rows = [OutputAccuracy(name, metrics(got[name], right)) for name, right in reference.items()]
    return tuple(sorted(rows, key=lambda row: row.metrics.snr_db))


def layer_costs(
    original: onnx.ModelProto,
    model: onnx.ModelProto,
    quantize: Callable[[frozenset[str]], onnx.ModelProto],
    keep: frozenset[str],
    samples: Sequence[Mapping[str, Array]],
) -> tuple[LayerCost, ...]:
    """Return the layers of a quantized *model*, the costliest first.

    Each is quantized alone: the noise that a layer adds to its own output does not tell the model's.

    Args:
        original: what outputs are compared with.
        quantize: makes a model in which the named nodes stay float.
        keep: those that do in *model*.
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
    """The nodes of *model* that take what is quantized, or have it, and their operators."""
    nodes = model.graph.node
    dequantized = {name for node in nodes if node.op_type == "DequantizeLinear" for name in node.output}
    return {
        node.name: node.op_type
        for node in nodes
        if node.op_type == "MatMulNBits"
        or (not node.op_type.endswith("uantizeLinear") and not dequantized.isdisjoint(node.input))
    }
