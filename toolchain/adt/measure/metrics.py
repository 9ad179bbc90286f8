"""How far one array is from another, in the figures by which people judge it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.generic]

TINY = 1e-12
"""Magnitudes below this make no relative error and no angle."""
MOST_AXES_OF_CLASSES = 3
"""Of an array with more axes the last one is a width or a texel, and no row of scores."""


@dataclass(frozen=True)
class Worst:
    """The element that differs most."""

    index: tuple[int, ...]
    got: float
    reference: float


@dataclass(frozen=True)
class Metrics:
    """One array against its reference of the same shape.

    Figures are over the elements that are finite on both sides.
    """

    max_abs: float
    """Largest absolute difference; infinite when an element is NaN or infinite on one side only."""
    max_rel: float
    """Largest absolute difference over the reference's largest magnitude."""
    mean_abs: float
    """Mean absolute difference."""
    rmse: float
    """Root of the mean squared difference."""
    cosine: float
    """Cosine of the angle between the two, 1 when they point the same way."""
    snr_db: float
    """Power of the reference over that of the difference, decibels; infinite when nothing differs."""
    psnr_db: float
    """Squared range of the reference over the mean squared difference, decibels; infinite likewise."""
    top1: float | None
    """Share of rows along the last axis whose greatest element is at a place where the reference's is; None
    where the last axis is no row of scores: whole numbers, one element, more than three axes."""
    nan: int
    """NaNs in the array …"""
    infinite: int
    """… and infinities …"""
    reference_nan: int
    """… and in the reference."""
    reference_infinite: int
    differing: int
    """Elements that are not equal; NaN equals NaN."""
    elements: int
    worst: Worst | None
    """None: nothing differs."""

    @property
    def comparable(self) -> bool:
        """Every element is finite on both sides, or the same on both."""
        return math.isfinite(self.max_abs)


NO_METRICS = Metrics(
    math.inf, math.inf, math.inf, math.inf, 0.0, -math.inf, -math.inf, None, 0, 0, 0, 0, 0, 0, None
)
"""Of arrays that cannot be compared."""


def metrics(got: Array, reference: Array) -> Metrics:
    """Compare *got* with *reference*, of the same shape; booleans count as 0 and 1."""
    import numpy as np

    a, b = np.asarray(got).astype(np.float64), np.asarray(reference).astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))  # covers infinities of equal sign
    finite = np.isfinite(a) & np.isfinite(b)
    odd = ~(same | finite)
    gap = np.where(same, 0.0, np.abs(np.where(finite, a, 0.0) - np.where(finite, b, 0.0)))
    gap = np.where(odd, np.inf, gap)
    worst = _worst(a, b, gap) if a.size and not bool(same.all()) else None
    x, y, errors = a[finite], b[finite], gap[finite]
    scale = float(np.max(np.abs(y), initial=0.0))
    largest = float(np.max(gap, initial=0.0))
    squared = float(np.mean(errors**2)) if errors.size else 0.0
    spread = float(np.max(y, initial=-np.inf) - np.min(y, initial=np.inf)) if y.size else 0.0
    return Metrics(
        max_abs=largest,
        max_rel=_ratio(largest, scale),
        mean_abs=float(np.mean(errors)) if errors.size else 0.0,
        rmse=math.sqrt(squared),
        cosine=_cosine(x, y),
        snr_db=_decibels(float(np.mean(y**2)) if y.size else 0.0, squared),
        psnr_db=_decibels((spread or scale) ** 2, squared),
        top1=_top1(a, b) if got.dtype.kind == "f" else None,
        nan=int(np.isnan(a).sum()),
        infinite=int(np.isinf(a).sum()),
        reference_nan=int(np.isnan(b).sum()),
        reference_infinite=int(np.isinf(b).sum()),
        differing=int(a.size - same.sum()),
        elements=int(a.size),
        worst=worst,
    )


def _worst(a: NDArray[np.float64], b: NDArray[np.float64], gap: NDArray[np.float64]) -> Worst:
    import numpy as np

    index = np.unravel_index(int(np.argmax(gap)), gap.shape)
    return Worst(tuple(int(i) for i in index), float(a[index]), float(b[index]))


def _ratio(gap: float, scale: float) -> float:
    if gap == 0:
        return 0.0
    return gap / scale if scale > TINY else math.inf


def _cosine(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
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
    """Share of rows where what is greatest in *a* is (one of) the greatest in *b*."""
    import numpy as np

    if not 1 <= a.ndim <= MOST_AXES_OF_CLASSES or a.size == 0 or a.shape[-1] < 2:
        return None
    rows, want = a.reshape(-1, a.shape[-1]), b.reshape(-1, a.shape[-1])
    chosen = np.take_along_axis(want, rows.argmax(axis=-1)[:, None], axis=-1)[:, 0]
    return float(np.mean(chosen == want.max(axis=-1)))
