"""Pools whose padding follows from their attributes: windows and extents are those of onnxruntime."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from adt.compiler.importers.importer import import_model
from support.models.imported import run_imported
from support.models.onnx_graphs import f32, graph_of, node, write

OPERATORS = ("AveragePool", "LpPool", "MaxPool")
FORMS = (((2, 2), (2, 2)), ((3, 3), (2, 2)), ((4, 3), (2, 2)), ((2, 3), (1, 1)), ((5, 5), (3, 3)))
"""Kernels and strides."""


def check(nodes: list[Any], shape: tuple[int, ...], path: Path, weights: Any = None, opset: int = 19) -> None:
    read = {name for each in nodes for name in each.input}
    names = [each.output[0] for each in nodes if each.output[0] not in read]
    write(graph_of(nodes, {"x": shape}, names, weights, opset=opset), path)
    x = f32(*shape)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # it warns of shapes that ONNX infers wrongly, and folds them
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    expected = onnxruntime.InferenceSession(str(path), options).run(None, {"x": x})
    outputs = run_imported(import_model(path, {}), {"x": x})
    for name, reference in zip(names, expected, strict=True):
        assert outputs[name].shape == reference.shape, name
        np.testing.assert_allclose(outputs[name], reference, rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("side", ["SAME_UPPER", "SAME_LOWER"])
def test_pads_of_same(op: str, side: str, tmp_path: Path) -> None:
    nodes = [
        node(op, ["x"], [f"y{number}"], kernel_shape=kernel, strides=strides, auto_pad=side)
        for number, (kernel, strides) in enumerate(FORMS)
    ]
    check(nodes, (1, 2, 5, 6), tmp_path / "same.onnx")


@pytest.mark.parametrize("op", OPERATORS)
def test_dilated_pads_of_same_have_the_extents_that_onnx_infers(op: str, tmp_path: Path) -> None:
    """Compare with ONNX's inference: onnxruntime leaves dilations out of the padding, against the
    standard."""
    pool = node(
        op, ["x"], ["y"], kernel_shape=[3, 2], strides=[2, 3], dilations=[2, 2], auto_pad="SAME_LOWER"
    )
    path = write(graph_of([pool], {"x": (1, 2, 8, 7)}, ["y"], opset=19), tmp_path / "dilated.onnx")
    assert run_imported(import_model(path, {}), {"x": f32(1, 2, 8, 7)})["y"].shape == (1, 2, 4, 3)


CEILED: tuple[dict[str, Any], ...] = tuple(
    {"kernel_shape": kernel, "strides": strides, "pads": pads}
    for kernel, strides, pads in itertools.product(
        ((1, 1), (2, 3), (3, 2)), ((2, 2), (3, 2), (3, 3)), ((0, 0, 0, 0), (0, 0, 1, 1), (1, 1, 1, 1))
    )
    if max(pads) < min(kernel)
)


@pytest.mark.parametrize(
    ("op", "more"),
    [*((op, {}) for op in OPERATORS), ("AveragePool", {"count_include_pad": 1})],
    ids=[*OPERATORS, "counted"],
)
@pytest.mark.parametrize("shape", [(1, 2, 6, 5), (1, 2, 8, 7)], ids=["even", "odd"])
def test_no_window_begins_in_the_padding(
    op: str, more: dict[str, int], shape: tuple[int, ...], tmp_path: Path
) -> None:
    """Leave out windows that ONNX's shape inference counts, on one axis or on both."""
    nodes = [
        node(op, ["x"], [f"y{number}"], ceil_mode=1, **form, **more) for number, form in enumerate(CEILED)
    ]
    check(nodes, shape, tmp_path / "ceiled.onnx")


def test_what_follows_such_a_pool_has_its_extents(tmp_path: Path) -> None:
    """Correct also extents that the file states as ONNX infers them."""
    first = node("MaxPool", ["x"], ["a"], kernel_shape=[1, 1], strides=[2, 2], ceil_mode=1)
    second = node(
        "MaxPool", ["a"], ["b"], kernel_shape=[2, 2], strides=[3, 3], pads=[0, 0, 1, 1], ceil_mode=1
    )
    nodes = [first, second, node("Shape", ["b"], ["s"]), node("Flatten", ["b"], ["f"])]
    check([*nodes, node("Expand", ["w", "s"], ["y"])], (1, 2, 12, 12), tmp_path / "chain.onnx", {"w": f32(1)})
