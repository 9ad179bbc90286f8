"""Use of libadt_runner from C, from C++ and from Python's ctypes, each in a process of its own."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from test_cpp_runner import NO_DEVICE, Built, Package, built, echo, mixed, symbolic, write_package

import adt
from adt.host import manifest
from adt.host.elf import read_elf
from adt.package.files import MANIFEST
from adt.package.manifest import Entry, TensorSpec, ValueRange
from support.devices.programs import program_output, run_program
from support.models.small import small_model

__all__ = ["built", "echo", "mixed", "symbolic"]

CASES = "support.codegen.c_runner_cases"
TESTS = str(Path(__file__).parents[1])
DOCS = Path(__file__).parents[2] / "docs/runner.md"
C = ["gcc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic"]
CXX = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-Wpedantic", "-Wshadow", "-Wconversion"]


def built_library(built: Built) -> Path:
    return built.installed / "lib" / "libadt_runner.so"


def case(
    built: Built, name: str, environment: dict[str, str] | None = None, cases: str = CASES, **paths: Path
) -> None:
    """Run a function of *cases*, by default of c_runner_cases.py, in a process of its own."""
    arguments = json.dumps({key: str(path) for key, path in paths.items()})
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-m", cases, name, str(built_library(built)), arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": TESTS, "ADT_PROGRAM_CACHE": "off", **(environment or {})},
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def recurrent_module() -> Any:
    from tvm import relax

    def variables(*names: str) -> list[Any]:
        return [relax.Var(name, relax.TensorStructInfo((4,), "float32")) for name in names]

    block = relax.BlockBuilder()
    (x,) = variables("x")
    with block.function("encode", [x]):
        with block.dataflow():
            h = block.emit_output(relax.op.add(x, x))
        block.emit_func_output(h)
    s, h = variables("s", "h")
    with block.function("decode", [s, h]):
        with block.dataflow():
            y = block.emit_output(relax.op.add(s, h))
            t = block.emit_output(relax.op.add(s, relax.const(np.ones(4, "float32"))))
        block.emit_func_output(relax.Tuple([y, t]))
    c = relax.Var("c", relax.TensorStructInfo((5,), "float32"))
    k = relax.Var("k", relax.TensorStructInfo((4,), "int64"))
    with block.function("other", [c, k]):
        with block.dataflow():
            d = block.emit_output(relax.op.add(c, c))
            e = block.emit_output(relax.op.add(k, k))
        block.emit_func_output(relax.Tuple([d, e]))
    return block.get()


@pytest.fixture(scope="session")
def recurrent(tmp_path_factory: pytest.TempPathFactory) -> Package:
    """Build three entries; decode(s, h) = (s + h, s + 1)."""

    def spec(name: str, extent: int = 4, dtype: str = "float32") -> TensorSpec:
        return TensorSpec(name, (extent,), dtype)

    entries = (
        Entry("encode", (spec("x"),), (spec("h"),), ()),
        Entry("decode", (spec("s"), spec("h")), (spec("y"), spec("t")), ()),
        Entry("other", (spec("c", 5), spec("k", 4, "int64")), (spec("d", 5), spec("e", 4, "int64")), ()),
    )
    path = tmp_path_factory.mktemp("packages") / "recurrent"
    package = write_package(path, recurrent_module(), entries[0], {})
    described = dataclasses.replace(package.manifest, entries=entries)
    manifest.write(described, path / MANIFEST)
    return Package(path, described)


@pytest.fixture(scope="session")
def on_opencl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile small_model for this machine's OpenCL."""
    place = tmp_path_factory.mktemp("opencl")
    model = small_model(place / "small.onnx")
    return adt.compile(model, out=place / "small", platform="host", target="opencl", check=False).path


def state_model(path: Path) -> Path:
    """Build (s, h) -> (s + h, s + 1)."""
    dims = (1, 4)
    values = {
        name: helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name in ("s", "h", "y", "t")
    }
    one = helper.make_tensor("one", TensorProto.FLOAT, dims, [1.0] * 4)
    nodes = [helper.make_node("Add", ["s", "h"], ["y"]), helper.make_node("Add", ["s", "one"], ["t"])]
    graph = helper.make_graph(nodes, "state", [values["s"], values["h"]], [values["y"], values["t"]], [one])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.fixture(scope="session")
def state_on_opencl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the state's model for this machine's OpenCL."""
    place = tmp_path_factory.mktemp("opencl")
    model = state_model(place / "state.onnx")
    return adt.compile(model, out=place / "state", platform="host", target="opencl", check=False).path


@pytest.fixture
def opencl_environment(tmp_path: Path) -> dict[str, str]:
    return {"POCL_CACHE_DIR": str(tmp_path / "pocl")}


# ---- the library --------------------------------------------------------------------------------


def declared() -> set[str]:
    """Return the functions of adt_runner.h."""
    header = Path(__file__).parents[2] / "cpp_runner/include/adt/adt_runner.h"
    text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.DOTALL)
    return set(re.findall(r"\b(adt_\w+)\(", text))


def test_the_library_exports_what_its_header_declares(built: Built) -> None:
    library = built_library(built)
    listed = program_output("nm", "-D", "--defined-only", library)
    names = {line.split()[-1] for line in listed.splitlines()} - {"ADT_RUNNER_1"}
    assert names == {f"{name}@@ADT_RUNNER_1" for name in declared()}
    assert "Library soname: [libadt_runner.so]" in program_output("readelf", "-dW", library)


def test_programs_do_not_export_the_implementation(built: Built) -> None:
    assert "3adt" not in program_output("nm", "-D", "--defined-only", built.rtvm)


# ---- ctypes -------------------------------------------------------------------------------------


def test_description(built: Built, mixed: Package, symbolic: Package) -> None:
    case(built, "describe", mixed=mixed.path, symbolic=symbolic.path)


def test_runs(built: Built, mixed: Package) -> None:
    case(built, "runs", mixed=mixed.path)


def test_inputs_that_come_back(built: Built, echo: Package) -> None:
    case(built, "inputs_that_come_back", echo=echo.path)


def test_indices(built: Built, mixed: Package, tmp_path: Path) -> None:
    x, n = mixed.manifest.entries[0].inputs
    values = ValueRange("index", -3, 9)
    package = mixed.with_entry(tmp_path / "p", inputs=(x, dataclasses.replace(n, values=values)))
    case(built, "indices", ranged=package.path)


def test_binding(built: Built, mixed: Package) -> None:
    case(built, "binding", mixed=mixed.path)


def test_symbolic_shapes(built: Built, symbolic: Package) -> None:
    case(built, "shapes", symbolic=symbolic.path)


def test_state_over_entries(built: Built, recurrent: Package) -> None:
    case(built, "state", recurrent=recurrent.path)


def test_memory_files_and_names(built: Built, mixed: Package, tmp_path: Path) -> None:
    case(built, "origins", mixed=mixed.path, tmp=tmp_path)


def test_packages_by_their_names(built: Built, tmp_path: Path) -> None:
    packages = {}
    for name, op in (("first", "Relu"), ("second", "Sigmoid")):
        model = small_model(tmp_path / f"{name}.onnx", op=op)
        packages[name] = adt.compile(model, out=tmp_path / name, platform="host", check=False).path
        library = packages[name] / "mod.so"
        library.rename(library.with_name(read_elf(library).soname))
    environment = {"LD_LIBRARY_PATH": ":".join(map(str, packages.values()))}
    case(built, "names", environment, **packages)


def test_scratch_directory(built: Built, mixed: Package, tmp_path: Path) -> None:
    refusing = tmp_path / "refusing.so"
    code = """
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <errno.h>
        #include <sys/syscall.h>
        long syscall(long number, long a, long b, long c, long d, long e, long f) {
          if (number == SYS_memfd_create) { errno = ENOSYS; return -1; }
          long (*next)(long, ...) = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
          return next(number, a, b, c, d, e, f);
        }
    """
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-ldl", "-o", str(refusing)],
        input=code,
        text=True,
        check=True,
    )
    directory = tmp_path / "scratch"
    directory.mkdir()
    case(built, "scratch", {"LD_PRELOAD": str(refusing)}, mixed=mixed.path, tmp=directory)


def test_sessions(built: Built, mixed: Package, recurrent: Package) -> None:
    case(built, "sessions", mixed=mixed.path, recurrent=recurrent.path)


def test_threads(built: Built, mixed: Package) -> None:
    case(built, "threads", mixed=mixed.path)


def test_thread_count_and_affinity(built: Built, mixed: Package) -> None:
    case(built, "thread_count", mixed=mixed.path)


def test_mistakes(built: Built, mixed: Package) -> None:
    case(built, "mistakes", mixed=mixed.path)


def test_structs_grow(built: Built, mixed: Package) -> None:
    case(built, "growth", mixed=mixed.path)


def test_a_model_that_fails(built: Built, mixed: Package, tmp_path: Path) -> None:
    fewer = mixed.with_entry(tmp_path / "fewer", outputs=mixed.manifest.entries[0].outputs[:1])
    case(built, "a_model_that_fails", fewer=fewer.path)


def test_opencl(
    built: Built, on_opencl: Path, state_on_opencl: Path, opencl_environment: dict[str, str]
) -> None:
    case(built, "on_opencl", opencl_environment, opencl=on_opencl, recurrent=state_on_opencl)


def test_one_of_several_devices(
    built: Built, on_opencl: Path, opencl_environment: dict[str, str], tmp_path: Path
) -> None:
    environment = {**opencl_environment, "POCL_DEVICES": "basic pthread"}
    case(built, "several_devices", environment, opencl=on_opencl, tmp=tmp_path)
    report = built.run("--model", on_opencl, "--device", "opencl:1", "--json", env=environment)
    assert report.code == 0 and json.loads(report.out)["device"]["name"].startswith("pthread"), report.err
    refused = built.run("--model", on_opencl, "--device", "opencl:2", env=environment)
    refused.refused(NO_DEVICE, "no device opencl:2")


def test_kernels_are_kept(
    built: Built, on_opencl: Path, opencl_environment: dict[str, str], tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    case(built, "kernels_are_kept", opencl_environment, opencl=on_opencl, tmp=kept)


def test_programs_are_built_when_a_package_is_loaded(
    built: Built, on_opencl: Path, opencl_environment: dict[str, str], tmp_path: Path
) -> None:
    case(built, "programs_are_built", opencl_environment, opencl=on_opencl, tmp=tmp_path)


# ---- C and C++ ----------------------------------------------------------------------------------


def compiled(compiler: list[str], source: str, built: Built, place: Path) -> Path:
    """Compile *source* to a program with the bundle's headers and library."""
    lib, program = built.installed / "lib", place / "program"
    file = place / ("main.c" if compiler is C else "main.cc")
    file.write_text(source)
    command = [
        *compiler, f"-I{built.installed / 'include'}", str(file), "-o", str(program), f"-L{lib}", "-ladt_runner",
        f"-Wl,-rpath,{lib}", f"-Wl,-rpath-link,{lib}",
    ]  # fmt: skip
    run_program(*command)
    return program


def ran(program: Path, *arguments: Path | str, **environment: str) -> str:
    return program_output(program, *arguments, **{"ADT_PROGRAM_CACHE": "off", **environment})


def example(language: str) -> str:
    """Return the complete program of that language in docs/runner.md."""
    programs = re.findall(rf"```{language}\n(.*?)```", DOCS.read_text(), flags=re.DOTALL)
    (program,) = [text for text in programs if "int main" in text]
    return str(program)


@pytest.mark.parametrize(
    ("language", "compiler"),
    [("c", C), ("cpp", ["g++", *CXX]), ("cpp", ["clang++", *CXX])],
    ids=["c", "g++", "clang++"],
)
def test_the_example(
    built: Built, mixed: Package, tmp_path: Path, language: str, compiler: list[str]
) -> None:
    program = compiled(compiler, example(language), built, tmp_path)
    assert ran(program, mixed.path) == "1.57143\n"
    done = subprocess.run([program, "/no/such"], capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "/no/such/mod.json does not exist" in done.stderr


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_the_example_of_androids_memory(
    built: Built, on_opencl: Path, opencl_environment: dict[str, str], tmp_path: Path, compiler: str
) -> None:
    (example,) = re.findall(r"```cpp\n(// AHardwareBuffer.*?)```", DOCS.read_text(), flags=re.DOTALL)
    (tmp_path / "example.inc").write_text(example)
    on_cpu = adt.compile(
        small_model(tmp_path / "small.onnx"), out=tmp_path / "cpu", platform="host", check=False
    ).path
    support = Path(TESTS) / "support"
    headers = support / "standins/libandroid/include", adt.source().path / "3rdparty/OpenCL-Headers"
    words = [compiler, *CXX, *(f"-isystem{path}" for path in headers), "-Wl,--no-as-needed,-l:libOpenCL.so.1"]
    program = compiled(words, (support / "codegen/hardware_buffer.cc").read_text(), built, tmp_path)
    assert ran(program, on_cpu, on_opencl, **opencl_environment) == "done\n"


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_the_class(
    built: Built,
    mixed: Package,
    recurrent: Package,
    symbolic: Package,
    on_opencl: Path,
    tmp_path: Path,
    compiler: str,
) -> None:
    source = (Path(__file__).parents[1] / "support/codegen/runner_class.cc").read_text()
    program = compiled([compiler, *CXX], source, built, tmp_path)
    assert ran(program, mixed.path, recurrent.path, symbolic.path, on_opencl) == "done\n"
