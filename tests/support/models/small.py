"""ONNX models for tests: real ones that Python packages ship, and small ones made here."""

from pathlib import Path

import magika
import numpy as np
from onnx import TensorProto

from support.models.onnx_graphs import FLOAT, graph_of, node, write

MAGIKA = Path(magika.__file__).parent / "models/standard_v3_3/model.onnx"
"""A file-type model: int32[1, 2048] bytes in, float32[1, 214] probabilities out."""


def small_model(path: Path, *, op: str = "Relu", dims: tuple[int | str, ...] = (1, 4)) -> Path:
    nodes = [node("MatMul", ["x", "w"], ["h"], name="product"), node(op, ["h"], ["y"], name="last")]
    weight = np.arange(12, dtype=np.float32).reshape(4, 3) / 10 - 0.5
    return write(graph_of(nodes, {"x": dims}, ["y"], {"w": weight}), path)


def detector(path: Path) -> Path:
    """Write a network with the inputs and outputs of MAGIKA, and one layer."""
    weight = np.random.default_rng(0).uniform(-1, 1, (2048, 214)).astype(np.float32) / 1000
    nodes = [
        node("Cast", ["bytes"], ["x"], to=FLOAT),
        node("MatMul", ["x", "w"], ["scores"]),
        node("Softmax", ["scores"], ["target_label"]),
    ]
    return write(
        graph_of(nodes, {"bytes": (1, 2048)}, ["target_label"], {"w": weight}, kind=TensorProto.INT32), path
    )
