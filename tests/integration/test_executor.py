"""The thread that libadt_runner runs models on, and those of the program, which stay as they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from test_cpp_runner import Built, built
from test_gpu_faults import driver
from test_rtvm import onnx_file, textured
from test_runner_abi import case

import adt
from adt.package.package import ModelPackage
from support.codegen import sanitized

__all__ = ["built", "driver", "onnx_file", "textured"]

CASES = "support.codegen.executor_cases"
TWO_THREADS = {"TVM_NUM_THREADS": "2"}
"""TVM takes half of an x86 machine's processors, and starts no thread for one."""


def products(place: Path, rows: int, width: int, count: int) -> Path:
    """Compile a package of *count* products in a row, of zeros."""
    weight = numpy_helper.from_array(np.zeros((width, width), "float32"), "w")
    names = ["x", *(f"x{i}" for i in range(1, count)), "y"]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, (rows, width)) for name in "xy")
    nodes = [helper.make_node("MatMul", [names[i], "w"], [names[i + 1]]) for i in range(count)]
    graph = helper.make_graph(nodes, "products", [x], [y], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, place / "products.onnx")
    package = adt.compile(
        place / "products.onnx", out=place / "products", platform="host", target="cpu", check=False
    )
    return package.path


@pytest.fixture(scope="session")
def parallel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile a product that threads share."""
    return products(tmp_path_factory.mktemp("parallel"), 16, 512, 1)


@pytest.fixture(scope="session")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile about a second of work in a hundred kernels."""
    return products(tmp_path_factory.mktemp("long"), 256, 1024, 100)


def test_callers_stay_as_they_are(built: Built, parallel: Path) -> None:
    case(built, "callers_stay_as_they_are", TWO_THREADS, CASES, parallel=parallel)


@pytest.mark.parametrize("vendor", ["adt tests", "QUALCOMM"])
def test_kernels_of_callers(built: Built, textured: ModelPackage, driver: Path, vendor: str) -> None:
    environment = {"LD_LIBRARY_PATH": str(driver), "STANDIN_VENDOR": vendor}
    case(built, "kernels_of_callers", environment, CASES, textured=textured.path)


def test_inputs_do_not_wait(built: Built, textured: ModelPackage, driver: Path) -> None:
    environment = {"LD_LIBRARY_PATH": str(driver)}
    case(built, "inputs_do_not_wait", environment, CASES, textured=textured.path)


def test_executors_of_their_own(built: Built, parallel: Path) -> None:
    case(built, "executors_of_their_own", TWO_THREADS, CASES, parallel=parallel)


def test_threads_that_are_set(built: Built, parallel: Path) -> None:
    case(built, "threads_that_are_set", None, CASES, parallel=parallel)


def test_asleep_between_runs(built: Built, parallel: Path) -> None:
    environment = {**TWO_THREADS, "TVM_THREAD_POOL_SPIN_COUNT": "0"}
    case(built, "asleep", environment, CASES, parallel=parallel)


@pytest.mark.parametrize("device", ["cpu", "opencl"])
def test_thread_sanitizer(
    parallel: Path, textured: ModelPackage, driver: Path, tmp_path: Path, device: str
) -> None:
    """Run without TVM's workers, whose locks are not compiled here and so not seen."""
    program = sanitized.build("thread", "threads_program") / "bin/threads_program"
    assert b"__tsan_read8" in (program.parents[1] / "lib/libadt_runner.so").read_bytes()
    package = parallel if device == "cpu" else textured.path
    done = sanitized.run(program, package, tmp_path, LD_LIBRARY_PATH=str(driver), TVM_NUM_THREADS="1")
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr[:6000]


def test_tickets(built: Built, parallel: Path) -> None:
    case(built, "tickets", None, CASES, parallel=parallel)


def test_cancellation(built: Built, long: Path) -> None:
    case(built, "cancellation", None, CASES, long=long)
