"""Quantiles, drift and the interval of a ratio, against values that are known otherwise."""

import statistics as stdlib

import numpy as np
import pytest

from adt.measure.bench import sentence, shorter
from adt.measure.record import PROTOCOLS, protocol_named
from adt.measure.statistics import (
    Interval,
    drift,
    quantiles,
    ratio_interval,
    robust_sigma,
    student,
    summarise,
    time_line,
)


def at(times: np.ndarray) -> np.ndarray:
    """Return the starts of runs that follow each other."""
    return np.concatenate([[0.0], np.cumsum(times)[:-1]])


def test_quantiles_are_interpolated_linearly() -> None:
    times = np.array([4.0, 1.0, 3.0, 2.0])
    assert quantiles(times, (0, 0.5, 0.9, 1)) == (1.0, 2.5, pytest.approx(3.7), 4.0)
    many = np.random.default_rng(0).exponential(size=1001)
    hundredths = stdlib.quantiles(many.tolist(), n=100, method="inclusive")
    assert quantiles(many, (0.5, 0.9, 0.99)) == pytest.approx(
        (hundredths[49], hundredths[89], hundredths[98]), rel=1e-12
    )


def test_a_summary() -> None:
    times = np.array([2.0] * 97 + [1.0, 3.0, 50.0])
    summary = summarise(times)
    assert (summary.count, summary.p50_ms, summary.min_ms, summary.max_ms) == (100, 2.0, 1.0, 50.0)
    assert summary.mean_ms == pytest.approx(2.48) and summary.throughput_per_s == pytest.approx(1000 / 2.48)
    assert summary.std_ms == pytest.approx(stdlib.stdev(times.tolist()), rel=1e-12)
    assert summary.spread_percent == 0.0, "the median deviation does not see three runs"
    assert summary.outliers == 2, "3 and 50: a quartile distance of 0 makes every other value one"
    assert summarise(np.array([5.0])).std_ms == 0.0
    with pytest.raises(ValueError, match="no times"):
        summarise(np.array([]))


def test_the_mean_of_equal_times_is_that_time() -> None:
    summary = summarise(np.full(3, 0.003))
    assert summary.min_ms == summary.mean_ms == summary.max_ms == 0.003


def test_the_robust_sigma_is_that_of_a_normal_distribution_and_blind_to_outliers() -> None:
    times = np.random.default_rng(1).normal(10, 0.5, 20_000)
    assert robust_sigma(times) == pytest.approx(0.5, rel=0.03)
    times[:1000] = 1e6
    assert robust_sigma(times) == pytest.approx(0.5, rel=0.12)


def test_drift_is_found_and_noise_is_none() -> None:
    noise = np.random.default_rng(2).normal(0, 0.02, 2000)
    still = 1 + noise
    trend = drift(still, at(still))
    assert trend and not trend.drifts and abs(trend.percent) < 1
    slower = 1 + 0.2 * np.linspace(0, 1, 2000) + noise
    trend = drift(slower, at(slower))
    assert trend and trend.drifts and trend.percent == pytest.approx(0.18 / 1.1 * 100, rel=0.15)
    faster = slower[::-1]
    trend = drift(faster, at(faster))
    assert trend and trend.drifts and trend.percent < -12
    assert drift(still[:39], at(still[:39])) is None


def test_rough_noise_is_no_drift() -> None:
    random = np.random.default_rng(3)
    wrong = 0
    for _ in range(200):
        times = np.repeat(1 + random.normal(0, 0.1, 20), 5) + random.normal(0, 0.02, 100)
        trend = drift(times, at(times))
        wrong += bool(trend and trend.drifts)
    assert wrong <= 4, f"{wrong} of 200 still series were said to drift"


def test_one_disturbed_stretch_is_no_drift() -> None:
    times = np.ones(400)
    times[100:140] = 3
    trend = drift(times, at(times))
    assert trend and not trend.drifts


def test_disturbed_stretches_do_not_hide_a_drift() -> None:
    times = 1 + 0.2 * np.linspace(0, 1, 400)
    for start in (40, 140, 380):
        times[start : start + 20] = 9
    trend = drift(times, at(np.ones(400)))
    assert trend and trend.drifts and trend.percent == pytest.approx(0.18 / 1.1 * 100, rel=0.1)


def test_a_time_line_is_short_and_in_order() -> None:
    times = np.linspace(1, 2, 5000)
    line = time_line(times, at(times))
    assert len(line) == 100 and line[0][1] < line[50][1] < line[-1][1]
    assert [moment for moment, _ in line] == sorted(moment for moment, _ in line)
    assert time_line(np.array([7.0]), np.array([3.0])) == ((0.0, 7.0),)


def test_the_interval_of_a_ratio_has_the_truth_in_it() -> None:
    random, truth, covered, widths = np.random.default_rng(4), 1.25, 0, []
    for _ in range(150):
        machine = 1 + 0.3 * np.linspace(0, 1, 8) + random.normal(0, 0.1, 8)  # a drift, the same for both
        a = truth * machine * (1 + random.normal(0, 0.02, 8))
        b = machine * (1 + random.normal(0, 0.02, 8))
        interval = ratio_interval(a, b)
        assert interval.low <= interval.value <= interval.high
        covered += interval.low <= truth <= interval.high
        widths.append(interval.high - interval.low)
    assert covered >= 0.93 * 150, f"only {covered} of 150 intervals of 95 % have the truth in them"
    assert np.median(widths) < 0.08, "the drift that both share must not widen it"


def test_the_interval_is_the_same_each_time() -> None:
    a, b = np.array([1.0, 1.1, 1.2, 0.9, 1, 1]), np.array([0.5, 0.52, 0.6, 0.44, 0.5, 0.5])
    assert ratio_interval(a, b) == ratio_interval(a, b)
    assert ratio_interval(a, a) == Interval(1.0, 1.0, 1.0)
    with pytest.raises(ValueError, match="5 and 5 rounds"):
        ratio_interval(a[:5], b[:5])
    with pytest.raises(ValueError, match="rounds"):
        ratio_interval(a, b[:5])


@pytest.mark.parametrize(("freedom", "table"), [(5, 2.571), (7, 2.365), (11, 2.201), (30, 2.042)])
def test_students_quantile_is_the_tables(freedom: int, table: float) -> None:
    assert student(freedom) == pytest.approx(table, rel=0.01)


@pytest.mark.parametrize(
    ("interval", "words"),
    [
        (Interval(1.27, 1.23, 1.31), "B is 1.23 to 1.31 × as fast as A"),
        (Interval(0.8, 0.75, 0.8), "A is 1.25 to 1.33 × as fast as B"),
        (Interval(1.01, 0.98, 1.04), "no difference can be told: B is 0.98 to 1.04 × as fast as A"),
        (Interval(1, 1, 1), "no difference can be told"),
    ],
)
def test_what_an_interval_says(interval: Interval, words: str) -> None:
    assert sentence(interval).startswith(words)


def test_protocols() -> None:
    default, mlperf = PROTOCOLS["default"], PROTOCOLS["mlperf"]
    assert (default.warmup_runs, default.warmup_ms, default.runs, default.seconds) == (3, 500, 50, 3)
    assert (mlperf.runs, mlperf.seconds, mlperf.headline) == (1024, 60, "p90")
    assert protocol_named("default").key == "default"
    assert protocol_named("default", runs=50).key == "default", "nothing was changed"
    other = protocol_named("mlperf", seconds=1.5, warmup_runs=0)
    assert other.key == "mlperf (warmup_runs=0, seconds=1.5)" and other.runs == 1024


def test_the_turns_of_a_comparison_share_the_protocol() -> None:
    turn = shorter(protocol_named("default", rounds=6))
    assert (turn.runs, turn.seconds, turn.warmup_runs) == (5, 0.25, 3)
    assert shorter(protocol_named("quick", runs=1)).runs == 3
