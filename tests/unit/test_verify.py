"""What counts as the same numbers."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from adt.config.settings import VerifySettings
from adt.measure.verify import TOLERANCES, compare, limits_of_output, output_fields, worst_of

LIMITS = VerifySettings(seed=0, max_abs=1e-4, max_rel=1e-4, max_steps=0, reference="auto")
OPEN = replace(LIMITS, max_abs=-1.0, max_rel=-1.0)


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


@pytest.mark.parametrize(
    ("dtype", "precision", "allowed"),
    [
        ("float32", "float32", TOLERANCES["float32"]),
        ("float64", "float32", TOLERANCES["float32"]),
        ("float16", "float32", TOLERANCES["float16"]),  # a model in half computes in half whatever was asked
        ("float16", "float16_acc32", TOLERANCES["float16"]),
        ("float32", "float16_acc32", TOLERANCES["float16_acc32"]),
        ("int8", "float32", (0.0, 0.0)),
        ("int64", "float16", (0.0, 0.0)),
        ("bool", "float32", (0.0, 0.0)),
    ],
)
def test_what_passes_depends_on_type_and_precision(
    dtype: str, precision: str, allowed: tuple[float, float]
) -> None:
    assert limits_of_output(dtype, precision, OPEN) == allowed


def test_what_was_asked_for_goes_before_type_and_precision() -> None:
    asked = replace(OPEN, max_rel=0.0)
    assert limits_of_output("float16", "float16", asked) == (TOLERANCES["float16"][0], 0.0)


def test_half_outputs_have_a_wider_limit() -> None:
    want = np.array([1.0, 2.0], np.float16)
    got = np.array([1.0, 2.03], np.float16)
    assert compare({"y": got}, {"y": want}, OPEN).passed
    assert not compare({"y": got.astype("f4")}, {"y": want.astype("f4")}, OPEN).passed


@pytest.mark.parametrize(
    ("dtype", "steps", "passed"),
    [("int8", 0, False), ("int8", 1, True), ("uint8", 1, True), ("int64", 1, False), ("int32", 1, False)],
)
def test_a_step_is_allowed_when_asked_for_and_only_to_quantised_outputs(
    dtype: str, steps: int, passed: bool
) -> None:
    want = np.array([1, 100, 3], dtype)
    got = np.array([1, 101, 3], dtype)
    assert compare({"y": got}, {"y": want}, replace(OPEN, max_steps=steps)).passed is passed
    assert not compare({"y": got + np.array(1, dtype)}, {"y": want}, replace(OPEN, max_steps=steps)).passed


def test_of_several_inputs_the_worst_is_kept() -> None:
    want = {"a": np.ones(2, np.float32), "b": np.ones(2, np.float32)}
    near = {"a": want["a"] + np.float32(5e-5), "b": want["b"]}
    far = {"a": want["a"], "b": want["b"] * 2}
    runs = [("seed 0", compare(near, want, LIMITS)), ("seed 1", compare(far, want, LIMITS))]
    found = worst_of(runs)
    assert [(row.name, row.inputs, row.passed) for row in found.outputs] == [
        ("a", "seed 0", True),
        ("b", "seed 1", False),
    ]
    assert not found.passed
    assert worst_of(runs[:1]).outputs[0].inputs == ""


def test_fields_of_an_output_are_json() -> None:
    want = np.array([1.0, np.nan, 2.0], np.float32)
    (row,) = compare({"y": want.copy()}, {"y": want}, LIMITS).outputs
    fields = output_fields(row)
    assert fields["snr_db"] is None and fields["nan"] == 1 and fields["top1"] is not None
    assert {"name", "shape", "dtype", "max_abs", "max_rel", "cosine", "passed", "reason"} <= fields.keys()
    assert json.loads(json.dumps(fields, allow_nan=False))["max_abs"] == 0
