"""Statistics of many times of one thing: quantiles, spread, drift, and the confidence of a ratio of two.

Pure functions over arrays of milliseconds. Quantiles are interpolated linearly
between the two nearest runs (what numpy and Excel's PERCENTILE.INC do).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from adt.options.sections import FEWEST_ROUNDS

Times: TypeAlias = NDArray[np.float64]

SIGMA_PER_MAD = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation."""
FAR_OUT = 3.0
"""Interquartile ranges above the third quartile from which on a run is an outlier (Tukey's outer fence)."""
BLOCKS = 20
"""Blocks of consecutive runs, whose medians drift is looked for in."""
FEWEST_PER_BLOCK = 2
DRIFT_PERCENT = 3.0
"""A smaller change from the first tenth to the last is no drift …"""
DRIFT_NOISE = 4.0
"""Factor of the blocks' own noise below which a drift is none, either."""
POINTS = 100
RESAMPLES = 10_000
SEED = 20_240_229
"""Seed of the bootstrap: the same times always give the same interval."""


@dataclass(frozen=True)
class TimeSummary:
    count: int
    p50_ms: float
    p90_ms: float
    p99_ms: float
    mean_ms: float
    std_ms: float
    """Standard deviation of the runs (divided by N - 1); 0 for one run."""
    min_ms: float
    max_ms: float
    spread_percent: float
    """Robust standard deviation (1.4826 × median absolute deviation) over the median."""
    outliers: int
    """Runs more than 3 interquartile ranges above the third quartile."""
    throughput_per_s: float


@dataclass(frozen=True)
class Drift:
    """Change of the runs' time while it was measured."""

    percent: float
    """From the first tenth of the measurement to its last, of the median; positive: it got slower."""
    noise_percent: float
    """Robust standard deviation of the blocks' medians about the line, of the median."""
    drifts: bool
    """It is at least 3 % and more than 4 times the noise."""


@dataclass(frozen=True)
class Interval:
    """A number, and where it lies with 95 % confidence."""

    value: float
    low: float
    high: float


def quantiles(times: Times, at: Sequence[float]) -> tuple[float, ...]:
    """Compute the quantiles *at* (each 0 to 1) of *times*, interpolated linearly."""
    return tuple(float(value) for value in np.quantile(times, list(at), method="linear"))


def summarise(times: Times) -> TimeSummary:
    """Summarize *times*, one for each run, at least one."""
    if times.size == 0:
        raise ValueError("no times")
    low, p50, high, p90, p99 = quantiles(times, (0.25, 0.5, 0.75, 0.9, 0.99))
    mean = float(times.mean().clip(times.min(), times.max()))  # rounding may leave equal times
    return TimeSummary(
        count=int(times.size),
        p50_ms=p50,
        p90_ms=p90,
        p99_ms=p99,
        mean_ms=mean,
        std_ms=float(times.std(ddof=1)) if times.size > 1 else 0.0,
        min_ms=float(times.min()),
        max_ms=float(times.max()),
        spread_percent=100 * robust_sigma(times) / p50 if p50 > 0 else 0.0,
        outliers=int(np.count_nonzero(times > high + FAR_OUT * (high - low))),
        throughput_per_s=1000 / mean if mean > 0 else math.inf,
    )


def robust_sigma(values: Times) -> float:
    """Estimate the standard deviation of normally distributed *values* by their median absolute deviation."""
    return float(SIGMA_PER_MAD * np.median(np.abs(values - np.median(values))))


def drift(times: Times, starts: Times) -> Drift | None:
    """Compute the trend of the runs' times; None with too few (less than 40) to tell.

    Runs, which began at *starts* (ms, no two at once), are put into 20 blocks of equal number. The slope is
    the median of those between a block of the first half and the one as far on in the second, so that a
    disturbed stretch does not count.
    """
    if times.size < BLOCKS * FEWEST_PER_BLOCK:
        return None
    medians = np.array([np.median(block) for block in np.array_split(times, BLOCKS)])
    moments = np.array([np.median(block) for block in np.array_split(starts, BLOCKS)])
    middle = float(np.median(times))
    if middle <= 0:
        return None
    half = BLOCKS // 2
    slope = float(np.median((medians[half:] - medians[:half]) / (moments[half:] - moments[:half])))
    tenth = BLOCKS // 10
    apart = float(moments[-tenth:].mean() - moments[:tenth].mean())
    percent = 100 * slope * apart / middle
    noise = 100 * robust_sigma(medians - slope * moments) / middle
    return Drift(percent, noise, abs(percent) >= DRIFT_PERCENT and abs(percent) > DRIFT_NOISE * noise)


def time_line(times: Times, starts: Times) -> tuple[tuple[float, float], ...]:
    """Reduce the runs to :data:`POINTS` points: seconds from the first run, median (ms) of those runs."""
    blocks = min(POINTS, times.size)
    return tuple(
        (round(float(np.median(at) - starts[0]) / 1000, 4), round(float(np.median(block)), 6))
        for at, block in zip(np.array_split(starts, blocks), np.array_split(times, blocks), strict=True)
    )


def student(freedom: int) -> float:
    """Approximate the 97.5 % quantile of Student's distribution (Cornish and Fisher): to 1 % from 5 on."""
    z = NormalDist().inv_cdf(0.975)
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def ratio_interval(a: Times, b: Times) -> Interval:
    """Compute how many times larger *a* is than *b*, with its 95 % bootstrap interval.

    Each has one number per round, in order: what disturbed a round disturbed both. The estimate is the median
    of the rounds' ratios. Rounds are drawn with replacement; the seed is fixed. The plain percentiles of so
    few rounds are too narrow, so they are taken further out, as Student's distribution lies to the normal one
    (T. Hesterberg's expanded percentiles): in simulations of 6 to 12 rounds, with light and heavy tails, 96
    to 98 % of the intervals had the truth.
    """
    rounds = int(a.size)
    if a.size != b.size or rounds < FEWEST_ROUNDS:
        raise ValueError(f"{a.size} and {b.size} rounds")
    ratios = a / b
    outside = NormalDist().cdf(-student(rounds - 1) * math.sqrt(rounds / (rounds - 1)))
    picks = np.random.default_rng(SEED).integers(0, rounds, (RESAMPLES, rounds))
    low, high = np.quantile(np.median(ratios[picks], axis=1), (outside, 1 - outside))
    return Interval(float(np.median(ratios)), float(low), float(high))
