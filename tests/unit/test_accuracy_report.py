"""The accuracy report: what counts as far off, and what is said then."""

import logging
from pathlib import Path

import numpy as np
import pytest

from adt.compiler.passes.precision.accuracy import _compare, read_samples, warn
from adt.errors import InputError
from adt.measure.verify import limits_for
from adt.numerics import TOLERANCES
from adt.options.resolve import load_settings
from adt.package.manifest import TensorSpec
from adt.package.reports import Accuracy, OutputAccuracy, Overflow, far_off

SPEC = TensorSpec("y", (2, 3), "float32")
EXACT = np.array([[0.2, 0.5, 0.3], [0.1, 0.1, 0.8]], np.float32)


def accuracy_of(output: np.ndarray, exact: np.ndarray = EXACT) -> OutputAccuracy:
    return _compare(SPEC, [output], [exact])


def test_equal_outputs() -> None:
    accuracy = accuracy_of(EXACT)
    assert (accuracy.max_abs, accuracy.max_rel, accuracy.mean_abs, accuracy.cosine) == (0, 0, 0, 1)
    assert accuracy.top1 == 1 and accuracy.finite and not far_off(accuracy)


def test_figures_have_three_digits() -> None:
    accuracy = accuracy_of(EXACT + np.array([[0.012345, 0, 0], [0, 0, 0]], np.float32))
    assert accuracy.max_abs == 0.0123 and accuracy.max_rel == 0.0154 and accuracy.magnitude == 0.8
    assert accuracy.mean_abs == 0.00206


def test_classes_that_change_place_are_counted() -> None:
    assert accuracy_of(EXACT[:, ::-1].copy()).top1 == 0.5
    assert accuracy_of(EXACT * 7, EXACT * 7).top1 is None, "no probabilities"


def test_samples_count_together() -> None:
    accuracy = _compare(SPEC, [EXACT, EXACT + 1], [EXACT, EXACT])
    assert accuracy.max_abs == 1 and accuracy.mean_abs == 0.5 and accuracy.cosine < 1


def test_infinity_is_far_off_unless_it_was_there_before() -> None:
    broken = EXACT.copy()
    broken[0, 0] = np.inf
    assert far_off(accuracy_of(broken)) and not accuracy_of(broken).finite
    assert accuracy_of(broken).max_abs == 0, "what is no number does not count"
    assert not far_off(accuracy_of(broken, broken))


def test_equal_nans_prove_nothing(caplog: pytest.LogCaptureFixture) -> None:
    nothing = np.full_like(EXACT, np.nan)
    accuracy = accuracy_of(nothing, nothing)
    assert accuracy.finite and not accuracy.compared and far_off(accuracy)
    warn(report(accuracy))
    assert "nothing is known of its accuracy" in caplog.text and "--accuracy-inputs" in caplog.text
    assert "far from" not in caplog.text


def test_nan_and_noise_are_far_off() -> None:
    assert far_off(accuracy_of(np.full_like(EXACT, np.nan)))
    assert far_off(accuracy_of(EXACT[:, ::-1].copy()))
    assert not far_off(accuracy_of(EXACT * np.float32(1.001)))
    assert not far_off(accuracy_of(np.zeros_like(EXACT), np.zeros_like(EXACT)))
    assert far_off(accuracy_of(EXACT, np.zeros_like(EXACT)))


def report(output: OutputAccuracy, precision: str = "float16", *overflows: Overflow) -> Accuracy:
    return Accuracy(precision, "random, seed 0", 1, (output,), overflows, tuple(o.name for o in overflows))


def test_the_warning_names_what_overflows(caplog: pytest.LogCaptureFixture) -> None:
    big = tuple(Overflow(f"lv{n}", "nn.conv2d", 1e5 + n) for n in range(7))
    warn(report(accuracy_of(np.full_like(EXACT, np.inf)), "float16", *big))
    assert "y in float16 is NaN or infinite" in caplog.text
    assert "nn.conv2d lv0 (1e+05)" in caplog.text and "and 2 more" in caplog.text
    assert "--keep-float32 lv0,lv1,lv2,lv3,lv4,lv5,lv6" in caplog.text


@pytest.mark.parametrize(
    ("precision", "text"), [("float16", "float16_acc32"), ("float16_acc32", "real inputs")]
)
def test_the_warning_without_an_overflow(caplog: pytest.LogCaptureFixture, precision: str, text: str) -> None:
    warn(report(accuracy_of(EXACT[:, ::-1].copy()), precision))
    assert "far from float32" in caplog.text and text in caplog.text


def test_nothing_is_said_when_all_is_well(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    warn(report(accuracy_of(EXACT)))
    assert not caplog.text


def test_samples_from_files(tmp_path: Path) -> None:
    specs = (TensorSpec("x", (2,), "float32"),)
    for name in "ab":
        np.savez(tmp_path / f"{name}.npz", x=np.array([1, 2], np.float32), more=np.zeros(3))
    samples = read_samples(specs, [tmp_path / "a.npz", tmp_path / "b.npz"])
    assert samples.description == "a.npz, b.npz" and [list(s) for s in samples.inputs] == [["x"], ["x"]]
    assert read_samples(specs, []).description == "random, seed 0"


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"xx": np.zeros(2, np.float32)}, "has no input x"),
        ({"x": np.zeros(3, np.float32)}, r"is float32\[3\]"),
        ({"x": np.zeros(2, np.float64)}, r"is float64\[2\]"),
    ],
)
def test_samples_that_do_not_fit(tmp_path: Path, arrays: dict[str, np.ndarray], message: str) -> None:
    np.savez(tmp_path / "a.npz", **arrays)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=message):
        read_samples((TensorSpec("x", (2,), "float32"),), [tmp_path / "a.npz"])


@pytest.mark.parametrize(("name", "reason"), [("a.npz", "is not an"), ("b.npz", "there is no input file")])
def test_a_sample_that_is_no_file(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "a.npz").write_text("x")
    with pytest.raises(InputError, match=reason):
        read_samples((TensorSpec("x", (2,), "float32"),), [tmp_path / name])


def test_tolerances_follow_the_precision_unless_they_are_given() -> None:
    settings = load_settings({}).settings.verify
    for precision, usual in TOLERANCES.items():
        limits = limits_for(precision, settings)
        assert (limits.max_abs, limits.max_rel) == (usual.max_abs, usual.max_rel)
    limits = limits_for("float16", settings.but(max_abs=0.0))
    assert (limits.max_abs, limits.max_rel) == (0.0, TOLERANCES["float16"].max_rel)
