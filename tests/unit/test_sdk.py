"""CLML and OpenCL SDKs: every missing part is named, before CMake starts and by CMake itself."""

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from adt.errors import SdkError
from adt.host.opencl_sdk import find_clml, find_opencl_sdk
from support.cmake import cmake_refusal
from support.standins.clml import VERSION, make_library, make_standin_clml

HEADER, LIBRARY = "CL/cl_qcom_ml_ops.h", "lib64/libOpenCL.so"
Damage = Callable[[Path], object]
AARCH64 = "aarch64-linux-gnu-gcc"


@pytest.mark.parametrize("libraries", ["lib", "lib64"])
def test_a_complete_sdk(tmp_path: Path, libraries: str) -> None:
    sdk = make_standin_clml(tmp_path / "sdk", libraries=libraries)
    clml = find_clml(str(sdk), "AARCH64", environ={})
    assert (clml.path, clml.version, clml.origin) == (sdk, str(VERSION), "--clml")
    assert clml.library == sdk / libraries / "libOpenCL.so"


def test_headers_may_lie_in_include(tmp_path: Path) -> None:
    sdk = make_standin_clml(tmp_path / "sdk")
    (sdk / "include").mkdir()
    (sdk / "CL").rename(sdk / "include/CL")
    assert find_clml(str(sdk), "AARCH64", environ={}).version == str(VERSION)


def test_the_library_of_the_right_machine_is_taken(tmp_path: Path) -> None:
    sdk = make_standin_clml(tmp_path / "sdk", libraries="lib")
    make_library(sdk / "lib64/libOpenCL.so", compiler="gcc")
    assert find_clml(str(sdk), "AARCH64", environ={}).library == sdk / "lib/libOpenCL.so"


def test_order_and_provenance(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first, two = make_standin_clml(tmp_path / "one"), make_standin_clml(tmp_path / "two")
    environ = {"ADRENO_OPENCL": str(first), "CLML_SDK": str(two)}
    with caplog.at_level(logging.WARNING, "adt"):
        clml = find_clml("", "AARCH64", environ=environ)
    assert (clml.path, clml.origin) == (first, "ADRENO_OPENCL")
    assert "CLML_SDK names" in caplog.text
    clml = find_clml("", "AARCH64", environ={"CLML_SDK": str(two)})
    assert (clml.path, clml.origin) == (two, "CLML_SDK")
    assert find_clml(str(two), "AARCH64", environ=environ).origin == "--clml"


def test_another_sdk_at_the_same_path_is_another_build(tmp_path: Path) -> None:
    sdk = make_standin_clml(tmp_path / "sdk")
    before = find_clml(str(sdk), "AARCH64", environ={}).digest
    (sdk / HEADER).write_text("#define CL_QCOM_ML_OPS_H_MAJOR_VERSION 5\n")
    assert find_clml(str(sdk), "AARCH64", environ={}).digest != before


def test_none_names_the_places() -> None:
    with pytest.raises(SdkError, match="--clml, ADRENO_OPENCL, CLML_SDK"):
        find_clml("", "AARCH64", environ={})


def remove(*names: str) -> Damage:
    def damage(sdk: Path) -> None:
        for name in names:
            (sdk / name).unlink()

    return damage


@pytest.mark.parametrize(
    ("damage", "messages"),
    [
        (shutil.rmtree, ["is not a directory"]),
        (remove(HEADER), [f"{HEADER} is missing"]),
        (
            lambda sdk: (sdk / HEADER).write_text("/* empty */"),
            [f"{HEADER} does not define CL_QCOM_ML_OPS_H_MAJOR_VERSION"],
        ),
        (remove(LIBRARY), ["libOpenCL.so is missing (looked in lib64/ and lib/)"]),
        (
            lambda sdk: make_library(sdk / LIBRARY, compiler="gcc"),
            [f"{LIBRARY} is for X86_64, not for AARCH64"],
        ),
        (lambda sdk: (sdk / LIBRARY).write_text("git-lfs pointer"), ["is not a whole ELF file"]),
        (remove(HEADER, LIBRARY), [f"{HEADER} is missing", "libOpenCL.so is missing"]),
    ],
)
def test_each_fault_is_named(tmp_path: Path, damage: Damage, messages: list[str]) -> None:
    sdk = make_standin_clml(tmp_path / "sdk")
    damage(sdk)
    with pytest.raises(SdkError) as caught:
        find_clml(str(sdk), "AARCH64", environ={})
    assert "--clml DIR" in caught.value.remedy
    assert all(text in caught.value.what for text in messages)
    assert (HEADER in caught.value.what) == any(HEADER in text for text in messages)


def test_a_newer_version_is_tried_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    sdk = make_standin_clml(tmp_path / "sdk")
    (sdk / HEADER).write_text("#define CL_QCOM_ML_OPS_H_MAJOR_VERSION 6\n")
    with caplog.at_level(logging.WARNING, "adt"):
        assert find_clml(str(sdk), "AARCH64", environ={}).version == "6"
    assert "newer than TVM's sources know" in caplog.text


def test_opencl_sdk(tmp_path: Path) -> None:
    assert find_opencl_sdk("", "AARCH64") is None
    with pytest.raises(SdkError, match=r"CL/cl\.h is missing.*libOpenCL\.so is missing"):
        find_opencl_sdk(str(tmp_path), "AARCH64")
    (tmp_path / "include/CL").mkdir(parents=True)
    (tmp_path / "include/CL/cl.h").touch()
    make_library(tmp_path / "lib/libOpenCL.so", compiler=AARCH64)
    opencl_sdk = find_opencl_sdk(str(tmp_path), "AARCH64")
    assert opencl_sdk and opencl_sdk.library == tmp_path / "lib/libOpenCL.so"


def configure(build: Path, *definitions: str) -> str:
    """Return CMake's message when it refuses; the tree has only the files of TVM that it reads before."""
    tree = build.parent / "tvm"
    for name in (
        "CMakeLists.txt", "include/tvm/runtime/base.h", "3rdparty/tvm-ffi/CMakeLists.txt", "3rdparty/OpenCL-Headers/CL/cl.h",
        "3rdparty/tvm-ffi/include/tvm/ffi/c_api.h", "3rdparty/tvm-ffi/include/tvm/ffi/extra/c_env_api.h",
    ):  # fmt: skip
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).touch()
    return cmake_refusal("linux-aarch64-clml", build, f"-DADT_TVM_SOURCE={tree}", *definitions)


def test_plain_cmake_names_what_is_missing_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ADRENO_OPENCL", "CLML_SDK"):
        monkeypatch.delenv(name, raising=False)
    assert "No CLML SDK: pass -DADT_CLML_SDK" in configure(tmp_path / "build")
    (tmp_path / "sdk").mkdir()
    output = configure(tmp_path / "build", f"-DADT_CLML_SDK={tmp_path / 'sdk'}")
    assert "is no complete CLML SDK" in output and HEADER in output and "libOpenCL.so" in output
