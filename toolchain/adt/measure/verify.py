"""Compare a device's outputs with the reference, number by number."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from adt.config.settings import VerifySettings
from adt.measure.metrics import NO_METRICS, Metrics, metrics

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.generic]

TOLERANCES = {"float32": (1e-4, 1e-4), "float16_acc32": (2e-3, 1e-2), "float16": (1e-2, 5e-2)}
"""Precision → what passes, absolute and relative, where nothing is given (docs/precision.md has figures)."""
OF_DTYPE = {"float16": TOLERANCES["float16"]}
"""Type of an output → the same, where that is more: a float16 model computes in half whatever was asked."""
QUANTIZED = ("int8", "uint8", "int16", "uint16")
"""Types of outputs that may be off by steps when that is asked for; wider ones are indices and counts."""


@dataclass(frozen=True)
class OutputComparison:
    """One output against its reference."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    max_abs: float
    """Largest absolute difference; infinite when only one side is finite."""
    max_rel: float
    """Largest absolute difference over the reference's largest magnitude."""
    cosine: float
    """Cosine of the angle between the two, 1 when they point the same way."""
    passed: bool
    reason: str
    """Why it did not pass; empty when it did."""
    metrics: Metrics = NO_METRICS
    """All figures; none of an output that only one side has."""
    max_abs_allowed: float = 0.0
    """What passes for this output's type: 0 where it must be equal …"""
    max_rel_allowed: float = 0.0
    """… or relative to the reference's largest magnitude."""
    inputs: str = ""
    """The set of inputs on which it was so; empty: there is only one."""


@dataclass(frozen=True)
class Verification:
    """All outputs of one run."""

    outputs: tuple[OutputComparison, ...]
    max_abs_allowed: float
    max_rel_allowed: float

    @property
    def passed(self) -> bool:
        """Whether every output passed (and there was one)."""
        return bool(self.outputs) and all(output.passed for output in self.outputs)


def limits_for(precision: str, given: VerifySettings) -> VerifySettings:
    """*given*, with the tolerances of a package's *precision* in place of negative ones."""
    max_abs, max_rel = TOLERANCES[precision]
    return replace(
        given,
        max_abs=given.max_abs if given.max_abs >= 0 else max_abs,
        max_rel=given.max_rel if given.max_rel >= 0 else max_rel,
    )


def limits_of_output(dtype: str, precision: str, given: VerifySettings) -> tuple[float, float]:
    """What passes for an output of *dtype*, absolute and relative; both 0 where it must be equal.

    Args:
        precision: the package's.
        given: what the user asked for; negative: by type and precision.
    """
    import numpy as np

    if not np.issubdtype(np.dtype(dtype), np.inexact):
        return (float(given.max_steps), 0.0) if dtype in QUANTIZED else (0.0, 0.0)
    limits = limits_for(precision, given)
    wide = OF_DTYPE.get(dtype, (0.0, 0.0))
    return (
        max(limits.max_abs, wide[0]) if given.max_abs < 0 else limits.max_abs,
        max(limits.max_rel, wide[1]) if given.max_rel < 0 else limits.max_rel,
    )


def compare(
    got: Mapping[str, Array],
    reference: Mapping[str, Array],
    limits: VerifySettings,
    precision: str = "float32",
) -> Verification:
    """Compare *got* with *reference*; an output that only one side has does not pass.

    An output passes when its largest absolute difference is at most ``max_abs``,
    or at most ``max_rel`` times the reference's largest magnitude; integer and
    boolean outputs must be equal, but for ``max_steps`` of quantised ones.
    """
    names = [*reference, *(name for name in got if name not in reference)]
    rows = tuple(_compare_one(name, got.get(name), reference.get(name), limits, precision) for name in names)
    wide = limits_for(precision, limits)
    return Verification(rows, wide.max_abs, wide.max_rel)


def worst_of(runs: Sequence[tuple[str, Verification]]) -> Verification:
    """Of each output its worst comparison: one that did not pass, and then the largest relative difference.

    Args:
        runs: name of a set of inputs, and what came of it; at least one.
    """
    first = runs[0][1]
    if len(runs) == 1:
        return first
    rows = [
        max(
            (
                replace(row, inputs=name)
                for name, found in runs
                for row in found.outputs
                if row.name == output.name
            ),
            key=lambda row: (not row.passed, row.max_rel, row.max_abs),
        )
        for output in first.outputs
    ]
    return replace(first, outputs=tuple(rows))


def output_fields(output: OutputComparison) -> dict[str, Any]:
    """One output for JSON: every figure beside the others. What is not finite is null, but for ``max_abs``
    and ``max_rel``."""
    shown = {field.name: getattr(output, field.name) for field in fields(output) if field.name != "metrics"}
    return shown | {
        name: json_number(value) for name, value in asdict(output.metrics).items() if name not in shown
    }


def json_number(value: Any) -> Any:
    """*value* for JSON, which has no NaN and no infinity: null in their place, below dicts and lists, too."""
    if isinstance(value, dict):
        return {name: json_number(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [json_number(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _compare_one(
    name: str, got: Array | None, reference: Array | None, limits: VerifySettings, precision: str
) -> OutputComparison:
    inf = float("inf")
    if got is None or reference is None:
        side = "the device" if got is None else "the reference"
        there = reference if got is None else got
        assert there is not None
        missing = f"{side} did not give it"
        return OutputComparison(name, there.shape, there.dtype.name, inf, inf, 0.0, False, missing)
    facts = (name, got.shape, got.dtype.name)
    if got.shape != reference.shape or got.dtype != reference.dtype:
        wanted = f"the reference is {reference.dtype.name}{list(reference.shape)}"
        return OutputComparison(*facts, inf, inf, 0.0, False, wanted)
    found = metrics(got, reference)
    allowed = limits_of_output(got.dtype.name, precision, limits)
    reason = _reason(found, allowed, got.dtype.name)
    figures = (found.max_abs, found.max_rel, found.cosine)
    return OutputComparison(*facts, *figures, not reason, reason, found, *allowed)


def _reason(found: Metrics, allowed: tuple[float, float], dtype: str) -> str:
    """Why an output does not pass; empty when it does."""
    max_abs, max_rel = allowed
    if not found.comparable:
        return "NaN or infinity on one side only"
    if found.max_abs <= max_abs or (max_rel > 0 and found.max_rel <= max_rel):
        return ""
    if max_rel > 0 or dtype.startswith("float"):
        return f"over the tolerance ({max_abs:g} absolute, {max_rel:g} relative)"
    return f"over the {max_abs:g} steps that are allowed" if max_abs else "whole numbers must be equal"
