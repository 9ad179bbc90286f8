"""What a graph tells of the numbers that go in: indices, flags, lengths; and of steps of quantised outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from adt.errors import InputError
from adt.model.importers.imported_model import ImportedModel
from adt.model.importers.importer import import_model
from adt.model.inputs.random import random_inputs
from adt.model.inputs.validation import check_inputs
from adt.model.package.manifest import INDEX, UNKNOWN, USUAL, Entry, TensorSpec, ValueRange
from support.models.onnx_graphs import node

INT64, INT32, FLOAT = TensorProto.INT64, TensorProto.INT32, TensorProto.FLOAT
TABLE = np.arange(50 * 4, dtype=np.float32).reshape(50, 4)


def imported(
    tmp_path: Path,
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[int, Sequence[int]]],
    weights: Mapping[str, Any],
    output: Sequence[int] | None = None,
) -> ImportedModel:
    graph = helper.make_graph(
        list(nodes),
        "tiny",
        [helper.make_tensor_value_info(name, kind, list(shape)) for name, (kind, shape) in inputs.items()],
        [helper.make_tensor_value_info("y", FLOAT, output)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(onnx.shape_inference.infer_shapes(model), tmp_path / "m.onnx")
    return import_model(tmp_path / "m.onnx", {})


def values(model: ImportedModel) -> dict[str, ValueRange | None]:
    return {spec.name: spec.values for spec in model.inputs}


def test_indices_of_a_table_have_its_rows(tmp_path: Path) -> None:
    model = imported(
        tmp_path,
        [
            node("Unsqueeze", ["ids", "axis"], "u"),
            node("Cast", ["u"], "c", to=INT64),
            node("Gather", ["table", "c"], "w"),
            node("Gather", ["two", "kinds"], "k"),
            node("Add", ["w", "k"], "y"),
        ],
        {"ids": (INT32, [1, 6]), "kinds": (INT64, [6])},
        {"table": TABLE, "two": TABLE[:2], "axis": np.array([0])},
    )
    assert values(model) == {"ids": ValueRange(INDEX, -50, 49), "kinds": ValueRange(INDEX, -2, 1)}
    made = random_inputs(model.inputs, 0)
    assert made["ids"].min() >= 0 and made["ids"].max() < 50 and set(made["kinds"].ravel()) <= {0, 1}
    entry = Entry("main", model.inputs, model.outputs, ())
    check_inputs("m", entry, made)
    with pytest.raises(InputError, match="input kinds has the value 2; the model takes -2 to 1"):
        check_inputs("m", entry, made | {"kinds": np.full(6, 2)})


def test_the_smallest_table_counts_and_what_is_added_before(tmp_path: Path) -> None:
    model = imported(
        tmp_path,
        [
            node("Add", ["ids", "shift"], "m"),
            node("GatherElements", ["table", "m"], "a", axis=0),
            node("GatherElements", ["two", "ids"], "b", axis=1),
            node("Add", ["a", "b"], "y"),
        ],
        {"ids": (INT64, [3, 4])},
        {"table": TABLE, "two": TABLE[:3], "shift": np.array(2)},
    )
    assert values(model) == {"ids": ValueRange(INDEX, -4, 3)}


def test_indices_of_several_axes_have_no_one_limit(tmp_path: Path) -> None:
    model = imported(
        tmp_path, [node("GatherND", ["table", "at"], "y")], {"at": (INT64, [5, 2])}, {"table": TABLE}
    )
    assert values(model) == {"at": ValueRange(USUAL, -4, 3)}


def test_a_scatter_counts_negative_indices_from_the_end(tmp_path: Path) -> None:
    model = imported(
        tmp_path,
        [node("ScatterElements", ["table", "at", "x"], "y", axis=0)],
        {"at": (INT64, [2, 4]), "x": (FLOAT, [2, 4])},
        {"table": TABLE},
    )
    assert values(model) == {"at": ValueRange(INDEX, -50, 49), "x": None}


@pytest.mark.parametrize(
    ("name", "nodes"),
    [
        ("attention_mask", [node("Cast", ["attention_mask"], "y", to=FLOAT)]),
        ("m", [node("Cast", ["m"], "f", to=FLOAT), node("Sub", ["one", "f"], "y")]),
        ("b", [node("Cast", ["b"], "c", to=TensorProto.BOOL), node("Where", ["c", "one", "zero"], "y")]),
        ("e", [node("Equal", ["e", "none"], "c"), node("Where", ["c", "one", "zero"], "y")]),
    ],
)
def test_masks_are_flags_by_name_and_by_use(tmp_path: Path, name: str, nodes: list[onnx.NodeProto]) -> None:
    weights = {"one": np.float32(1), "zero": np.float32(0), "none": np.array(0)}
    model = imported(tmp_path, nodes, {name: (INT64, [1, 6])}, weights)
    assert values(model) == {name: ValueRange(USUAL, 0, 1)}


def test_lengths_are_positive_and_no_longer_than_what_they_count(tmp_path: Path) -> None:
    nodes = [node("Cast", ["seq_lens"], "n", to=FLOAT), node("Div", ["x", "n"], "y")]
    model = imported(tmp_path, nodes, {"x": (FLOAT, [1, 7]), "seq_lens": (INT64, [1])}, {})
    assert values(model) == {"x": None, "seq_lens": ValueRange(USUAL, 1, 7)}


def test_indices_by_a_calculation_are_asked_for(tmp_path: Path) -> None:
    nodes = [node("Mul", ["a", "b"], "c"), node("Gather", ["table", "c"], "y")]
    model = imported(tmp_path, nodes, {"a": (INT64, [3]), "b": (INT64, [3])}, {"table": TABLE})
    assert values(model)["a"] == ValueRange(UNKNOWN, 0, 0)
    with pytest.raises(InputError, match="input a become indices by a calculation") as caught:
        random_inputs(model.inputs, 0)
    assert "--input" in caught.value.remedy


def test_other_integers_are_any(tmp_path: Path) -> None:
    model = imported(tmp_path, [node("Cast", ["n"], "y", to=FLOAT)], {"n": (INT64, [9])}, {})
    assert values(model) == {"n": None}
    assert random_inputs(model.inputs, 0)["n"].max() > 1


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "int8"])
def test_a_range_is_filled_and_kept(dtype: str) -> None:
    made = random_inputs([TensorSpec("x", (4000,), dtype, ValueRange(USUAL, 3, 7))], 5)["x"]
    assert made.dtype.name == dtype and sorted(set(made.tolist())) == [3, 4, 5, 6, 7]


def test_a_dequantised_output_has_a_step(tmp_path: Path) -> None:
    model = imported(
        tmp_path,
        [
            node("QuantizeLinear", ["x", "scale", "zero"], "q"),
            node("DequantizeLinear", ["q", "scale", "zero"], "d"),
            node("Reshape", ["d", "shape"], "y"),
        ],
        {"x": (FLOAT, [2, 3])},
        {"scale": np.float32(0.25), "zero": np.uint8(7), "shape": np.array([3, 2])},
        [3, 2],
    )
    assert model.quanta == {"y": 0.25}
