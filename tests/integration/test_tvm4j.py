"""TVM's own Java interface does not fit its own tvm-ffi; docs/apps.md says so.

When a test here fails, TVM has mended it: try org.apache.tvm again and rewrite that section.
"""

import re
import subprocess
from pathlib import Path

import pytest

import adt


@pytest.fixture(scope="module")
def tree() -> Path:
    return adt.source().path


def java(tree: Path, name: str) -> str:
    return (tree / f"jvm/core/src/main/java/org/apache/tvm/{name}.java").read_text()


def header(tree: Path) -> str:
    return (tree / "3rdparty/tvm-ffi/include/tvm/ffi/c_api.h").read_text()


def test_its_type_indices_are_others(tree: Path) -> None:
    theirs = dict(re.findall(r"int (kTVMFFI\w+) = (\d+)", java(tree, "TypeIndex")))
    real = dict(re.findall(r"(kTVMFFI\w+) = (\d+)", header(tree)))
    wrong = {name: (theirs[name], real[name]) for name in theirs.keys() & real if theirs[name] != real[name]}
    assert wrong == {
        "kTVMFFIShape": ("70", "69"),
        "kTVMFFITensor": ("71", "70"),
        "kTVMFFIArray": ("72", "71"),
        "kTVMFFIMap": ("73", "72"),
    }


def test_a_tensor_begins_elsewhere(tree: Path, tmp_path: Path) -> None:
    assert "handle + 8 * 2" in java(tree, "TensorBase")
    program = tmp_path / "size.c"
    program.write_text('#include <tvm/ffi/c_api.h>\n_Static_assert(sizeof(TVMFFIObject) == 24, "");\n')
    ffi = tree / "3rdparty/tvm-ffi"
    words = ["gcc", "-fsyntax-only", "-I", ffi / "include", "-I", ffi / "3rdparty/dlpack/include", program]
    subprocess.run(words, check=True)


def test_loading_passes_an_argument_too_many(tree: Path) -> None:
    assert 'getApi("ffi.ModuleLoadFromFile").pushArg(path).pushArg(fmt)' in java(tree, "Module")
    module = (tree / "3rdparty/tvm-ffi/src/ffi/extra/module.cc").read_text()
    assert re.search(r'"ffi\.ModuleLoadFromFile",\s*&?Module::LoadFromFile', module)
    declared = (tree / "3rdparty/tvm-ffi/include/tvm/ffi/extra/module.h").read_text()
    assert "LoadFromFile(const String& file_name)" in declared
