"""Identity of a bundle: everything that decides its bytes, and no path or time of this machine."""

import os
from pathlib import Path

import pytest

from adt.bundle.plan import BuildPlan, plan_build
from adt.bundle.platforms import PLATFORMS
from adt.host import sources
from adt.host.process import compiler_identity
from adt.options.resolve import load_settings
from support.devices.programs import write_program
from support.standins.tvm_tree import make_tvm_tree


def compiler(path: Path, version: str = "12.2.0") -> Path:
    """Write a program that answers as GCC does, without the GCC."""
    return write_program(
        path,
        'echo "COLLECT_GCC=$0\nCOLLECT_LTO_WRAPPER=${0%/*}/lto-wrapper\nTarget: x" >&2\n'
        f'echo "gcc version {version} (Debian)" >&2',
    )


def plan(home: Path, monkeypatch: pytest.MonkeyPatch, *, version: str = "12.2.0") -> BuildPlan:
    """Plan a build with a cache, a TVM tree and a compiler below *home*."""
    program = compiler(home / "bin" / PLATFORMS["linux-aarch64"].compiler, version)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("ADT_CACHE_DIR", str(home / "cache"))
    options = {"build.platform": "linux-aarch64", "tvm.source": str(make_tvm_tree(home / "tvm"))}
    return plan_build(load_settings(options).settings)


def test_a_compiler_is_what_it_says_and_not_where_it_lies(tmp_path: Path) -> None:
    first, copy = compiler(tmp_path / "a/g++"), compiler(tmp_path / "b/g++")
    os.utime(copy, (0, 0))
    assert compiler_identity(copy) == compiler_identity(first)
    assert compiler_identity(first).startswith("gcc version 12.2.0 (Debian)")
    assert compiler_identity(compiler(tmp_path / "c/g++", "12.3.0")) != compiler_identity(first)


def test_a_bundle_is_the_same_wherever_its_tools_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, copy = plan(tmp_path / "a", monkeypatch), plan(tmp_path / "b", monkeypatch)
    assert first.identity == copy.identity and first.bundle_dir.name == copy.bundle_dir.name
    assert str(tmp_path) not in str(first.identity)
    assert any(str(tmp_path) in word for word in first.definitions), "CMake is told where they lie"


def test_another_compiler_or_source_is_another_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = plan(tmp_path / "a", monkeypatch)
    assert plan(tmp_path / "b", monkeypatch, version="13.1.0").bundle_dir.name != first.bundle_dir.name
    monkeypatch.setenv("CXXFLAGS", "-O1")
    assert plan(tmp_path / "c", monkeypatch).bundle_dir.name != first.bundle_dir.name
    monkeypatch.delenv("CXXFLAGS")
    (tmp_path / "a/tvm/CMakeLists.txt").unlink()
    monkeypatch.setitem(sources.NEEDED, "src/new.cc", "")
    assert plan(tmp_path / "a", monkeypatch).bundle_dir.name != first.bundle_dir.name
