"""Operators of ONNX and onnxruntime by option and element type: right, or refused by name."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from adt.bundle.bundle import TargetBundle
from support.models import onnx_cases, onnx_sweep
from support.models.onnx_recipes import RECIPES

LATER = {
    r"Hardmax-11-T=float64": "ONNX's reference takes the axis of opset 13",
    r"MeanVarianceNormalization.*1,1,1,1": "onnxruntime leaves out the standard's 1e-9 and gives NaN",
    r"Hardmax.*nan": "no place is the largest where there is NaN",
    r"MaxUnpool.*5, 5": "onnxruntime reads the indices otherwise than ONNX's own case",
    r"GridSample.*T1=u?int": "ONNX's reference rounds its weights",
}
"""Cells that are not right for a reason that is known: take the line out with the reason."""
UNSWEPT = {
    # of other types than tensors, or with graphs or texts: tests of their own
    "ConcatFromSequence", "If", "ImageDecoder", "Loop", "Optional", "OptionalGetElement", "OptionalHasElement",
    "RegexFullMatch", "Scan", "SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert",
    "SequenceLength", "SequenceMap", "SplitToSequence", "StringConcat", "StringNormalizer", "StringSplit",
    # of later opsets
    "CausalConvWithState", "LinearAttention", "SwiGLU",
}  # fmt: skip
SAME_EVERYWHERE = {
    # of opsets before 7, of floats of 8 bits, of texts, or of what is random
    "axis", "broadcast", "consumed_inputs", "is_test", "output_sequence", "paddings", "height_scale", "width_scale", "shape",
    "saturate", "round_mode", "pool_strings", "value_string", "value_strings", "sparse_value", "mean", "scale", "high", "low", "seed", "dtype",
    # of quantization in blocks: tests of their own
    "block_size", "output_dtype", "precision",
}  # fmt: skip
"""Attributes that no cell varies."""


def batches(*, often: bool) -> list[Any]:
    """Return the cells of every run, or the others, which are nightly."""
    names = [name for name in onnx_sweep.all_cells() if onnx_sweep.often(name) == often]
    names = [name for name in names if not any(re.search(pattern, name) for pattern in LATER)]
    marks = [] if often else [pytest.mark.nightly]
    return [pytest.param(batch, id=f"{batch[0]}…", marks=marks) for batch in onnx_sweep.batches(names)]


@pytest.fixture(scope="module")
def rtvm(host_bundle: TargetBundle) -> Path:
    onnx_cases.preload()
    return host_bundle.file("bin/rtvm")


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("batch", [*batches(often=True), *batches(often=False)])
def test_cells(batch: Sequence[str], rtvm: Path) -> None:
    results = onnx_sweep.outcomes(batch, rtvm)
    wrong = {name: pair for name, pair in results.items() if pair[0] not in onnx_cases.ACCEPTED}
    assert not wrong, f"PYTHONPATH=tests python -m support.models.onnx_sweep {next(iter(wrong))!r}"


def test_every_operator_and_attribute_of_the_schemas_is_swept() -> None:
    swept: dict[str, set[str]] = {op: set() for op in RECIPES}
    for cell in onnx_sweep.all_cells().values():
        swept[f"{cell.domain}.{cell.op}" if cell.domain else cell.op].update(cell.attributes)
    schemas = onnx_sweep.schemas()
    assert {op for op in schemas if "." not in op} - RECIPES.keys() == UNSWEPT
    latest = onnx_sweep.OPSETS[-1]
    missing = {
        (op, name)
        for op in RECIPES
        if "." not in op
        for schema in schemas[op]
        if schema.since_version <= latest and not schema.deprecated
        for name in schema.attributes.keys() - swept[op] - SAME_EVERYWHERE
    }
    assert missing == set()
