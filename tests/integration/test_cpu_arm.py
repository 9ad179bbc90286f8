"""Networks in blocks of NEON's lanes give onnxruntime's numbers on emulated Arm processors."""

import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import adt
from adt.errors import MismatchError
from adt.numerics import TOLERANCES
from adt.package.compatibility import check_cpu
from adt.package.inputs.random import random_inputs
from adt.package.package import load_package
from support.devices.emulated import outputs_of
from support.models.onnx_graphs import graph_of, write
from support.models.reference import largest_error
from support.models.sequences import recurrent
from support.models.vision import mixed_blocks, mobilenet_v2, residual_blocks, resnet18
from support.sampling import of_each_run

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
NETWORKS = (resnet18, mobilenet_v2, mixed_blocks)
AXES = ([3], [-1], [2, 3], [0], [1, -2])
SUM_OF_HALVES = re.compile(r"fmla\tv\d+\.8h, v\d+\.8h, v\d+\.h\[")
"""Eight output channels times one value of the input."""


@pytest.mark.parametrize(
    ("network", "cpu"),
    of_each_run(
        2,
        *[(residual_blocks, "cortex-a55"), (mixed_blocks, ""), (residual_blocks, "cortex-a76")],
        *[(resnet18, "cortex-a76"), (mobilenet_v2, "cortex-a55")],
    ),
)
def test_on_arm64(network: Callable[[Path, int], Path], cpu: str, tmp_path: Path) -> None:
    like_onnxruntime(network(tmp_path / "model.onnx", 40), "linux-aarch64", cpu)


@pytest.mark.parametrize("precision", ["float16", "float16_acc32"])
def test_in_half_precision(precision: str, tmp_path: Path) -> None:
    model = mixed_blocks(tmp_path / "model.onnx", 40)

    package = like_onnxruntime(model, "linux-aarch64", "cortex-a76", precision)

    assert bool(SUM_OF_HALVES.search(adt.inspect(package).assembly())) == (precision == "float16")
    with pytest.raises(MismatchError, match="asimdhp"):
        check_cpu(load_package(package).manifest, frozenset({"asimd", "asimddp"}), "an older phone")


@pytest.mark.parametrize(
    ("layer", "precision"),
    of_each_run(
        6,
        *[("3x3", "float32"), ("points", "float32"), ("product", "float32")],
        *[("first3x3", "float16"), ("depthwise@14+relu6", "float16"), ("3x3s2", "float16_acc32")],
        *((layer, "float32") for layer in ("first3x3", "depthwise@14+relu6")),
        *((layer, "float16") for layer in ("3x3s2", "points", "product")),
    ),
)
def test_sums_stay_in_registers(layer: str, precision: str, tmp_path: Path) -> None:
    from cpu_asm import assembly, kernel_loops

    loops = dict(kernel_loops(assembly(tmp_path, layer, "cortex-a76", "linux-aarch64", precision)))

    loop = max(loops.values(), key=lambda loop: loop.multiply_adds)
    assert loop.multiply_adds >= 48
    assert not loop.spills, loop.text
    assert "\tfadd\t" not in loop.text, "sums start from the bias"


@pytest.mark.parametrize(
    ("layer", "cpu", "moves"),
    of_each_run(
        4,
        *[("3x3s2", "cortex-a72", "dup"), ("points@7", "cortex-a76", "[0]")],
        *[("3x3@14", "snapdragon-8gen2", "zip1"), ("product", "snapdragon-8gen2", "smmla")],
        *((layer, "cortex-a72", "dup") for layer in ("points@14", "product")),
        *((layer, "cortex-a76", "[0]") for layer in ("3x3", "product")),
        ("points@14", "snapdragon-8gen2", "zip1"),
    ),
)
def test_sums_of_integers_stay_in_registers(layer: str, cpu: str, moves: str, tmp_path: Path) -> None:
    """Bring inputs to the lanes in registers, but for a row's last ones: no ``ld1r`` for each."""
    from cpu_asm import assembly, kernel_loops

    loops = dict(kernel_loops(assembly(tmp_path, layer, cpu, "linux-aarch64", quantized=True)))

    loop = max(loops.values(), key=lambda loop: loop.multiply_adds)
    assert loop.multiply_adds >= 12
    assert not loop.spills, loop.text
    assert moves in loop.text and 12 * loop.text.count("ld1r") < loop.multiply_adds


@pytest.mark.parametrize("cpu", of_each_run(1, "", "cortex-a76"))
def test_extrema_and_sums_on_arm64(cpu: str, tmp_path: Path) -> None:
    """Compare with numpy, NaN included, where rows and columns are whole vectors and where not."""
    nodes = [
        helper.make_node(f"Reduce{op}", ["x"], [f"{op}{number}"], axes=axes, keepdims=number % 2)
        for op in ("Max", "Min", "Mean")
        for number, axes in enumerate(AXES)
    ]
    names = [name for node in nodes for name in node.output]
    model = write(graph_of(nodes, {"x": (5, 7, 48, 19)}, names, opset=13), tmp_path / "model.onnx")
    package = adt.compile(model, out=tmp_path / "package", platform="linux-aarch64", cpu=cpu).path
    x = np.random.default_rng(3).normal(size=(5, 7, 48, 19)).astype(np.float32)
    x[0, 0, 0, [0, 7, 18]], x[1, 2, 3, 4], x[4, 6] = np.nan, np.inf, -np.inf

    have = outputs_of(package, {"x": x})

    for name, reduce in (("Max", np.max), ("Min", np.min), ("Mean", np.mean)):
        for number, axes in enumerate(AXES):
            expected = reduce(x, tuple(axes), keepdims=bool(number % 2))
            np.testing.assert_allclose(have[f"{name}{number}"], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("hidden", of_each_run(1, 80, 48, 96))
def test_sums_of_a_recurrent_step_stay_in_registers(hidden: int, tmp_path: Path) -> None:
    """Hold panels of 48 columns in twelve registers of four lanes."""
    from cpu_asm import innermost_loops, split_functions

    model = recurrent(tmp_path / "model.onnx", "GRU", 1, hidden=hidden, linear=False)
    package = adt.compile(model, out=tmp_path / "package", platform="linux-aarch64", cpu="cortex-a76")

    functions = dict(split_functions(adt.inspect(package.path).assembly()))
    loops = innermost_loops(functions["gru_compute_"])
    products = [loop for loop in loops if loop.multiply_adds == 12]
    assert products, "one loop for each product of the state"
    assert not any(loop.spills for loop in products), products[0].text


def test_armv7_calls_the_abis_functions(tmp_path: Path) -> None:
    """Check that ``__floatdisf`` of libgcc returns its float in an integer register, as ``__aeabi_l2f``
    does."""
    node = helper.make_node("Cast", ["x"], ["y"], name="cast", to=TensorProto.FLOAT)
    graph = graph_of([node], {"x": (3,)}, ["y"], kind=TensorProto.INT64)

    package = adt.compile(
        write(graph, tmp_path / "model.onnx"), out=tmp_path / "package", platform="linux-armhf"
    )

    code = adt.inspect(package.path).assembly()
    assert "__aeabi_l2f" in code and "__floatdisf" not in code


@pytest.mark.nightly  # the bundle alone takes minutes
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.__name__)
def test_on_armv7(network: Callable[[Path, int], Path], tmp_path: Path) -> None:
    like_onnxruntime(network(tmp_path / "model.onnx", 40), "linux-armhf", "cortex-a7")


def like_onnxruntime(model: Path, platform: str, cpu: str, precision: str = "float32") -> Path:
    """Check the outputs of the blocked *model* for random inputs, by rtvm; return its package."""
    out = model.parent / "package"
    package = adt.compile(model, out=out, platform=platform, cpu=cpu, precision=precision)
    inputs = random_inputs(package.manifest.entry().inputs, seed=3)
    outputs = outputs_of(package.path, inputs)
    assert largest_error(outputs, model, inputs) <= TOLERANCES[precision].max_rel
    return package.path
