"""Resize and Upsample of every opset: pixels and extents are those of onnxruntime, in float32."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from adt.compiler.importers.importer import import_model
from support.models.imported import run_imported
from support.models.onnx_graphs import f32, graph_of, node, write

SCALES = ((2, 3), (1.9, 1 / 3), (1.5, 0.5), (1 / 7, 2.3))
SHAPE = (1, 2, 20, 33)
NEAREST = ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")


def forms(opset: int) -> list[tuple[dict[str, Any], tuple[float, ...], str]]:
    """Give the forms of *opset*; every third of opset 11, whose Resize is that of 13 with other inputs."""
    return list(all_forms(opset))[:: 3 if opset == 11 else 1]


def all_forms(opset: int) -> Iterator[tuple[dict[str, Any], tuple[float, ...], str]]:
    """Yield attributes of a node, its scales or extents, and which of the two they are."""
    for mode in ("nearest", "linear"):
        for pair in SCALES:
            if opset < 11 and (opset == 10 or min(pair) >= 1):
                yield {"mode": mode}, pair, "scales"
    if opset < 11:
        return
    modes = [{"mode": "nearest", "nearest_mode": rounding} for rounding in NEAREST]
    for attributes in (*modes, {"mode": "linear"}, {"mode": "cubic"}):
        for pair in SCALES:
            for coordinates in ("half_pixel", "pytorch_half_pixel", "asymmetric"):
                yield attributes | {"coordinate_transformation_mode": coordinates}, pair, "scales"
        for pair in ((40, 1), (7, 11), (1, 50)):
            for coordinates in ("half_pixel", "align_corners", "asymmetric"):
                yield attributes | {"coordinate_transformation_mode": coordinates}, pair, "sizes"


def resizes(opset: int, part: slice) -> onnx.ModelProto:
    nodes, constants = [], {"roi": np.zeros(0, np.float32)} if opset > 10 else {}
    for number, (attributes, pair, kind) in enumerate(forms(opset)[part]):
        y, name = [f"y{number}"], f"s{number}"
        if kind == "sizes":
            constants[name] = np.array([*SHAPE[:2], *pair])
            nodes.append(node("Resize", ["x", "roi", "roi", name], y, **attributes))
            continue
        scales = np.array([1, 1, *pair], np.float32)
        if opset < 9:
            nodes.append(node("Upsample", ["x"], y, scales=scales.tolist(), **attributes))
            continue
        constants[name] = scales
        inputs = ["x", "roi", name] if opset > 10 else ["x", name]
        nodes.append(node("Resize" if opset > 9 else "Upsample", inputs, y, **attributes))
    outputs = [each.output[0] for each in nodes]
    return graph_of(nodes, {"x": SHAPE}, outputs, constants, opset=opset)


def by_onnxruntime(model: onnx.ModelProto, x: np.ndarray[Any, Any]) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return list(onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, {"x": x}))


@pytest.mark.parametrize("opset", [7, 9, 10, 11, 13])
def test_resizes_of_every_opset(opset: int, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    wrong = []
    for start in range(0, len(forms(opset)), 40):
        model, x = resizes(opset, slice(start, start + 40)), f32(*SHAPE)
        expected = by_onnxruntime(model, x)
        imported = import_model(write(model, tmp_path / "m.onnx"), {})
        outputs = run_imported(imported, {"x": x}).values()
        for each, value, reference in zip(model.graph.node, outputs, expected, strict=True):
            if value.shape != reference.shape or np.abs(value - reference).max() > 1e-4:
                wrong.append(each)
    assert not wrong, f"{len(wrong)} of {len(forms(opset))}: {wrong[:3]}"
    assert not caplog.messages
