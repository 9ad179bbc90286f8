"""The CMake presets: what they are, and what they say when something is missing."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

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


def resolved(name: str) -> dict[str, Any]:
    """Cache variables of the preset *name* with everything it inherits."""
    presets = {
        p["name"]: p for p in json.loads((PRESETS / "CMakePresets.json").read_text())["configurePresets"]
    }
    preset = presets[name]
    inherited = resolved(preset["inherits"]) if "inherits" in preset else {}
    return inherited | {key: value["value"] for key, value in preset.get("cacheVariables", {}).items()}


def test_cmake_lists_the_three_presets() -> None:
    listed = subprocess.run(
        [str(cmake().path), "--list-presets"], cwd=PRESETS, capture_output=True, text=True, check=True
    )
    names = [line.split('"')[1] for line in listed.stdout.splitlines() if '"' in line]
    assert names == ["android-arm64-v8a", "linux-aarch64", "host"]


@pytest.mark.parametrize(
    ("preset", "alignment"), [("android-arm64-v8a", "32"), ("linux-aarch64", "32"), ("host", "64")]
)
def test_options_of_each_preset(preset: str, alignment: str) -> None:
    variables = resolved(preset)
    assert variables["USE_KALLOC_ALIGNMENT"] == alignment
    assert variables["USE_OPENCL"] == "ON"
    assert variables["USE_LLVM"] == "OFF"
    assert variables["CMAKE_BUILD_TYPE"] == "Release"


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


def test_no_cross_compiler(tmp_path: Path) -> None:
    said = refusal("linux-aarch64", tmp_path / "build", "-DADT_CROSS_PREFIX=no-such-machine-")
    assert "no-such-machine-g++" in said
    assert "apt-get install" in said
