"""Layers are kept in float, those first that cost most, until the outputs are as near as was asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from adt.errors import ConfigError, ModelError, VerifyFailed
from adt.quantization.accuracy import LayerCost, OutputAccuracy, compared, layer_costs, outputs_on
from adt.quantization.quantizer import is_quantized

if TYPE_CHECKING:
    import numpy as np
    import onnx
    from numpy.typing import NDArray

    Array = NDArray[np.generic]

BATCHES = 10
"""Number of times that layers go back to float …"""
BATCH = 20
"""Divisor of the number of layers that go back each time, at least one."""


@dataclass(frozen=True)
class Target:
    """Bound on the distance of each output from the float model's, on the samples that were held back."""

    snr_db: float | None = None
    top1: float | None = None

    def held(self, outputs: Sequence[OutputAccuracy]) -> bool:
        """True if all outputs hold the target.

        Raises:
            ConfigError: a top class is asked for, and no output has classes.
        """
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
    """Return the model that *quantize* makes with *keep* in float."""
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
    """Return the model that *quantize* makes with *keep* and as many more nodes in float as *target* needs,
    and the cost of each layer that was quantized at first.

    Outputs are compared with those of *original* on *samples* that were not calibrated on.

    Raises:
        VerifyFailed: it does not hold with half of the layers.
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
