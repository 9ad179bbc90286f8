"""Tensors of the C interface: whose memory they are, how long it stays, and what is copied."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

from test_cpp_runner import Built, Package, built, mixed, symbolic
from test_gpu_faults import driver
from test_runner_abi import case, on_opencl, opencl_environment, recurrent, state_on_opencl

import adt
from adt.package.manifest import ValueRange
from support.models.onnx_graphs import graph_of, node, write

__all__ = [
    "built",
    "driver",
    "mixed",
    "on_opencl",
    "opencl_environment",
    "recurrent",
    "state_on_opencl",
    "symbolic",
]

CASES = "support.codegen.tensor_cases"


def test_they_outlive_runs_and_handles(built: Built, recurrent: Package) -> None:
    case(built, "outlive", None, CASES, recurrent=recurrent.path)


def test_a_state_crosses_sessions_and_packages(built: Built, recurrent: Package) -> None:
    case(built, "state_crosses", None, CASES, recurrent=recurrent.path)


def test_memory_of_the_program(built: Built, mixed: Package) -> None:
    case(built, "memory", None, CASES, mixed=mixed.path)


def test_memory_of_an_input(built: Built, mixed: Package, symbolic: Package, tmp_path: Path) -> None:
    x, n = mixed.manifest.entries[0].inputs
    values = ValueRange("index", -3, 9)
    ranged = mixed.with_entry(tmp_path / "p", inputs=(x, dataclasses.replace(n, values=values)))
    case(built, "input_memory", None, CASES, mixed=mixed.path, ranged=ranged.path, symbolic=symbolic.path)


def test_dlpack(built: Built, recurrent: Package) -> None:
    case(built, "dlpack", None, CASES, recurrent=recurrent.path)


def test_nothing_leaks(built: Built, recurrent: Package) -> None:
    case(built, "leaks", None, CASES, recurrent=recurrent.path)


def test_opencl(
    built: Built,
    recurrent: Package,
    on_opencl: Path,
    state_on_opencl: Path,
    opencl_environment: dict[str, str],
) -> None:
    paths = {"opencl": on_opencl, "state": state_on_opencl, "cpu": recurrent.path}
    case(built, "on_opencl", opencl_environment, CASES, **paths)


def test_what_a_model_hands_through(built: Built, tmp_path: Path, opencl_environment: dict[str, str]) -> None:
    names = ["x", *(f"sin{i}" for i in range(7)), "y"]
    nodes = [node("Sin", [a], [b]) for a, b in itertools.pairwise(names)]
    model = write(graph_of(nodes, {"x": (1 << 17,)}, ("x", "y")), tmp_path / "m.onnx")
    package = adt.compile(model, out=tmp_path / "package", platform="host", target="opencl", check=False)
    case(built, "handed_through", opencl_environment, CASES, model=package.path)


def test_copies_and_objects_of_opencl(built: Built, state_on_opencl: Path, driver: Path) -> None:
    case(built, "copies", {"LD_LIBRARY_PATH": str(driver)}, CASES, state=state_on_opencl)
