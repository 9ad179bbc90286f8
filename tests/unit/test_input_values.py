"""Ranges of the inputs that a graph tells: indices, flags, lengths; and quantization steps of outputs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from adt.compiler.importers.imported_model import ImportedModel
from adt.compiler.importers.importer import import_model
from adt.errors import InputError, ModelError
from adt.package.inputs.random import random_inputs
from adt.package.manifest import INDEX, UNKNOWN, USUAL, Entry, TensorSpec, ValueRange, check_inputs
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
    inputs = random_inputs(model.inputs, 0)
    assert inputs["ids"].min() >= 0 and inputs["ids"].max() < 50 and set(inputs["kinds"].ravel()) <= {0, 1}
    entry = Entry("main", model.inputs, model.outputs, ())
    check_inputs("m", entry, inputs)
    with pytest.raises(InputError, match="input kinds has the value 2; the model takes -2 to 1"):
        check_inputs("m", entry, inputs | {"kinds": np.full(6, 2)})


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


CONSTANTS = {
    "zero": np.array(0), "one": np.array([1]), "none": np.array([0]), "two": np.array(2), "ten": np.array(10),
    "forty": np.array(40), "last": np.array(49), "many": np.array(99), "halves": np.array([2, 2]),
    "flat": np.array([-1]), "rest": np.array([1, 2, 3]), "whole": np.array([4]), "deep": np.array([4, 1]),
    "table": TABLE, "offsets": np.array([0, 10, 20, 30]),
}  # fmt: skip
WAYS: dict[str, tuple[list[onnx.NodeProto], ValueRange]] = {
    "Gather": ([node("Gather", ["edges", "zero"], "i")], ValueRange(INDEX, -50, 49)),
    "Split": ([node("Split", ["edges", "one_one"], ["i0", "j"])], ValueRange(INDEX, -50, 49)),
    "Slice": ([node("Slice", ["edges", "none", "one"], "i")], ValueRange(INDEX, -50, 49)),
    "Reshape": ([node("Reshape", ["edges", "flat"], "i")], ValueRange(INDEX, -50, 49)),
    "Transpose": ([node("Transpose", ["edges"], "i")], ValueRange(INDEX, -50, 49)),
    "Concat": ([node("Concat", ["edges", "edges"], "i", axis=0)], ValueRange(INDEX, -50, 49)),
    "Expand": ([node("Unsqueeze", ["edges", "none"], "e"), node("Tile", ["e", "rest"], "i")],
               ValueRange(INDEX, -50, 49)),
    "casts": ([node("Cast", ["edges"], "c", to=FLOAT), node("Cast", ["c"], "i", to=INT32)],
              ValueRange(INDEX, -50, 49)),
    "GatherND": ([node("GatherND", ["edges", "none"], "i")], ValueRange(INDEX, -50, 49)),
    "ReduceMax": ([node("ReduceMax", ["edges"], "i", axes=[0], keepdims=0)], ValueRange(INDEX, -50, 49)),
    "TopK": ([node("TopK", ["edges", "one"], ["i", "j"])], ValueRange(INDEX, -50, 49)),
    "TopK's indices": ([node("TopK", ["edges", "one"], ["j", "i"])], None),
    "Where": ([node("Less", ["x", "cut"], "c"), node("Where", ["c", "edges", "zero"], "i")],
              ValueRange(USUAL, -50, 49)),  # the kernel limits what is selected
    "ScatterElements": ([node("ScatterElements", ["edges", "place", "edges"], "i")],
                        ValueRange(INDEX, -50, 49)),
    "Add": ([node("Add", ["edges", "ten"], "i")], ValueRange(INDEX, -60, 39)),
    "Sub": ([node("Sub", ["edges", "ten"], "i")], ValueRange(INDEX, -40, 59)),
    "from": ([node("Sub", ["last", "edges"], "i")], ValueRange(INDEX, 0, 99)),
    "Neg": ([node("Neg", ["edges"], "i")], ValueRange(INDEX, -49, 50)),
    "Mul": ([node("Mul", ["edges", "ten"], "i")], ValueRange(INDEX, -5, 4)),
    "offsets": ([node("Add", ["edges", "offsets"], "i")], ValueRange(USUAL, -50, 19)),
    "Clip": ([node("Clip", ["edges", "zero", "last"], "i")], None),
    "Max": ([node("Max", ["edges", "zero"], "i")], ValueRange(INDEX, -(2**63), 49)),
    "Min": ([node("Min", ["forty", "edges"], "i")], ValueRange(INDEX, -50, 2**63 - 1)),
    "too much": ([node("Min", ["many", "edges"], "i")], ValueRange(INDEX, -50, 49)),
    "Mod": ([node("Mod", ["edges", "ten"], "i")], ValueRange(UNKNOWN, 0, 0)),
    "ArgMax": ([node("ArgMax", ["edges"], "i", axis=1)], None),
    "a comparison": ([node("Greater", ["edges", "ten"], "g"), node("Cast", ["g"], "i", to=INT64)], None),
    "a square": ([node("Mul", ["edges", "edges"], "i")], ValueRange(UNKNOWN, 0, 0)),
    "a root": ([node("Cast", ["edges"], "c", to=FLOAT), node("Sqrt", ["c"], "r"),
                node("Cast", ["r"], "i", to=INT64)], ValueRange(UNKNOWN, 0, 0)),
    "a product": ([node("MatMul", ["edges", "deep_column"], "i")], ValueRange(UNKNOWN, 0, 0)),
    "a kernel": ([node("ReverseSequence", ["edges", "lengths"], "e", time_axis=1, batch_axis=0),
                  node("BitShift", ["e", "two"], "i", direction="LEFT")], ValueRange(UNKNOWN, 0, 0)),
}  # fmt: skip
"""Ways in which an input becomes an index, and its range."""


def read_by(
    way: str, tmp_path: Path, read: Sequence[onnx.NodeProto] = (node("Gather", ["table", "i"], "y"),)
) -> ImportedModel:
    nodes = [*WAYS[way][0], *read]
    if way == "Split":
        nodes = [node("Split", ["edges", "halves"], ["i", "j"], axis=1), *read]
    kind = TensorProto.UINT64 if way == "a kernel" else INT64
    weights: dict[str, Any] = {
        **CONSTANTS,
        "cut": np.zeros(1, np.float32),
        "place": np.zeros((2, 4), np.int64),
        "deep_column": np.ones((4, 1), np.int64),
        "lengths": np.array([4, 4]),
    }
    if way == "a kernel":
        weights["two"] = np.array(2, np.uint64)
        nodes = [*nodes[:-1], node("Cast", ["i"], "k", to=INT64), node("Gather", ["table", "k"], "y")]
    inputs = {"edges": (kind, [2, 4])} | ({"x": (FLOAT, [2, 4])} if way == "Where" else {})
    return imported(tmp_path, nodes, inputs, weights)


@pytest.mark.parametrize("way", WAYS)
def test_an_index_is_known_behind_whatever_passes_it_on(way: str, tmp_path: Path) -> None:
    """Compare with onnxruntime, which checks every index, at made-up, lowest and highest values of the
    range."""
    model = read_by(way, tmp_path)
    expected = WAYS[way][1]
    assert values(model)["edges"] == expected
    if expected and expected.meaning == UNKNOWN:
        with pytest.raises(InputError, match="become indices by a calculation"):
            random_inputs(model.inputs, 0)
        return
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    taken = {value.name for value in session.get_inputs()}
    for fill in ("random", "zeros", "ones", "arange"):
        inputs = random_inputs(model.inputs, 1, fill)
        session.run(None, {name: array for name, array in inputs.items() if name in taken})
    for limit in (expected.least, expected.most) if expected else (-(10**6), 10**6):
        inputs["edges"] = np.full((2, 4), limit, inputs["edges"].dtype)
        session.run(None, {name: array for name, array in inputs.items() if name in taken})


SELECTED: dict[str, tuple[list[onnx.NodeProto], str]] = {
    "by itself": ([node("Gather", ["table", "i"], "y")], USUAL),
    "moved": ([node("Add", ["i", "ten"], "k"), node("Gather", ["table", "k"], "y")], USUAL),
    "split": ([node("Split", ["i"], ["k", "l"], axis=0), node("Gather", ["table", "k"], "y")], USUAL),
    "beside the input": ([node("Gather", ["table", "i"], "a"), node("Gather", ["table", "edges"], "b"),
                          node("Add", ["a", "b"], "y")], INDEX),
    "of an axis of several": ([node("Unsqueeze", ["i", "flat"], "k"), node("GatherND", ["table", "k"], "y")], INDEX),
}  # fmt: skip
"""Reads by an index that a condition selects, and whether a runner checks the input all the same."""


@pytest.mark.parametrize("read", SELECTED)
def test_an_unchecked_index_is_limited_where_it_reads(read: str, tmp_path: Path) -> None:
    nodes, meaning = SELECTED[read]
    model = read_by("Where", tmp_path, nodes)
    expected = values(model)["edges"]
    assert expected is not None and expected.meaning == meaning
    assert ("R.clip" in model.module["main"].script()) == (read != "of an axis of several")


def test_an_index_is_known_in_a_branch(tmp_path: Path) -> None:
    branches = {
        name: helper.make_graph(
            [node("Gather", [table, "edges"], "o")],
            name,
            [],
            [helper.make_tensor_value_info("o", FLOAT, [2, 4, 4])],
        )
        for name, table in (("then_branch", "table"), ("else_branch", "three"))
    }
    nodes = [
        node("ReduceSum", ["x"], ["sum"], keepdims=0),
        node("Greater", ["sum", "half"], "c"),
        node("If", ["c"], "y", **branches),
    ]
    weights = {"table": TABLE, "three": TABLE[:3], "half": np.float32(0.5)}
    model = imported(tmp_path, nodes, {"x": (FLOAT, [2]), "edges": (INT64, [2, 4])}, weights)
    assert values(model) == {"x": None, "edges": ValueRange(INDEX, -3, 2)}


def test_a_float_that_becomes_an_index_is_asked_for(tmp_path: Path) -> None:
    nodes = [
        node("Mul", ["x", "hundred"], "m"),
        node("Floor", ["m"], "f"),
        node("Cast", ["f"], "i", to=INT64),
        node("Gather", ["table", "i"], "y"),
    ]
    weights = {"table": TABLE, "hundred": np.float32(100)}
    model = imported(tmp_path, nodes, {"x": (FLOAT, [5])}, weights)
    with pytest.raises(InputError, match="input x become indices by a calculation"):
        random_inputs(model.inputs, 0)
    nodes.insert(2, node("Clip", ["f", "zero", "last"], "g"))
    nodes[3] = node("Cast", ["g"], "i", to=INT64)
    limits = {"zero": np.float32(0), "last": np.float32(49)}
    model = imported(tmp_path, nodes, {"x": (FLOAT, [5])}, weights | limits)
    assert values(model) == {"x": None}


@pytest.mark.parametrize("op", ["Expand", "Tile"])
def test_sizes_are_asked_for(op: str, tmp_path: Path) -> None:
    nodes = [node(op, ["x", "s"], ["v"]), node("ReduceMax", ["v"], ["y"], keepdims=0)]
    model = imported(tmp_path, nodes, {"x": (FLOAT, [2, 3]), "s": (INT64, [2])}, {})
    assert values(model) == {"x": None, "s": ValueRange(UNKNOWN, 0, 0)}


@pytest.mark.parametrize(("name", "rows"), [("ids", 50), ("attention_mask", 50), ("mask", 2), ("length", 3)])
def test_a_direct_index_is_checked_beside_one_that_is_calculated(
    name: str, rows: int, tmp_path: Path
) -> None:
    nodes = [
        node("Gather", ["rows", name], "a"),
        node("Mul", [name, name], "s"),
        node("Gather", ["table", "s"], "b"),
        node("Add", ["a", "b"], "y"),
    ]
    model = imported(tmp_path, nodes, {name: (INT64, [6])}, {"table": TABLE, "rows": TABLE[:rows]})
    assert values(model) == {name: ValueRange(INDEX if name == "mask" else UNKNOWN, -rows, rows - 1)}
    entry = Entry("main", model.inputs, model.outputs, ())
    check_inputs("m", entry, {name: np.arange(6) % rows})
    with pytest.raises(InputError, match=f"input {name} has the value {rows}"):
        check_inputs("m", entry, {name: np.full(6, rows)})


@pytest.mark.parametrize(
    ("op", "indices", "text"),
    [
        ("Gather", [0, 50], "is 50, where there are 50 elements"),
        ("Gather", [-51], "is -51, where there are 50 elements"),
        ("Gather", [*[0] * 5000, 50], "is 50, where there are 50 elements"),  # a parameter
        ("GatherElements", [[3, 60]], "is 60, where there are 50 elements"),
        ("GatherND", [[49, 4]], "is 4, where there are 50 × 4 elements"),
    ],
)
def test_a_constant_index_outside_is_refused(op: str, indices: list[Any], text: str, tmp_path: Path) -> None:
    nodes = [node("Add", ["x", "table"], "t"), node(op, ["t", "i"], "y")]
    with pytest.raises(ModelError, match=text):
        imported(tmp_path, nodes, {"x": (FLOAT, [50, 4])}, {"table": TABLE, "i": np.array(indices)})


def test_other_integers_are_any(tmp_path: Path) -> None:
    model = imported(tmp_path, [node("Cast", ["n"], "y", to=FLOAT)], {"n": (INT64, [9])}, {})
    assert values(model) == {"n": None}
    assert random_inputs(model.inputs, 0)["n"].max() > 1


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "int8"])
def test_a_range_is_filled_and_kept(dtype: str) -> None:
    array = random_inputs([TensorSpec("x", (4000,), dtype, ValueRange(USUAL, 3, 7))], 5)["x"]
    assert array.dtype.name == dtype and sorted(set(array.tolist())) == [3, 4, 5, 6, 7]


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
