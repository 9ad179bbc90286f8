"""Equality of numbers within tolerances."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from adt.host.document import document_of
from adt.measure.verify import accuracy, compare, limits_of_output, worst_of
from adt.numerics import TOLERANCES
from adt.options.sections import VerifySettings
from adt.verbs.verify import VerifyResult, failure

OPEN = VerifySettings()
LIMITS = OPEN.but(max_abs=1e-4, max_rel=1e-4)
USUAL = {name: (limit.max_abs, limit.max_rel) for name, limit in TOLERANCES.items()}


def compare_arrays(output: np.ndarray, expected: np.ndarray) -> tuple[bool, float, float, str]:
    comparison = compare({"y": output}, {"y": expected}, LIMITS)
    (row,) = comparison.outputs
    assert comparison.passed == row.passed
    return row.passed, row.max_abs, row.max_rel, row.reason


def test_equal_and_near() -> None:
    expected = np.array([1.0, -2.0, 3.0], np.float32)
    assert compare_arrays(expected, expected)[:3] == (True, 0.0, 0.0)
    passed, max_abs, max_rel, _ = compare_arrays(expected + np.float32(5e-5), expected)
    assert (
        passed and max_abs == pytest.approx(5e-5, rel=0.01) and max_rel == pytest.approx(5e-5 / 3, rel=0.01)
    )


def test_large_numbers_pass_by_the_relative_limit_only() -> None:
    expected = np.array([1e6, 5.0], np.float32)
    assert compare_arrays(expected + np.array([50, 0], np.float32), expected)[0]
    assert not compare_arrays(expected + np.array([500, 0], np.float32), expected)[0]


def test_wrong_numbers_do_not_pass() -> None:
    expected = np.linspace(0, 1, 100, dtype=np.float32)
    passed, _, _, reason = compare_arrays(expected[::-1].copy(), expected)
    assert not passed and "tolerance" in reason


def test_nan_must_be_on_both_sides_and_be_allowed() -> None:
    expected = np.array([1.0, np.nan, np.inf], np.float32)
    assert compare_arrays(expected.copy(), expected)[0] is False
    allowed = LIMITS.but(allow_nonfinite=True)
    (row,) = compare({"y": expected.copy()}, {"y": expected}, LIMITS).outputs
    assert row.options == ("--allow-nonfinite",) and "2 of 3 elements" in row.reason
    (row,) = compare({"y": expected.copy()}, {"y": expected}, allowed).outputs
    assert row.passed and "2 of 3 elements" in row.note
    passed, max_abs, _, reason = compare_arrays(np.array([1.0, 2.0, np.inf], np.float32), expected)
    assert not passed and math.isinf(max_abs) and "NaN" in reason
    assert not compare({"y": np.array([1.0, 2.0, np.inf], np.float32)}, {"y": expected}, allowed).passed


@pytest.mark.parametrize("odd", [np.nan, np.inf])
@pytest.mark.parametrize("allow", [False, True])
def test_where_nothing_is_finite_nothing_was_compared(odd: float, allow: bool) -> None:
    expected = np.full(256, odd, np.float32)
    (row,) = compare({"y": expected.copy()}, {"y": expected}, OPEN.but(allow_nonfinite=allow)).outputs
    assert not row.passed and "nothing finite" in row.reason and math.isinf(row.max_abs)


def test_shape_dtype_and_missing() -> None:
    expected = np.zeros((2, 2), np.float32)
    assert not compare_arrays(np.zeros((4,), np.float32), expected)[0]
    assert not compare_arrays(np.zeros((2, 2), np.float64), expected)[0]
    comparison = compare({"other": expected}, {"y": expected}, LIMITS)
    assert [row.passed for row in comparison.outputs] == [False, False]
    assert not compare({}, {}, LIMITS).passed


def test_integers_must_be_equal() -> None:
    expected = np.array([1, 2, 3])
    assert compare_arrays(expected.copy(), expected)[0]
    assert not compare_arrays(expected + np.array([0, 0, 1]), expected)[0]


@pytest.mark.parametrize(
    ("dtype", "precision", "allowed"),
    [
        ("float32", "float32", USUAL["float32"]),
        ("float64", "float32", USUAL["float32"]),
        ("float16", "float32", USUAL["float16"]),  # a model in half computes in half whatever was asked
        ("float16", "float16_acc32", USUAL["float16"]),
        ("float32", "float16_acc32", USUAL["float16_acc32"]),
        ("int8", "float32", (1.0, 0.0)),
        ("int64", "float16", (0.0, 0.0)),
        ("bool", "float32", (0.0, 0.0)),
    ],
)
def test_what_passes_depends_on_type_and_precision(
    dtype: str, precision: str, allowed: tuple[float, float]
) -> None:
    assert limits_of_output(dtype, precision, OPEN) == allowed


def test_what_was_asked_for_goes_before_type_and_precision() -> None:
    asked = OPEN.but(max_rel=0.0)
    assert limits_of_output("float16", "float16", asked) == (USUAL["float16"][0], 0.0)


def test_half_outputs_have_a_wider_limit() -> None:
    expected = np.array([1.0, 2.0], np.float16)
    output = np.array([1.0, 2.03], np.float16)
    assert compare({"y": output}, {"y": expected}, OPEN).passed
    assert not compare({"y": output.astype("f4")}, {"y": expected.astype("f4")}, OPEN).passed


@pytest.mark.parametrize(
    ("dtype", "steps", "passed"),
    [
        ("int8", -1, True),
        ("uint8", -1, True),
        ("int8", 0, False),
        ("int32", -1, False),
        ("int64", -1, False),
        ("int64", 1, True),
    ],
)
def test_quantised_outputs_may_be_a_step_off_and_others_when_asked_for(
    dtype: str, steps: int, passed: bool
) -> None:
    expected = np.array([1, 100, 3], dtype)
    output = np.array([1, 101, 3], dtype)
    (row,) = compare({"y": output}, {"y": expected}, OPEN.but(max_steps=steps)).outputs
    assert row.passed is passed
    assert bool(row.note) is passed and ("--max-steps" in row.options) is not passed
    assert not compare({"y": output + np.array(1, dtype)}, {"y": expected}, OPEN.but(max_steps=steps)).passed


@pytest.mark.parametrize(("steps", "passed"), [(-1, False), (1, False), (2, True), (0, False)])
def test_floats_that_were_quantised_may_be_off_by_so_many_quanta(steps: int, passed: bool) -> None:
    expected = np.array([0.5, 1.0], np.float32)
    output = expected + np.array([0.0, 0.02], np.float32)
    (row,) = compare({"y": output}, {"y": expected}, OPEN.but(max_steps=steps), quanta={"y": 0.01}).outputs
    assert row.passed is passed
    assert row.options == (() if passed else ("--max-steps",)) and ("2" in row.note) is passed
    assert passed or row.reason.endswith("(0.01): 2 off")


@pytest.mark.parametrize("dtype", ["int64", "int32", "bool", "uint8"])
def test_a_share_of_ties_may_differ(dtype: str) -> None:
    expected = np.zeros(1000, dtype)
    output = expected.copy()
    output[:10] = 1 if dtype == "bool" else 7
    (row,) = compare({"y": output}, {"y": expected}, OPEN).outputs
    assert row.passed and "1.000% of the elements differ" in row.note
    output[:20] = output[0]
    (row,) = compare({"y": output}, {"y": expected}, OPEN).outputs
    assert not row.passed and "--max-changed" in row.options
    assert compare({"y": output}, {"y": expected}, OPEN.but(max_changed=0.02)).passed
    assert not compare({"y": output}, {"y": expected}, OPEN.but(max_changed=0.0)).passed


def test_a_dequantised_output_may_be_a_quantum_off() -> None:
    expected = np.array([0.5, 0.25, 1.0], np.float32)
    output = expected + np.array([0, 0.02, 0], np.float32)
    assert not compare({"y": output}, {"y": expected}, OPEN).passed
    (row,) = compare({"y": output}, {"y": expected}, OPEN, quanta={"y": 0.02}).outputs
    assert row.passed and "one quantum (0.02)" in row.note
    (row,) = compare({"y": output + np.float32(0.02)}, {"y": expected}, OPEN, quanta={"y": 0.02}).outputs
    assert not row.passed and row.options == ("--max-steps",)


def test_of_several_inputs_the_worst_is_kept() -> None:
    expected = {"a": np.ones(2, np.float32), "b": np.ones(2, np.float32)}
    near = {"a": expected["a"] + np.float32(5e-5), "b": expected["b"]}
    far = {"a": expected["a"], "b": expected["b"] * 2}
    runs = [("seed 0", compare(near, expected, LIMITS)), ("seed 1", compare(far, expected, LIMITS))]
    worst = worst_of(runs)
    assert [(row.name, row.inputs, row.passed) for row in worst.outputs] == [
        ("a", "seed 0", True),
        ("b", "seed 1", False),
    ]
    assert not worst.passed
    assert worst_of(runs[:1]).outputs[0].inputs == ""


def test_fields_of_an_output_are_json() -> None:
    expected = np.array([1.0, np.nan, 2.0], np.float32)
    (row,) = compare({"y": expected.copy()}, {"y": expected}, LIMITS.but(allow_nonfinite=True)).outputs
    fields = document_of(row)
    assert fields["snr_db"] is None and fields["nan"] == 1 and fields["top1"] is not None
    assert {"name", "shape", "dtype", "max_abs", "max_rel", "cosine", "passed", "reason"} <= fields.keys()
    assert json.loads(json.dumps(fields, allow_nan=False))["max_abs"] == 0


@pytest.mark.parametrize(
    ("output", "expected", "words"),
    [
        (np.full(4, np.nan, np.float32), np.full(4, np.nan, np.float32), "--input FILE.npz"),
        (np.array([1, np.inf], np.float32), np.array([1, np.inf], np.float32), "--allow-nonfinite"),
        (np.array([1.0, 2.0], np.float32), np.array([1.0, 3.0], np.float32), "--max-abs 1.1"),
        (np.array([1, 2]), np.array([1, 3]), "--max-changed 0.53"),
    ],
)
def test_the_remedy_names_options_that_work_on_the_output(
    output: np.ndarray, expected: np.ndarray, words: str
) -> None:
    result = VerifyResult("S", compare({"y": output}, {"y": expected}, OPEN), {}, emulated=False)
    error = failure(result, Path("p k"))
    assert error is not None and words in error.remedy
    if "FILE" not in words:
        same = failure(result, Path("p k"), same_command=True)
        assert same is not None and error.remedy == f"{same.remedy} adt verify 'p k' {' '.join(same.options)}"


def test_another_model_is_to_be_near() -> None:
    expected = np.linspace(-1, 1, 64, dtype=np.float32).reshape(4, 16)
    noise = np.random.default_rng(0).normal(0, 0.01, expected.shape).astype(np.float32)
    limits = OPEN.but(min_snr=20.0, min_top1=1.0)
    (row,) = accuracy({"y": expected + noise}, {"y": expected}, limits).outputs
    assert row.passed and not row.note and not compare({"y": expected + noise}, {"y": expected}, OPEN).passed
    (row,) = accuracy({"y": expected + 40 * noise}, {"y": expected}, limits).outputs
    assert not row.passed and row.options == ("--min-snr", "--min-top1")
    assert "20 is the least" in row.reason and "100.0% is the least" in row.reason
    result = VerifyResult("d", accuracy({"y": -expected}, {"y": expected}, limits), {}, False, "model")
    error = failure(result, Path("pkg"))
    assert error and "what quantizing costs" in error.remedy and "--min-snr" in error.remedy


def test_near_is_no_excuse_for_nan_or_for_other_classes() -> None:
    expected = np.linspace(-1, 1, 64, dtype=np.float32)
    broken = expected.copy()
    broken[3] = np.nan
    assert not accuracy({"y": broken}, {"y": expected}, OPEN).passed
    assert not accuracy({"y": broken}, {"y": broken}, OPEN).passed
    assert accuracy({"y": broken}, {"y": broken}, OPEN.but(allow_nonfinite=True)).passed
    assert not accuracy({"z": expected}, {"y": expected}, OPEN).passed
    assert not accuracy({"y": np.arange(9)}, {"y": np.arange(9)[::-1]}, OPEN).passed
