"""`adt verify` of packages that are right where onnxruntime's answer is one of several, and of a wrong one."""

import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import adt as api
from adt.errors import VerifyFailed
from adt.measure.reference import run_reference
from adt.measure.roundings import BY_NODE, NOISE, explained, other_answers
from adt.measure.verify import OutputComparison, compare
from adt.options.resolve import load_settings
from support.devices.programs import adt
from support.models import rounding

pytestmark = pytest.mark.usefixtures("host_bundle")


def quantized(path: Path, make: Callable[[Path], Path], quantize: Callable[[Path, Path], Path]) -> Path:
    return quantize(make(path.with_name("float.onnx")), path)


ROUNDINGS = "roundings decide: onnxruntime itself moves by"
BLOCKS = partial(rounding.blocks, layers=2)
MODELS: dict[str, tuple[Callable[[Path], Path], str]] = {
    "accuracy level": (rounding.few_bits, ""),
    "8-bit blocks": (partial(quantized, make=BLOCKS, quantize=rounding.static), BY_NODE),
    "16-bit blocks": (partial(quantized, make=BLOCKS, quantize=partial(rounding.static, bits=16)), ROUNDINGS),
    "dynamic": (partial(quantized, make=BLOCKS, quantize=rounding.dynamic), ROUNDINGS),
    "TopK": (partial(rounding.equal_scores, operator="TopK"), "% of the indices differ; the values at them"),
    "ArgMax": (partial(rounding.equal_scores, operator="ArgMax"), "% of the indices differ; the values"),
}
"""Models, and the remark with which they pass where the processor's roundings are not onnxruntime's."""


@pytest.mark.parametrize("name", MODELS)
def test_a_package_is_right_where_a_rounding_decides(name: str, tmp_path: Path) -> None:
    make, remark = MODELS[name]
    model = make(tmp_path / "m.onnx")
    package = api.compile(model, out=tmp_path / "pkg", platform="host", check=False).path

    done = adt("verify", package)

    assert done.returncode == 0, done.stdout + done.stderr
    if "(" in done.stdout:
        assert remark and remark in done.stdout
        assert adt("verify", package, "--max-abs", "0").returncode == VerifyFailed.exit_code, "as asked"


@pytest.fixture(scope="module")
def blocks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Quantize a transformer's blocks to activations of 16 bits."""
    directory = tmp_path_factory.mktemp("blocks")
    return rounding.static(rounding.blocks(directory / "float.onnx"), directory / "q.onnx", bits=16)


def judged(right: Path, wrong: Path) -> OutputComparison:
    """Judge the answer of *wrong* by that of *right*."""
    shape = [each.dim_value for each in onnx.load(right).graph.input[0].type.tensor_type.shape.dim]
    inputs = {"x": np.random.default_rng(0).normal(size=shape).astype("f4")}
    asked = load_settings({}).settings.verify
    outputs, expected = run_reference(wrong, inputs), run_reference(right, inputs)
    comparison = compare(outputs, expected, asked)
    assert not comparison.passed
    (row,) = explained(comparison, outputs, expected, right, inputs, asked, "float32", {}).outputs
    return row


def test_an_answer_whose_roundings_went_otherwise_passes_unless_limits_are_given(blocks: Path) -> None:
    inputs = {"x": np.random.default_rng(0).normal(size=(1, 16, 64)).astype("f4")}
    asked, expected = load_settings({}).settings.verify, run_reference(blocks, inputs)
    for answer in other_answers(blocks, inputs, NOISE["float32"])[1:4]:
        comparison = compare(answer, expected, asked)
        (row,) = explained(
            comparison, answer, expected, blocks, inputs, asked, "float32", {"y": 1e-4}
        ).outputs
        assert not comparison.passed and row.passed and ROUNDINGS in row.note
        assert re.search(
            r"moves by 0\.00\d+, \d+ quantization steps \(SNR \d\d\.\d dB, \d\d% of the", row.note
        )
        for limits in (asked.but(max_abs=1e-6), asked.but(max_rel=1e-6), asked.but(max_steps=1)):
            comparison = compare(answer, expected, limits)
            assert comparison == explained(
                comparison, answer, expected, blocks, inputs, limits, "float32", {"y": 1e-4}
            )


@pytest.mark.parametrize("factor", [1.01, 0.99])
def test_a_wrong_scale_of_a_late_layer_is_no_rounding(blocks: Path, tmp_path: Path, factor: float) -> None:
    wrong = onnx.load(blocks)
    (scale,) = (each for each in wrong.graph.initializer if each.name == "up5_scale")
    scale.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(scale) * np.float32(factor), scale.name))
    onnx.save(wrong, tmp_path / "wrong.onnx")

    row = judged(blocks, tmp_path / "wrong.onnx")

    assert not row.passed and "over the tolerance" in row.reason and row.options
    assert "onnxruntime itself moves by 0.00" in row.reason and "(SNR 7" in row.reason


def test_a_model_that_rounds_nothing_has_one_right_answer(tmp_path: Path) -> None:
    right = rounding.blocks(tmp_path / "right.onnx", layers=1)
    wrong = onnx.load(right)
    wrong.graph.initializer[1].CopyFrom(
        numpy_helper.from_array(
            numpy_helper.to_array(wrong.graph.initializer[1]) * np.float32(1.01),
            wrong.graph.initializer[1].name,
        )
    )
    onnx.save(wrong, tmp_path / "wrong.onnx")

    row = judged(right, tmp_path / "wrong.onnx")

    assert not row.passed and "itself" not in row.reason


@pytest.mark.parametrize("operator", ["TopK", "ArgMax"])
def test_indices_of_other_scores_do_not_pass(operator: str, tmp_path: Path) -> None:
    """Find the fault beside choices among equal scores, which differ and hide nothing."""
    right = rounding.equal_scores(tmp_path / "right.onnx", operator)
    inputs = {"x": np.random.default_rng(0).normal(size=(2 if operator == "TopK" else 20, 3000)).astype("f4")}
    asked = load_settings({}).settings.verify
    expected = run_reference(right, inputs)
    indices = (expected["indices"] + 40) % 80  # the same sums in the other order
    outputs = expected | {"indices": indices.astype(expected["indices"].dtype)}

    def row(outputs: Mapping[str, np.ndarray]) -> OutputComparison:
        comparison = compare(outputs, expected, asked)
        rows = explained(comparison, outputs, expected, right, inputs, asked, "float32", {}).outputs
        return next(each for each in rows if each.name == "indices")

    assert row(outputs).passed and "100.00% of the indices differ" in row(outputs).note
    flat = outputs["indices"].reshape(-1)
    for fault in ((flat[0] + 1) % 40, flat[1], 80):  # a worse score, one twice, one out of range
        flat[0] = fault
        assert not row(outputs).passed, fault
