"""The C++ library and rtvm, built for this machine by the superbuild and run on packages made here.

The build takes minutes once; adt's cache keeps it between sessions.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
import shlex
import shutil
import struct
import subprocess
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adt
from adt.bundle.bundle import load_bundle
from adt.host import manifest
from adt.host.cache import file_sha256
from adt.host.directories import resource
from adt.host.elf import read_elf
from adt.host.process import ninja
from adt.options.sections import FILL_MODES
from adt.package.files import LIBRARY, MANIFEST, PARAMS, write_params
from adt.package.inputs.random import random_inputs
from adt.package.manifest import (
    Entry,
    PackageFile,
    PackageManifest,
    PackageTarget,
    PackageTvm,
    SourceModel,
    TensorSpec,
    ValueRange,
)
from support.devices.programs import Finished, program_output, try_program

USAGE, PACKAGE, INPUT, RUN, MISMATCH, NO_DEVICE, DEVICE_LOST, OUT_OF_MEMORY = range(2, 10)
HEADERS = {
    f"include/adt/{name}"
    for name in ("adt_runner.h", "image.h", "image_filter.h", "runner.h", "tensor.h", "typed_runner.h")
}
BUILD_FILES = {
    "lib/cmake/adt_runner/adt_runnerConfig.cmake", "lib/cmake/adt_runner/adt_runnerConfigVersion.cmake",
    "lib/pkgconfig/adt_runner.pc",
}  # fmt: skip
LICENSES = {
    f"licenses/{name}"
    for name in (
        "dlpack/LICENSE", "tvm/LICENSE", "tvm/LICENSE.builtin_fp16.txt", "tvm/NOTICE", "tvm-ffi/LICENSE", "tvm-ffi/NOTICE",
    )
}  # fmt: skip
DTYPES = (
    "float16", "float32", "float64", "int8", "int16", "int32", "int64",
    "uint8", "uint16", "uint32", "uint64", "bool",
)  # fmt: skip
SEED = 11


# ---- the build --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Built:
    """The files that the superbuild made."""

    build: Path
    installed: Path

    @property
    def rtvm(self) -> Path:
        return self.installed / "bin" / "rtvm"

    def run(self, *arguments: str | Path, env: dict[str, str] | None = None) -> Finished:
        return Finished.of(self.rtvm, *arguments, **(env or {}))


@pytest.fixture(scope="session")
def built() -> Built:
    """Build the `host` bundle (in seconds, when it was built before)."""
    result = adt.build_target(platform="host")
    return Built(result.build_dir, result.bundle.path)


def compile_commands(build: Path) -> dict[str, str]:
    """Return the command line that compiles each object of our own code in a build directory."""
    return {
        command["output"]: command["command"]
        for command in json.loads(program_output(ninja().path, "-C", build, "-t", "compdb"))
        if command["output"].startswith("cpp_runner/") and command["output"].endswith(".o")
    }


def test_our_code_compiles_without_a_warning(built: Built) -> None:
    """Fail on warnings here, not in a user's build with a compiler that we have not seen.

    Those of clang are in the build of the programs with sanitizers.
    """
    commands = compile_commands(built.build)
    targets = {Path(output).parts[2].removesuffix(".dir") for output in commands}
    assert targets >= {"adt_runner", "adt_runner_core", "adt_timed_runs", "adt_probe", "rtvm"}

    def warnings(command: str) -> str:
        words = [word for word in shlex.split(command) if Path(word).name not in ("ccache", "sccache")]
        words += ["-Werror", "-fsyntax-only"]
        done = try_program(*words, cwd=built.build)
        return done.stderr if done.returncode else ""

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        texts = dict(zip(commands, pool.map(warnings, commands.values()), strict=True))
    assert {output: text for output, text in texts.items() if text} == {}


def test_install_holds_the_bundle_and_nothing_else(built: Built) -> None:
    files = {p.relative_to(built.installed).as_posix() for p in built.installed.rglob("*") if p.is_file()}
    files.remove("bundle.json")
    assert files == {
        "bin/adt_probe", "bin/rtvm", "bin/tvm_rpc", "lib/libadt_runner.so", "lib/libtvm_ffi.so", "lib/libtvm_runtime.so",
        *HEADERS, *BUILD_FILES, *LICENSES,
    }  # fmt: skip
    files -= HEADERS | BUILD_FILES | LICENSES
    assert set(load_bundle(built.installed).manifest.files) == files
    for file in files:
        runpath = read_elf(built.installed / file).runpath
        assert runpath == ("$ORIGIN/../lib" if file.startswith("bin/") else "$ORIGIN")


def test_binaries_do_not_know_where_they_were_built(built: Built) -> None:
    for file in built.installed.rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            for place in (built.build, resource("cpp_runner")):
                assert str(place).encode() not in content, file


def test_the_bundle_says_what_the_runner_does(built: Built) -> None:
    bundle = load_bundle(built.installed).manifest
    version = built.run("--version", "--json").json
    assert version["schema"] == "adt.rtvm-version"
    assert version["context_symbols"] == list(bundle.context_symbols)
    assert "__TVMFFIEnvModLookupFromImports" in version["context_symbols"]
    assert version["alignment"] == bundle.options.alignment == 64
    assert version["tvm_version"] == bundle.tvm.version
    assert version["machine"] == bundle.machine
    assert version["devices"] == ["cpu", "opencl"]


# ---- packages ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Package:
    """A package on disk; `changed` makes others from it."""

    path: Path
    manifest: PackageManifest

    def changed(self, to: Path, **changes: Any) -> Package:
        """Copy the package to *to* with *changes* of its mod.json."""
        shutil.copytree(self.path, to)
        described = dataclasses.replace(self.manifest, **changes)
        manifest.write(described, to / MANIFEST)
        return Package(to, described)

    def with_file(self, to: Path, name: str, content: bytes) -> Package:
        """Copy the package to *to* with other content of the file *name*, and its hash in mod.json."""
        shutil.copytree(self.path, to)
        (to / name).write_bytes(content)
        files = {
            file: PackageFile(file_sha256(to / file), (to / file).stat().st_size)
            for file in (LIBRARY, PARAMS)
        }
        described = dataclasses.replace(self.manifest, files=files)
        manifest.write(described, to / MANIFEST)
        return Package(to, described)

    def with_entry(self, to: Path, **changes: Any) -> Package:
        return self.changed(to, entries=(dataclasses.replace(self.manifest.entries[0], **changes),))


def write_package(path: Path, module: Any, entry: Entry, params: dict[str, Any]) -> Package:
    import tvm
    import tvm_ffi

    path.mkdir(parents=True)
    tvm.compile(module, tvm.target.Target({"kind": "llvm"})).export_library(str(path / LIBRARY))
    write_params(params, path / PARAMS, alignment=64)
    elf = read_elf(path / LIBRARY)
    described = PackageManifest(
        adt_version="0.1.0",
        name=path.name,
        source=SourceModel("made-here.onnx", "onnx", "0" * 64),
        entries=(entry,),
        target=PackageTarget("cpu", "cpu", "host", "x86_64", elf.machine, {"kind": "llvm"}, ("cpu",)),
        tvm=PackageTvm(
            tvm.__version__, tvm_ffi.__version__, tuple(n for n in elf.objects if n.startswith("__TVM"))
        ),
        alignment=64,
        precision="float32",
        offload="none",
        kernels=(),
        tuned=0,
        total=0,
        files={
            name: PackageFile(file_sha256(path / name), (path / name).stat().st_size)
            for name in (LIBRARY, PARAMS)
        },
    )
    manifest.write(described, path / MANIFEST)
    return Package(path, described)


@pytest.fixture(scope="session")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Package:
    """Compile ``y = relu(x @ weight), m = n + n``: two inputs, one parameter, a tuple."""
    import tvm
    from tvm import relax

    x = relax.Var("x", relax.TensorStructInfo((2, 3), "float32"))
    n = relax.Var("n", relax.TensorStructInfo((4,), "int64"))
    weight = relax.Var("weight", relax.TensorStructInfo((3, 5), "float32"))
    block = relax.BlockBuilder()
    with block.function("main", [x, n, weight]):
        with block.dataflow():
            y = block.emit_output(relax.op.nn.relu(block.emit(relax.op.matmul(x, weight))))
            m = block.emit_output(relax.op.add(n, n))
        block.emit_func_output(relax.Tuple([y, m]))
    entry = Entry(
        "main",
        (TensorSpec("x", (2, 3), "float32"), TensorSpec("n", (4,), "int64")),
        (TensorSpec("y", (2, 5), "float32"), TensorSpec("m", (4,), "int64")),
        ("weight",),
    )
    path = tmp_path_factory.mktemp("packages") / "mixed"
    return write_package(path, block.get(), entry, {"weight": tvm.runtime.tensor(WEIGHT)})


WEIGHT = np.linspace(-1, 1, 15, dtype="float32").reshape(3, 5)


@pytest.fixture(scope="session")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Package:
    """Build a package that returns an array of each type, a scalar and an empty one, and a relu."""
    from tvm import relax

    specs = [TensorSpec(f"in_{dtype}", (3, 2, 4), dtype) for dtype in DTYPES]
    specs += [TensorSpec("in_scalar", (), "float32"), TensorSpec("in_empty", (0, 3), "int32")]
    ranges = {"int64": ValueRange("index", -70000, 69999), "uint8": ValueRange("usual", 0, 1)}
    specs += [TensorSpec(f"in_range_{dtype}", (64,), dtype, values) for dtype, values in ranges.items()]
    specs.append(TensorSpec("in_length", (64,), "int32", ValueRange("usual", 1, 17)))
    variables = [relax.Var(s.name, relax.TensorStructInfo(s.shape, s.dtype)) for s in specs]
    block = relax.BlockBuilder()
    with block.function("main", variables):
        with block.dataflow():
            relu = block.emit_output(relax.op.nn.relu(variables[DTYPES.index("float32")]))
        block.emit_func_output(relax.Tuple([*variables, relu]))
    outputs = tuple(TensorSpec(s.name.replace("in_", "out_"), s.shape, s.dtype) for s in specs)
    entry = Entry("main", tuple(specs), (*outputs, TensorSpec("relu", (3, 2, 4), "float32")), ())
    return write_package(tmp_path_factory.mktemp("packages") / "echo", block.get(), entry, {})


@pytest.fixture(scope="session")
def symbolic(tmp_path_factory: pytest.TempPathFactory) -> Package:
    """Compile ``z = a + b`` for any common length, one tensor and no tuple."""
    import tvm
    from tvm import relax

    n = tvm.tirx.Var("n", "int64")
    a, b = (relax.Var(name, relax.TensorStructInfo((n,), "float32")) for name in "ab")
    block = relax.BlockBuilder()
    with block.function("main", [a, b]):
        with block.dataflow():
            z = block.emit_output(relax.op.add(a, b))
        block.emit_func_output(z)
    inputs = (TensorSpec("a", ("n",), "float32"), TensorSpec("b", ("n",), "float32"))
    entry = Entry("main", inputs, (TensorSpec("z", ("n",), "float32"),), ())
    return write_package(tmp_path_factory.mktemp("packages") / "symbolic", block.get(), entry, {})


@pytest.fixture
def arrays(mixed: Package) -> dict[str, np.ndarray[Any, Any]]:
    return dict(random_inputs(mixed.manifest.entries[0].inputs, SEED))


# ---- runs -------------------------------------------------------------------------------------


def test_file_in_file_out(built: Built, mixed: Package, arrays: dict[str, Any], tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", **arrays)
    done = built.run(
        "--model",
        mixed.path,
        "--device=cpu",
        "--input",
        tmp_path / "in.npz",
        "--output",
        tmp_path / "out.npz",
    )
    assert done.code == 0, done.err
    assert "host clock" in done.out
    with np.load(tmp_path / "out.npz") as outputs:
        assert list(outputs) == ["y", "m"]
        np.testing.assert_allclose(outputs["y"], np.maximum(arrays["x"] @ WEIGHT, 0), rtol=1e-6, atol=1e-6)
        assert outputs["m"].tolist() == (arrays["n"] * 2).tolist()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.npz", "out.npz"]


def test_json_document(built: Built, mixed: Package, arrays: dict[str, Any], tmp_path: Path) -> None:
    done = built.run(
        "--model", mixed.path, "--seed", str(SEED), "--dry-run", "2", "--run-count", "3",
        "--output", tmp_path / "out.npz", "--json",
    )  # fmt: skip
    document = json.loads(done.out)
    assert done.err == ""
    assert document["schema"] == "adt.rtvm-run"
    assert document["schema_version"] == 2
    assert document["clock"] == "host-clock"
    assert document["warmup_runs"] == 2
    assert len(document["run_ms"]) == 3
    assert document["load_ms"] > 0
    assert document["seed"] == SEED
    assert document["device"]["kind"] == "cpu"
    assert document["device"]["name"]
    assert document["runner"]["alignment"] == 64
    assert "__TVMBackendAllocWorkspace" in document["runner"]["context_symbols"]
    assert document["inputs"][0]["sha256"] == hashlib.sha256(arrays["x"].tobytes()).hexdigest()
    with np.load(tmp_path / "out.npz") as outputs:
        for output in document["outputs"]:
            array = outputs[output["name"]]
            assert output["shape"] == list(array.shape)
            assert output["dtype"] == array.dtype.name
            assert output["sha256"] == hashlib.sha256(array.tobytes()).hexdigest()


@pytest.mark.parametrize(
    ("seed", "fill_mode"),
    [*((seed, "random") for seed in (0, 1, 2**64 - 1)), *((None, mode) for mode in FILL_MODES[1:])],
)
def test_made_up_inputs_are_pythons(built: Built, echo: Package, seed: int | None, fill_mode: str) -> None:
    words = ("--fill-mode", fill_mode) if seed is None else ("--seed", str(seed))
    document = built.run("--model", echo.path, *words, "--json").json
    assert (document["fill_mode"], document["seed"]) == (fill_mode, seed)
    expected = random_inputs(echo.manifest.entries[0].inputs, seed or 0, fill_mode)
    assert [i["name"] for i in document["inputs"]] == list(expected)
    for recorded in document["inputs"]:
        array = expected[recorded["name"]]
        assert recorded["dtype"] == array.dtype.name
        assert recorded["sha256"] == hashlib.sha256(array.tobytes()).hexdigest(), recorded


FORMS: dict[str, Callable[[Any], Any]] = {
    "c-order": lambda a: a,
    "fortran-order": lambda a: np.array(a, order="F"),
    "big-endian": lambda a: a.astype(a.dtype.newbyteorder(">")),
    "big-endian-fortran": lambda a: np.array(a, a.dtype.newbyteorder(">"), order="F"),
}


@pytest.mark.parametrize("form", list(FORMS))
def test_npz_round_trip(built: Built, echo: Package, tmp_path: Path, form: str) -> None:
    entry = echo.manifest.entries[0]
    inputs = dict(random_inputs(entry.inputs, SEED))
    special = [np.nan, np.inf, -np.inf, -0.0, 5e-324, np.finfo("float64").max]
    inputs["in_float64"] = np.resize(special, (3, 2, 4))
    in_file, got_file = tmp_path / "in.npz", tmp_path / "out.npz"
    np.savez(in_file, **{name: FORMS[form](array) for name, array in inputs.items()})
    done = built.run("--model", echo.path, "--input", in_file, "--output", got_file)
    assert done.code == 0, done.err
    with np.load(got_file) as outputs:
        assert list(outputs) == [spec.name for spec in entry.outputs]
        for name, array in inputs.items():
            back = outputs[name.replace("in_", "out_")]
            assert back.dtype == array.dtype
            assert back.shape == array.shape
            assert back.tobytes() == array.tobytes(), name


def test_symbolic_shapes_come_from_the_file(built: Built, symbolic: Package, tmp_path: Path) -> None:
    for length in (1, 17):
        a = np.arange(length, dtype="float32")
        np.savez(tmp_path / "in.npz", a=a, b=a)
        built.run("--model", symbolic.path, "--input", tmp_path / "in.npz", "--output", tmp_path / "out.npz")
        with np.load(tmp_path / "out.npz") as outputs:
            assert outputs["z"].tolist() == (a + a).tolist()


def test_a_thread_takes_what_a_slower_one_has_not_begun(built: Built, tmp_path: Path) -> None:
    """Store in each of 64 steps the thread that took it; the first one takes a second."""
    package = write_package(tmp_path / "steps", slow_first_step(), STEPS, {})
    run = built.run("--model", package.path, "--threads", "2", "--output", tmp_path / "out.npz")
    assert run.code == 0, run.err
    threads = np.load(tmp_path / "out.npz")["threads"]
    assert len(set(threads)) == 2
    assert (threads == threads[0]).sum() < len(threads) // 2


STEPS = Entry("main", (TensorSpec("x", (64,), "int32"),), (TensorSpec("threads", (64,), "int32"),), ())


def slow_first_step() -> Any:
    from tvm import relax
    from tvm.script import tirx as T

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def steps(x: T.Buffer((64,), "int32"), threads: T.Buffer((64,), "int32")) -> None:  # type: ignore[valid-type]
        for i in T.parallel(64):
            T.evaluate(T.call_extern("int32", "usleep", T.if_then_else(i == 0, 1_000_000 + x[i] * 0, 0)))
            threads[i] = T.call_extern("int32", "gettid")

    block = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo((64,), "int32"))
    with block.function("main", [x]):
        with block.dataflow():
            result = relax.TensorStructInfo((64,), "int32")
            y = block.emit_output(relax.call_tir(block.add_func(steps, "steps"), [x], result))
        block.emit_func_output(y)
    return block.get()


@pytest.fixture(scope="session")
def large(tmp_path_factory: pytest.TempPathFactory) -> Package:
    """Compile y = x + the largest element of each of 16 parameters of 4 MiB, which are zeros."""
    import tvm
    from tvm import relax

    x = relax.Var("x", relax.TensorStructInfo((1,), "float32"))
    names = tuple(f"weight{i}" for i in range(16))
    weights = [relax.Var(name, relax.TensorStructInfo((1 << 20,), "float32")) for name in names]
    block = relax.BlockBuilder()
    with block.function("main", [x, *weights]):
        with block.dataflow():
            y = x
            for weight in weights:
                y = block.emit(relax.op.add(block.emit(relax.op.max(weight)), y))
            y = block.emit_output(y)
        block.emit_func_output(y)
    spec = TensorSpec("x", (1,), "float32")
    entry = Entry("main", (spec,), (dataclasses.replace(spec, name="y"),), names)
    params = {name: tvm.runtime.tensor(np.zeros(1 << 20, np.float32)) for name in names}
    return write_package(tmp_path_factory.mktemp("large") / "large", block.get(), entry, params)


def test_parameters_are_in_memory_once(built: Built, large: Package) -> None:
    memory = built.run("--model", large.path, "--json").json["memory"]
    of_file = (memory["peak_kb"] - memory["before_load_kb"]) * 1024 / (large.path / PARAMS).stat().st_size
    assert 1 <= of_file < 1.3


def test_dump_meta(built: Built, mixed: Package) -> None:
    meta = built.run("--model", mixed.path, "--dump-meta", "--json").json
    assert meta["schema"] == "adt.rtvm-meta"
    assert meta["entries"][0]["inputs"][0] == {"name": "x", "shape": [2, 3], "dtype": "float32"}
    text = built.run("--model", mixed.path, "--dump-meta")
    assert "x float32[2, 3]" in text.out


# ---- refusals: the command line ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ((), "no package given"),
        (("--model",), "--model needs a value"),
        (("--nonsense",), "unknown option --nonsense"),
        (("--json=1", "--model", "x"), "--json takes no value"),
        (("--model", "x", "--run-count", "0"), "--run-count"),
        (("--model", "x", "--run-count", "1e3"), "'1e3'"),
        (("--model", "x", "--dry-run", "-1"), "'-1'"),
        (("--model", "x", "--seed", "18446744073709551616"), "--seed"),
        (("--model", "x", "--device", "tpu"), "cpu, opencl or cuda"),
    ],
)
def test_wrong_command_line(built: Built, arguments: tuple[str, ...], word: str) -> None:
    built.run(*arguments).refused(USAGE, word, "--help")


def test_unknown_entry(built: Built, mixed: Package) -> None:
    built.run("--model", mixed.path, "--entry", "other").refused(USAGE, "no entry other", "It has: main")


# ---- refusals: the package --------------------------------------------------------------------


def test_no_package(built: Built, tmp_path: Path) -> None:
    built.run("--model", tmp_path).refused(PACKAGE, "mod.json", "does not exist")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"schema_version": 1}, ("schema version 1", "reads 2 to 5")),
        ({"schema_version": 6}, ("schema version 6", "reads 2 to 5")),
        ({"requires": ("sparse weights",)}, ("requires sparse weights",)),
        ({"alignment": 128}, ("128 bytes", "64")),
    ],
)
def test_packages_for_another_runner(
    built: Built, mixed: Package, tmp_path: Path, changes: dict[str, Any], words: tuple[str, ...]
) -> None:
    package = mixed.changed(tmp_path / "p", **changes)
    built.run("--model", package.path).refused(MISMATCH, *words, "adt build-target")


def edited(mixed: Package, path: Path, edit: Callable[[dict[str, Any]], Any]) -> Path:
    """Copy the package to *path* and let *edit* change its mod.json."""
    shutil.copytree(mixed.path, path)
    described = json.loads((path / MANIFEST).read_text())
    edit(described)
    (path / MANIFEST).write_text(json.dumps(described))
    return path


def as_version_2(described: dict[str, Any]) -> None:
    described["schema_version"] = 2
    del described["entries"][0]["images"]


def with_newer_fields(described: dict[str, Any]) -> None:
    entry = described["entries"][0]
    for part in (described, described["target"], entry, entry["inputs"][0]):
        part["of a newer adt"] = {"any": ["value", 1]}


@pytest.mark.parametrize("edit", [as_version_2, with_newer_fields, lambda j: j.update(alignment=16)])
def test_manifests_that_are_read(
    built: Built, mixed: Package, tmp_path: Path, edit: Callable[[dict[str, Any]], Any]
) -> None:
    assert built.run("--model", edited(mixed, tmp_path / "p", edit)).code == 0


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda j: j.update(schema="adt.target-bundle"), ("schema is not adt.model-package",)),
        (lambda j: j.pop("entries"), ("entries is missing",)),
        (lambda j: j.update(requires=[1]), ("requires holds",)),
        (lambda j: j.update(alignment="64"), ("alignment is not an integer",)),
        (lambda j: j.update(alignment=True), ("alignment is not an integer",)),
        (lambda j: j["target"].update(machine=None), ("target.machine is not a string",)),
        (lambda j: j["entries"][0]["inputs"][1].update(shape=[1.5]), ("inputs[1].shape holds",)),
        (lambda j: j["entries"][0]["inputs"][0].update(shape=[-1]), ("negative extent",)),
        (
            lambda j: j["entries"][0]["inputs"][1].update(values={"meaning": "x", "least": 0, "most": 1}),
            ("inputs[1].values.meaning is none of",),
        ),
        (
            lambda j: j["entries"][0]["inputs"][1].update(values={"meaning": "index", "least": 0}),
            ("values.most is missing",),
        ),
        (lambda j: j["entries"][0].update(params=[1]), ("params holds",)),
        (lambda j: j["entries"][0].pop("images"), ("entries[0].images is missing",)),
        (
            lambda j: j["entries"][0].update(images=["other"]),
            ("images lists other, which is none of params",),
        ),
        (lambda j: j["entries"][0].update(images=["weight"]), ("entries have images", "target is cpu")),
        (lambda j: j["files"].pop("mod.so"), ("files does not list mod.so",)),
        (lambda j: j["files"].update({"../x": j["files"]["mod.so"]}), ("files lists ../x",)),
    ],
)
def test_wrong_field(
    built: Built,
    mixed: Package,
    tmp_path: Path,
    edit: Callable[[dict[str, Any]], Any],
    words: tuple[str, ...],
) -> None:
    package = edited(mixed, tmp_path / "p", edit)
    built.run("--model", package).refused(PACKAGE, "mod.json: ", *words)


@pytest.mark.parametrize("text", ["", "{", "[]", "not json", '{"schema": '])
def test_manifest_that_is_no_json_object(built: Built, mixed: Package, tmp_path: Path, text: str) -> None:
    shutil.copytree(mixed.path, tmp_path / "p")
    (tmp_path / "p" / MANIFEST).write_text(text)
    built.run("--model", tmp_path / "p").refused(PACKAGE, "JSON")


def test_machine(built: Built, mixed: Package, tmp_path: Path) -> None:
    library = bytearray((mixed.path / LIBRARY).read_bytes())
    struct.pack_into("<H", library, 18, 183)  # e_machine: EM_AARCH64
    package = mixed.with_file(tmp_path / "p", LIBRARY, bytes(library))
    built.run("--model", package.path).refused(MISMATCH, "is for AARCH64", "adt compile --for")


def test_context_symbols(built: Built, mixed: Package, tmp_path: Path) -> None:
    tvm = PackageTvm("0.99", "0.9", ("__TVMBackendAllocWorkspace", "__TVMOfAnotherAge"))
    package = mixed.changed(tmp_path / "p", tvm=tvm)
    done = built.run("--model", package.path)
    done.refused(MISMATCH, "TVM 0.99", "__TVMOfAnotherAge")
    assert "__TVMBackendAllocWorkspace" not in done.err


@pytest.mark.parametrize("name", [LIBRARY, PARAMS])
def test_hash(built: Built, mixed: Package, tmp_path: Path, name: str) -> None:
    shutil.copytree(mixed.path, tmp_path / "p")
    file = tmp_path / "p" / name
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    built.run("--model", tmp_path / "p").refused(PACKAGE, name, "sha256", "adt deploy")
    file.write_bytes(content + b"\0")
    built.run("--model", tmp_path / "p").refused(PACKAGE, name, "size", "adt deploy")


@pytest.mark.parametrize("name", [LIBRARY, PARAMS])
def test_missing_file(built: Built, mixed: Package, tmp_path: Path, name: str) -> None:
    shutil.copytree(mixed.path, tmp_path / "p")
    (tmp_path / "p" / name).unlink()
    built.run("--model", tmp_path / "p").refused(PACKAGE, name)


def test_device_that_the_runner_does_not_know(built: Built, mixed: Package, tmp_path: Path) -> None:
    target = dataclasses.replace(mixed.manifest.target, device="npu", vdevices=("npu",))
    built.run("--model", mixed.changed(tmp_path / "p", target=target).path).refused(
        NO_DEVICE, "npu", "cpu, opencl"
    )


def test_device_that_is_not_there(built: Built, mixed: Package, tmp_path: Path) -> None:
    target = dataclasses.replace(mixed.manifest.target, device="opencl", vdevices=("opencl",))
    package = mixed.changed(tmp_path / "p", target=target)
    blind = tmp_path / "no-opencl"  # files of those names, no libraries: the search ends at them
    blind.mkdir()
    (blind / "libOpenCL.so").write_text("not a library")
    (blind / "libOpenCL.so.1").write_text("not a library")
    done = built.run(
        "--model", package.path, env={"LD_LIBRARY_PATH": str(blind), "OCL_ICD_VENDORS": str(blind)}
    )
    done.refused(NO_DEVICE, "opencl", "libOpenCL.so", "compile the model for cpu")


def compiled_library(directory: Path, source: str) -> bytes:
    (directory / "lib.c").write_text(source)
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-o", str(directory / "lib.so"), str(directory / "lib.c")], check=True
    )
    return (directory / "lib.so").read_bytes()


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        (LIBRARY, b"MZ", ("no ELF library",)),
        (LIBRARY, "int unused;", ("cannot load", "no Relax VM executable")),
        (PARAMS, b"what is this", (PARAMS,)),
    ],
)
def test_files_of_no_use(
    built: Built, mixed: Package, tmp_path: Path, name: str, content: bytes | str, words: tuple[str, ...]
) -> None:
    """Take *content* that is text as the source of the library, in C."""
    if isinstance(content, str):
        content = compiled_library(tmp_path, content)
    package = mixed.with_file(tmp_path / "p", name, content)
    built.run("--model", package.path).refused(PACKAGE, *words)


# None of the sanitizers' tests: libtvm_ffi does not free 40 bytes here.
def test_library_with_an_unknown_symbol(built: Built, mixed: Package, tmp_path: Path) -> None:
    source = "extern int of_another_age; int* needs_it = &of_another_age;"
    package = mixed.with_file(tmp_path / "p", LIBRARY, compiled_library(tmp_path, source))
    built.run("--model", package.path).refused(MISMATCH, "cannot load", "of_another_age")


def test_parameter_that_is_missing(built: Built, mixed: Package, tmp_path: Path) -> None:
    package = mixed.with_entry(tmp_path / "p", params=("weight", "bias"))
    built.run("--model", package.path).refused(PACKAGE, "no parameter bias")


# ---- refusals: inputs and outputs -------------------------------------------------------------


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda a: a.pop("n"), ("input n is missing", "x float32[2, 3], n int64[4]")),
        (lambda a: a.update(extra=a["x"]), ("no input extra",)),
        (lambda a: a.update(x=a["x"].T), ("input x is float32[3, 2]", "takes float32[2, 3]")),
        (lambda a: a.update(x=a["x"].ravel()), ("float32[6]",)),
        (lambda a: a.update(x=a["x"].astype("float64")), ("float64[2, 3]", "takes float32[2, 3]")),
        (lambda a: a.update(n=a["n"].astype("int32")), ("input n is int32[4]", "takes int64[4]")),
    ],
)
def test_inputs_that_do_not_fit(
    built: Built, mixed: Package, arrays: dict[str, Any], tmp_path: Path, edit: Any, words: tuple[str, ...]
) -> None:
    edit(arrays)
    np.savez(tmp_path / "in.npz", **arrays)
    built.run("--model", mixed.path, "--input", tmp_path / "in.npz").refused(INPUT, *words)


def ranged(mixed: Package, path: Path, values: ValueRange) -> Package:
    """Return *mixed*, whose input n is known to have *values*."""
    x, n = mixed.manifest.entries[0].inputs
    return mixed.with_entry(path, inputs=(x, dataclasses.replace(n, values=values)))


@pytest.mark.parametrize("value", [10, -4, 2**62, -(2**63)])
def test_indices_out_of_range_are_refused(
    built: Built, mixed: Package, arrays: dict[str, Any], tmp_path: Path, value: int
) -> None:
    package = ranged(mixed, tmp_path / "p", ValueRange("index", -3, 9))
    arrays["n"][:] = [-3, 9, value, 0]
    np.savez(tmp_path / "in.npz", **arrays)
    built.run("--model", package.path, "--input", tmp_path / "in.npz").refused(
        INPUT, f"input n has the value {value}", "takes -3 to 9"
    )
    arrays["n"][2] = 5
    np.savez(tmp_path / "in.npz", **arrays)
    assert built.run("--model", package.path, "--input", tmp_path / "in.npz").code == 0


def test_usual_values_are_made_up_and_others_taken(
    built: Built, mixed: Package, arrays: dict[str, Any], tmp_path: Path
) -> None:
    package = ranged(mixed, tmp_path / "p", ValueRange("usual", 0, 1))
    arrays["n"][:] = 77
    np.savez(tmp_path / "in.npz", **arrays)
    assert built.run("--model", package.path, "--input", tmp_path / "in.npz").code == 0


def test_no_random_values_for_indices_that_nothing_is_known_of(
    built: Built, mixed: Package, tmp_path: Path
) -> None:
    package = ranged(mixed, tmp_path / "p", ValueRange("unknown", 0, 0))
    built.run("--model", package.path).refused(INPUT, "input n", "become indices", "--input in.npz")


def test_one_symbol_is_one_length(built: Built, symbolic: Package, tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", a=np.zeros(3, "float32"), b=np.zeros(4, "float32"))
    built.run("--model", symbolic.path, "--input", tmp_path / "in.npz").refused(
        INPUT, "input b", "float32[n]"
    )


def test_no_random_values_for_a_symbolic_shape(built: Built, symbolic: Package) -> None:
    built.run("--model", symbolic.path).refused(INPUT, "symbolic dimension n", "--input")


def npy(header: str, data: bytes = b"", version: tuple[int, int] = (1, 0)) -> bytes:
    size = struct.pack("<H" if version[0] == 1 else "<I", len(header))
    return b"\x93NUMPY" + bytes(version) + size + header.encode() + data


def archive(content: bytes, name: str = "x.npy", **edits: Any) -> bytes:
    """Return a stored zip of one member; *edits* overwrite header fields, by (signature, offset, format)."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr(name, content)
    data = bytearray(buffer.getvalue())
    for field, value in edits.items():
        signature, offset, form = FIELDS[field]
        struct.pack_into(form, data, data.index(signature) + offset, value)
    return bytes(data)


CENTRAL, END = b"PK\x01\x02", b"PK\x05\x06"
FIELDS = {
    "flags": (CENTRAL, 8, "<H"),
    "method": (CENTRAL, 10, "<H"),
    "crc": (CENTRAL, 16, "<I"),
    "stored_size": (CENTRAL, 20, "<I"),
    "plain_size": (CENTRAL, 24, "<I"),
    "name_length": (CENTRAL, 28, "<H"),
    "extra_length": (CENTRAL, 30, "<H"),
    "offset": (CENTRAL, 42, "<I"),
    "members": (END, 10, "<H"),
    "directory": (END, 16, "<I"),
}
GOOD = npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", bytes(24))


def compressed() -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, x=np.zeros((2, 3), "float32"))
    return buffer.getvalue()


def saved(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def twice() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file, pytest.warns(UserWarning, match="Duplicate"):
        file.writestr("x.npy", GOOD)
        file.writestr("x.npy", GOOD)
    return buffer.getvalue()


def with_shape(shape: str) -> bytes:
    return archive(npy(f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}"))


BAD_FILES: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty": (lambda: b"", "is no .npz file"),
    "text": (lambda: b"hello" * 100, "is no .npz file"),
    "npy without a zip": (lambda: GOOD, "is no .npz file"),
    "truncated": (lambda: saved(x=np.zeros((2, 3), "float32"))[:-10], "is no .npz file, or is truncated"),
    "cut at the front": (lambda: saved(x=np.zeros((2, 3), "float32"))[64:], "damaged"),
    "compressed": (compressed, "which is compressed"),
    "encrypted": (lambda: archive(GOOD, flags=1), "which is encrypted"),
    "other method": (lambda: archive(GOOD, method=99), "which is compressed"),
    "checksum": (lambda: archive(GOOD, crc=1), "checksum"),
    "huge stored size": (lambda: archive(GOOD, stored_size=0xFFFFFFF0, plain_size=0xFFFFFFF0), "truncated"),
    "zip64 sizes without the field": (
        lambda: archive(GOOD, stored_size=0xFFFFFFFF, plain_size=0xFFFFFFFF), "truncated or damaged"
    ),
    "two sizes": (lambda: archive(GOOD, plain_size=7), "sizes of x.npy"),
    "name beyond the end": (lambda: archive(GOOD, name_length=0xFFFF), "truncated"),
    "extra field beyond the end": (lambda: archive(GOOD, extra_length=0xFFFF), "truncated"),
    "offset beyond the end": (lambda: archive(GOOD, offset=0xFFFFFFF0), "truncated"),
    "directory beyond the end": (lambda: archive(GOOD, directory=0xFFFFFFF0), "truncated"),
    "more members than there are": (lambda: archive(GOOD, members=9), "damaged"),
    "same name twice": (twice, "x.npy twice"),
    "member that is no array": (lambda: archive(b"hello", name="readme.txt"), "readme.txt, which is no array"),
    "member that is not npy": (lambda: archive(b"hello world, hello"), "not in the npy format"),
    "npy cut in its header": (lambda: archive(GOOD[:40]), "truncated"),
    "npy cut in its data": (lambda: archive(GOOD[:-1]), "holds 23 bytes"),
    "npy with more data": (lambda: archive(GOOD + b"\0"), "holds 25 bytes"),
    "npy of version 9": (lambda: archive(npy("{}", version=(9, 0))), "npy version 9"),
    "npy with a huge header": (lambda: archive(b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + bytes(8)), "truncated"),
    "header without fields": (lambda: archive(npy("{}")), "incomplete header"),
    "header that is no dictionary": (lambda: archive(npy("import os")), "damaged header"),
    "extent beyond memory": (lambda: with_shape("(9999999999999999999, 2)"), "extent beyond any memory"),
    "extents beyond memory": (lambda: with_shape("(" + "100000000000000000, " * 4 + ")"), "fits into memory"),
    "empty array with a huge extent": (
        lambda: with_shape("(0, 100000000000000000, 100000000000000000)"), "fits into memory"
    ),
    "negative extent": (lambda: with_shape("(-1, 2)"), "damaged header"),
    "unclosed shape": (lambda: with_shape("(2, 3"), "damaged header"),
    "too many dimensions": (lambda: with_shape("(" + "1," * 100 + ")"), "too many dimensions"),
    "strings": (lambda: saved(x=np.array(["a", "b"])), "element type <U1"),
    "structure": (lambda: saved(x=np.zeros(2, [("a", "f4")])), "structured element type"),
    "complex": (lambda: saved(x=np.zeros(2, "complex64")), "element type <c8"),
    "objects": (lambda: saved(x=np.array([{}, None], dtype=object)), "element type |O"),
}  # fmt: skip


@pytest.mark.parametrize("case", list(BAD_FILES))
def test_bad_input_file(built: Built, mixed: Package, tmp_path: Path, case: str) -> None:
    make, words = BAD_FILES[case]
    (tmp_path / "in.npz").write_bytes(make())
    built.run("--model", mixed.path, "--input", tmp_path / "in.npz").refused(INPUT, words)


def test_archive_made_for_these_tests_is_good(built: Built, symbolic: Package, tmp_path: Path) -> None:
    # So that the cases above fail for what they change, not for how they are made.
    content = npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", bytes(8))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("a.npy", content)
        file.writestr("b.npy", content)
    (tmp_path / "in.npz").write_bytes(buffer.getvalue())
    assert built.run("--model", symbolic.path, "--input", tmp_path / "in.npz").code == 0


class Unseekable(io.BytesIO):
    """A pipe: zipfile then writes sizes and checksums after the data."""

    def seekable(self) -> bool:
        return False

    def tell(self) -> int:
        raise OSError("a pipe")

    def seek(self, *_: Any) -> int:
        raise OSError("a pipe")


def test_archive_written_to_a_pipe(built: Built, symbolic: Package, tmp_path: Path) -> None:
    stream = Unseekable()
    np.savez(stream, a=np.ones(2, "float32"), b=np.ones(2, "float32"))
    (tmp_path / "in.npz").write_bytes(stream.getvalue())
    done = built.run(
        "--model", symbolic.path, "--input", tmp_path / "in.npz", "--output", tmp_path / "out.npz"
    )
    assert done.code == 0, done.err
    with np.load(tmp_path / "out.npz") as outputs:
        assert outputs["z"].tolist() == [2, 2]


def test_no_input_file(built: Built, mixed: Package, tmp_path: Path) -> None:
    built.run("--model", mixed.path, "--input", tmp_path / "none.npz").refused(
        INPUT, "does not exist", "none.npz"
    )
    done = built.run("--model", mixed.path, "--input", tmp_path)
    done.refused(INPUT, f"{tmp_path} is not in a regular file")


def test_written_sizes_have_64_bits(built: Built, symbolic: Package, tmp_path: Path) -> None:
    """Write sizes of 64 bits for small files, too: files beyond 4 GiB then need no other code."""
    np.savez(tmp_path / "in.npz", a=np.ones(3, "float32"), b=np.ones(3, "float32"))
    words = ("--model", symbolic.path, "--input", tmp_path / "in.npz", "--output", tmp_path / "out.npz")
    assert built.run(*words).code == 0
    with zipfile.ZipFile(tmp_path / "out.npz") as file:
        (member,) = file.infolist()
        assert member.extract_version == 45
        assert file.testzip() is None
    data = (tmp_path / "out.npz").read_bytes()
    central = data.index(CENTRAL)
    assert data[20:24] == data[central + 42 : central + 46] == b"\xff" * 4
    end = data.index(b"PK\x06\x06")
    assert data[end + 48 : end + 56] == central.to_bytes(8, "little")
    with np.load(tmp_path / "out.npz") as outputs:
        assert outputs["z"].tolist() == [2, 2, 2]


def test_arrays_are_copied_to_the_device_and_back_only(
    built: Built, symbolic: Package, tmp_path: Path
) -> None:
    size = 32 << 20
    array = np.ones(size // 4, "float32")
    np.savez(tmp_path / "in.npz", a=array, b=array)
    np.savez(tmp_path / "small.npz", a=array[:4], b=array[:4])

    def peak(name: str) -> int:
        words = [
            built.rtvm,
            "--model",
            symbolic.path,
            "--input",
            tmp_path / name,
            "--output",
            tmp_path / "out",
        ]
        child = subprocess.Popen(list(map(str, words)), stdout=subprocess.DEVNULL)
        _pid, status, usage = os.wait4(child.pid, 0)
        child.returncode = status
        assert status == 0
        return usage.ru_maxrss * 1024

    # Two inputs and an output, as they are read and written, and as the model has them.
    assert peak("in.npz") - peak("small.npz") < 6.5 * size


def test_output_that_cannot_be_written(built: Built, mixed: Package, tmp_path: Path) -> None:
    built.run("--model", mixed.path, "--output", tmp_path / "none" / "out.npz").refused(INPUT, "cannot write")
    (tmp_path / "taken").mkdir()
    built.run("--model", mixed.path, "--output", tmp_path / "taken").refused(INPUT, "cannot write")
    assert [p.name for p in tmp_path.iterdir()] == ["taken"]


def test_full_stdout(built: Built) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [str(built.rtvm), "--version"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == INPUT
    assert "cannot write to stdout" in done.stderr


# ---- failures of the model --------------------------------------------------------------------


def test_outputs_that_mod_json_does_not_describe(built: Built, mixed: Package, tmp_path: Path) -> None:
    y, m = mixed.manifest.entries[0].outputs
    fewer = mixed.with_entry(tmp_path / "fewer", outputs=(y,))
    built.run("--model", fewer.path).refused(RUN, "returned 2 tensors", "describes 1")
    other = mixed.with_entry(tmp_path / "other", outputs=(y, dataclasses.replace(m, shape=(5,))))
    built.run("--model", other.path).refused(RUN, "output m is int64[4]", "says int64[5]")


def test_arguments_that_mod_json_does_not_describe(built: Built, mixed: Package, tmp_path: Path) -> None:
    package = mixed.with_entry(tmp_path / "p", params=())
    built.run("--model", package.path).refused(RUN, "the model failed", "3 vs. 2")
