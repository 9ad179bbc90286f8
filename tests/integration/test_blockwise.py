"""Products by weights of 4 and 8 bits, with a scale for each block: packages that keep the bits."""

import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import adt
from adt.errors import UnsupportedOp
from adt.package.files import read_tensors
from adt.package.host_run.run import run_package
from adt.package.package import ModelPackage
from support.devices.emulated import outputs_of
from support.models.blockwise import dequantized, matmul_n_bits, side_by_side
from support.processors import runnable
from support.sampling import matrix

PRODUCTS = {
    "one row": lambda: matmul_n_bits((1,), 128, 64, 4, 32),
    "rows of batches, a bias, zero points": lambda: matmul_n_bits(
        (2, 3), 96, 40, 4, 32, zeros=True, bias=True
    ),
    "eight rows of eight bits": lambda: matmul_n_bits((8,), 128, 33, 8, 16, zeros=True),
    "many rows": lambda: matmul_n_bits((29,), 256, 64, 4, 128),
    "many rows of eight bits": lambda: matmul_n_bits((17,), 64, 70, 8, 64, bias=True),
    "a block that is not whole": lambda: matmul_n_bits((3,), 40, 5, 4, 16, zeros=True),
    "terms of no whole words": lambda: matmul_n_bits((2,), 37, 24, 4, 32, bias=True),
}
DEQUANTIZED = {
    "int4": lambda: dequantized("int4", 2, 64, 24, 32),
    "uint4, zero points": lambda: dequantized("uint4", 2, 64, 24, 16, zeros=True),
    "int8, transposed": lambda: dequantized("int8", 2, 64, 24, 32, form="Transpose"),
    "uint8, Gemm": lambda: dequantized("uint8", 20, 64, 24, 64, form="Gemm", zeros=True),
    "int4, Gemm": lambda: dequantized("int4", 1, 72, 24, 32, form="Gemm", zeros=True),
    "int4, a scale for each column": lambda: dequantized("int4", 3, 144, 16, 0),
    "uint4, a scale for each column": lambda: dequantized("uint4", 3, 40, 16, 0, form="Transpose"),
}


def saved(model: onnx.ModelProto, directory: Path) -> Path:
    onnx.save(model, directory / "model.onnx")
    return directory / "model.onnx"


def assert_like_onnxruntime(
    model: Path,
    package: ModelPackage,
    names: Iterable[str],
    run: Callable[..., Mapping[str, np.ndarray]] = outputs_of,
) -> None:
    """Compare each of the products *names*, which lie side by side in *model*."""
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")  # else of 8 bits
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    random = np.random.default_rng(3)
    inputs = {x.name: random.uniform(-1, 1, x.shape).astype(np.float32) for x in session.get_inputs()}
    outputs = run(package.path, inputs).values()
    for name, expected, have in zip(names, session.run(None, inputs), outputs, strict=True):
        assert have.shape == expected.shape and np.abs(expected).max() > 0.1, name
        assert np.abs(have - expected).max() <= 2e-5 * np.abs(expected).max(), name


@pytest.mark.parametrize(("cpu", "part"), matrix(["x86-64", "haswell", "skylake-avx512"], range(3)))
def test_what_onnxruntime_writes(cpu: str, part: int, tmp_path: Path) -> None:
    names = list(PRODUCTS)[part::3]
    model = saved(side_by_side([PRODUCTS[name]() for name in names]), tmp_path)

    package = adt.compile(model, out=tmp_path / "package", platform="host", cpu=runnable(cpu))

    assert_like_onnxruntime(model, package, names)


def test_on_arm64(tmp_path: Path) -> None:
    model = saved(side_by_side([make() for make in PRODUCTS.values()]), tmp_path)

    package = adt.compile(model, out=tmp_path / "package", platform="linux-aarch64", cpu="cortex-a76")

    assert_like_onnxruntime(model, package, PRODUCTS)


def test_what_is_dequantized(tmp_path: Path) -> None:
    model = saved(side_by_side([make() for make in DEQUANTIZED.values()]), tmp_path)

    package = adt.compile(model, out=tmp_path / "package", platform="host")

    assert_like_onnxruntime(model, package, DEQUANTIZED)
    types = [str(array.dtype) for array in read_tensors(package.path / "mod.params").values()]
    assert types.count("uint32") >= len(DEQUANTIZED)


@pytest.mark.parametrize(("bits", "block"), [(4, 32), (8, 128)])
def test_parameters_are_as_small_as_their_bits(bits: int, block: int, tmp_path: Path) -> None:
    terms, columns = 512, 256
    model = saved(matmul_n_bits((1,), terms, columns, bits, block), tmp_path)

    package = adt.compile(model, out=tmp_path / "package", platform="host")

    weights = terms * columns * bits // 8
    scales = 4 * terms // block * columns
    assert weights < (package.path / "mod.params").stat().st_size - scales < weights + 4096


def test_in_half_precision_they_are_floats(tmp_path: Path) -> None:
    model = saved(matmul_n_bits((2,), 64, 32, 4, 32), tmp_path)

    package = adt.compile(
        model, out=tmp_path / "package", platform="linux-aarch64", precision="float16", cpu="cortex-a76"
    )

    params = read_tensors(package.path / "mod.params")
    assert max(math.prod(array.shape) for array in params.values()) >= 64 * 32
    assert {str(array.dtype) for array in params.values()} <= {"float32", "float16"}


def test_groups_in_another_order_are_refused(tmp_path: Path) -> None:
    model = saved(matmul_n_bits((2,), 64, 32, 4, 32, order=True), tmp_path)

    with pytest.raises(UnsupportedOp, match=r"MatMulNBits.*g_idx.*product"):
        adt.compile(model, out=tmp_path / "package", platform="host")


@pytest.mark.parametrize(("target", "part"), matrix(["opencl", "adreno"], range(2)))
def test_on_opencl(target: str, part: int, tmp_path: Path) -> None:
    names = list(PRODUCTS)[part::2]
    model = saved(side_by_side([PRODUCTS[name]() for name in names]), tmp_path)

    package = adt.compile(model, out=tmp_path / "package", platform="host", target=target, check=False)

    assert_like_onnxruntime(model, package, names, run=partial(run_package, timeout=300))
    types = [row.dtype for row in adt.inspect(package.path).params()]
    assert types.count("uint32") >= len(names) - 1  # no words hold the terms of one
