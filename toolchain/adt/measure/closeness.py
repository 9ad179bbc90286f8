"""How far a kernel's result may be from another's that computes the same in another order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adt.numerics import gaps

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.generic]

ROUNDINGS = 4
"""By so many roundings the inputs of a kernel are moved to see what its sums that cancel are worth …"""
MOVED = 4.0
"""… and so many times as far as its results then move may they be off."""
TRIES, TRIES_OF_ROUNDING = 2, 16
"""How often; the latter at most for a kernel that rounds to quanta: each try moves few of the values that lie
on the edge of two."""
ROUNDS = ("quantize", "round")
"""What is in the name of an operator that does."""
FILLER = 1e4
"""Numbers so large stand for "not this one" in scores, and are no scores."""


def difference(got: Array, reference: Array, allowed: Array | float = 0.0) -> float:
    """The largest difference as a share of the reference's largest magnitude; of whole numbers in steps.

    Numbers from :data:`FILLER` on are compared among themselves: what masks a score (-1e9) would
    otherwise make the scores' own differences small.

    Args:
        allowed: so far may each element be off, besides.
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


def rounded_otherwise(array: Array, seed: int) -> Array:
    """*array* with each float a few roundings away; other types as they are."""
    import numpy as np

    if array.dtype.kind != "f":
        return array
    floats: Any = array
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], array.shape)
    factor = 1 + ROUNDINGS * float(np.finfo(floats.dtype).eps) * signs
    with np.errstate(over="ignore"):
        return np.asarray((floats * factor).astype(array.dtype))
