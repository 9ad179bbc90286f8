"""ONNX models for tests: real ones that Python packages ship, and small ones made here."""

from __future__ import annotations

from pathlib import Path

import magika
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

MAGIKA = Path(magika.__file__).parent / "models/standard_v3_3/model.onnx"
"""A file-type model: int32[1, 2048] bytes in, float32[1, 214] probabilities out."""


def small_model(path: Path, *, op: str = "Relu", dims: tuple[int | str, ...] = (1, 4)) -> Path:
    """Write ``y = op(x @ w)`` with a 4 by 3 weight to *path*."""
    weight = numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(4, 3) / 10 - 0.5, "w")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="product"),
        helper.make_node(op, ["h"], ["y"], name="last"),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (dims[0], 3))],
        [weight],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)
    return path


def detector(path: Path) -> Path:
    """Write a network with the inputs and outputs of MAGIKA, and one layer."""
    weight = np.random.default_rng(0).uniform(-1, 1, (2048, 214)).astype(np.float32) / 1000
    nodes = [
        helper.make_node("Cast", ["bytes"], ["x"], to=TensorProto.FLOAT),
        helper.make_node("MatMul", ["x", "w"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["target_label"]),
    ]
    graph = helper.make_graph(
        nodes,
        "detector",
        [helper.make_tensor_value_info("bytes", TensorProto.INT32, (1, 2048))],
        [helper.make_tensor_value_info("target_label", TensorProto.FLOAT, (1, 214))],
        [numpy_helper.from_array(weight, "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path
