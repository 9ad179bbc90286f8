"""What counts as the same numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from adt.config.settings import VerifySettings
from adt.measure.verify import compare

LIMITS = VerifySettings(seed=0, max_abs=1e-4, max_rel=1e-4)


def one(got: np.ndarray, want: np.ndarray) -> tuple[bool, float, float, str]:
    found = compare({"y": got}, {"y": want}, LIMITS)
    (row,) = found.outputs
    assert found.passed == row.passed
    return row.passed, row.max_abs, row.max_rel, row.reason


def test_equal_and_near() -> None:
    want = np.array([1.0, -2.0, 3.0], np.float32)
    assert one(want, want)[:3] == (True, 0.0, 0.0)
    passed, max_abs, max_rel, _ = one(want + np.float32(5e-5), want)
    assert (
        passed and max_abs == pytest.approx(5e-5, rel=0.01) and max_rel == pytest.approx(5e-5 / 3, rel=0.01)
    )


def test_large_numbers_pass_by_the_relative_limit_only() -> None:
    want = np.array([1e6, 5.0], np.float32)
    assert one(want + np.array([50, 0], np.float32), want)[0]
    assert not one(want + np.array([500, 0], np.float32), want)[0]


def test_wrong_numbers_do_not_pass() -> None:
    want = np.linspace(0, 1, 100, dtype=np.float32)
    passed, _, _, reason = one(want[::-1].copy(), want)
    assert not passed and "tolerance" in reason


def test_nan_must_be_on_both_sides() -> None:
    want = np.array([1.0, np.nan, np.inf], np.float32)
    assert one(want.copy(), want)[0]
    passed, max_abs, _, reason = one(np.array([1.0, 2.0, np.inf], np.float32), want)
    assert not passed and math.isinf(max_abs) and "NaN" in reason


def test_shape_dtype_and_missing() -> None:
    want = np.zeros((2, 2), np.float32)
    assert not one(np.zeros((4,), np.float32), want)[0]
    assert not one(np.zeros((2, 2), np.float64), want)[0]
    found = compare({"other": want}, {"y": want}, LIMITS)
    assert [row.passed for row in found.outputs] == [False, False]
    assert not compare({}, {}, LIMITS).passed


def test_integers_must_be_equal() -> None:
    want = np.array([1, 2, 3])
    assert one(want.copy(), want)[0]
    assert not one(want + np.array([0, 0, 1]), want)[0]
