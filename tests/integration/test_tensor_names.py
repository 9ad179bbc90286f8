"""Names of inputs and outputs: each stays the model's own, and is the tensor that it was, whatever else is there."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import adt as api
from adt.compiler.importers.importer import import_model
from adt.measure.reference import run_reference
from support.models import quantized_tflite
from support.models.imported import run_imported
from support.models.onnx_graphs import f32, node, write
from support.sampling import matrix

INT64, FLOAT = TensorProto.INT64, TensorProto.FLOAT


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, np.ndarray[Any, Any]],
    outputs: Sequence[str],
    weights: Mapping[str, Any] | None = None,
    path: Path = Path("m.onnx"),
) -> Path:
    """Build a model that takes *inputs*; the shapes of its outputs are not stated."""
    weights = weights or {}
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in inputs.items()
    ]
    graph = helper.make_graph(
        list(nodes),
        "names",
        infos,
        [
            helper.make_tensor_value_info(name, FLOAT, np.shape(weights.get(name, 0)) or None)
            for name in outputs
        ],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return write(onnx.shape_inference.infer_shapes(model), path)


NAMES = [
    ("0", "1", "2"),
    ("u.0", "a.0", "b.0"),
    ("/u", "/a", "/b"),
    ("mask:0", "ids:0", "types:0"),
    ("u", "a.b", "a_b"),
    ("u", "a_b", "a.b"),
    ("u", "1", "input_1"),
    ("input_1", "1", "1.0"),
    ("u u", "a a", "a_a"),
    ("past.0.key", "past.0.value", "past_0_key"),
    ("ü", "ä", "a,b=c|d"),
    ("onnx::u", "onnx::a", "a"),
    ("lv", "lv1", "gv"),
]
"""An input that nothing needs, and two that are."""


@pytest.mark.parametrize(("names", "order"), matrix(NAMES, [(0, 1, 2), (1, 0, 2), (2, 1, 0)]))
def test_an_input_is_the_one_of_its_name(
    names: tuple[str, str, str], order: tuple[int, ...], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    unused, a, b = names
    arrays = {unused: np.zeros((3, 5), np.int64), a: f32(2, 3), b: f32(3)}  # each of its own shape
    inputs = {names[number]: arrays[names[number]] for number in order}
    nodes = [node("Mul", [b, "two"], ["t"]), node("Sub", [a, "t"], ["y"])]
    path = model_of(nodes, inputs, ["y"], {"two": np.float32(2)}, tmp_path / "m.onnx")
    with caplog.at_level(logging.WARNING):
        imported = import_model(path, {})
    assert [record.getMessage() for record in caplog.records] == [
        f"no output of m.onnx depends on {unused}: the package does not take it"
    ]
    assert {(spec.name, spec.shape, spec.dtype) for spec in imported.inputs} == {
        (a, (2, 3), "float32"),
        (b, (3,), "float32"),
    }
    assert [(spec.name, spec.shape, spec.dtype) for spec in imported.unused] == [(unused, (3, 5), "int64")]
    np.testing.assert_allclose(run_imported(imported, arrays)["y"], arrays[a] - 2 * arrays[b], rtol=1e-6)


@pytest.mark.parametrize("weight", ["onnx::x", "onnx::t", "lv", "lv1", "gv", "weight_0", "x:"])
def test_a_weight_is_no_other_tensor(weight: str, tmp_path: Path) -> None:
    """Keep weights apart from tensors that TVM's importer, which shortens names, calls alike (lv)."""
    arrays = {"x": f32(1, 64), "weight_x_": f32(1, 64)}
    nodes = [
        node("Neg", ["x"], ["t"]),
        node("Mul", ["t", "weight_x_"], ["u"]),
        node("Resize", ["u", "", "scales"], ["z"], mode="nearest"),
        node("PRelu", ["z", weight], ["v"]),
        node("Add", ["v", weight], ["y"]),
    ]
    weights = {weight: f32(1, 64), "scales": np.ones(2, np.float32)}
    path = model_of(nodes, arrays, ["y"], weights, tmp_path / "m.onnx")
    output = run_imported(import_model(path, {}), arrays)["y"]
    np.testing.assert_allclose(output, run_reference(path, arrays)["y"], rtol=1e-5)


OUTPUTS = {
    "an input": ([node("Relu", ["x"], ["y"])], ["y", "x"]),
    "nothing but an input": ([], ["x"]),
    "twice": ([node("Relu", ["x"], ["y"])], ["y", "y"]),
    "constant": ([node("Relu", ["x"], ["y"])], ["w", "y"]),
    "two names of one tensor": (
        [node("Relu", ["x"], ["y"]), node("Identity", ["y"], ["z"]), node("Identity", ["x"], ["u"])],
        ["z", "u", "y"],
    ),
    "equal computations": ([node("Relu", ["x"], ["y"]), node("Relu", ["x"], ["z"])], ["z", "y"]),
    "odd names": ([node("Relu", ["x"], ["/y:0"]), node("Neg", ["x"], ["y.0"])], ["y.0", "/y:0"]),
}


@pytest.mark.parametrize("kind", OUTPUTS)
def test_an_output_is_the_one_of_its_name(kind: str, tmp_path: Path) -> None:
    nodes, outputs = OUTPUTS[kind]
    arrays, weights = {"x": f32(2, 3)}, {"w": f32(4, 3)}
    path = model_of(nodes, arrays, outputs, weights if "w" in outputs else {}, tmp_path / "m.onnx")
    imported = import_model(path, {})
    expected, results = run_reference(path, arrays), run_imported(imported, arrays)
    assert list(results) == list(expected) and len(results) == len(outputs)
    for name, array in expected.items():
        np.testing.assert_array_equal(results[name], array)


def tflite(names: Sequence[str], path: Path) -> Path:
    """Write ``y = a - 2 * b`` and ``2 * b``: *names* are of a, b, 2 * b and y."""
    model = quantized_tflite.Model()
    a, b, t, y = (model.tensor((2, 3), "float32") for _ in range(4))
    two = model.tensor((1,), "float32", [2.0])
    model.add("MUL", [b, two], [t], "MulOptions")
    model.add("SUB", [a, t], [y], "SubOptions")
    for tensor, name in zip(model.graph.tensors, names, strict=False):
        tensor.name = name.encode()
    return model.write(path, [a, b], [y, t])


@pytest.mark.parametrize(
    ("names", "inputs", "outputs"),
    [
        (("x", "x", "t", "y"), ["x", "x_2"], ["y", "t"]),
        (("a", "b", "t", "t"), ["a", "b"], ["t", "t_2"]),
        (("a", "b", "a", "b"), ["a", "b"], ["b", "a"]),  # outputs called as inputs are
        (("", "", "", ""), ["", "_2"], ["", "_2"]),
        (("x_2", "x_2", "x", "x"), ["x_2", "x_2_2"], ["x", "x_2"]),
        (("a/b:0", "a b", "StatefulPartitionedCall:1", "StatefulPartitionedCall:0"), ["a/b:0", "a b"], []),
    ],
)
def test_tensors_of_tflite_are_told_apart_by_their_indices(
    names: Sequence[str], inputs: Sequence[str], outputs: Sequence[str], tmp_path: Path
) -> None:
    path = tflite(names, tmp_path / "m.tflite")
    imported = import_model(path, {})
    assert [spec.name for spec in imported.inputs] == list(inputs)
    arrays = {spec.name: f32(2, 3) for spec in imported.inputs}
    expected, results = run_reference(path, arrays), run_imported(imported, arrays)
    assert list(results) == list(expected) and list(results) == (list(outputs) or [names[3], names[2]])
    a, b = arrays.values()
    for result, right in zip(results.values(), (a - 2 * b, 2 * b), strict=True):
        np.testing.assert_allclose(result, right, rtol=1e-6)
    for name, array in expected.items():
        np.testing.assert_array_equal(results[name], array)


def test_a_package_runs_by_the_models_names(tmp_path: Path) -> None:
    """Compile, run and verify with files of arrays: by the runner, and by onnxruntime."""
    arrays = {
        "ü mask": np.zeros((3, 5), np.int64),
        "/a:0": f32(2, 3),
        "like.1": f32(4, 2, 3),
        "a.0": f32(3),
        "a_0": f32(3),
    }
    nodes = [
        node("Mul", ["a.0", "a_0"], ["t"]),
        node("Sub", ["/a:0", "t"], ["y/0:1"]),
        node("Shape", ["like.1"], ["s"]),
        node("Expand", ["y/0:1", "s"], ["y.z"]),
    ]
    path = model_of(nodes, arrays, ["y.z", "y/0:1"], path=tmp_path / "m.onnx")
    api.build_target(platform="host")
    package = api.compile(path, out=tmp_path / "pkg", platform="host").path
    result = api.run(package, inputs=arrays)
    right = arrays["/a:0"] - arrays["a.0"] * arrays["a_0"]
    np.testing.assert_allclose(result.outputs["y/0:1"], right, rtol=1e-6)
    np.testing.assert_allclose(result.outputs["y.z"], np.broadcast_to(right, (4, 2, 3)), rtol=1e-6)
    npz = tmp_path / "all.npz"
    np.savez(npz, **arrays)  # type: ignore[arg-type]
    assert api.run(package, files=[str(npz)]).outputs.keys() == result.outputs.keys()
    for inputs in (None, arrays):
        assert api.verify(package, model=path, inputs=inputs).verification.passed
