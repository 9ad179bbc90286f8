"""The CMake presets: what they say when something is missing."""

from pathlib import Path

import pytest

from adt.bundle.audit.binaries import TRIPLES
from adt.host.directories import resource
from adt.host.process import cmake
from support.cmake import cmake_refusal
from support.devices.programs import run_program

PRESETS = resource("cmake_presets")


def test_a_tree_that_is_no_tvm(tmp_path: Path) -> None:
    message = cmake_refusal("host", tmp_path / "build", f"-DADT_TVM_SOURCE={tmp_path}")
    assert "is no complete TVM source tree" in message
    assert "submodule" in message


def test_no_ndk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANDROID_NDK", raising=False)
    assert "No Android NDK" in cmake_refusal("android-arm64-v8a", tmp_path / "build")


def test_a_directory_that_is_no_ndk(tmp_path: Path) -> None:
    message = cmake_refusal("android-arm64-v8a", tmp_path / "build", f"-DADT_NDK={tmp_path}")
    assert f"{tmp_path} is no Android NDK" in message


@pytest.mark.parametrize(
    ("preset", "package"),
    [("linux-aarch64", "g++-aarch64-linux-gnu"), ("linux-armhf-cpu", "g++-arm-linux-gnueabihf")],
)
def test_no_cross_compiler(tmp_path: Path, preset: str, package: str) -> None:
    message = cmake_refusal(preset, tmp_path / "build", "-DADT_CROSS_PREFIX=no-such-machine-")
    assert "no-such-machine-g++" in message
    assert f"apt-get install {package}" in message


@pytest.mark.parametrize(
    ("registered", "declared", "extra", "symbols"),
    [
        (
            ["TVMBackendGetFuncFromEnv"],
            ["TVMFFIEnvModLookupFromImports", "TVMFFIHandleInitOnce"],
            "TVMFFIEnvModLookupFromImports;TVMFFIHandleInitOnce",
            "__TVMBackendGetFuncFromEnv;__TVMFFIEnvModLookupFromImports;__TVMFFIHandleInitOnce",
        ),
        (
            ["TVMFFIEnvModLookupFromImports", "TVMFFIHandleInitOnce"],
            ["TVMFFIEnvModLookupFromImports", "TVMFFIHandleInitOnce"],
            "",
            "__TVMFFIEnvModLookupFromImports;__TVMFFIHandleInitOnce",
        ),
        (["TVMBackendGetFuncFromEnv"], [], "", "__TVMBackendGetFuncFromEnv"),
    ],
    ids=["registers the old one", "registers the new ones", "has not the new ones"],
)
def test_the_module_abi_is_read_from_the_tree(
    tmp_path: Path, registered: list[str], declared: list[str], extra: str, symbols: str
) -> None:
    """Register in the runner each function that headers declare and the runtime lacks; no version is
    compared."""
    ffi = tmp_path / "3rdparty/tvm-ffi/include/tvm/ffi"
    for file, text in {
        tmp_path / "include/tvm/runtime/base.h": '#define TVM_VERSION "9.9.dev0"\n',
        tmp_path / "src/runtime/module.cc": "".join(f"  TVM_INIT_CONTEXT_FUNC({n});\n" for n in registered),
        ffi / "c_api.h": "".join(f"#define TVM_FFI_VERSION_{n} 7\n" for n in ("MAJOR", "MINOR", "PATCH")),
        ffi / "extra/c_env_api.h": "".join(f"TVM_FFI_DLL int {n}(void*);\n" for n in declared),
    }.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    script = tmp_path / "ask.cmake"
    script.write_text(
        f'include("{PRESETS}/modules/TvmTree.cmake")\nadt_read_tvm_tree("{tmp_path}")\n'
        'message("${ADT_TVM_VERSION}|${ADT_TVM_FFI_VERSION}|${ADT_EXTRA_CONTEXT_SYMBOLS}|${ADT_CONTEXT_SYMBOLS}")\n'
    )
    done = run_program(cmake().path, "-P", script)
    assert done.stderr.strip() == f"9.9.dev0|7.7.7|{extra}|{symbols}"


@pytest.mark.parametrize(
    ("abi", "directory"),
    [
        ("arm64-v8a", "aarch64-linux-android"),
        ("armeabi-v7a", "arm-linux-androideabi"),
        ("x86", "i686-linux-android"),
        ("x86_64", "x86_64-linux-android"),
    ],
)
def test_the_ndks_directory_of_each_abi(tmp_path: Path, abi: str, directory: str) -> None:
    """Find it whatever the compiler calls its target: armv7-none-linux-android28 for armeabi-v7a."""
    script = tmp_path / "ask.cmake"
    script.write_text(
        f'include("{PRESETS}/modules/BuildInfo.cmake")\nset(CMAKE_SYSROOT /sysroot)\nset(ANDROID_ABI {abi})\n'
        'adt_ndk_libraries(directory)\nmessage("${directory}")\n'
    )
    done = run_program(cmake().path, "-P", script)
    assert done.stderr.strip() == f"/sysroot/usr/lib/{directory}"
    machines = {"arm64-v8a": "AARCH64", "armeabi-v7a": "ARM", "x86": "386", "x86_64": "X86_64"}
    assert TRIPLES[machines[abi]] == directory
