"""Use of libadt_runner from C, from C++ and from Python's ctypes, each in a process of its own."""

import dataclasses
import importlib
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_cpp_runner import NO_DEVICE, Built, Package, built, echo, mixed, symbolic, write_package

import adt
from adt.host import manifest
from adt.host.elf import read_elf
from adt.package.files import MANIFEST
from adt.package.manifest import Entry, TensorSpec, ValueRange
from support.devices.programs import program_output, run_program, try_program
from support.models.onnx_graphs import graph_of, node, write
from support.models.small import small_model

__all__ = ["built", "echo", "mixed", "symbolic"]

CASES = "support.codegen.c_runner_cases"
TESTS = str(Path(__file__).parents[1])
DOCS = Path(__file__).parents[2] / "docs/runner.md"
C = ["gcc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic"]
CXX = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-Wpedantic", "-Wshadow", "-Wconversion"]


def built_library(built: Built) -> Path:
    return built.installed / "lib" / "libadt_runner.so"


Case = Callable[..., None]


@pytest.fixture
def case(request: pytest.FixtureRequest, built: Built) -> Case:
    """Return what runs a function of the module's CASES in a process of its own.

    The function's arguments are paths: those that are given, and of the others the fixtures of their names.
    """
    cases = importlib.import_module(request.module.CASES)

    def run(name: str, environment: dict[str, str] | None = None, **paths: Path) -> None:
        names = list(inspect.signature(getattr(cases, name)).parameters)[1:]
        values = {each: paths.get(each) or request.getfixturevalue(each) for each in names}
        arguments = json.dumps({each: str(getattr(value, "path", value)) for each, value in values.items()})
        own = {"PYTHONPATH": TESTS, "ADT_PROGRAM_CACHE": "off", **(environment or {})}
        words = ("-X", "faulthandler", "-m", cases.__name__, name, built_library(built), arguments)
        done = try_program(sys.executable, *words, **own)
        assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr

    return run


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
    place = tmp_path_factory.mktemp("opencl")
    model = small_model(place / "small.onnx")
    return adt.compile(model, out=place / "small", platform="host", target="opencl", check=False).path


def state_model(path: Path) -> Path:
    """Build (s, h) -> (s + h, s + 1)."""
    nodes = [node("Add", ["s", "h"], ["y"]), node("Add", ["s", "one"], ["t"])]
    ones = np.ones((1, 4), np.float32)
    return write(graph_of(nodes, {"s": (1, 4), "h": (1, 4)}, ["y", "t"], {"one": ones}), path)


@pytest.fixture(scope="session")
def state_on_opencl(tmp_path_factory: pytest.TempPathFactory) -> Path:
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


@pytest.fixture
def ranged(mixed: Package, tmp_path: Path) -> Package:
    """Return *mixed*, whose input n has indices from -3 to 9."""
    x, n = mixed.manifest.entries[0].inputs
    values = ValueRange("index", -3, 9)
    return mixed.with_entry(tmp_path / "p", inputs=(x, dataclasses.replace(n, values=values)))


@pytest.fixture
def fewer(mixed: Package, tmp_path: Path) -> Package:
    """Return *mixed* without the description of its second output."""
    return mixed.with_entry(tmp_path / "fewer", outputs=mixed.manifest.entries[0].outputs[:1])


@pytest.mark.parametrize(
    "name",
    [
        "describe", "runs", "inputs_that_come_back", "indices", "binding", "shapes", "state", "origins", "sessions",
        "threads", "thread_count", "mistakes", "growth", "a_model_that_fails",
    ],
)  # fmt: skip
def test_the_c_interface(case: Case, name: str) -> None:
    case(name)


def test_packages_by_their_names(case: Case, tmp_path: Path) -> None:
    packages = {}
    for name, op in (("first", "Relu"), ("second", "Sigmoid")):
        model = small_model(tmp_path / f"{name}.onnx", op=op)
        packages[name] = adt.compile(model, out=tmp_path / name, platform="host", check=False).path
        library = packages[name] / "mod.so"
        library.rename(library.with_name(read_elf(library).soname))
    environment = {"LD_LIBRARY_PATH": ":".join(map(str, packages.values()))}
    case("names", environment, **packages)


def test_scratch_directory(case: Case, tmp_path: Path) -> None:
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
    words = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-ldl", "-o", str(refusing)]
    subprocess.run(words, input=code, text=True, check=True)
    directory = tmp_path / "scratch"
    directory.mkdir()
    case("scratch", {"LD_PRELOAD": str(refusing)}, tmp_path=directory)


def test_opencl(case: Case, state_on_opencl: Path, opencl_environment: dict[str, str]) -> None:
    case("runs_on_opencl", opencl_environment, recurrent=state_on_opencl)


def test_one_of_several_devices(
    built: Built, case: Case, on_opencl: Path, opencl_environment: dict[str, str]
) -> None:
    environment = {**opencl_environment, "POCL_DEVICES": "basic pthread"}
    case("several_devices", environment)
    report = built.run("--model", on_opencl, "--device", "opencl:1", "--json", env=environment)
    assert report.json["device"]["name"].startswith("pthread"), report.err
    refused = built.run("--model", on_opencl, "--device", "opencl:2", env=environment)
    refused.refused(NO_DEVICE, "no device opencl:2")


@pytest.mark.parametrize("name", ["kernels_are_kept", "programs_are_built"])
def test_compiled_kernels(case: Case, opencl_environment: dict[str, str], tmp_path: Path, name: str) -> None:
    (tmp_path / "kept").mkdir()
    case(name, opencl_environment, tmp_path=tmp_path / "kept")


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
    done = try_program(program, "/no/such")
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
