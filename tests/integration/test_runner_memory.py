"""Lifetimes in libadt_runner: memory, OpenCL objects, and the library itself."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from test_cpp_runner import Built, Package, built, echo, large, mixed, symbolic
from test_gpu_faults import driver
from test_rtvm import onnx_file, textured
from test_runner_abi import CXX, built_library, case

import adt
from adt.bundle import plugins
from adt.bundle.libraries import LIBRARIES
from adt.package.package import ModelPackage

__all__ = ["built", "driver", "echo", "large", "mixed", "onnx_file", "symbolic", "textured"]

SUPPORT = Path(__file__).parents[1] / "support"


def test_memory_of_shapes(built: Built, symbolic: Package) -> None:
    case(built, "memory_of_shapes", symbolic=symbolic.path)


def test_a_cpus_parameters_are_pages_of_the_file(built: Built, large: Package) -> None:
    case(built, "parameters_are_pages_of_the_file", large=large.path)


def test_memory_of_sessions(built: Built, large: Package) -> None:
    case(built, "memory_of_sessions", large=large.path)


def test_sessions_on_opencl_share_weights(built: Built, large_on_opencl: Path, driver: Path) -> None:
    case(built, "sessions_share_weights", {"LD_LIBRARY_PATH": str(driver)}, large=large_on_opencl)


def test_memory_of_packages(built: Built, mixed: Package, tmp_path: Path) -> None:
    case(built, "memory_of_packages", mixed=mixed.path, tmp=tmp_path)


@pytest.mark.parametrize("vendor", ["adt tests", "QUALCOMM"])
def test_objects_of_handles(
    built: Built, textured: ModelPackage, driver: Path, tmp_path: Path, vendor: str
) -> None:
    environment = {"LD_LIBRARY_PATH": str(driver), "STANDIN_VENDOR": vendor}
    case(built, "objects_of_handles", environment, textured=textured.path, tmp=tmp_path)


@pytest.fixture(scope="module")
def large_on_opencl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile 64 MiB of weights for OpenCL."""
    place = tmp_path_factory.mktemp("large")
    generator = np.random.default_rng(0)
    nodes = [helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"x{i + 1}"]) for i in range(16)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 1024)) for name in ("x0", "x16")]
    weights = [numpy_helper.from_array(generator.random((1024, 1024), "float32"), f"w{i}") for i in range(16)]
    graph = helper.make_graph(nodes, "large", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, place / "large.onnx")
    package = place / "package"
    adt.compile(place / "large.onnx", out=package, platform="host", target="adreno-buffer", check=False)
    return package


def test_parameters_are_waited_for_once(
    built: Built, textured: ModelPackage, large_on_opencl: Path, driver: Path
) -> None:
    environment = {"LD_LIBRARY_PATH": str(driver)}
    case(built, "parameters_are_waited_for_once", environment, textured=textured.path, large=large_on_opencl)


def test_no_text_is_made_for_an_error_that_does_not_happen(
    built: Built, mixed: Package, echo: Package, tmp_path: Path
) -> None:
    lib, program = built.installed / "lib", tmp_path / "program"
    words = [
        "g++",
        *CXX,
        f"-I{built.installed / 'include'}",
        SUPPORT / "codegen/allocations.cc",
        "-o",
        program,
    ]
    link = [f"-L{lib}", "-ladt_runner", f"-Wl,-rpath,{lib}", f"-Wl,-rpath-link,{lib}"]
    subprocess.run([*words, *link], check=True)
    done = subprocess.run([program, mixed.path, echo.path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


# ---- loaded and unloaded 100 times -----------------------------------------------------------------


@pytest.fixture(scope="module")
def unload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("unload") / "unload"
    source = SUPPORT / "codegen/unload.c"
    words = ["gcc", "-std=gnu99", "-Wall", "-Wextra", "-Werror", source, "-o", program, "-ldl", "-lpthread"]
    subprocess.run(words, check=True)
    return program


def unloaded(unload: Path, package: Path | str, *libraries: Path) -> None:
    done = subprocess.run(
        [unload, package, *libraries],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "ADT_PROGRAM_CACHE": "off"},
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr[-2000:]


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
