"""A stand-in with the layout of Qualcomm's CLML SDK, for tests of the checks before a build and of configuring.

It holds nothing of the SDK: its header declares what TVM's CLML runtime uses, in a
way that takes any arguments, its libOpenCL.so is empty. What it can show is that adt
and CMake find and name each part, and that TVM's sources are sound C++; what it cannot
show is that they call the SDK as it wants to be called.
"""

import subprocess
from collections.abc import Sequence
from pathlib import Path

VERSION = 4

_HEADER = Path(__file__).with_name("clml_ops.h")


def make_standin_clml(
    directory: Path, *, libraries: str = "lib64", compiler: str = "aarch64-linux-gnu-gcc"
) -> Path:
    """Make the stand-in in *directory*, with its library in *libraries*/, made by *compiler*; return *directory*."""
    (directory / "CL").mkdir(parents=True)
    (directory / "README").write_text("STAND-IN, not the CLML SDK\n")
    (directory / "CL/cl_qcom_ml_ops.h").write_text(_HEADER.read_text())
    make_library(directory / libraries / "libOpenCL.so", compiler=compiler)
    return directory


def make_library(path: Path, *, compiler: str, functions: Sequence[str] = ()) -> None:
    """Compile a libOpenCL.so for the machine of *compiler* whose *functions* do nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    code = "".join(f"int {name}(void) {{ return -1; }}\n" for name in functions)
    command = [compiler, "-shared", "-fPIC", "-nostdlib", "-Wl,-soname,libOpenCL.so", "-x", "c", "-"]
    subprocess.run([*command, "-o", str(path)], input=code, text=True, check=True)
