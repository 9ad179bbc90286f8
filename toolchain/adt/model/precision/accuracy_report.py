"""What a package in reduced precision says about its accuracy (``made.accuracy`` of mod.json)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OutputAccuracy:
    """One output in reduced precision against float32, over all samples. Figures have three digits."""

    name: str
    dtype: str
    finite: bool
    """False: NaN or infinity where float32 has a number; the errors then leave those elements out."""
    magnitude: float
    """Largest absolute value in float32."""
    max_abs: float
    """Largest absolute difference."""
    max_rel: float
    """Largest absolute difference over the magnitude; 0 when both are all zero."""
    mean_abs: float
    """Mean absolute difference."""
    cosine: float
    """Cosine of the angle between the two, the smallest of all samples."""
    top1: float | None
    """Share of the rows whose largest element stayed the same; None where rows are no probabilities."""
    compared: bool = True
    """False: no element is finite in both, so nothing is known; the figures then say nothing."""


@dataclass(frozen=True)
class Overflow:
    """A value of the float32 model that half precision cannot hold."""

    name: str
    """Relax variable of the imported module, or an input's name."""
    op: str
    """Operator that gives it, without ``relax.``; ``input`` for an input."""
    magnitude: float
    """Its largest absolute value."""


@dataclass(frozen=True)
class Accuracy:
    """Reduced precision against float32, both computed by TVM on the machine that compiled."""

    precision: str
    inputs: str
    """What was computed on: ``random, seed 0``, or the names of the files."""
    samples: int
    outputs: tuple[OutputAccuracy, ...]
    overflows: tuple[Overflow, ...] = ()
    """Values over 65504, in order of execution; looked for only when an output is far off."""
    keep: tuple[str, ...] = ()
    """Relax variables whose operators would have to stay float32 for none of those to become half."""

    @property
    def bad(self) -> bool:
        """Whether an output is far off."""
        return any(far_off(output) for output in self.outputs)


WORST_REL = 0.1
WORST_COSINE = 0.99


def far_off(output: OutputAccuracy) -> bool:
    """Whether *output* is beyond what rounding explains."""
    wrong = output.max_rel > WORST_REL and output.cosine < 1 - (1 - WORST_COSINE) / 10
    return not output.finite or not output.compared or wrong or output.cosine < WORST_COSINE
