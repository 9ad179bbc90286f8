"""Compiling: packages that fit their platform, and models that are refused with a reason."""

import re
import shlex
from pathlib import Path

import numpy as np
import onnx
import pytest

import adt as api
from adt.compiler.assemble import tvm_errors
from adt.compiler.importers.onnx.comparison import run
from adt.errors import CompileError, ModelError, UnsupportedOp
from adt.host.elf import read_elf
from adt.package.package import load_package
from support.devices.emulated import outputs_of
from support.devices.programs import adt, adt_json, invoke
from support.models.microsoft import GRAPHS
from support.models.onnx_graphs import graph_of, node, write
from support.models.small import MAGIKA, detector, small_model
from support.standins.ndk import make_standin_ndk


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return detector(tmp_path_factory.mktemp("model") / "model.onnx")


@pytest.fixture(scope="module")
def host_package(model: Path) -> Path:
    out = model.parent / "pkg"
    adt_json("compile", model, "--for", "host", "-o", out)
    return out


def test_the_manifest_describes_the_package(host_package: Path) -> None:
    facts = load_package(host_package).manifest
    entry = facts.entry()
    assert [(i.name, i.shape, i.dtype) for i in entry.inputs] == [("bytes", (1, 2048), "int32")]
    assert [(o.name, o.shape, o.dtype) for o in entry.outputs] == [("target_label", (1, 214), "float32")]
    assert facts.total == len(facts.kernels) > 1
    assert facts.alignment == 64
    assert (facts.target.platform, facts.target.device, facts.tvm.version) == ("host", "cpu", "0.25.0.post1")
    assert facts.files["mod.params"].size > 1_000_000, "the weights are apart from the code"
    assert facts.files["mod.so"].size < 1_000_000


def test_a_linker_knows_packages_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tell packages apart by a SONAME of code and weights, which the same package has again."""
    graph = onnx.load(small_model(tmp_path / "small.onnx"))
    weight = onnx.numpy_helper.to_array(graph.graph.initializer[0])
    graph.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(weight + 1, "w"))
    onnx.save(graph, tmp_path / "weights.onnx")
    small_model(tmp_path / "code.onnx", op="Sigmoid")

    def soname(model: str, out: str) -> str:
        package = api.compile(tmp_path / f"{model}.onnx", platform="host", out=tmp_path / out)
        return read_elf(package.path / "mod.so").soname

    names = [soname(model, model) for model in ("small", "weights", "code")]
    assert len(set(names)) == 3 and all(re.fullmatch(r"mod-[0-9a-f]{16}\.so", name) for name in names)
    monkeypatch.setenv("ADT_CACHE_DIR", str(tmp_path / "cache"))  # where none of them is
    assert soname("small", "again") == names[0]


@pytest.mark.parametrize("alignment", [32, 64])
def test_code_assumes_the_alignment_of_its_runtime_and_no_more(tmp_path: Path, alignment: int) -> None:
    """Align to 32 bytes for a device's runtime, where the compiler's wheel assumes 64 of every argument."""
    import tvm

    from adt.compiler.importers.importer import import_model
    from adt.compiler.passes.lowering import tir_pipeline

    imported = import_model(small_model(tmp_path / "m.onnx"), {})
    target = tvm.target.Target({"kind": "llvm", "mtriple": "aarch64-linux-gnu"})
    built = tvm.compile(imported.module, target, tir_pipeline=tir_pipeline(alignment))
    code = built.mod.imports[0].inspect_source("ll")
    assumed = {int(number) for number in re.findall(r'"align"\(ptr [^,]+, i64 (\d+)\)', code)}
    assert assumed == {alignment}


def test_for_android_mod_so_needs_the_system_alone(model: Path, tmp_path: Path) -> None:
    ndk = make_standin_ndk()
    adt_json("build-target", "--for", "android-arm64-v8a", "--ndk", ndk)
    out = tmp_path / "pkg"
    other = make_standin_ndk(tmp_path / "other-ndk")  # which built no bundle: it only links the model
    package = adt_json("compile", model, "--for", "android-arm64-v8a", "--ndk", other, "-o", out)["package"]
    elf = read_elf(out / "mod.so")
    assert not any("tvm" in name for name in elf.needed)
    assert elf.machine == "AARCH64" and elf.page_alignment == 16384
    assert package["target"]["triple"] == "aarch64-linux-android28"
    assert [name for name in elf.undefined if name.startswith("TVM")] == []


def test_android_without_a_bundle_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADT_CACHE_DIR", str(tmp_path / "empty"))
    ndk = make_standin_ndk(tmp_path / "ndk")
    done = adt("compile", MAGIKA, "--for", "android-arm64-v8a", "--ndk", ndk, "-o", tmp_path / "pkg")
    assert done.returncode == 12 and "adt build-target --for android-arm64-v8a" in done.stderr


NO_MODELS = {
    "empty.onnx": b"", "text.onnx": b"this is not a model\n" * 50, "cut.onnx": MAGIKA.read_bytes()[:200_000],
}  # fmt: skip


@pytest.mark.parametrize(("name", "content"), NO_MODELS.items())
def test_files_that_are_no_model(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    done = invoke("compile", tmp_path / name, "--for", "host", "-o", tmp_path / "pkg")
    assert done.returncode == ModelError.exit_code == 8, done.stderr
    assert name in done.stderr and "remedy:" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "pkg").exists()


def test_an_unsupported_operator_is_named_with_its_node(tmp_path: Path) -> None:
    chance = node("RandomNormalLike", ["x"], ["y"], name="the_chance")
    path = write(graph_of([chance], {"x": (1, 3, 3)}, ["y"]), tmp_path / "det.onnx")
    with pytest.raises(UnsupportedOp) as caught:
        api.compile(path, platform="host", out=tmp_path / "pkg")
    message = caught.value.what + caught.value.details
    assert "RandomNormalLike" in message and "the_chance" in message


def test_what_tvm_alone_cannot_compile_is_named_with_its_node(tmp_path: Path) -> None:
    """Refuse a sum of booleans, on which a check of TVM's fails, and again by the verdict that was kept."""
    put = node("ScatterElements", ["x", "at", "new"], ["y"], name="the_sum", reduction="add")
    places = {"at": np.array([0], np.int64), "new": np.array([True])}
    graph = graph_of(
        [put],
        {"x": (3,)},
        ["y"],
        places,
        opset=18,
        kind=onnx.TensorProto.BOOL,
        output_kind=onnx.TensorProto.BOOL,
    )
    path = write(graph, tmp_path / "sum.onnx")
    for _ in range(2):
        with pytest.raises(UnsupportedOp, match="ScatterElements at node the_sum"):
            api.compile(path, platform="host", out=tmp_path / "pkg")


def test_an_operator_is_blamed_for_its_own_failure_alone() -> None:
    """Name no operator that adt's passes may have mended when the model fails for another reason."""
    suspects = ("Sort at node a: no booleans", "Scatter at node b: no sums")
    with (
        pytest.raises(UnsupportedOp, match="TVM cannot compile Scatter at node b"),
        tvm_errors("it", suspects),
    ):
        raise RuntimeError("a trace\nno sums")
    with pytest.raises(CompileError, match="no memory"), tvm_errors("it", suspects):
        raise RuntimeError("no memory")


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ("y:1,4", "no input 'y'"),
        ("x:1", "does not fit"),
        ("x:1,5", "does not fit"),
        ("x", "neither NAME:EXTENT"),
        ("x:1,0", "does not fit"),
    ],
)
def test_wrong_shapes(tmp_path: Path, shape: str, message: str) -> None:
    model = small_model(tmp_path / "m.onnx", dims=("n", 4))
    with pytest.raises(ModelError, match=message):
        api.compile(model, platform="host", shapes=[shape], out=tmp_path / "pkg")


def test_open_dimensions_must_be_given(tmp_path: Path) -> None:
    model = small_model(tmp_path / "m.onnx", dims=("n", "k", 4))
    done = adt("compile", model, "--for", "host", "-o", tmp_path / "pkg")
    assert done.returncode == 8 and "open dimensions: x:1,k,4" in done.stderr
    (command,) = re.findall(r"^\s*adt (compile .*)", done.stderr, re.MULTILINE)
    done = adt(*shlex.split(command))
    assert done.returncode == 0, done.stderr
    words = ["compile", model, "--for", "host", "--shape", "x:2,5,4", "-o", tmp_path / "pkg"]
    (entry,) = adt_json(*words)["package"]["entries"]
    assert entry["inputs"][0]["shape"] == [2, 5, 4] and entry["outputs"][0]["shape"] == [2, 5, 3]


def test_arguments_that_are_initializers_are_known_to_the_importer(tmp_path: Path) -> None:
    """Import a split's sizes and a clip's limits as values, which weights are not."""
    nodes = [
        node("Split", ["x", "sizes"], ["a", "b"], axis=1),
        node("Concat", ["b", "a"], ["c"], axis=1),
        node("Mul", ["c", "w"], ["y"]),
    ]
    weights = {"sizes": np.array([20, 40]), "w": np.linspace(-1, 1, 60, dtype=np.float32).reshape(1, 60)}
    graph = graph_of(nodes, {"x": ("n", 60)}, ["y"], weights)
    path = write(graph, tmp_path / "split.onnx")
    package = adt_json("compile", path, "--for", "host", "-o", tmp_path / "pkg")["package"]
    assert package["entries"][0]["params"] == ["w"]
    inputs = {"x": np.arange(60, dtype=np.float32).reshape(1, 60)}
    assert np.array_equal(outputs_of(tmp_path / "pkg", inputs)["y"], run(graph, inputs)["y"])


@pytest.mark.parametrize("target", ["cpu", "opencl"])
def test_what_depends_on_shapes_alone_needs_no_function_of_the_runtime(tmp_path: Path, target: str) -> None:
    """Compile an embedding, whose table's extent TVM took from Python at run time for negative indices."""
    nodes = [
        node("Gather", ["table", "ids"], ["rows"]),
        node("Size", ["ids"], ["count"]),
        node("Cast", ["count"], ["number"], to=onnx.TensorProto.FLOAT),
        node("Mul", ["rows", "number"], ["y"]),
    ]
    table = np.random.default_rng(0).random((50, 16), dtype=np.float32)
    model = graph_of(nodes, {"ids": (1, 8)}, ["y"], {"table": table}, kind=onnx.TensorProto.INT64)
    path = write(model, tmp_path / "embedding.onnx")
    ids = np.array([[0, 49, 7, -1, 3, -50, 3, 11]], np.int64)

    package = api.compile(path, out=tmp_path / "pkg", platform="host", target=target, check=False)
    api.build_target(platform="host")
    result = api.run(package.path, inputs={"ids": ids})

    np.testing.assert_allclose(result.outputs["y"], table[ids] * 8)


@pytest.mark.parametrize("op", ["NonZero", "Unique"])
def test_a_function_that_no_runtime_has_is_refused(tmp_path: Path, op: str) -> None:
    """Refuse two functions that TVM registers in Python and compiles calls of."""
    nodes = [
        node(op, ["x"], ["some"]),
        node("Cast", ["some"], ["numbers"], to=onnx.TensorProto.FLOAT),
        node("ReduceSum", ["numbers"], ["y"], keepdims=0),
    ]
    path = write(graph_of(nodes, {"x": (4, 5)}, ["y"]), tmp_path / "model.onnx")

    with pytest.raises(UnsupportedOp, match=op):
        api.compile(path, out=tmp_path / "pkg", platform="host")

    assert not (tmp_path / "pkg").exists()


def test_the_package_names_what_its_kernels_call(tmp_path: Path) -> None:
    """Sort booleans, which TVM's own function does."""
    from tvm import relax

    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorStructInfo((4, 5), "bool"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.sort(x)))

    package = api.compile(builder.get(), out=tmp_path / "pkg", platform="host")

    functions = package.manifest.made.functions
    assert "tvm.contrib.sort.sort" in functions and "vm.builtin.alloc_tensor" in functions
    assert not {"main", "sort"} & set(functions)


def test_zeros_are_quantized_in_steps_of_one(tmp_path: Path) -> None:
    """Quantize a constant of zeros (a recurrent layer's first state) as onnxruntime does."""
    _, model = GRAPHS["DynamicQuantizeLSTM"]
    graph = model()
    graph.graph.node.append(node("DynamicQuantizeLinear", ["x"], ["quantized", "step", "point"]))
    graph.graph.output.append(onnx.helper.make_tensor_value_info("step", onnx.TensorProto.FLOAT, []))
    path = write(graph, tmp_path / "model.onnx")
    api.compile(path, out=tmp_path / "pkg", platform="host")
    inputs = {"x": np.zeros((3, 1, 4), np.float32)}

    outputs = api.run(tmp_path / "pkg", inputs=inputs).outputs

    assert float(outputs["step"]) == 1
    for name, expected in run(graph, inputs).items():
        np.testing.assert_allclose(outputs[name], expected, atol=1e-5)


def test_a_model_without_a_kernel_compiles(tmp_path: Path) -> None:
    """Link data that TVM gives as C then, not as an object."""
    nodes = [node("Shape", ["x"], ["y"])]
    model = graph_of(nodes, {"x": (2, 3)}, ["y"], output_kind=onnx.TensorProto.INT64)
    package = api.compile(write(model, tmp_path / "m.onnx"), out=tmp_path / "p", platform="host")
    assert package.manifest.entry().outputs[0].shape == (2,)
