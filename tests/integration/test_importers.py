"""Importing: what TVM compiles from an import computes what the model's own runtime does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import adt as api
from adt.compiler.importers import model_store
from adt.compiler.importers.imported_model import ImportedModel
from adt.compiler.importers.importer import explain_model, import_model
from adt.compiler.importers.onnx.comparison import Runner
from adt.compiler.importers.onnx.importer import to_relax
from adt.compiler.passes.extrema import EXTREMUM
from adt.compiler.passes.lowering import limits_keep_nan, tir_pipeline
from adt.errors import ModelError, UnsupportedOp
from adt.measure.reference import run_reference
from adt.measure.verify import compare
from adt.options.resolve import load_settings
from adt.package.inputs.random import random_inputs
from support.devices.emulated import outputs_of
from support.devices.programs import adt, invoke, invoke_json
from support.models import microsoft as microsoft_graphs
from support.models import onnx_graphs, quantized_tflite
from support.models.imported import compiled, run_imported
from support.models.onnx_graphs import CONVERTED, INT64, f32, graph_of, joined, node, tiny, write
from support.models.published import REAL_MODELS, RealModel, named
from support.models.quantized_onnx import KINDS, written_by_onnxruntime

QUICK = ("mtcnn-rnet", "wake-embedding")
"""Real models that are quick to compile: PRelu; layout of TFLite."""
ONLY_IMPORTED = ("voicefilter-embedder",)
"""Real models whose recurrent layers, unrolled, take too long to compile here."""


def tvm_outputs(path: Path, inputs: Mapping[str, Any]) -> list[Any]:
    return list(run_imported(import_model(path, {}), inputs).values())


def assert_as_onnxruntime(path: Path, inputs: Mapping[str, Any], atol: float = 1e-6) -> ImportedModel:
    """Compare each output of the model in *path*; infinities and NaN must be the same."""
    imported = import_model(path, {})
    expected = onnxruntime.InferenceSession(str(path)).run(None, dict(inputs))
    for value, reference in zip(run_imported(imported, inputs).values(), expected, strict=True):
        np.testing.assert_allclose(value, reference, rtol=0, atol=atol, strict=True)
    return imported


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(model, id=model.name, marks=[pytest.mark.nightly] * (model.name not in QUICK))
        for model in REAL_MODELS
    ],
)
def test_real_models(model: RealModel) -> None:
    """Import, compile and run a real model, and compare with its own runtime."""
    if model.name in ONLY_IMPORTED:
        assert adt("compile", model.path(), "--for", "host", "--explain").returncode == 0
        return
    imported = import_model(model.path(), model.shapes)
    inputs = {name: np.asarray(value) for name, value in random_inputs(imported.inputs, 1).items()}
    for name, value in model.fills.items():
        inputs[name] = np.full_like(inputs[name], value)
    expected = run_reference(model.path(), inputs)
    outputs = run_imported(imported, inputs)
    assert list(outputs) == list(expected)
    for name, value in outputs.items():
        assert value.dtype == expected[name].dtype and value.shape == expected[name].shape
        assert np.isfinite(expected[name]).all(), "the inputs make sense to the model"
        worst, scale = np.abs(value - expected[name]).max(), np.abs(expected[name]).max()
        assert worst <= max(2e-4 * scale, 1e-6), f"{name}: off by {worst:.3g} of {scale:.3g}"


GRAPHS = onnx_graphs.GRAPHS | microsoft_graphs.GRAPHS


def assert_same_in_tvm(
    models: Mapping[str, onnx.ModelProto],
    path: Path,
    allowed: Callable[[str, np.ndarray], Any],
    model_inputs: Mapping[str, dict[str, Any]] | None = None,
) -> None:
    """Compare with onnxruntime, or ONNX's reference; *models* of one opset and engine are one, compiled once.

    Args:
        allowed: difference for a model's name and right output.
        given: inputs by model; none: random ones.
    """
    groups: dict[tuple[str, int], dict[str, Runner]] = {}
    for name, model in models.items():
        runner = Runner(model, model_inputs[name] if model_inputs else None)
        (opset,) = [each.version for each in model.opset_import if not each.domain]
        groups.setdefault((runner.run.__name__, opset), {})[name] = runner
    wrong = {}
    for runners in groups.values():
        imported = import_model(write(joined([each.model for each in runners.values()]), path), {})
        inputs = {
            f"m{number}_{name}": value
            for number, runner in enumerate(runners.values())
            for name, value in runner.inputs.items()
        }
        outputs = run_imported(imported, inputs)
        for number, (model, runner) in enumerate(runners.items()):
            for name, expected in runner.expected.items():
                value = outputs.pop(f"m{number}_{name}")
                same = (value.shape, value.dtype) == (expected.shape, expected.dtype)
                off = np.abs(value.astype(np.float64) - expected) if same else np.inf
                if not np.all(off <= allowed(model, expected)):
                    wrong[model, name] = np.max(off)
        assert not outputs
    assert not wrong


def test_what_is_rewritten_computes_the_same_in_tvm(tmp_path: Path) -> None:
    models = {name: make() for name, (_, make) in GRAPHS.items()}
    assert_same_in_tvm(
        models,
        tmp_path / "m.onnx",
        lambda _, expected: 1 if expected.dtype == np.uint8 else 1e-5 * max(1.0, np.abs(expected).max()),
    )


def test_what_adt_converts_computes_the_same_in_tvm(tmp_path: Path) -> None:
    def allowed(name: str, expected: np.ndarray) -> float:
        limit = 2e-3 if "half" in name else 2e-6
        return limit * max(1.0, float(np.abs(expected).max())) if expected.dtype.kind == "f" else 0

    assert_same_in_tvm({name: make() for name, make in CONVERTED.items()}, tmp_path / "m.onnx", allowed)


def test_operators_that_onnx_defines_by_others_are_written_out(tmp_path: Path) -> None:
    path = write(tiny("Celu", (2, 30), alpha=0.7), tmp_path / "celu.onnx")
    (row,) = [row for row in explain_model(path, {}).ops if row.op == "Celu"]
    assert row.status == "rewritten" and "its definition" in row.note
    assert_as_onnxruntime(path, {"x": f32(2, 30)})


def test_tensors_of_no_elements_are_constants(tmp_path: Path) -> None:
    """Import the caches of a first step, rows that nothing is written to, and the rest of an empty set."""
    nodes = [
        node("Attention", ["q", "q", "q", "", "past", "past"], ["y", "key", "value"], is_causal=1),
        node("Shape", ["past"], ["shape"], start=2, end=3),
        node("Cast", ["shape"], ["steps"], to=onnx.TensorProto.FLOAT),
        node("Cast", ["numbers"], ["places"], to=INT64),
        node("ScatterND", ["q", "places", "rows"], ["written"]),
        node("ReduceSum", ["past", "axis"], ["sum"]),
    ]
    caches = {"past": (1, 2, "past", 8), "numbers": ("past", 1), "rows": ("past", 2, 3, 8)}
    results = ["y", "key", "value", "steps", "written", "sum"]
    model = graph_of(nodes, {"q": (1, 2, 3, 8), **caches}, results, {"axis": np.int64([2])}, opset=23)
    path = write(model, tmp_path / "m.onnx")

    imported = import_model(path, {"past": 0})

    q = f32(1, 2, 3, 8)
    empty = {spec.name: np.zeros(spec.shape, spec.dtype) for spec in imported.unused}
    assert set(empty) == set(caches)
    expected = run_reference(path, {"q": q, **empty})
    for name, value in run_imported(imported, {"q": q}).items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("scale", [[1.0, 1.0, 2.0, 1.5], [1.0, 1.0, 1.0, 2.0]])
def test_an_old_resize_leaves_no_model_at_its_opset(scale: list[float], tmp_path: Path) -> None:
    nodes = [
        node("Upsample", ["x"], ["u"], mode="linear", scales=scale),
        node("Slice", ["u"], ["y"], starts=[1], ends=[-1], axes=[-1]),
    ]
    path = write(graph_of(nodes, {"x": (1, 2, 3, 4)}, ["y"], opset=7), tmp_path / "old.onnx")
    assert {row.op for row in assert_as_onnxruntime(path, {"x": f32(1, 2, 3, 4)}).ops} >= {"Resize", "Slice"}


def test_floats_by_zero_are_infinities_and_nan(tmp_path: Path) -> None:
    nodes = [
        node("Div", ["x", "zero"], ["a"]),
        node("Div", ["zero", "x"], ["b"]),
        node("Mul", ["x", "zero"], ["z"]),
        node("Div", ["x", "z"], ["c"]),
        node("Sub", ["x", "x"], ["d"]),
        node("Div", ["d", "d"], ["e"]),
        node("Reciprocal", ["d"], ["f"]),
        node("ReduceSum", ["x"], ["s"], keepdims=0),
        node("Div", ["s", "zero"], ["g"]),
    ]
    zeros = (np.float32(0), np.float32(-0.0), np.zeros((1, 1), np.float32))
    models = [graph_of(nodes, {"x": (1, 5)}, list("abcefg"), {"zero": zero}) for zero in zeros]
    x = np.array([[1, -2, 0, np.inf, np.nan]], np.float32)
    inputs = {f"m{number}_x": x for number in range(3)}
    assert_as_onnxruntime(write(joined(models), tmp_path / "zero.onnx"), inputs, atol=0)


def test_nan_passes_limits_on_a_cpu(tmp_path: Path) -> None:
    operands = {
        "Relu": ["x"], "Clip": ["x", "low", "high"], "Max": ["x", "low"], "Min": ["high", "x"], "Elu": ["x"],
        "PRelu": ["x", "slope"], "HardSigmoid": ["x"],
    }  # fmt: skip
    nodes = [node(op, names, [op]) for op, names in operands.items()]
    limits = {"low": np.float32(0), "high": np.float32(6), "slope": f32(1)}
    path = write(graph_of(nodes, {"x": (1, 67)}, list(operands), limits), tmp_path / "nan.onnx")
    x = f32(1, 67)
    x[0, ::5] = np.nan
    expected = onnxruntime.InferenceSession(str(path)).run(None, {"x": x})
    outputs = compiled(import_model(path, {}), tir_pipeline(64))({"x": x})
    for op, reference in zip(operands, expected, strict=True):
        np.testing.assert_allclose(outputs[op], reference, rtol=1e-5, atol=1e-6, err_msg=op)


def test_limits_that_keep_nan_are_one_instruction_of_aarch64() -> None:
    import tvm
    from tvm import te, tirx

    x = te.placeholder((4096,), "float32")
    low, high = (tirx.const(limit, "float32") for limit in (0, 6))
    y = te.compute(x.shape, lambda i: tirx.min(tirx.max(x[i], low), high))
    k = te.reduce_axis((0, 4096))
    z = te.compute((), lambda: te.max(y[k], axis=k), name=EXTREMUM)
    target = tvm.target.Target({"kind": "llvm", "mtriple": "aarch64-linux-android"})
    kernel = tvm.tirx.build(te.create_prim_func([x, y, z]), target=target, pipeline=tir_pipeline(64))
    text = kernel.inspect_source("asm")
    assert "\tfmax\t" in text and "\tfmin\t" in text and "\tfcm" not in text


def test_limits_that_are_no_constants_keep_nan_and_grow_no_code() -> None:
    """Import limits one behind the other, as a quantized layer has them."""
    import tvm
    from tvm import te, tirx

    x, low, high = (
        te.placeholder((length,), "float32", name) for length, name in ((67, "x"), (1, "l"), (1, "h"))
    )

    def limited(i: Any) -> Any:
        value = x[i]
        for _ in range(5):
            value = tirx.min(tirx.max(value, low[0]), high[0])
        return value

    target = tvm.target.Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu"})
    function = te.create_prim_func([x, low, high, te.compute(x.shape, limited)]).with_attr("target", target)
    limits = limits_keep_nan()(tvm.IRModule({"main": function}))
    assert limits.script().count("isnan(") == 10
    kernel = tvm.compile(function, target, tir_pipeline=tir_pipeline(64))
    values = np.where(np.arange(67) % 5, f32(67), np.float32(np.nan))
    for least, most in ((-0.5, 0.5), (np.nan, 0.5), (-0.5, np.nan)):
        arguments = [tvm.runtime.tensor(np.float32(each)) for each in (values, [least], [most], values)]
        kernel["main"](*arguments)
        np.testing.assert_array_equal(
            arguments[3].numpy(), np.minimum(np.maximum(values, least), most, dtype="f4")
        )


@pytest.mark.parametrize("opset", [9, 21])
def test_norms_of_values_far_from_zero(opset: int, tmp_path: Path) -> None:
    """Compare with float64: onnxruntime itself is far off."""
    x = (1000 + f32(2, 6, 5, 4)).astype(np.float32)
    nodes = [
        node("MeanVarianceNormalization", ["x"], ["m"]),
        node("InstanceNormalization", ["x", "s", "b"], ["n"]),
        node("GroupNormalization", ["x", "s", "b"], ["g"], num_groups=3),
    ][: 3 if opset >= 18 else 2]
    weights, outputs = {"s": f32(6), "b": f32(6)}, [each.output[0] for each in nodes]
    model = graph_of(nodes, {"x": x.shape}, outputs, weights, opset=opset)

    def normal(shape: tuple[int, ...], axes: tuple[int, ...], epsilon: float) -> Any:
        values = x.reshape(shape).astype(np.float64)
        mean, variance = values.mean(axes, keepdims=True), values.var(axes, keepdims=True)
        return ((values - mean) / np.sqrt(variance + epsilon)).reshape(x.shape)

    scale, bias = (weights[name].reshape(6, 1, 1) for name in "sb")
    expected = [
        normal(x.shape, (0, 2, 3), 0),
        normal(x.shape, (2, 3), 1e-5) * scale + bias,
        normal((2, 3, 40), (2,), 1e-5) * scale + bias,
    ]
    results = tvm_outputs(write(model, tmp_path / "far.onnx"), {"x": x})
    for value, reference in zip(results, expected, strict=opset >= 18):
        assert np.abs(value - reference).max() <= 2e-3


def test_a_branch_is_rewritten_like_the_main_graph(tmp_path: Path) -> None:
    def branch(name: str, limit: float) -> onnx.GraphProto:
        inner = [
            node("Constant", [], [f"{name}_l"], value_float=limit),
            node("Clip", ["x", f"{name}_l"], [f"{name}_y"]),
        ]
        out = onnx.helper.make_tensor_value_info(f"{name}_y", 1, (2, 3))
        return onnx.helper.make_graph(inner, name, [], [out])

    nodes = [
        node("ReduceSum", ["x"], ["s"], keepdims=0),
        node("Greater", ["s", "zero"], ["c"]),
        node("If", ["c"], ["y"], then_branch=branch("t", 0.25), else_branch=branch("e", 0.5)),
    ]
    path = write(graph_of(nodes, {"x": (2, 3)}, ["y"], {"zero": np.float32(0)}), tmp_path / "if.onnx")
    run = compiled(import_model(path, {}))
    for sign, limit in ((1, 0.25), (-1, 0.5)):
        x = (sign * np.abs(f32(2, 3))).astype(np.float32)
        assert np.allclose(run({"x": x})["y"], np.maximum(x, limit))


def test_operators_of_many_inputs_are_chains(tmp_path: Path) -> None:
    """Replace TVM's converters, which stack their inputs and take the wrong maximum of two constants."""
    nodes, operators = (
        [node("Constant", [], ["k"], value_floats=[0.5, -0.5, 0.1])],
        ["Max", "Min", "Sum", "Mean"],
    )
    for op in operators:
        nodes += [node(op, ["k", "w"], [f"{op}_kw"]), node(op, ["x", f"{op}_kw", "w"], [op])]
    path = write(graph_of(nodes, {"x": (2, 3)}, operators, {"w": f32(1, 3)}), tmp_path / "many.onnx")
    assert "stack" not in assert_as_onnxruntime(path, {"x": f32(2, 3)}).module.script()


def test_weights_whose_names_the_importer_would_cut_stay_apart(tmp_path: Path) -> None:
    """Keep two names that differ only in the letters "onx:", which TVM strips from both ends."""
    weights = {"onnx::no": f32(8, 8), "x": f32(8, 8), "onnx::MatMul_7": f32(8, 8)}
    nodes = [node("MatMul", ["in", "onnx::no"], ["a"]), node("MatMul", ["a", "x"], ["b"]), node("MatMul", ["b", "onnx::MatMul_7"], ["y"])]  # fmt: skip
    path = write(graph_of(nodes, {"in": (2, 8)}, ["y"], weights), tmp_path / "names.onnx")
    imported = assert_as_onnxruntime(path, {"in": f32(2, 8)}, atol=1e-5)
    assert len(imported.params) == 3 and "MatMul_7" in imported.params


def test_a_tflite_model_compiles_runs_and_has_a_reference(tmp_path: Path) -> None:
    model = named("wake-hey-jarvis")
    package = api.compile(model.path(), out=tmp_path / "pkg", platform="host")
    source = package.manifest.source
    assert (source.format, source.file) == ("tflite", "hey_jarvis.tflite")
    assert (package.path / "mod.params").stat().st_size > 1_000_000, "the weights are apart from the code"
    inputs = random_inputs(package.manifest.entry().inputs, 5)
    outputs = outputs_of(package.path, inputs)
    expected = run_reference(model_store.source_model(package), inputs)
    assert set(outputs) == set(expected)
    for name, value in expected.items():
        assert np.abs(outputs[name] - value).max() <= 1e-6


@pytest.mark.parametrize("kind", ["QDQ uint8", "QOperator uint8 all", "dynamic extended", "tflite"])
def test_quantized_models_pass_when_off_by_one_quantum(kind: str, tmp_path: Path) -> None:
    """Run through the runner, and compare by the rule of ``adt verify``."""
    if kind == "tflite":
        path = quantized_tflite.operator_model("dequantize", tmp_path / "m.tflite")
    else:
        path = written_by_onnxruntime("convolutions", kind, tmp_path)
    package = api.compile(path, out=tmp_path / "pkg", platform="host").manifest
    inputs = random_inputs(package.entry().inputs, 5)
    limits = load_settings(environ={}).settings.verify
    outputs = outputs_of(tmp_path / "pkg", inputs)
    quanta = package.made.quanta
    assert all(value > 0 for value in quanta.values()) and set(quanta) == set(
        () if "dynamic" in kind else outputs
    )
    assert compare(outputs, run_reference(path, inputs), limits, quanta=quanta).passed
    moved = {name: value + np.float32(quanta.get(name, 0.0)) for name, value in outputs.items()}
    (output,) = compare(moved, outputs, limits, quanta=quanta).outputs
    assert output.passed and ("one quantum" in output.note) == bool(quanta)


@pytest.mark.parametrize("name", quantized_tflite.NAMES)
def test_quantized_tflite_operators(name: str, tmp_path: Path) -> None:
    """Limit differences to one step; weights quantized beside floats differ by the interpreter's rounding."""
    path = quantized_tflite.operator_model(name, tmp_path / "m.tflite")
    package = api.compile(path, out=tmp_path / "package", platform="host")
    inputs = {}
    for spec in package.manifest.entry().inputs:
        whole = np.dtype(spec.dtype).kind == "i"
        values = quantized_tflite.RNG.integers(-128, 128, spec.shape) if whole else f32(*spec.shape)
        inputs[spec.name] = np.asarray(values, spec.dtype)
    expected, outputs = run_reference(path, inputs), outputs_of(package.path, inputs)
    assert list(outputs) == list(expected)
    for out, reference in expected.items():
        value = outputs[out]
        assert (value.shape, value.dtype) == (reference.shape, reference.dtype), out
        allowed = 1 if reference.dtype.kind == "i" else 0.01 * np.abs(reference).max()
        assert np.abs(value.astype(np.float64) - reference).max() <= allowed, out


def test_the_node_that_makes_a_shape_depend_on_values_is_named(tmp_path: Path) -> None:
    nodes = [
        node("Relu", ["x"], ["r"]),
        node("Cast", ["r"], ["s"], to=7),
        node("Gather", ["s", "zero"], ["start"]),
        node("Slice", ["x", "start", "e"], ["part"], name="cut"),
        node("Neg", ["part"], ["y"]),
    ]
    path = write(
        graph_of(nodes, {"x": (4,)}, ["y"], {"zero": np.array([0]), "e": np.array([4])}), tmp_path / "m.onnx"
    )
    with pytest.raises(ModelError, match="shape of output 'y'") as raised:
        import_model(path, {})
    assert "before Slice at node cut" in raised.value.remedy


def test_tflite_files_of_newer_writers(tmp_path: Path) -> None:
    path = quantized_tflite.operator_model("conv", tmp_path / "m.tflite")
    newer = quantized_tflite.as_newer_writers_do(path)
    imported = import_model(newer, {})
    inputs = random_inputs(imported.inputs, 1)
    (reference,) = run_reference(newer, inputs).values()
    (output,), (expected,) = run_imported(imported, inputs).values(), tvm_outputs(path, inputs)
    assert np.array_equal(output, expected) and np.abs(output.astype(int) - reference).max() <= 1


def test_a_refused_tflite_operator_is_named(tmp_path: Path) -> None:
    """Report its output: operators have no names in this format."""
    model = quantized_tflite.Model()
    x, y, z = (model.tensor((2, 3), "float32") for _ in range(3))
    corner = [model.tensor((2,), "int32", value) for value in ([0, 0], [2, 3], [1, 1])]
    model.add("STRIDED_SLICE", [x, *corner], [y], "StridedSliceOptions", offset=True)
    model.add("ABS", [y], [z], "AbsOptions")
    path = model.write(tmp_path / "m.tflite", [x], [z])
    with pytest.raises(UnsupportedOp, match=r"STRIDED_SLICE \(Offset of .* is True, .*; node \(gives t1\)\)"):
        import_model(path, {})
    rows = {row.op: row.status for row in explain_model(path, {}).ops}
    assert rows == {"STRIDED_SLICE": "unsupported", "ABS": "supported"}


def test_other_shapes_of_a_tflite_model(tmp_path: Path) -> None:
    """Take the shapes for another input size from the interpreter: the file has those of one."""
    model = named("wake-melspectrogram")
    imported = import_model(model.path(), {"serving_default_input:0": (2, 1760)})
    assert imported.inputs[0].shape == (2, 1760) and imported.outputs[0].shape[0] == 2
    inputs = random_inputs(imported.inputs, 1)
    expected = run_reference(model.path(), inputs)["PartitionedCall:0"]
    output = run_imported(imported, inputs)["PartitionedCall:0"]
    assert np.ptp(expected) > 1, "the output depends on the input"
    assert np.abs(output - expected).max() <= 1e-4 * np.abs(expected).max()


@pytest.mark.parametrize("share", [0.01, 0.5, 0.9])
def test_truncated_tflite_files(tmp_path: Path, share: float) -> None:
    whole = named("wake-hey-jarvis").path().read_bytes()
    (tmp_path / "cut.tflite").write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(ModelError, match="truncated or damaged"):
        api.compile(tmp_path / "cut.tflite", platform="host", out=tmp_path / "pkg")
    assert not (tmp_path / "pkg").exists()


def test_explain_on_the_command_line(tmp_path: Path) -> None:
    path = write(tiny("Clip", (2, 3), weights={"lo": np.float32(-0.2)}), tmp_path / "m.onnx")
    document = invoke_json("compile", path, "--explain")
    assert document["problem"] == "" and document["format"] == "onnx"
    assert [(row["op"], row["count"], row["status"]) for row in document["ops"]] == [("Clip", 1, "rewritten")]
    done = invoke("compile", path, "--explain")
    assert done.stdout.splitlines()[0].split()[:3] == ["rewritten", "1", "Clip"]
    assert not list(Path.cwd().glob("m-*")), "nothing was compiled"


CALLABLES = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = torch.nn.Conv2d(3, 64, 3, padding=1), torch.nn.BatchNorm2d(64)
        self.dense, self.memory = torch.nn.Linear(64, 5), torch.nn.GRU(5, 6, batch_first=True)

    def forward(self, image, hints):
        features = torch.nn.functional.hardswish(self.norm(self.conv(image))).mean((2, 3))
        return self.dense(features), self.memory(hints)[0]

def make():
    torch.manual_seed(1)
    return Net(), (torch.randn(1, 3, 8, 8), torch.randn(1, 4, 5))

def exported():
    net, inputs = make()
    batch = torch.export.Dim("batch")
    return torch.export.export(net.eval(), (torch.randn(2, 3, 8, 8), inputs[1]), dynamic_shapes=({0: batch}, None))

def number():
    return 3

def failing():
    return 1 / 0

def determinant():
    class Det(torch.nn.Module):
        def forward(self, x):
            return torch.linalg.det(x)
    return Det(), (torch.eye(3),)
"""


@pytest.mark.nightly
@pytest.mark.parametrize("function", ["make", "exported"])
def test_callables_that_make_pytorch_models(
    function: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Import also the .pt2 file that the import leaves as the reference."""
    (tmp_path / "nets.py").write_text(CALLABLES)
    monkeypatch.chdir(tmp_path)
    shapes = {"image": (2, 3, 8, 8)} if function == "exported" else {}
    imported = import_model(f"nets:{function}", shapes)
    assert [spec.name for spec in imported.inputs] == ["image", "hints"]
    assert imported.source.format == "torch" and imported.file.suffix == ".pt2"
    inputs = random_inputs(imported.inputs, 1)
    expected, outputs = run_reference(imported.file, inputs), run_imported(imported, inputs)
    again = run_imported(import_model(imported.file, shapes), inputs)
    assert len(expected) == 2
    for name, value in expected.items():
        assert np.abs(outputs[name] - value).max() <= 1e-5 and np.array_equal(outputs[name], again[name])


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("function", "code", "message"),
    [
        ("number", 8, "returned int, not a model"),
        ("failing", 8, "division by zero"),
        ("absent", 8, "has no function 'absent'"),
        ("determinant", 9, "_linalg_det"),
    ],
)
def test_callables_that_do_not(function: str, code: int, message: str, tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text(CALLABLES)
    done = adt(
        "compile", f"nets:{function}", "--trust", "--for", "host", "-o", tmp_path / "pkg", cwd=tmp_path
    )
    assert done.returncode == code and message in done.stderr and "Traceback" not in done.stderr, done.stderr


@pytest.mark.nightly
@pytest.mark.parametrize("suffix", [".keras", ".h5"])
def test_keras_models(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    import keras

    image = keras.Input((16, 16, 3), name="image")
    x = keras.layers.Conv2D(8, 3, padding="same", activation="relu")(image)
    x = keras.layers.DepthwiseConv2D(3, strides=2)(x)
    x = keras.layers.GlobalAveragePooling2D()(keras.layers.BatchNormalization()(x))
    scores = keras.layers.Dense(4, activation="softmax", name="scores")(x)
    path = tmp_path / f"net{suffix}"
    keras.Model(image, scores).save(path)
    imported = import_model(path, {})
    assert [(spec.name, spec.shape) for spec in imported.inputs] == [("image", (1, 16, 16, 3))]
    inputs = random_inputs(imported.inputs, 1)
    expected, outputs = run_reference(path, inputs), run_imported(imported, inputs)
    assert list(expected) == list(outputs) == ["scores"]
    assert np.abs(outputs["scores"] - expected["scores"]).max() <= 1e-6
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    assert adt("compile", path, "--explain").returncode == 0
    assert not (tmp_path / "home/.keras").exists()  # it would name our backend for ever


COMPARISONS = ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")
TYPES = {
    "Sign": ("uint8", "uint16", "uint32", "uint64", "int8", "int64", "float16"),
    "ReduceMean": ("int32", "uint32", "int64", "float32"),
    "ReduceL2": ("int32", "int64", "uint32"),
    **dict.fromkeys(["ReduceLogSum", "ReduceLogSumExp"], ("int64",)),
}


def test_an_operator_has_a_kernel_for_each_of_its_types(tmp_path: Path) -> None:
    random, models, inputs = np.random.default_rng(4), {}, {}
    for op, dtype in ((op, dtype) for op, dtypes in TYPES.items() for dtype in dtypes):
        more = {"axes": [1], "keepdims": 0} if op.startswith("Reduce") else {}
        low = 1 if dtype.startswith("u") or "Log" in op else -3
        kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        models[f"{op} {dtype}"] = graph_of(
            [node(op, ["x"], ["y"], **more)], {"x": (3, 4)}, ["y"], opset=13, kind=kind, output_kind=kind
        )
        inputs[f"{op} {dtype}"] = {"x": random.integers(low, 4, (3, 4)).astype(dtype)}
    assert_same_in_tvm(models, tmp_path / "m.onnx", lambda _, expected: 1e-6 * np.abs(expected), inputs)


@pytest.mark.parametrize("op", COMPARISONS)
@pytest.mark.parametrize("dtype", ["int64", "float32"])
def test_a_comparison_of_constants_is_boolean(op: str, dtype: str) -> None:
    """Look at the converter's output, before anything folds it."""
    values = {"a": np.array([0, 1, 1, 0], dtype), "b": np.array([0, 1, 0, 1], dtype)}
    nodes = [node(op, ["a", "b"], ["c"]), node("Where", ["c", "x", "z"], ["y"])]
    module = to_relax(graph_of(nodes, {"x": (4,)}, ["y"], values | {"z": np.float32(0)}))
    assert str(module["main"].ret_struct_info.dtype) == "float32"


SHAPE_CHAINS = [
    [
        node("Shape", ["v"], ["s"]),
        node("Slice", ["s", "two", "four"], ["hw"]),
        node("Mul", ["hw", "two"], ["larger"]),
        node("Slice", ["s", "zero", "two"], ["nc"]),
        node("Concat", ["nc", "larger"], ["size"], axis=0),
        node("Resize", ["v", "", "", "size"], ["y"], mode="nearest"),
    ],
    [
        node("Shape", ["v"], ["s"]),
        node("Concat", ["four", "s"], ["size"], axis=0),
        node("Expand", ["v", "size"], ["e"]),
        node("Shape", ["e"], ["t"]),
        node("Slice", ["t", "zero", "two"], ["u"]),
        node("Concat", ["u", "rest"], ["r"], axis=0),
        node("Reshape", ["e", "r"], ["y"]),
    ],
    [
        node("Size", ["v"], ["n"]),
        node("Div", ["n", "ten"], ["m"]),
        node("Range", ["first", "m", "step"], ["i"]),
        node("Mod", ["i", "step"], ["j"]),
        node("Gather", ["v", "j"], ["y"], axis=3),
    ],
]


def test_static_shapes_are_known_where_onnxslims_result_is_not_used(tmp_path: Path) -> None:
    """Refuse a result that cannot be confirmed: the model gives nothing but NaN, from all inputs."""
    nodes = [node("Abs", ["x"], ["a"]), node("Sub", ["less", "a"], ["b"]), node("Log", ["b"], ["v"])]
    numbers = {"zero": [0], "two": [2], "four": [4], "rest": [-1], "ten": 10, "first": 0, "step": 1}
    weights = {name: np.array(number) for name, number in numbers.items()} | {"less": np.float32(-1)}
    model = joined(
        [graph_of([*nodes, *chain], {"x": (1, 2, 4, 5)}, ["y"], weights) for chain in SHAPE_CHAINS]
    )
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    path = write(model, tmp_path / "m.onnx")
    inputs = {f"m{number}_x": f32(1, 2, 4, 5) for number in range(len(SHAPE_CHAINS))}
    for output, expected in zip(tvm_outputs(path, inputs), run_reference(path, inputs).values(), strict=True):
        assert np.isnan(output).all() and np.isnan(expected).all() and output.shape == expected.shape


@pytest.mark.parametrize("mode", ["avg", "max"])
def test_a_region_of_no_image_reads_no_other_memory(mode: str, tmp_path: Path) -> None:
    nodes = [node("RoiAlign", ["x", "rois", "b"], ["y"], mode=mode, sampling_ratio=2)]
    model = graph_of(nodes, {"x": (1, 2, 6, 6), "rois": (1, 4), "b": (1,)}, ["y"], opset=16)
    model.graph.input[2].type.tensor_type.elem_type = onnx.TensorProto.INT64
    model = onnx.shape_inference.infer_shapes(model)
    inputs = {"x": f32(1, 2, 6, 6), "rois": np.array([[1, 1, 5, 5]], np.float32), "b": np.array([0])}
    run = compiled(import_model(write(model, tmp_path / "m.onnx"), {}))
    other = run(inputs | {"b": np.array([10**6])})
    np.testing.assert_array_equal(other["y"], run(inputs)["y"])


def test_a_length_beyond_the_sequence_reads_no_other_memory(tmp_path: Path) -> None:
    nodes = [node("ReverseSequence", ["x", "n"], ["y"], time_axis=1, batch_axis=0)]
    model = graph_of(nodes, {"x": (2, 5), "n": (2,)}, ["y"])
    model.graph.input[1].type.tensor_type.elem_type = onnx.TensorProto.INT64
    x = f32(2, 5)
    (y,) = tvm_outputs(write(model, tmp_path / "m.onnx"), {"x": x, "n": np.array([10**6, -3])})
    np.testing.assert_array_equal(y, np.stack([x[0, ::-1], x[1]]))


WRITTEN = [
    *(
        ("convolutions", kind)
        for kind in KINDS
        if kind not in ("all", "QDQ int8", "QDQ uint8", "QOperator int8")
    ),
    *(("transformer", kind) for kind in ("extended", "dynamic extended", "QDQ int8", "QOperator uint8 all")),
    *(("recurrent", kind) for kind in ("dynamic", "dynamic extended")),
]


@pytest.mark.parametrize(("network", "kind"), WRITTEN, ids=lambda value: str(value).replace(" ", "-"))
def test_what_onnxruntime_writes_is_imported(
    network: str, kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Import the operators that only its optimizer and its quantizer write."""
    rows = explain_model(written_by_onnxruntime(network, kind, tmp_path), {}).ops
    assert not [row.op for row in rows if row.status == "unsupported"]
    assert "not used" not in caplog.text
