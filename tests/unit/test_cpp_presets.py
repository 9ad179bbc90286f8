"""The CMake presets: what they say when something is missing."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from adt.host.resources import resource
from adt.host.tools import cmake

PRESETS = resource("cmake_presets")


def refusal(preset: str, build: Path, *definitions: str) -> str:
    """What CMake says, on one line, when it refuses to configure."""
    done = subprocess.run(
        [str(cmake().path), "--preset", preset, "-B", str(build), *definitions],
        cwd=PRESETS,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    return " ".join(done.stderr.split())


def test_a_tree_that_is_no_tvm(tmp_path: Path) -> None:
    said = refusal("host", tmp_path / "build", f"-DADT_TVM_SOURCE={tmp_path}")
    assert "is no complete TVM source tree" in said
    assert "submodule" in said


def test_no_ndk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANDROID_NDK", raising=False)
    assert "No Android NDK" in refusal("android-arm64-v8a", tmp_path / "build")


def test_a_directory_that_is_no_ndk(tmp_path: Path) -> None:
    said = refusal("android-arm64-v8a", tmp_path / "build", f"-DADT_NDK={tmp_path}")
    assert f"{tmp_path} is no Android NDK" in said


@pytest.mark.parametrize(
    ("preset", "package"),
    [("linux-aarch64", "g++-aarch64-linux-gnu"), ("linux-armhf-cpu", "g++-arm-linux-gnueabihf")],
)
def test_no_cross_compiler(tmp_path: Path, preset: str, package: str) -> None:
    said = refusal(preset, tmp_path / "build", "-DADT_CROSS_PREFIX=no-such-machine-")
    assert "no-such-machine-g++" in said
    assert f"apt-get install {package}" in said
