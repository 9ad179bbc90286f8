"""The figures by which two arrays are compared."""

import math

import numpy as np
import pytest

from adt.numerics import MAX_CHANGED, Worst, gaps, metrics, steps_allowed, within

F = np.float32


def test_equal_arrays() -> None:
    stats = metrics(np.array([[1, 2, 3]], F), np.array([[1, 2, 3]], F))
    assert (stats.max_abs, stats.max_rel, stats.mean_abs, stats.rmse, stats.differing) == (0, 0, 0, 0, 0)
    assert stats.cosine == pytest.approx(1) and stats.top1 == 1 and stats.worst is None
    assert math.isinf(stats.snr_db) and stats.snr_db > 0 and math.isinf(stats.psnr_db)


def test_each_figure() -> None:
    expected = np.array([[3, 4, 0, 0]], F)
    output = np.array([[3, 4, 0, 2]], F)
    stats = metrics(output, expected)
    assert (stats.max_abs, stats.max_rel, stats.mean_abs, stats.rmse) == (2, 0.5, 0.5, 1)
    assert stats.cosine == pytest.approx(25 / (5 * math.sqrt(29)))
    assert stats.snr_db == pytest.approx(10 * math.log10(25 / 4))  # power 25/4 over 1
    assert stats.psnr_db == pytest.approx(10 * math.log10(16))  # range 4, squared
    assert stats.differing == 1 and stats.elements == 4
    assert stats.worst == Worst((0, 3), 2.0, 0.0)
    assert stats.top1 == 1


def test_top1_counts_rows_and_lets_ties_be() -> None:
    expected = np.array([[0.1, 0.9], [0.5, 0.5], [0.8, 0.2]], F)
    assert metrics(np.array([[0.2, 0.8], [0.4, 0.6], [0.4, 0.6]], F), expected).top1 == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    "array", [np.zeros((1, 1), F), np.zeros((1, 2, 3, 4), F), np.zeros((2, 3), np.int64), np.zeros((), F)]
)
def test_what_is_no_row_of_scores_has_no_top1(array: np.ndarray) -> None:
    assert metrics(array, array).top1 is None


def test_nan_and_infinity_are_counted_and_must_agree() -> None:
    expected = np.array([np.nan, np.inf, -np.inf, 1.0], F)
    same = metrics(expected.copy(), expected)
    assert same.comparable and same.max_abs == 0
    assert (same.nan, same.infinite, same.reference_nan, same.reference_infinite) == (1, 2, 1, 2)
    other = metrics(np.array([0.0, np.inf, np.inf, 1.0], F), expected)
    assert not other.comparable and other.differing == 2
    assert other.worst is not None and other.worst.index == (0,) and math.isnan(other.worst.reference)


def test_a_reference_of_zeros() -> None:
    zeros = np.zeros(3, F)
    assert metrics(zeros, zeros).cosine == 1
    stats = metrics(np.array([0, 0, 1e-3], F), zeros)
    assert math.isinf(stats.max_rel) and stats.cosine == 0 and stats.snr_db == -math.inf


def test_no_elements_and_no_dimensions() -> None:
    assert metrics(np.zeros((0, 4), F), np.zeros((0, 4), F)).elements == 0
    stats = metrics(np.array(2.0, F), np.array(1.0, F))
    assert stats.worst == Worst((), 2.0, 1.0) and stats.max_rel == 1


def test_booleans_and_large_integers() -> None:
    assert metrics(np.array([True, False]), np.array([True, True])).max_abs == 1
    assert metrics(np.array([255], np.uint8), np.array([254], np.uint8)).max_abs == 1


@pytest.mark.parametrize("odd", [np.nan, np.inf])
def test_equal_nans_prove_nothing(odd: float) -> None:
    array = np.full((2, 3), odd, F)
    stats = metrics(array.copy(), array)
    assert stats.nothing_finite and not stats.comparable and stats.compared == 0 and stats.elements == 6
    assert math.isinf(stats.max_abs) and stats.cosine == 0 and stats.worst is None
    array[0, 0] = 1
    partly = metrics(array.copy(), array)
    assert partly.comparable and partly.compared == 1 and not partly.nothing_finite


def test_whole_numbers_change_by_steps_and_shares() -> None:
    expected = np.zeros(1000, np.int8)
    output = expected.copy()
    output[:5] = 1
    output[5] = 9
    assert gaps(output, expected).changed() == pytest.approx(0.006)
    assert gaps(output, expected).changed(1) == pytest.approx(0.001) and MAX_CHANGED > 0.001
    assert [steps_allowed(name) for name in ("int8", "uint16", "int32", "bool")] == [1, 1, 0, 0]
    assert steps_allowed("int64", 3) == 3 and steps_allowed("int8", 0) == 0


def test_a_quantum_passes_but_for_its_rounding() -> None:
    assert within(0.02500001, 0.025) and not within(0.05, 0.025) and not within(0.0, 0.0)
