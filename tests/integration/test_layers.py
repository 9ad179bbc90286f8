"""Every operator of an import beside its format's own runtime; the wrong converters are injected faults."""

import logging
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tvm import relax

from adt.bundle.platforms import PLATFORMS
from adt.compiler.compilation import CompileJob
from adt.compiler.importers.importer import import_model
from adt.compiler.importers.layers import Kind, Layer, shorter
from adt.compiler.importers.onnx import importer as onnx_importer
from adt.compiler.importers.onnx.converters import CONVERTERS
from adt.compiler.importers.onnx.layers import kinds_of
from adt.compiler.importers.tflite import importer as tflite_importer
from adt.compiler.importers.tflite.converters import Converter
from adt.compiler.importers.tflite.layers import kinds_of as tflite_kinds_of
from adt.errors import ModelError, UnsupportedOp
from adt.options.resolve import load_settings
from support.models.onnx_graphs import graph_of
from support.models.quantized_tflite import Model


@pytest.fixture(autouse=True)
def verdicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ADT_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache/operators"


def forget(verdicts: Path) -> None:
    """Let converters that a test replaces be compared again: adt's source is the same."""
    shutil.rmtree(verdicts)


def write(path: Path, nodes: list[Any], shape: tuple[int, ...] = (1, 4, 40, 40), **constants: Any) -> Path:
    model = onnx.shape_inference.infer_shapes(graph_of(nodes, {"x": shape}, ["y"], constants))
    onnx.save(model, path)
    return path


def elu_model(path: Path) -> Path:
    nodes = [
        helper.make_node("Softsign", ["x"], ["a"], name="first"),
        helper.make_node("Elu", ["a"], ["b"], name="my elu", alpha=0.5),
        helper.make_node("Sigmoid", ["b"], ["y"], name="last"),
    ]
    return write(path, nodes)


def test_a_wrong_converter_of_onnx_is_named_with_its_node(
    tmp_path: Path, verdicts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = elu_model(tmp_path / "m.onnx")
    import_model(model, {}, check=True)
    forget(verdicts)
    monkeypatch.setitem(CONVERTERS, "Elu", lambda node: relax.op.nn.relu(node.inputs[0]))
    for _ in range(2):  # what was wrong is run again
        with pytest.raises(
            UnsupportedOp, match=r"Elu at node my elu .*: differs by 0.4.* onnxruntime"
        ) as refusal:
            import_model(model, {}, check=True)
    assert "--no-check" in refusal.value.remedy
    import_model(model, {})  # the remedy: nothing is compared


def test_a_shape_that_depends_on_values_is_refused_as_such(tmp_path: Path) -> None:
    """Refuse the Expand itself: a comparison with made-up extents would blame TVM's, which takes any."""
    expand = helper.make_node("Expand", ["x", "extents"], ["y"], name="expand")
    model = graph_of([expand], {"x": (3, 1)}, ["y"])
    extents = helper.make_tensor_value_info("extents", TensorProto.INT64, [3])
    model.graph.input.append(extents)
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(ModelError, match=r"the shape of output 'y' .* depends on the input's values"):
        import_model(tmp_path / "m.onnx", {}, check=True)


def two_sums(node: Any) -> Any:
    """Compute the variance as the mean of squares less the square of the mean."""
    x, scale, bias = node.inputs
    mean = relax.op.mean(x, [2, 3], keepdims=True)
    variance = relax.op.mean(x * x, [2, 3], keepdims=True) - mean * mean
    normal = (x - mean) / relax.op.sqrt(variance + relax.const(1e-5))
    return normal * relax.op.reshape(scale, [1, -1, 1, 1]) + relax.op.reshape(bias, [1, -1, 1, 1])


def first_of_ties_last(node: Any) -> Any:
    """Give the last of the greatest elements."""
    flipped = relax.op.flip(node.inputs[0], 1)
    greatest = relax.op.argmax(flipped, 1, keepdims=True)
    return relax.op.astype(relax.const(3, "int64") - greatest, "int64")


def unsigned_gather(node: Any) -> Any:
    """Read the first element by each negative index."""
    data, indices = node.inputs
    return relax.op.take(data, relax.op.maximum(indices, relax.const(0, "int64")), axis=1)


@pytest.mark.parametrize(
    ("op", "converter", "operands", "constants"),
    [
        (
            "InstanceNormalization",
            two_sums,
            ["scale", "bias"],
            {"scale": np.full(4, 1.5, "float32"), "bias": np.full(4, 0.5, "float32")},
        ),
        ("ArgMax", first_of_ties_last, [], {}),
        ("Gather", unsigned_gather, ["indices"], {}),
    ],
)
def test_inputs_find_what_is_wrong_far_from_zero_at_ties_and_at_the_ends(
    op: str,
    converter: Callable[[Any], Any],
    operands: list[str],
    constants: dict[str, Any],
    verdicts: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attributes: dict[str, int] = {"axis": 1} if op != "InstanceNormalization" else {}
    nodes = [helper.make_node(op, ["x", *operands], ["r"], name="n", **attributes)]
    if op == "Gather":
        indices = helper.make_node("Cast", ["x"], ["indices"], to=TensorProto.INT64)
        nodes = [indices, *nodes]
    nodes.append(helper.make_node("Cast", ["r"], ["y"], to=TensorProto.FLOAT))
    model = write(tmp_path / "m.onnx", nodes, (1, 4, 6, 6), **constants)
    import_model(model, {}, check=True)
    forget(verdicts)
    monkeypatch.setitem(CONVERTERS, op, converter)
    with pytest.raises(UnsupportedOp, match=f"{op} at node n would compute something else"):
        import_model(model, {}, check=True)


def test_a_wrong_converter_of_tflite_is_named_with_its_place(
    tmp_path: Path, verdicts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = Model()
    x, y, z = (file.tensor((1, 30, 30, 8), "float32") for _ in range(3))
    file.add("EXP", [x], [y])
    file.add("TANH", [y], [z])
    path = tmp_path / "m.tflite"
    file.write(path, [x], [z])
    import_model(path, {}, check=True)
    forget(verdicts)

    class Wrong(Converter):  # type: ignore[misc]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self.convert_map["TANH"] = self.convert_map["EXP"]

    monkeypatch.setattr(tflite_importer, "Converter", Wrong)
    with pytest.raises(UnsupportedOp, match=r"TANH at node 1 .*differs by .*TFLite interpreter"):
        import_model(path, {}, check=True)


@pytest.mark.parametrize("check", ["auto", "off"])
def test_compiling_compares_unless_told_not_to(
    check: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CONVERTERS, "Elu", lambda node: relax.op.nn.relu(node.inputs[0]))
    settings = load_settings({}).settings
    settings = replace(settings, compile=settings.compile.but(check=check))
    job = CompileJob(elu_model(tmp_path / "m.onnx"), PLATFORMS["host"], settings)
    if check == "off":
        job.load()
    else:
        with pytest.raises(UnsupportedOp, match="my elu"):
            job.load()


def test_what_is_not_compared_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def whole_model_only(node: Any) -> Any:
        if getattr(node.inputs[0], "name_hint", "").startswith("operand_"):
            raise ValueError("it is alone")

    monkeypatch.setitem(CONVERTERS, "Elu", whole_model_only)
    for _ in range(2):
        caplog.clear()
        with caplog.at_level(logging.INFO, "adt.import"):
            import_model(elu_model(tmp_path / "m.onnx"), {}, check=True)
        assert "not compared with onnxruntime: node Elu my elu: " in caplog.text
        assert "compared with onnxruntime: 2 of 3 kinds of operators" in caplog.text


def test_what_was_right_once_is_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import_model(elu_model(tmp_path / "m.onnx"), {}, check=True)
    ran = list[str]()
    layers_of = onnx_importer.layers_of

    def recorded(path: Path, kinds: list[Kind]) -> list[Layer]:
        ran.extend(kind.operator for kind in kinds)
        return layers_of(path, kinds)

    monkeypatch.setattr(onnx_importer, "layers_of", recorded)
    with caplog.at_level(logging.INFO, "adt.import"):
        import_model(elu_model(tmp_path / "again.onnx"), {}, check=True)
    assert ran == []
    assert "compared with onnxruntime: 3 of 3 kinds of operators" in caplog.text
    nodes = [helper.make_node("Elu", ["x"], ["a"], alpha=0.5), helper.make_node("Selu", ["a"], ["y"])]
    import_model(write(tmp_path / "other.onnx", nodes), {}, check=True)
    assert ran == ["Selu"]


def test_verdicts_are_those_of_this_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare again after an update of adt: another directory of modules stands for that."""
    model = elu_model(tmp_path / "m.onnx")
    import_model(model, {}, check=True)
    monkeypatch.setitem(CONVERTERS, "Elu", lambda node: relax.op.nn.relu(node.inputs[0]))
    import_model(model, {}, check=True)
    (tmp_path / "source").mkdir()
    monkeypatch.setattr("adt.compiler.__file__", str(tmp_path / "source/__init__.py"))
    with pytest.raises(UnsupportedOp, match="my elu"):
        import_model(model, {}, check=True)


def kinds(path: Path) -> set[str]:
    return {kind.key for kind in kinds_of(onnx.load(path), {})}


def convolution(path: Path, size: int, channels: int = 8, **attributes: Any) -> Path:
    attributes = {"group": channels, "kernel_shape": [3, 3], **attributes}
    node = helper.make_node("Conv", ["x", "w"], ["y"], **attributes)
    weight = np.ones((channels, channels // attributes["group"], 3, 3), "float32")
    return write(path, [node], (1, channels, size, size), w=weight)


def test_extents_make_no_kind_but_what_strides_leave_of_them_does(tmp_path: Path) -> None:
    plain = kinds(convolution(tmp_path / "m.onnx", 12))
    assert kinds(convolution(tmp_path / "m.onnx", 17, 32)) == plain
    assert kinds(convolution(tmp_path / "m.onnx", 12, group=1)) != plain
    assert kinds(convolution(tmp_path / "m.onnx", 12, pads=[1, 1, 1, 1])) != plain
    even, odd, more = (kinds(convolution(tmp_path / "m.onnx", n, strides=[2, 2])) for n in (14, 13, 18))
    assert even == more != odd


def test_what_is_constant_is_no_kind(tmp_path: Path) -> None:
    """Take what is computed of zeros alone as it is: their dynamic scale may be any."""
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["zeros"], ["q", "scale", "zero"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["c"]),
        helper.make_node("Add", ["x", "c"], ["y"]),
    ]
    model = write(tmp_path / "m.onnx", nodes, (1, 8), zeros=np.zeros((1, 8), "float32"))
    assert "DynamicQuantizeLinear" not in {kind.operator for kind in kinds_of(onnx.load(model), {})}


@pytest.mark.parametrize(("op", "same_kind"), [("Mul", True), ("Pow", False)])
def test_floats_make_a_kind_where_they_are_arguments(op: str, same_kind: bool, tmp_path: Path) -> None:
    nodes = [helper.make_node(op, ["x", "c"], ["y"])]
    models = [write(tmp_path / f"{n}.onnx", nodes, c=np.float32(n)) for n in (2, 3)]
    assert (kinds(models[0]) == kinds(models[1])) is same_kind


def test_scales_of_quantized_tensors_make_no_kind_in_tflite(tmp_path: Path) -> None:
    file = Model()
    first = file.tensor((1, 8), ("int8", 0.5, 3))
    second, third = (file.tensor((1, 8), ("int8", scale, 3)) for scale in (0.25, 0.125))
    for x, y in ((first, second), (second, third)):
        file.add("TANH", [x], [y])
    file.write(tmp_path / "m.tflite", [first], [third])
    tensor_kinds = list(tflite_kinds_of((tmp_path / "m.tflite").read_bytes()))
    assert len(tensor_kinds) == 2
    assert tensor_kinds[0].key == tensor_kinds[1].key


def test_extents_become_shorter_and_stay_apart() -> None:
    short = shorter([(1, 64, 57, 57), (256, 64, 3, 3), (1, 256, 57, 57)], {256})
    assert short.keys() == {64, 57}
    assert [extent % 8 for extent in short.values()] == [extent % 8 for extent in short]
    assert len(set(short.values())) == len(short)
    assert shorter([(2, 64)], set()) == {}


def test_tables_of_the_interpreter_are_not_taken_for_wrong(tmp_path: Path) -> None:
    file = Model()
    x, y = file.tensor((1, 64), ("int16", 2.0**-12, 0)), file.tensor((1, 64), ("int16", 2.0**-15, 0))
    file.add("LOGISTIC", [x], [y])
    path = tmp_path / "m.tflite"
    file.write(path, [x], [y])
    import_model(path, {}, check=True)
