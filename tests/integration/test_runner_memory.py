"""Lifetimes in libadt_runner: memory, OpenCL objects, and the library itself."""

from pathlib import Path

import numpy as np
import pytest
from test_cpp_runner import Built, Package, built, echo, large, mixed, symbolic
from test_gpu_faults import driver
from test_rtvm import onnx_file, textured
from test_runner_abi import CASES, CXX, Case, built_library, case, compiled

import adt
from adt.bundle import plugins
from adt.bundle.libraries import LIBRARIES
from support.devices.programs import program_output, run_program
from support.models.onnx_graphs import graph_of, node, write

__all__ = ["CASES", "built", "case", "driver", "echo", "large", "mixed", "onnx_file", "symbolic", "textured"]

SUPPORT = Path(__file__).parents[1] / "support"


@pytest.mark.parametrize(
    "name",
    ["memory_of_shapes", "parameters_are_in_memory_once", "memory_of_packages"],
)
def test_memory(case: Case, name: str) -> None:
    case(name)


def test_sessions_on_opencl_share_weights(case: Case, large_on_opencl: Path, driver: Path) -> None:
    case("sessions_share_weights", {"LD_LIBRARY_PATH": str(driver)}, large=large_on_opencl)


@pytest.mark.parametrize("vendor", ["adt tests", "QUALCOMM"])
def test_objects_of_handles(case: Case, driver: Path, vendor: str) -> None:
    case("objects_of_handles", {"LD_LIBRARY_PATH": str(driver), "STANDIN_VENDOR": vendor})


@pytest.fixture(scope="module")
def large_on_opencl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile 64 MiB of weights for OpenCL."""
    place = tmp_path_factory.mktemp("large")
    generator = np.random.default_rng(0)
    nodes = [node("MatMul", [f"x{i}", f"w{i}"], [f"x{i + 1}"]) for i in range(16)]
    weights = {f"w{i}": generator.random((1024, 1024), "float32") for i in range(16)}
    model = write(graph_of(nodes, {"x0": (1, 1024)}, ["x16"], weights), place / "large.onnx")
    return adt.compile(model, out=place / "p", platform="host", target="adreno-buffer", check=False).path


def test_parameters_are_waited_for_once(case: Case, large_on_opencl: Path, driver: Path) -> None:
    case("parameters_are_waited_for_once", {"LD_LIBRARY_PATH": str(driver)}, large=large_on_opencl)


def test_no_text_is_made_for_an_error_that_does_not_happen(
    built: Built, mixed: Package, echo: Package, tmp_path: Path
) -> None:
    program = compiled(["g++", *CXX], (SUPPORT / "codegen/allocations.cc").read_text(), built, tmp_path)
    assert program_output(program, mixed.path, echo.path) == "done\n"


# ---- loaded and unloaded 100 times -----------------------------------------------------------------


@pytest.fixture(scope="module")
def unload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("unload") / "unload"
    source = SUPPORT / "codegen/unload.c"
    words = ["gcc", "-std=gnu99", "-Wall", "-Wextra", "-Werror", source, "-o", program, "-ldl", "-lpthread"]
    run_program(*words)
    return program


def unloaded(unload: Path, package: Path | str, *libraries: Path) -> None:
    assert program_output(unload, package, *libraries, ADT_PROGRAM_CACHE="off") == "done\n"


def test_the_runner_is_unloaded(unload: Path, built: Built, mixed: Package) -> None:
    unloaded(unload, mixed.path, built_library(built))
    lib = built.installed / "lib"
    unloaded(unload, mixed.path, lib / "libtvm_ffi.so", lib / "libtvm_runtime.so", built_library(built))


GENERATORS = map(plugins.code_generator, LIBRARIES.values())
PLUGINS = {plugin.name: plugin for plugin in (plugins.OPENCL, plugins.CUDA, *GENERATORS)}


@pytest.mark.parametrize("plugin", PLUGINS.values(), ids=PLUGINS)
def test_plugins_are_unloaded(unload: Path, plugin: plugins.Plugin) -> None:
    wheel = plugins.installed_wheel()
    needed = [wheel.ffi / "lib/libtvm_ffi.so", wheel.tvm / "lib/libtvm_runtime.so"]
    if plugin is not plugins.OPENCL:
        needed.append(wheel.tvm / "lib/libtvm_compiler.so")
    unloaded(unload, "-", *needed, plugins.build(plugin))
