"""The presets: listed, configured, and (nightly) whole builds of those that other tests leave out."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adt.bundle.bundle import load_bundle
from adt.host.cache import cache_dir
from adt.host.directories import resource
from adt.host.elf import read_elf
from adt.host.ndk import LOWEST_API_LEVEL
from adt.host.process import cmake, ninja
from adt.host.sources import find_xnnpack
from adt.measure.reference import run_reference
from adt.package.inputs.random import random_inputs
from adt.package.package import load_package
from support.codegen.bionic_levels import LEVELS
from support.devices.programs import adt as run_adt
from support.devices.programs import adt_json, program_output, run_program
from support.models.offload import residual_net
from support.models.small import MAGIKA
from support.standins.clml import make_library, make_standin_clml
from support.standins.ndk import make_standin_ndk

ARMHF = ["qemu-arm-static", "-L", "/usr/arm-linux-gnueabihf"]
AARCH64 = ["qemu-aarch64-static", "-L", "/usr/aarch64-linux-gnu"]
SYSTEM_LIBRARIES = "toolchains/llvm/prebuilt/linux-x86_64/sysroot/usr/lib/aarch64-linux-android/21"


def nightly(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test for ``./test.sh --all`` only: a whole build takes minutes."""
    return pytest.mark.nightly(pytest.mark.timeout(2400)(test))


def build(preset: str, *more: object) -> dict[str, Any]:
    return adt_json("build-target", "--for", preset, *more)


def verify(
    bundle: Path, platform: str, prefix: list[str], work: Path, model: Path = MAGIKA, *more: object
) -> None:
    """Compile *model* for *platform* and compare the run by the bundle's rtvm with onnxruntime."""
    work.mkdir(exist_ok=True)
    adt_json("compile", model, "--for", platform, "--bundle", bundle, "-o", work / "pkg", *more)
    inputs = random_inputs(load_package(work / "pkg").manifest.entry().inputs, 1)
    np.savez(work / "in.npz", **inputs)
    files = ["--model", work / "pkg", "--input", work / "in.npz", "--output", work / "out.npz"]
    run_program(*prefix, bundle / "bin/rtvm", *files)
    with np.load(work / "out.npz") as outputs:
        for name, expected in run_reference(model, inputs).items():
            assert np.abs(outputs[name] - expected).max() <= 1e-5


def configure(
    preset: str, build: Path, *definitions: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Configure *preset* by CMake alone in the directory *build*."""
    words = [cmake().path, "--preset", preset, "-B", build, f"-DCMAKE_MAKE_PROGRAM={ninja().path}"]
    return run_program(*words, *definitions, cwd=resource("cmake_presets"), **environment)


def rtvm_devices(bundle: Path, prefix: list[str]) -> list[str]:
    version = json.loads(program_output(*prefix, bundle / "bin/rtvm", "--version", "--json"))
    devices: list[str] = version["devices"]
    return devices


@nightly
def test_linux_armhf_runs_a_model(tmp_path: Path) -> None:
    bundle = Path(build("linux-armhf")["path"])
    facts = load_bundle(bundle).manifest
    assert (facts.machine, facts.abi, facts.options.alignment) == ("ARM", "armhf", 32)
    assert rtvm_devices(bundle, ARMHF) == ["cpu", "opencl"]
    verify(bundle, "linux-armhf", ARMHF, tmp_path)
    attributes = program_output("readelf", "-A", tmp_path / "pkg/mod.so")
    assert "Tag_ABI_VFP_args: VFP registers" in attributes and "NEONv1" in attributes


@nightly
def test_plain_cmake_gives_the_same_files(tmp_path: Path) -> None:
    """Build in another directory by another driver: every file of the bundle has the same sha256."""
    bundle = load_bundle(Path(build("linux-armhf")["path"]))
    source = adt_json("source")["path"]
    out, build_directory = tmp_path / "out", tmp_path / "build"
    configure("linux-armhf", build_directory, f"-DADT_TVM_SOURCE={source}")
    run_program(cmake().path, "--build", build_directory)
    run_program(cmake().path, "--install", build_directory, "--strip", "--component", "adt", "--prefix", out)
    files = {p.relative_to(out).as_posix(): p for p in out.rglob("*") if p.is_file()}
    digests = {name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in files.items()}
    assert digests == {name: facts.sha256 for name, facts in bundle.manifest.files.items()}


@nightly
@pytest.mark.parametrize(
    ("preset", "prefix"), [("host-cpu", []), ("linux-aarch64-cpu", AARCH64)], ids=["host", "linux-aarch64"]
)
def test_a_cpu_variant_has_no_opencl(preset: str, prefix: list[str], tmp_path: Path) -> None:
    built = build(preset)
    bundle = Path(built["path"])
    facts = load_bundle(bundle).manifest
    assert (facts.preset, facts.platform) == (preset, preset.removesuffix("-cpu"))
    assert not facts.options.opencl
    assert rtvm_devices(bundle, prefix) == ["cpu"]
    verify(bundle, facts.platform, prefix, tmp_path)
    again = adt_json("build-target", "--for", facts.platform, "--no-opencl")
    assert again["reused"] and again["path"] == built["path"], "the option and the variant are one build"


@nightly
def test_debug_keeps_its_symbols_apart(tmp_path: Path) -> None:
    bundle = load_bundle(Path(build("host-cpu", "--build-type", "Debug")["path"]))
    facts = bundle.manifest
    expected = {f"symbols/{Path(name).name}.debug" for name in facts.files}
    assert set(facts.symbols) == expected
    assert not set(facts.symbols) & set(facts.files), "what is deployed has no symbols"
    for name in facts.files:
        assert not read_elf(bundle.file(name)).debug_info
        words = ["readelf", "--string-dump=.gnu_debuglink", str(bundle.file(name))]
        output = subprocess.run(words, capture_output=True, check=True).stdout  # a checksum is no text
        assert f"{Path(name).name}.debug".encode() in output
    listed = program_output("nm", "-D", "--defined-only", bundle.file("lib/libtvm_ffi.so"))
    address = next(line.split()[0] for line in listed.splitlines() if line.endswith(" TVMFFIFunctionCall"))
    symbols = bundle.file("symbols/libtvm_ffi.so.debug")
    place = program_output("addr2line", "-e", symbols, "-f", address)
    assert "TVMFFIFunctionCall" in place and "tvm/3rdparty/tvm-ffi/src/ffi/function.cc:" in place
    verify(bundle.path, "host", [], tmp_path)


@nightly
@pytest.mark.parametrize(
    ("abi", "machine", "page"), [("x86_64", "X86_64", 16384), ("armeabi-v7a", "ARM", 4096)]
)
def test_further_android_abis_through_the_standin(abi: str, machine: str, page: int, tmp_path: Path) -> None:
    ndk = make_standin_ndk(cache_dir() / "tests/ndk-standin")
    bundle = load_bundle(Path(build(f"android-{abi}", "--ndk", ndk)["path"]))
    assert (bundle.manifest.abi, bundle.manifest.machine) == (abi, machine)
    for name in bundle.manifest.files:
        assert read_elf(bundle.file(name)).page_alignment >= page
    out = tmp_path / "pkg"
    document = adt_json("compile", MAGIKA, "--for", f"android-{abi}", "--ndk", ndk, "-o", out)
    assert document["package"]["target"]["machine"] == machine
    library = read_elf(out / "mod.so")
    assert library.page_alignment >= page and not any("tvm" in name for name in library.needed)
    if abi == "x86_64":  # the stand-in's x86_64 is this machine's
        verify(bundle.path, f"android-{abi}", [], tmp_path / "run", MAGIKA, "--ndk", ndk)


@nightly
def test_xnnpack_for_android_through_the_standin(tmp_path: Path) -> None:
    """Compile all of XNNPACK by clang as for Android, and run it: the stand-in's aarch64 is Debian's."""
    ndk = make_standin_ndk(cache_dir() / "tests/ndk-standin")
    bundle = load_bundle(Path(build("android-arm64-v8a", "--ndk", ndk, "--xnnpack")["path"]))
    facts = read_elf(bundle.file("lib/libadt_xnnpack.so"))
    assert facts.page_alignment == 16384
    assert "memalign" in facts.undefined, "which bionic had before posix_memalign"
    assert not {name for name in facts.undefined if LEVELS.get(name, 0) > LOWEST_API_LEVEL}
    prefix = [*AARCH64, "-E", f"LD_LIBRARY_PATH={ndk / SYSTEM_LIBRARIES}"]
    model = residual_net(tmp_path / "model.onnx")
    verify(
        bundle.path, bundle.manifest.platform, prefix, tmp_path, model, "--offload", "xnnpack", "--ndk", ndk
    )


@nightly
def test_a_linked_opencl_is_needed_from_the_start(tmp_path: Path) -> None:
    """Link an SDK of TVM's own headers and a library whose functions do nothing."""
    headers = Path(adt_json("source")["path"]) / "3rdparty/OpenCL-Headers/CL"
    sdk = cache_dir() / "tests/opencl-standin"  # a path that stays, so that a second run builds nothing
    (sdk / "include").mkdir(parents=True, exist_ok=True)
    (sdk / "include/CL").unlink(missing_ok=True)
    (sdk / "include/CL").symlink_to(headers)
    functions = re.findall(r"CL_API_CALL\s+(cl\w+)\(", (headers / "cl.h").read_text())
    make_library(sdk / "lib/libOpenCL.so", compiler="gcc", functions=functions)
    bundle = load_bundle(Path(build("host", "--opencl-sdk", sdk)["path"]))
    assert bundle.manifest.options.opencl and bundle.manifest.options.opencl_linked
    assert "libOpenCL.so" in bundle.manifest.files["lib/libtvm_runtime.so"].needed
    words = [str(bundle.file("bin/rtvm")), "--version"]
    run_program(*words, LD_LIBRARY_PATH=str(sdk / "lib"))
    without = subprocess.run(words, capture_output=True, text=True, check=False)
    assert without.returncode == 127 and "libOpenCL.so" in without.stderr


def check_syntax(build: Path, sources: str) -> None:
    """Compile what matches *sources*, as the configured *build* would, without an object file."""
    database = json.loads(program_output(ninja().path, "-C", build, "-t", "compdb"))
    units = [unit for unit in database if re.search(sources, unit["file"]) and unit["output"].endswith(".o")]
    assert units
    for unit in units:
        words = [*shlex.split(unit["command"]), "-fsyntax-only"]
        del words[words.index("-o") : words.index("-o") + 2]
        run_program(*words, cwd=build)


def test_what_xnnpack_adds_compiles_and_a_probe_that_could_not_start_is_left_out(
    tmp_path: Path,
) -> None:
    """Simulate an NDK without a static C++ library by CMake's answer."""
    ndk = make_standin_ndk(cache_dir() / "tests/ndk-standin")
    definitions = ["ANDROID_PLATFORM=android-29", "ADT_STATIC_CXX_LIBRARY=OFF"]
    definitions += [f"ADT_NDK={ndk}", f"ADT_TVM_SOURCE={adt_json('source')['path']}"]
    definitions += ["ADT_XNNPACK=ON", f"ADT_XNNPACK_SOURCE={find_xnnpack('').path}"]
    done = configure("android-arm64-v8a", tmp_path / "build", *(f"-D{text}" for text in definitions))
    assert "without it adt_probe" in done.stderr, done.stderr
    info = json.loads((tmp_path / "build/adt_build_info.json").read_text())
    assert info["xnnpack"] and "lib/libadt_xnnpack.so" in info["files"]
    assert info["compiler"]["triple"] == "aarch64-none-linux-android29"
    assert "bin/rtvm" in info["files"] and "bin/adt_probe" not in info["files"]
    check_syntax(tmp_path / "build", "src/xnnpack_|cpuinfo/src")


def test_a_clml_preset_configures_and_compiles_with_the_standin(tmp_path: Path) -> None:
    """Compile all but TVM 0.25's clml_utils.cc and clml_memory_planner.cc, which lack headers."""
    sdk = make_standin_clml(tmp_path / "sdk")
    source = adt_json("source")["path"]
    done = configure(
        "linux-aarch64-clml", tmp_path / "build", f"-DADT_TVM_SOURCE={source}", CLML_SDK=str(sdk)
    )
    assert "CLML SDK from the environment's CLML_SDK" in done.stdout
    info = json.loads((tmp_path / "build/adt_build_info.json").read_text())
    assert (info["clml"], info["clml_sdk"], info["opencl"], info["opencl_linked"]) == (True, "4", True, True)
    library = "lib/libtvm_runtime.so"
    commands = program_output(ninja().path, "-C", tmp_path / "build", "-t", "commands", library)
    assert "clml_runtime.cc" in commands and "-DTVM_CLML_VERSION=4" in commands
    assert "opencl_wrapper.cc" not in commands, "CLML's libOpenCL is linked, not opened"
    assert f"{sdk}/lib64/libOpenCL.so" in commands.splitlines()[-1]
    check_syntax(tmp_path / "build", "runtime/contrib/clml/")


def test_a_compiler_cache_is_used_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start each compiler, TVM's own included, by the cache on PATH, and not twice."""
    program = tmp_path / "bin/ccache"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nexec "$@"\n')
    program.chmod(0o755)
    source = adt_json("source")["path"]
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    for name in ("CMAKE_C_COMPILER_LAUNCHER", "CMAKE_CXX_COMPILER_LAUNCHER"):  # the user's own would stay
        monkeypatch.delenv(name, raising=False)
    for name, more, times in (("with", [], 1), ("without", ["-DADT_COMPILER_CACHE=OFF"], 0)):
        configure("host", tmp_path / name, f"-DADT_TVM_SOURCE={source}", *more)
        commands = program_output(ninja().path, "-C", tmp_path / name, "-t", "commands", "all")
        compiling = [line for line in commands.splitlines() if " -c " in line]
        assert len(compiling) > 10
        assert {line.count(str(program)) for line in compiling} == {times}


def test_an_incomplete_clml_sdk_stops_before_configuring(tmp_path: Path) -> None:
    done = run_adt("build-target", "--for", "linux-aarch64", "--clml", tmp_path)
    assert done.returncode == 27
    assert "CL/cl_qcom_ml_ops.h is missing" in done.stderr and "libOpenCL.so is missing" in done.stderr


def test_presets_lists_what_can_be_built() -> None:
    listed = {preset["name"]: preset for preset in adt_json("presets")["presets"]}
    assert listed["linux-aarch64"]["buildable"] and listed["host-cpu"]["buildable"]
    assert not listed["host-cpu"]["opencl"] and listed["host-cpu"]["variables"]["USE_OPENCL"] == "OFF"
    assert not listed["android-arm64-v8a"]["buildable"]
    output = run_adt("presets").stdout
    assert "no Android NDK was found" in output
