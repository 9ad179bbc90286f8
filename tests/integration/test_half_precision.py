"""Half precision computed: small networks, real models, a driver that does and one that does not."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

import adt as api
from adt.errors import AdtError, ConfigError, InputError, MismatchError
from adt.numerics import TOLERANCES
from adt.package.host_run.run import run_package
from adt.package.package import load_package
from support.devices import intel_opencl
from support.devices.emulated import outputs_of
from support.devices.programs import adt, adt_json
from support.models.onnx_graphs import graph_of, node, write
from support.models.reference import largest_error
from support.models.small import MAGIKA, small_model

RNG = np.random.default_rng(0)


def model(
    path: Path, nodes: list[onnx.NodeProto], weights: dict[str, Any], shape: tuple[int, ...] = (1, 8, 14, 14)
) -> Path:
    arrays = {name: np.asarray(data, np.float32) for name, data in weights.items()}
    return write(graph_of(nodes, {"x": shape}, ["y"], arrays), path)


def conv(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))


def mobile(path: Path) -> Path:
    """Write the operators of MobileNet-v3 and PP-OCR: hard swish, ReLU6, depthwise, squeeze and excite, a
    classifier."""
    nodes = [
        node("Conv", ["x", "w0", "b0"], ["c0"], pads=[1, 1, 1, 1]),
        node("HardSwish", ["c0"], ["s0"]),
        node("Conv", ["s0", "w1"], ["c1"], pads=[1, 1, 1, 1], group=16),
        node("Clip", ["c1", "zero", "six"], ["s1"]),
        node("GlobalAveragePool", ["s1"], ["p"]),
        node("Conv", ["p", "w2"], ["e0"]),
        node("HardSigmoid", ["e0"], ["e1"], alpha=1 / 6, beta=0.5),
        node("Mul", ["s1", "e1"], ["m"]),
        node("Add", ["m", "s0"], ["a"]),
        node("MaxPool", ["a"], ["q"], kernel_shape=[2, 2], strides=[2, 2]),
        node("AveragePool", ["q"], ["r"], kernel_shape=[2, 2], strides=[1, 1]),
        node("Resize", ["r", "", "scales"], ["u"], mode="linear"),
        node("Conv", ["u", "w3"], ["c3"]),
        node("PRelu", ["c3", "slope"], ["s3"]),
        node("Erf", ["s3"], ["g"]),
        node("GlobalAveragePool", ["g"], ["gp"]),
        node("Flatten", ["gp"], ["f"]),
        node("Gemm", ["f", "w4", "b4"], ["z"], transB=1),
        node("Softmax", ["z"], ["y"], axis=1),
    ]
    weights = {
        "w0": conv(16, 8, 3, 3),
        "b0": RNG.standard_normal(16),
        "w1": conv(16, 1, 3, 3),
        "zero": np.float32(0),
        "six": np.float32(6),
        "w2": conv(16, 16, 1, 1),
        "scales": [1, 1, 2, 2],
        "w3": conv(32, 16, 1, 1),
        "slope": np.full((32, 1, 1), 0.1),
        "w4": conv(10, 32),
        "b4": RNG.standard_normal(10),
    }
    return model(path, nodes, weights)


@pytest.fixture(scope="module")
def mobile_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return mobile(tmp_path_factory.mktemp("mobile") / "mobile.onnx")


@pytest.mark.parametrize("precision", ["float16_acc32", "float16"])
def test_a_mobile_network(mobile_file: Path, tmp_path: Path, precision: str) -> None:
    """Run halves of the weights in the C++ runner; plain TVM cannot convert the network's clips."""
    out = tmp_path / "package"
    package = api.compile(mobile_file, platform="host", precision=precision, out=out).manifest
    assert package.precision == precision and package.made.accuracy is not None
    (output,) = package.made.accuracy.outputs
    assert output.top1 == 1 and 0 < output.max_rel <= TOLERANCES[precision].max_rel
    assert output.cosine > 0.999
    size = package.files["mod.params"].size
    weights = sum(numpy_helper.to_array(each).nbytes for each in onnx.load(mobile_file).graph.initializer)
    assert size < 0.7 * weights, "small tensors have as much header as data"
    assert ran_against_onnxruntime(out, mobile_file) <= TOLERANCES[precision].max_rel


def test_a_half_model_computes_in_float32_on_a_cpu(tmp_path: Path) -> None:
    """Convert weights once, in the compiler: a CPU without half arithmetic would convert at each use."""
    source, out = in_half(mobile(tmp_path / "mobile.onnx")), tmp_path / "package"

    adt_json("compile", source, "--for", "host", "-o", out)

    weights = adt_json("inspect", out, "--params")["params"]
    assert weights and {weight["dtype"] for weight in weights} == {"float32"}
    assert ran_against_onnxruntime(out, source, np.float16) <= TOLERANCES["float16"].max_rel


@pytest.mark.parametrize(("cpu", "dtype"), [("cortex-a76", "float16"), ("cortex-a72", "float32")])
def test_a_half_model_computes_in_half_where_arm_does(tmp_path: Path, cpu: str, dtype: str) -> None:
    """Compute convolutions in half, but not the softmax; without half arithmetic all of it in float32."""
    source, out = in_half(mobile(tmp_path / "mobile.onnx")), tmp_path / "package"

    adt_json("compile", source, "--for", "linux-aarch64", "--cpu", cpu, "-o", out)

    weights = adt_json("inspect", out, "--params")["params"]
    assert dtype in {weight["dtype"] for weight in weights}
    (softmax,) = (text for name, text in api.inspect(out).tir_functions().items() if "softmax" in name)
    assert "float32" in softmax
    assert ran_against_onnxruntime(out, source, np.float16) <= TOLERANCES["float16"].max_rel


def in_half(path: Path) -> Path:
    """Convert the model at *path* to float16, but for the extents of a Resize."""
    proto = onnx.load(path)
    for tensor in proto.graph.initializer:
        if tensor.name != "scales":
            data = numpy_helper.to_array(tensor).astype(np.float16)
            tensor.CopyFrom(numpy_helper.from_array(data, tensor.name))
    for value in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info):
        value.type.tensor_type.elem_type = TensorProto.FLOAT16
    onnx.save(proto, path)
    return path


def ran_against_onnxruntime(package: Path, source: Path, dtype: Any = np.float32) -> float:
    """Run the package on its platform; return the largest error over the largest magnitude."""
    inputs = {"x": np.random.default_rng(1).random((1, 8, 14, 14), dtype=np.float32).astype(dtype)}
    outputs = outputs_of(package, inputs)
    assert {output.dtype.type for output in outputs.values()} == {dtype}
    return largest_error(outputs, source, inputs)


@pytest.mark.nightly  # compiles twice; the mobile network is measured every time
def test_a_real_model_halves_its_weights(tmp_path: Path) -> None:
    words = ["compile", MAGIKA, "--for", "linux-aarch64", "--precision", "float16_acc32"]
    package = adt_json(*words, "-o", tmp_path / "pkg")["package"]
    assert package["files"]["mod.params"]["size"] < 1_600_000 < 3_100_000
    (output,) = package["made"]["accuracy"]["outputs"]
    assert output["name"] == "target_label" and output["max_abs"] < 1e-3
    assert [i["dtype"] for i in package["entries"][0]["inputs"]] == ["int32"]
    again = adt(*words, "--cpu", "cortex-a76", "-o", tmp_path / "again")
    assert again.returncode == 0 and "float16_acc32 against float32 on random, seed 0" in again.stdout
    assert "without half arithmetic" not in again.stderr


def overflowing(path: Path) -> Path:
    """Build a network whose second product passes 65504 before the third brings it back."""
    nodes = [
        node("MatMul", ["x", "a"], ["h0"]),
        node("MatMul", ["h0", "b"], ["h1"]),
        node("Relu", ["h1"], ["h2"]),
        node("MatMul", ["h2", "c"], ["y"]),
    ]
    eye = np.eye(8) + 0.1
    return model(path, nodes, {"a": eye * 50, "b": eye * 5e3, "c": eye * 1e-3}, (1, 8))


def test_an_overflow_is_named_and_what_is_advised_cures_it(tmp_path: Path) -> None:
    source = overflowing(tmp_path / "big.onnx")
    words = ["compile", source, "--for", "host", "--precision", "float16_acc32"]
    done = adt(*words, "-o", tmp_path / "pkg")
    assert done.returncode == 0, done.stderr
    assert "NaN or infinite" in done.stderr and "values pass 65504" in done.stderr, done.stderr
    report = load_package(tmp_path / "pkg").manifest.made.accuracy
    assert report is not None and report.bad
    assert {item.op for item in report.overflows} >= {"matmul", "nn.relu"}
    assert "--keep-float32 " + ",".join(report.keep) in done.stderr
    cured = adt(*words, "--keep-float32", ",".join(report.keep), "-o", tmp_path / "cured")
    assert cured.returncode == 0 and "warning" not in cured.stderr, cured.stderr
    report = load_package(tmp_path / "cured").manifest.made.accuracy
    assert report is not None and not report.bad and report.outputs[0].max_rel < 1e-2
    cached = adt(*words, "-o", tmp_path / "pkg")
    assert "from the cache" in cached.stdout and "values pass 65504" in cached.stderr


def test_on_inputs_of_ones_own(tmp_path: Path) -> None:
    source = small_model(tmp_path / "m.onnx")
    for number in range(2):
        np.savez(tmp_path / f"{number}.npz", x=RNG.random((1, 4), dtype=np.float32))
    words = ["compile", source, "--for", "host", "--precision", "float16", "-o", tmp_path / "pkg"]
    samples = ["--accuracy-inputs", tmp_path / "0.npz", "--accuracy-inputs", tmp_path / "1.npz"]
    report = adt_json(*words, *samples)["package"]["made"]["accuracy"]
    assert (report["inputs"], report["samples"]) == ("0.npz, 1.npz", 2)
    assert adt_json(*words, "--no-accuracy")["package"]["made"]["accuracy"] is None


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"precision": "half"}, ConfigError, "--precision: 'half'"),
        ({"precision": "float16", "keep_float32": ["nn.sofmax"]}, ConfigError, "Did you mean 'nn.softmax'"),
        ({"keep_float32": ["exp"]}, ConfigError, "the precision is float32"),
        ({"half_only": ["matmul"]}, ConfigError, "--half-only is for half precision"),
        ({"precision": "float16", "accuracy_inputs": [Path("absent.npz")]}, InputError, "absent.npz"),
    ],
)
def test_what_is_refused(tmp_path: Path, options: dict[str, Any], kind: type[AdtError], message: str) -> None:
    with pytest.raises(kind) as caught:
        api.compile(small_model(tmp_path / "m.onnx"), platform="host", out=tmp_path / "pkg", **options)
    assert message in caught.value.what + caught.value.remedy and caught.value.remedy
    assert not (tmp_path / "pkg").exists()


def test_compiling_again_gives_the_same_bytes(tmp_path: Path) -> None:
    source = small_model(tmp_path / "m.onnx")
    words = ["compile", source, "--for", "linux-aarch64", "--precision", "float16_acc32", "--no-cache"]
    for name in "ab":
        adt_json(*words, "-o", tmp_path / name)
    for file in ("mod.so", "mod.params", "mod.json"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes(), file


@pytest.mark.parametrize(
    ("target", "precision"),
    [
        ("adreno", "float16_acc32"),
        pytest.param("opencl", "float16_acc32", marks=pytest.mark.nightly),
        pytest.param("opencl", "float16", marks=pytest.mark.nightly),
        pytest.param("adreno", "float16", marks=pytest.mark.nightly),
    ],
)
def test_half_kernels_on_a_driver_that_computes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, precision: str
) -> None:
    source = mobile(tmp_path / "mobile.onnx")
    words = ["compile", source, "--for", "host", "--target", target, "--precision", precision]
    adt_json(*words, "--no-check", "-o", tmp_path / "pkg")
    monkeypatch.setenv("OCL_ICD_VENDORS", str(intel_opencl.vendors()))
    inputs = {"x": np.random.default_rng(1).random((1, 8, 14, 14), dtype=np.float32)}
    outputs = run_package(tmp_path / "pkg", inputs, timeout=500)
    assert largest_error(outputs, source, inputs) <= TOLERANCES[precision].max_rel


def test_a_device_without_half_precision_is_not_compiled_for(tmp_path: Path) -> None:
    from adt.bundle.platforms import PLATFORMS
    from adt.compiler.importers.importer import import_model
    from adt.compiler.precision import convert_precision
    from adt.compiler.targets import model_target
    from adt.options.resolve import load_settings
    from adt.package.manifest import PackageLike

    like = PackageLike("a phone", "", "Old GPU", "1", False, (), {}, ())
    settings = load_settings({"compile.precision": "float16", "compile.target": "opencl"}).settings.compile
    target = model_target("opencl", PLATFORMS["linux-aarch64"], 28)
    imported = import_model(small_model(tmp_path / "m.onnx"), {})
    with pytest.raises(MismatchError, match="Old GPU does not compute in half precision"):
        convert_precision(imported, settings, target, like)
