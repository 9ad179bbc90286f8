"""The one comparator of tensors, and the one table of what passes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Array: TypeAlias = "NDArray[np.generic]"


@dataclass(frozen=True)
class Tolerance:
    """Tolerances in one precision; relative ones are shares of the reference's largest magnitude."""

    max_abs: float
    """Absolute tolerance of a model's output."""
    max_rel: float
    """Relative tolerance of a model's output."""
    kernel: float
    """Relative, of one kernel, or of the same kernels on two kinds of device."""


TOLERANCES = {
    "float32": Tolerance(1e-4, 1e-4, 1e-4),
    "float16_acc32": Tolerance(2e-3, 1e-2, 2e-2),
    "float16": Tolerance(1e-2, 5e-2, 5e-2),
}
"""Precision of a package → what passes (docs/precision.md has measurements)."""
REORDERED = {"float16": 2e-2, "bfloat16": 1e-1, "float32": 1e-3, "float64": 1e-6}
"""Type → relative difference that passes where the same sums are added up in another order: a rewritten
graph, another schedule. A wrong index or a wrong rewrite is off by far more."""
QUANTIZED = ("int8", "uint8", "int16", "uint16")
"""Types of quantised tensors: a value on the edge of two may become either, so they may be off by one."""
MAX_CHANGED = 0.01
"""Share of an integer output that may differ: of nearly equal scores, either may be the largest."""

LAST_PLACE = 2.0**-20
"""Share of an input's elements that hardly changes them: where outputs change much by that, other kernels
may differ as much."""
FILLER = 1e4
"""Numbers so large stand for "not this one" in scores, and are no scores."""
TINY = 1e-12
"""Magnitudes below this make no relative error and no angle."""
MOST_AXES_OF_CLASSES = 3
"""Largest number of axes of an array of scores; with more, the last one is a width or a texel."""


def steps_allowed(dtype: str, given: int = -1) -> int:
    """Return the number of steps by which an integer of *dtype* may be off; a negative *given* is by type."""
    return given if given >= 0 else int(dtype in QUANTIZED)


def within(gap: float, quantum: float) -> bool:
    """Return True if *gap* is one *quantum* at most, but for rounding; False without a quantum."""
    return quantum > 0 and gap <= quantum * (1 + REORDERED["float32"])


def hardly_changed(inputs: Mapping[str, Array], seed: int) -> dict[str, Array]:
    """Return *inputs* whose floats are a few last places larger, or smaller."""
    import numpy as np

    generator = np.random.default_rng(seed)

    def changed(array: Array) -> Array:
        places = 1 + LAST_PLACE * generator.choice((-1, 1), array.shape)
        moved = np.asarray(array.astype(float) * places)  # of no axes, too
        return moved.astype(array.dtype) if array.dtype.kind == "f" else array

    return {name: changed(array) for name, array in inputs.items()}


@dataclass(frozen=True)
class Worst:
    """The element that differs most."""

    index: tuple[int, ...]
    got: float
    reference: float


@dataclass(frozen=True)
class Metrics:
    """One array against its reference of the same shape.

    Figures are over the elements that are finite on both sides; without any, they are the worst there are.
    """

    max_abs: float
    """Largest absolute difference; infinite when an element is NaN or infinite on one side only, or when
    nothing finite could be compared."""
    max_rel: float
    """Largest absolute difference over the reference's largest magnitude."""
    mean_abs: float
    rmse: float
    cosine: float
    """Cosine of the angle between the two, 1 when they point the same way."""
    snr_db: float
    """Power of the reference over that of the difference, decibels; infinite when nothing differs."""
    psnr_db: float
    """Squared range of the reference over the mean squared difference, decibels; infinite likewise."""
    top1: float | None
    """Share of rows along the last axis whose greatest element is at a place where the reference's is; None
    where the last axis is no row of scores: integers, one element, more than three axes."""
    nan: int
    infinite: int
    reference_nan: int
    reference_infinite: int
    differing: int
    """Elements that are not equal; NaN equals NaN."""
    elements: int
    worst: Worst | None
    """None: nothing differs."""
    magnitude: float
    """Largest magnitude of the reference."""
    compared: int
    """Elements that are finite on both sides."""

    @property
    def comparable(self) -> bool:
        """True if every element is finite on both sides, or the same on both, and something is finite."""
        return math.isfinite(self.max_abs)

    @property
    def nothing_finite(self) -> bool:
        """True if there are elements, and none is finite on both sides: equal NaNs prove nothing."""
        return self.elements > 0 and self.compared == 0

    @property
    def partly_finite(self) -> bool:
        """True if some elements are NaN or infinite, on either side."""
        return self.compared < self.elements


NO_METRICS = Metrics(
    math.inf, math.inf, math.inf, math.inf, 0.0, -math.inf, -math.inf, None, 0, 0, 0, 0, 0, 0, None, 0.0, 0
)
"""Gaps of arrays that cannot be compared."""


@dataclass(frozen=True)
class Gaps:
    """Two arrays of the same shape, element by element, as float64."""

    got: NDArray[np.float64]
    reference: NDArray[np.float64]
    finite: NDArray[np.bool_]
    """Finite on both sides."""
    gap: NDArray[np.float64]
    """Absolute difference; 0 where both are the same (NaN is NaN), infinite where only one is finite."""

    @property
    def magnitude(self) -> float:
        """Largest magnitude of the reference's elements that are finite on both sides."""
        import numpy as np

        return float(np.abs(self.reference[self.finite]).max(initial=0.0))

    @property
    def comparable(self) -> bool:
        """True if no element is NaN or infinite on one side only."""
        import numpy as np

        return not bool(np.isinf(self.gap).any())

    def changed(self, steps: float = 0.0) -> float:
        """Return the share of the elements that are off by more than *steps*."""
        import numpy as np

        return float(np.mean(self.gap > steps)) if self.gap.size else 0.0


def gaps(got: Array, reference: Array) -> Gaps:
    """Lay *got* beside *reference*, of the same shape; booleans count as 0 and 1."""
    import numpy as np

    a, b = np.asarray(got).astype(np.float64), np.asarray(reference).astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    finite = np.isfinite(a) & np.isfinite(b)
    gap = np.abs(np.where(finite, a, 0.0) - np.where(finite, b, 0.0))
    return Gaps(a, b, finite, np.where(same, 0.0, np.where(finite, gap, np.inf)))


def difference(output: Array, reference: Array, allowed_each: NDArray[np.float64] | float = 0.0) -> str:
    """Describe how *output* differs from *reference* beyond rounding and what each element may be off."""
    import numpy as np

    output, reference = np.asarray(output), np.asarray(reference)
    if output.shape != reference.shape or output.dtype != reference.dtype:
        return f"{output.dtype}{list(output.shape)} instead of {reference.dtype}{list(reference.shape)}"
    if reference.dtype.kind in "OSU":
        return "" if np.array_equal(output, reference) else "other texts"
    pair, dtype = gaps(output, reference), reference.dtype
    if not pair.comparable:
        return "NaN or infinity elsewhere"
    worst = float(np.maximum(pair.gap - allowed_each, 0.0).max(initial=0.0))
    allowed = (
        REORDERED.get(dtype.name, 1e-2) * pair.magnitude if dtype.kind == "f" else steps_allowed(dtype.name)
    )
    return "" if worst <= allowed else f"differs by {worst:.3g} where {allowed:.3g} is rounding"


def metrics(got: Array, reference: Array) -> Metrics:
    """Compute all figures of *got* against *reference*, of the same shape."""
    import numpy as np

    pair = gaps(got, reference)
    a, b, gap = pair.got, pair.reference, pair.gap
    x, y, errors = a[pair.finite], b[pair.finite], gap[pair.finite]
    counts = {
        "nan": int(np.isnan(a).sum()),
        "infinite": int(np.isinf(a).sum()),
        "reference_nan": int(np.isnan(b).sum()),
        "reference_infinite": int(np.isinf(b).sum()),
        "differing": int(np.count_nonzero(gap)),
        "elements": int(a.size),
        "compared": int(x.size),
    }
    worst = None
    if gap.any():
        index = np.unravel_index(int(np.argmax(gap)), gap.shape)
        worst = Worst(tuple(map(int, index)), float(a[index]), float(b[index]))
    if a.size and not x.size:
        return replace(NO_METRICS, **counts, worst=worst)
    magnitude, largest = pair.magnitude, float(gap.max(initial=0.0))
    squared = float(np.mean(errors**2)) if errors.size else 0.0
    spread = float(y.max() - y.min()) if y.size else 0.0
    return Metrics(
        max_abs=largest,
        max_rel=_ratio(largest, magnitude),
        mean_abs=float(np.mean(errors)) if errors.size else 0.0,
        rmse=math.sqrt(squared),
        cosine=cosine(x, y),
        snr_db=_decibels(float(np.mean(y**2)) if y.size else 0.0, squared),
        psnr_db=_decibels((spread or magnitude) ** 2, squared),
        top1=_top1(a, b) if got.dtype.kind == "f" else None,
        **counts,
        worst=worst,
        magnitude=magnitude,
    )


def _ratio(gap: float, scale: float) -> float:
    if gap == 0:
        return 0.0
    return gap / scale if scale > TINY else math.inf


def cosine(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Return the cosine of the angle between two vectors; 1 when both are zero, 0 when one is."""
    import numpy as np

    norms = float(np.linalg.norm(x) * np.linalg.norm(y))
    if norms > TINY * TINY:
        return float(x @ y) / norms
    return 1.0 if not x.any() and not y.any() else 0.0


def _decibels(signal: float, noise: float) -> float:
    if noise == 0:
        return math.inf
    return 10 * math.log10(signal / noise) if signal > 0 else -math.inf


def _top1(a: NDArray[np.float64], b: NDArray[np.float64]) -> float | None:
    """Return the share of rows where what is greatest in *a* is (one of) the greatest in *b*."""
    import numpy as np

    if not 1 <= a.ndim <= MOST_AXES_OF_CLASSES or a.size == 0 or a.shape[-1] < 2:
        return None
    rows, want = a.reshape(-1, a.shape[-1]), b.reshape(-1, a.shape[-1])
    chosen = np.take_along_axis(want, rows.argmax(axis=-1)[:, None], axis=-1)[:, 0]
    return float(np.mean(chosen == want.max(axis=-1)))


def joined(runs: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    """Concatenate the outputs of several runs, each by its name."""
    import numpy as np

    return {name: np.concatenate([np.atleast_1d(run[name]) for run in runs]) for name in runs[0]}


def relative_difference(got: Array, reference: Array, allowed: Array | float = 0.0) -> float:
    """Return the largest difference, beyond *allowed*, as a share of the magnitude; of integers in steps.

    Numbers from :data:`FILLER` on are compared among themselves: what masks a score (-1e9) would otherwise
    make the scores' own differences small.
    """
    import numpy as np

    pair = gaps(got, reference)
    gap = np.maximum(0.0, pair.gap - np.asarray(allowed, np.float64))
    if reference.dtype.kind != "f" or not pair.comparable:
        return float(gap.max(initial=0.0))
    large = np.abs(pair.reference) >= FILLER
    return max(
        _share(gap[group], pair.reference[group]) for group in (large & pair.finite, ~large & pair.finite)
    )


def _share(gap: NDArray[np.float64], reference: NDArray[np.float64]) -> float:
    import numpy as np

    largest = float(gap.max(initial=0.0))
    if largest == 0:
        return 0.0
    magnitude = float(np.abs(reference).max(initial=0.0))
    return largest / magnitude if magnitude else float("inf")
