"""The thread that libadt_runner runs models on, and those of the program, which stay as they are."""

from pathlib import Path

import numpy as np
import pytest
from test_cpp_runner import built
from test_gpu_faults import driver
from test_rtvm import onnx_file, textured
from test_runner_abi import Case, case

import adt
from adt.package.package import ModelPackage
from support.codegen import sanitized
from support.models.onnx_graphs import graph_of, node, write

__all__ = ["built", "case", "driver", "onnx_file", "textured"]

CASES = "support.codegen.executor_cases"
TWO_THREADS = {"TVM_NUM_THREADS": "2"}
"""TVM takes half of an x86 machine's processors, and starts no thread for one."""


def products(place: Path, rows: int, width: int, count: int) -> Path:
    """Compile a package of *count* products in a row, of zeros."""
    names = ["x", *(f"x{i}" for i in range(1, count)), "y"]
    nodes = [node("MatMul", [names[i], "w"], [names[i + 1]]) for i in range(count)]
    graph = graph_of(nodes, {"x": (rows, width)}, ["y"], {"w": np.zeros((width, width), "float32")})
    model = write(graph, place / "products.onnx")
    return adt.compile(model, out=place / "products", platform="host", target="cpu", check=False).path


@pytest.fixture(scope="session")
def parallel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile a product that threads share."""
    return products(tmp_path_factory.mktemp("parallel"), 16, 512, 1)


@pytest.fixture(scope="session")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile about a second of work in a hundred kernels."""
    return products(tmp_path_factory.mktemp("long"), 256, 1024, 100)


@pytest.mark.parametrize(
    ("name", "environment"),
    [
        ("callers_stay_as_they_are", TWO_THREADS),
        ("executors_of_their_own", TWO_THREADS),
        ("threads_that_are_set", {}),
        ("asleep", {**TWO_THREADS, "TVM_THREAD_POOL_SPIN_COUNT": "0"}),
        ("tickets", {}),
        ("cancellation", {}),
    ],
)
def test_the_executor(case: Case, name: str, environment: dict[str, str]) -> None:
    case(name, environment)


@pytest.mark.parametrize(
    ("name", "vendor"),
    [
        ("kernels_of_callers", "adt tests"),
        ("kernels_of_callers", "QUALCOMM"),
        ("inputs_do_not_wait", "adt tests"),
    ],
)
def test_the_executor_of_a_gpu(case: Case, driver: Path, name: str, vendor: str) -> None:
    case(name, {"LD_LIBRARY_PATH": str(driver), "STANDIN_VENDOR": vendor})


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
