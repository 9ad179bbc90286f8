"""Tensors of the C interface: whose memory they are, how long it stays, and what is copied."""

import itertools
from pathlib import Path

import pytest
from test_cpp_runner import built, mixed, symbolic
from test_gpu_faults import driver
from test_runner_abi import Case, case, on_opencl, opencl_environment, ranged, recurrent, state_on_opencl

import adt
from support.models.onnx_graphs import graph_of, node, write

__all__ = [
    "built", "case", "driver", "mixed", "on_opencl", "opencl_environment", "ranged", "recurrent", "state_on_opencl",
    "symbolic",
]  # fmt: skip

CASES = "support.codegen.tensor_cases"


@pytest.mark.parametrize("name", ["outlive", "state_crosses", "memory", "input_memory", "dlpack", "leaks"])
def test_tensors(case: Case, name: str) -> None:
    case(name)


def test_opencl(case: Case, opencl_environment: dict[str, str]) -> None:
    case("on_a_gpu", opencl_environment)


def test_what_a_model_hands_through(case: Case, tmp_path: Path, opencl_environment: dict[str, str]) -> None:
    names = ["x", *(f"sin{i}" for i in range(7)), "y"]
    nodes = [node("Sin", [a], [b]) for a, b in itertools.pairwise(names)]
    model = write(graph_of(nodes, {"x": (1 << 17,)}, ("x", "y")), tmp_path / "m.onnx")
    package = adt.compile(model, out=tmp_path / "package", platform="host", target="opencl", check=False)
    case("handed_through", opencl_environment, model=package.path)


def test_copies_and_objects_of_opencl(case: Case, driver: Path) -> None:
    case("copies", {"LD_LIBRARY_PATH": str(driver)})
