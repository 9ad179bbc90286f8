"""Constants that grow too large, and unknown element types, are refused before anything computes."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from adt.compiler.importers.importer import explain_model, import_model
from adt.compiler.importers.onnx.file import read_onnx, with_fixed_shapes
from adt.errors import ModelError
from adt.quantization.quantizer import read_float_model
from support.models.onnx_graphs import graph_of, node, write

MANY = 10**5
ONE = np.ones(1, np.float32)
PIXEL = np.ones((1, 1, 1, 1), np.float32)


def shape(*extents: int) -> np.ndarray[Any, Any]:
    return np.array(extents, np.int64)


GROWING: dict[str, tuple[list[onnx.NodeProto], dict[str, Any]]] = {
    "ConstantOfShape": ([node("ConstantOfShape", ["s"], ["big"])], {"s": shape(MANY, MANY)}),
    "Expand": ([node("Expand", ["c", "s"], ["big"])], {"c": ONE, "s": shape(MANY, MANY)}),
    "Expand of the input": ([node("Expand", ["x", "s"], ["big"])], {"s": shape(MANY, MANY, 1)}),
    "Tile": ([node("Tile", ["c", "s"], ["big"])], {"c": ONE, "s": shape(MANY**2)}),
    "Pad": ([node("Pad", ["c", "s"], ["big"])], {"c": ONE, "s": shape(MANY**2, 0)}),
    "Resize to a size": (
        [node("Resize", ["c", "", "", "s"], ["big"])],
        {"c": PIXEL, "s": shape(1, 1, MANY, MANY)},
    ),
    "Resize by a scale": (
        [node("Resize", ["c", "", "s"], ["big"])],
        {"c": PIXEL, "s": np.array([1, 1, MANY, MANY], np.float32)},
    ),
    "OneHot": (
        [node("OneHot", ["i", "n", "v"], ["big"])],
        {"i": shape(0), "n": np.array(MANY**2), "v": np.array([0, 1], np.float32)},
    ),
    "Range": (
        [node("Range", ["a", "b", "d"], ["whole"]), node("Cast", ["whole"], ["big"], to=TensorProto.FLOAT)],
        {"a": np.array(0), "b": np.array(MANY**2), "d": np.array(1)},
    ),
    "MatMul": (
        [node("MatMul", ["c", "r"], ["big"])],
        {"c": np.ones((MANY, 1), np.float32), "r": np.ones((1, MANY), np.float32)},
    ),
}


def growing(nodes: list[onnx.NodeProto], constants: dict[str, Any]) -> onnx.ModelProto:
    """Return a model whose output is small again."""
    after = [node("ReduceMax", ["big"], ["most"], keepdims=0), node("Add", ["x", "most"], ["y"])]
    return graph_of([*nodes, *after], {"x": (4,)}, ["y"], constants)


@pytest.mark.parametrize("name", GROWING)
def test_what_has_too_many_elements_is_refused_at_once(name: str, tmp_path: Path) -> None:
    path = write(growing(*GROWING[name]), tmp_path / "m.onnx")
    began = time.monotonic()
    for ask in (lambda: import_model(path, {}), lambda: read_float_model(path, {})):
        with pytest.raises(ModelError, match=r"the tensor '(big|whole)' has more than .* elements"):
            ask()
    assert "has more than" in explain_model(path, {}).problem
    assert time.monotonic() - began < 60, "nothing of that size was computed"


def test_weights_of_real_models_fit() -> None:
    """Convert a table of 262,144 words by 4,096 from half precision."""
    model = graph_of(
        [node("Cast", ["big"], ["table"], to=TensorProto.FLOAT), node("Gather", ["table", "x"], ["y"])],
        {"x": (1, 4)},
        ["y"],
        kind=TensorProto.INT64,
    )
    weight = model.graph.initializer.add(name="big", data_type=TensorProto.FLOAT16, dims=[1 << 18, 1 << 12])
    weight.raw_data = b""
    assert with_fixed_shapes(model, {"x": (1, 4)}).graph.node


def test_element_types_that_there_are_not(tmp_path: Path) -> None:
    def odd() -> onnx.TensorProto:
        return TensorProto(name="w", data_type=99, dims=[4], raw_data=bytes(16))

    add = node("Add", ["x", "w"], ["y"])
    initializer = graph_of([add], {"x": (4,)}, ["y"], {"w": np.ones(4, np.float32)})
    initializer.graph.initializer[0].CopyFrom(odd())
    models = [initializer]
    for nodes in (
        [node("Constant", [], ["w"], value=odd()), add],
        [
            node("Constant", [], ["s"], value_ints=[4]),
            node("ConstantOfShape", ["s"], ["w"], value=odd()),
            add,
        ],
    ):
        models.append(graph_of([add], {"x": (4,)}, ["y"], {"w": np.ones(4, np.float32)}))
        del models[-1].graph.initializer[:]
        del models[-1].graph.node[:]
        models[-1].graph.node.extend(nodes)
    for field in ("input", "output", "value_info"):
        models.append(graph_of([node("Relu", ["x"], ["y"])], {"x": (4,)}, ["y"]))
        values = getattr(models[-1].graph, field)
        if not values:
            values.add().CopyFrom(onnx.helper.make_tensor_value_info("z", TensorProto.FLOAT, [4]))
        values[0].type.tensor_type.elem_type = 99
    for model in models:
        (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
        for ask in (read_onnx, lambda path: explain_model(path, {}), lambda path: import_model(path, {})):
            with pytest.raises(ModelError, match="has element type 99"):
                ask(tmp_path / "m.onnx")


def test_an_input_without_a_type_is_explained(tmp_path: Path) -> None:
    model = graph_of([node("Relu", ["x"], ["y"])], {"x": (4,)}, ["y"])
    model.graph.input[0].type.tensor_type.elem_type = 0
    assert "has element type 0" in explain_model(write(model, tmp_path / "m.onnx"), {}).problem
