"""Indices that a condition selects: what is not selected may be any number, and reads no other memory."""

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto

import adt
from support.models.onnx_graphs import graph_of, node, write

TABLE = np.arange(12, dtype=np.float32).reshape(4, 3) + 1
IDS = np.array([0, 3, -100, -4, 10**6, 2])
"""Some are outside the table's rows; all but the last but one are replaced, or count from the end."""


@pytest.mark.parametrize("masked_by", ["value", "input"])
def test_what_is_not_selected_may_be_any(masked_by: str, tmp_path: Path) -> None:
    nodes = [
        node("Where", ["masked", "zero", "ids"], ["rows"]),
        node("Gather", ["table", "rows"], ["y"], axis=0),
    ]
    arrays = {"ids": IDS}
    if masked_by == "value":
        nodes.insert(0, node("Equal", ["ids", "hidden"], ["masked"]))
    else:
        arrays["mask"] = (IDS == -100).astype(np.int64)
        nodes.insert(0, node("Cast", ["mask"], ["masked"], to=TensorProto.BOOL))
    constants = {"table": TABLE, "zero": np.array(0), "hidden": np.array(-100)}
    inputs = {name: array.shape for name, array in arrays.items()}
    model = write(graph_of(nodes, inputs, ["y"], constants, kind=TensorProto.INT64), tmp_path / "m.onnx")

    package = adt.compile(model, out=tmp_path / "package", platform="host")
    result = adt.run(package.path, inputs=arrays).outputs["y"]

    inside = np.where(IDS == -100, 0, IDS)
    inside = np.clip(np.where(inside < 0, inside + 4, inside), 0, 3)
    np.testing.assert_array_equal(result, TABLE[inside])
