"""Compare a device's outputs with the reference, number by number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from adt.config.settings import VerifySettings

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.generic]

TINY = 1e-12
"""Reference magnitudes below this do not make a relative error."""

TOLERANCES = {"float32": (1e-4, 1e-4), "float16_acc32": (2e-3, 1e-2), "float16": (1e-2, 5e-2)}
"""Precision → what passes, absolute and relative, where nothing is given (docs/precision.md has figures)."""


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


def compare(got: Mapping[str, Array], reference: Mapping[str, Array], limits: VerifySettings) -> Verification:
    """Compare *got* with *reference*; an output that only one side has does not pass.

    An output passes when its largest absolute difference is at most ``max_abs``,
    or at most ``max_rel`` times the reference's largest magnitude; integer and
    boolean outputs must be equal.
    """
    names = [*reference, *(name for name in got if name not in reference)]
    rows = tuple(_compare_one(name, got.get(name), reference.get(name), limits) for name in names)
    return Verification(rows, limits.max_abs, limits.max_rel)


def _compare_one(
    name: str, got: Array | None, reference: Array | None, limits: VerifySettings
) -> OutputComparison:
    import numpy as np

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
    exact = not np.issubdtype(got.dtype, np.inexact)
    a, b = got.astype(np.float64).ravel(), reference.astype(np.float64).ravel()
    same = (a == b) | (np.isnan(a) & np.isnan(b))  # covers infinities of equal sign
    finite = np.isfinite(a) & np.isfinite(b)
    if not bool(np.all(same | finite)):
        return OutputComparison(*facts, inf, inf, 0.0, False, "NaN or infinity on one side only")
    a, b = a[finite], b[finite]
    max_abs = float(np.max(np.abs(a - b), initial=0.0))
    scale = float(np.max(np.abs(b), initial=0.0))
    max_rel = max_abs / scale if scale > TINY else (0.0 if max_abs == 0 else inf)
    norms = float(np.linalg.norm(a) * np.linalg.norm(b))
    both_zero = not a.any() and not b.any()
    cosine = float(a @ b) / norms if norms > TINY else (1.0 if both_zero else 0.0)
    if exact:
        passed = max_abs == 0
        reason = "" if passed else "whole numbers must be equal"
    else:
        passed = max_abs <= limits.max_abs or max_rel <= limits.max_rel
        reason = (
            "" if passed else f"over the tolerance ({limits.max_abs:g} absolute, {limits.max_rel:g} relative)"
        )
    return OutputComparison(*facts, max_abs, max_rel, cosine, passed, reason)
