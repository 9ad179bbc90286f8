"""Models as OpenCL kernels, end to end on a virtual device with PoCL: right numbers count, its time does not."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto

import adt
from adt.compiler.networks.builder import Network
from adt.device import selection
from adt.errors import MismatchError
from adt.verbs.verify import VerifyResult
from support.devices.fixtures import Rack
from support.models import vision
from support.models.onnx_graphs import graph_of, node, write
from support.sampling import of_each_run


@dataclass(frozen=True)
class Place:
    """A virtual device and what is compiled for it."""

    serial: str
    platform: str


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(("x86_64", "host"), id="x86_64"),
        pytest.param(("arm64-v8a", "linux-aarch64"), id="arm64", marks=pytest.mark.nightly),
    ],
)
def place(request: pytest.FixtureRequest, rack: Rack) -> Iterator[Place]:
    abi, platform = request.param
    adt.build_target(platform=platform)
    info = adt.emulator_start(f"opencl-{platform}", abi=abi, opencl=True)
    yield Place(info.serial, platform)
    adt.emulator_stop(info.name)


def verified(model: Path, out: Path, place: Place) -> VerifyResult:
    package = adt.compile(model, out=out, platform=place.platform, target="opencl")
    assert package.manifest.target.device == "opencl"
    result = adt.verify(package.path, serial=place.serial, timeout=500)
    assert result.verification.passed
    return result


def matrix_vector(path: Path) -> Path:
    rng = np.random.default_rng(0)
    weights = {
        "1 dense/w:0": rng.standard_normal((256, 64), dtype=np.float32),
        "constant": rng.standard_normal(64, dtype=np.float32),
    }
    nodes = [
        node("MatMul", ["in put", "1 dense/w:0"], ["h"]),
        node("Add", ["h", "constant"], ["s"]),
        node("Relu", ["s"], ["out-put"]),
    ]
    return write(graph_of(nodes, {"in put": (1, 256)}, ["out-put"], weights), path)


def test_odd_names_and_a_matrix_vector_product(place: Place, tmp_path: Path) -> None:
    verified(matrix_vector(tmp_path / "dense.onnx"), tmp_path / "dense", place)


@pytest.mark.parametrize(
    ("weight", "groups"),
    [
        pytest.param((8, 1, 1, 1), 8, id="sums of one term"),  # their bias would be added twice
        pytest.param((16, 4, 1, 1), 2, id="sums over a group"),  # work-items would take each other's
    ],
)
def test_what_schedule_rules_of_tvm_get_wrong_is_right(
    weight: tuple[int, ...], groups: int, tmp_path: Path
) -> None:
    """Compile with the check at the end, which would report a wrong kernel."""
    net = Network((1, 8, 6, 6))
    weights = [net.drawn(shape, 0.3, 0.5) for shape in (weight, weight[:1])]
    convolved = net.op("Conv", ["x", *weights], weight[0], group=groups)
    model = net.save(tmp_path / "m.onnx", convolved, (1, weight[0], 6, 6))
    package = adt.compile(model, out=tmp_path / "pkg", platform="host", target="opencl", check=True)
    assert package.checked is not None


@pytest.mark.nightly
def test_a_row_fitted_on_a_device_is_written_and_taken(place: Place, tmp_path: Path) -> None:
    model = vision.mixed_blocks(tmp_path / "model.onnx")
    words = {"target": "opencl", "db": tmp_path / "db"}
    quick = {"tuner": "random", "min_repeat_ms": 1, "number": 1}

    result = adt.tune(model, serials=[place.serial], trials=100, fit=True, **quick, **words)

    assert result.emulated and result.fit and result.context
    assert result.fit.schedules >= 24 and 0 <= result.fit.ordered_before <= result.fit.ordered <= 1
    assert result.fit.gpu.name == result.context.device
    package = adt.compile(model, out=tmp_path / "package", platform=place.platform, **words)
    assert adt.verify(package.path, serial=place.serial, timeout=500).verification.passed


@pytest.mark.parametrize("target", of_each_run(1, "adreno", "opencl"))
def test_a_dynamically_quantized_convolution(target: str, tmp_path: Path) -> None:
    """Convert Cast without the wrap by 2**32, with which TVM's simplifier could not compute."""
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"]),
        node("ConvInteger", ["q", "w", "zero", "w zero"], ["sums"], pads=[1] * 4),
        node("Cast", ["sums"], ["real"], to=TensorProto.FLOAT),
        node("Mul", ["real", "scale"], ["y"]),
    ]
    weights = {"w": np.arange(54, dtype=np.uint8).reshape(2, 3, 3, 3), "w zero": np.uint8(20)}
    model = write(graph_of(nodes, {"x": (1, 3, 4, 4)}, ["y"], weights), tmp_path / "m.onnx")
    package = adt.compile(model, out=tmp_path / "pkg", platform="host", target=target, check=True)
    assert package.checked is not None
    adt.build_target(platform="host")
    assert adt.verify(package.path).verification.passed


@pytest.mark.parametrize("target", of_each_run(1, "opencl", "adreno"))
def test_running_sums_need_no_lockstep(target: str, tmp_path: Path) -> None:
    """Compute sums in PoCL, whose work-items take turns: TVM's kernel lets 32 rely on one another."""
    forms: tuple[tuple[str, dict[str, int]], ...] = (
        ("along", {}),
        ("along", {"exclusive": 1}),
        ("along", {"reverse": 1}),
        ("across", {}),
    )
    nodes = [node("CumSum", ["x", axis], [f"sum{index}"], **more) for index, (axis, more) in enumerate(forms)]
    nodes.append(node("Concat", [f"sum{index}" for index in range(4)], ["y"], axis=0))
    axes = {"along": np.array(1), "across": np.array(0)}
    model = write(graph_of(nodes, {"x": (3, 5000)}, ["y"], axes), tmp_path / "m.onnx")
    x = np.random.default_rng(0).integers(-5, 9, (3, 5000)).astype(np.float32)

    package = adt.compile(model, out=tmp_path / "pkg", platform="host", target=target, check=False)
    adt.build_target(platform="host")
    y = adt.run(package.path, inputs={"x": x}).outputs["y"]

    along = np.cumsum(x, 1)
    backwards = np.cumsum(x[:, ::-1], 1)[:, ::-1]
    np.testing.assert_array_equal(y, np.concatenate([along, along - x, backwards, np.cumsum(x, 0)]))


@pytest.mark.parametrize("target", of_each_run(1, "adreno", "opencl"))
def test_rows_are_replaced_at_once(target: str, tmp_path: Path) -> None:
    """Replace whole rows and single elements, at indices from the end, too."""
    random = np.random.default_rng(0)
    elements = np.stack(np.unravel_index(random.permutation(315)[:30], (5, 7, 9)), 1).reshape(3, 10, 3)
    weights = {
        "rows": np.stack(np.unravel_index(random.permutation(35)[:20], (5, 7)), 1) - [5, 0],
        "elements": elements,
        "u": random.normal(size=(20, 9)).astype(np.float32),
        "v": random.normal(size=(3, 10)).astype(np.float32),
    }
    nodes = [node("ScatterND", ["x", "rows", "u"], ["h"]), node("ScatterND", ["h", "elements", "v"], ["y"])]
    model = write(graph_of(nodes, {"x": (5, 7, 9)}, ["y"], weights), tmp_path / "m.onnx")
    package = adt.compile(model, out=tmp_path / "pkg", platform="host", target=target, check=True)
    assert package.checked is not None


def test_half_precision_is_refused_where_opencl_lacks_it(place: Place, tmp_path: Path) -> None:
    """Refuse the package before PoCL 3.1, without cl_khr_fp16, refuses its kernels one by one."""
    model = matrix_vector(tmp_path / "dense.onnx")
    package = adt.compile(
        model, out=tmp_path / "pkg", platform=place.platform, target="opencl", precision="float16_acc32"
    )
    with pytest.raises(MismatchError, match="its OpenCL lacks cl_khr_fp16"):
        adt.run(package.path, serial=place.serial)


def test_without_opencl_the_run_says_so(rack: Rack, tmp_path: Path) -> None:
    adt.build_target(platform="host")
    package = adt.compile(
        matrix_vector(tmp_path / "dense.onnx"), out=tmp_path / "dense", platform="host", target="opencl"
    )
    device = rack.start("plain", abi="x86_64")
    with pytest.raises(MismatchError, match="has no OpenCL that TVM's runtime can use"):
        adt.run(package.path, serial=device.serial)
    rack.stop("plain")
    assert device.serial not in {listed.serial for listed in selection.listing()}
