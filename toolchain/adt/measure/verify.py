"""Compare a device's outputs with the reference, number by number."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from adt import numerics
from adt.host.document import FLAT, in_document
from adt.numerics import TOLERANCES, Array, Metrics, gaps, metrics, steps_allowed, within
from adt.options.sections import VerifySettings

OF_DTYPE = {"float16": TOLERANCES["float16"]}
"""Type of an output → what passes where that is more: a float16 model computes in half whatever was asked."""


@dataclass(frozen=True)
class OutputComparison:
    name: str
    shape: tuple[int, ...]
    dtype: str
    reason: str
    """Reason why it did not pass; empty when it did."""
    metrics: Metrics = field(default=numerics.NO_METRICS, metadata=FLAT)
    """All figures; none of an output that only one side has."""
    max_abs_allowed: float = 0.0
    """Largest difference that passes for this output's type; of integers in steps …"""
    max_rel_allowed: float = 0.0
    """Largest one relative to the reference's largest magnitude."""
    changed: float = 0.0
    """Share of an integer output's elements that are off by more."""
    note: str = ""
    """Reason why it passes when not by the usual tolerance: a step, a share, equal NaNs."""
    options: tuple[str, ...] = ()
    """The options that would let it pass; none where nothing can."""
    inputs: str = ""
    """The set of inputs on which it was so; empty: there is only one."""

    @property
    @in_document()
    def passed(self) -> bool:
        return not self.reason

    @property
    def max_abs(self) -> float:
        """Largest absolute difference; infinite when only one side is finite."""
        return self.metrics.max_abs

    @property
    def max_rel(self) -> float:
        return self.metrics.max_rel


@dataclass(frozen=True)
class Verification:
    outputs: tuple[OutputComparison, ...]
    max_abs_allowed: float
    max_rel_allowed: float

    @property
    @in_document()
    def passed(self) -> bool:
        """True if every output passed (and there was one)."""
        return bool(self.outputs) and all(output.passed for output in self.outputs)


def limits_for(precision: str, asked: VerifySettings) -> VerifySettings:
    """Put the tolerances of a package's *precision* in the place of negative ones of *asked*."""
    usual = TOLERANCES[precision]
    return asked.but(
        max_abs=asked.max_abs if asked.max_abs >= 0 else usual.max_abs,
        max_rel=asked.max_rel if asked.max_rel >= 0 else usual.max_rel,
        max_changed=asked.max_changed if asked.max_changed >= 0 else numerics.MAX_CHANGED,
    )


def limits_of_output(dtype: str, precision: str, asked: VerifySettings) -> tuple[float, float]:
    """Return what passes for *dtype*, absolute (integers: steps) and relative; *asked*, if positive."""
    if not np.issubdtype(np.dtype(dtype), np.inexact):
        return float(steps_allowed(dtype, asked.max_steps)), 0.0
    limits = limits_for(precision, asked)
    wide = OF_DTYPE.get(dtype)
    return (
        max(limits.max_abs, wide.max_abs) if wide and asked.max_abs < 0 else limits.max_abs,
        max(limits.max_rel, wide.max_rel) if wide and asked.max_rel < 0 else limits.max_rel,
    )


def compare(
    got: Mapping[str, Array],
    reference: Mapping[str, Array],
    limits: VerifySettings,
    precision: str = "float32",
    quanta: Mapping[str, float] | None = None,
) -> Verification:
    """Compare *got* with *reference*; an output that only one side has does not pass.

    A float output passes when its largest absolute difference is at most ``max_abs``, or at most
    ``max_rel`` times the reference's largest magnitude, or ``max_steps`` quanta (*quanta* has one step
    of each quantized output). Of an integer or boolean output the share ``max_changed`` may be off by more
    steps. Where nothing finite could be compared, an output does not pass; where something is NaN or
    infinite it passes with ``allow_nonfinite`` only.
    """
    rows = []
    for name in dict.fromkeys((*reference, *got)):
        quantum = (quanta or {}).get(name, 0.0)
        rows.append(_compare_one(name, got.get(name), reference.get(name), limits, precision, quantum))
    wide = limits_for(precision, limits)
    return Verification(tuple(rows), wide.max_abs, wide.max_rel)


def accuracy(
    got: Mapping[str, Array], reference: Mapping[str, Array], limits: VerifySettings
) -> Verification:
    """Compare *got* with what another model gives: a float output passes by its SNR and top class."""
    exact = compare(got, reference, limits)
    rows = (
        _by_accuracy(row, limits) if row.dtype.startswith("float") and row.metrics.elements else row
        for row in exact.outputs
    )
    return replace(exact, outputs=tuple(rows))


def _by_accuracy(row: OutputComparison, limits: VerifySettings) -> OutputComparison:
    figures, faults = row.metrics, dict[str, str]()
    if not figures.comparable or (figures.partly_finite and not limits.allow_nonfinite):
        return row
    if figures.snr_db < limits.min_snr:
        faults["--min-snr"] = f"SNR {figures.snr_db:.1f} dB, {limits.min_snr:g} is the least"
    if figures.top1 is not None and figures.top1 < limits.min_top1:
        faults["--min-top1"] = f"top-1 {figures.top1:.1%}, {limits.min_top1:.1%} is the least"
    return replace(row, reason="; ".join(faults.values()), note="", options=tuple(faults))


def worst_of(runs: Sequence[tuple[str, Verification]]) -> Verification:
    """Find each output's worst comparison of *runs* (inputs and result): a failed one, then by difference."""
    first = runs[0][1]
    if len(runs) == 1:
        return first
    rows = [replace(row, inputs=name) for name, verification in runs for row in verification.outputs]

    def badness(row: OutputComparison) -> tuple[bool, float, float]:
        return not row.passed, row.max_rel, row.max_abs

    worst = [max((row for row in rows if row.name == each.name), key=badness) for each in first.outputs]
    return replace(first, outputs=tuple(worst))


def _compare_one(
    name: str,
    got: Array | None,
    reference: Array | None,
    limits: VerifySettings,
    precision: str,
    quantum: float,
) -> OutputComparison:
    array = reference if got is None else got
    assert array is not None
    row = OutputComparison(name, array.shape, array.dtype.name, "")
    if got is None or reference is None:
        return replace(row, reason=f"the {'device' if got is None else 'reference'} did not give it")
    if got.shape != reference.shape or got.dtype != reference.dtype:
        return replace(row, reason=f"the reference is {reference.dtype.name}{list(reference.shape)}")
    max_abs, max_rel = limits_of_output(row.dtype, precision, limits)
    figures = metrics(got, reference)
    row = replace(row, metrics=figures, max_abs_allowed=max_abs, max_rel_allowed=max_rel)
    if got.dtype.kind == "f":
        return _judge_floats(row, limits, quantum)
    row = replace(row, changed=gaps(got, reference).changed(max_abs))
    return _judge_whole(row, int(max_abs), limits_for(precision, limits).max_changed)


def _judge_floats(row: OutputComparison, limits: VerifySettings, quantum: float) -> OutputComparison:
    figures, max_abs, max_rel = row.metrics, row.max_abs_allowed, row.max_rel_allowed
    if figures.nothing_finite:
        return replace(row, reason="nothing finite could be compared", options=("--input",))
    if not figures.comparable:
        return replace(row, reason="NaN or infinity on one side only")
    steps = 1 if limits.max_steps < 0 else limits.max_steps
    quanta = "one quantum" if steps == 1 else f"{steps} quanta"
    over = figures.max_abs > max_abs and figures.max_rel > max_rel
    if over and not within(figures.max_abs, steps * quantum):
        reason = f"over the tolerance ({max_abs:g} absolute, {max_rel:g} relative)"
        if quantum:
            off = math.ceil(figures.max_abs / quantum - 0.5)
            reason += f" and over {quanta} ({quantum:g}): {off} off"
        options = ("--max-steps",) if quantum else ("--max-abs", "--max-rel")
        return replace(row, reason=reason, options=options)
    odd = figures.elements - figures.compared
    share = f"{odd} of {figures.elements} elements are NaN or infinite on both sides"
    if odd and not limits.allow_nonfinite:
        return replace(row, reason=share, options=("--allow-nonfinite",))
    notes = [f"{share}, which is allowed"] if odd else []
    if over:
        allowed_by = "as quantised models may be" if limits.max_steps < 0 else "which is allowed"
        notes.append(f"off by {quanta} ({quantum:g}) at most, {allowed_by}")
    return replace(row, note="; ".join(notes))


def _judge_whole(row: OutputComparison, steps: int, max_changed: float) -> OutputComparison:
    share = f"{row.changed:.3%} of the elements differ"
    if row.changed > max_changed:
        more = f" by more than {steps}" if steps else ""
        reason = f"{share}{more}, {max_changed:g} of all may (--max-changed)"
        return replace(row, reason=reason, options=("--max-steps", "--max-changed"))
    if row.changed:
        return replace(row, note=f"{share}, as ties may")
    off = row.max_abs == 1 == steps
    return replace(row, note="off by one quantum, as quantised models may be" if off else "")
