"""A stranger's working directory: whatever takes code or configuration from it leaves a mark."""

import subprocess
from pathlib import Path

MODULES = (
    "pip",
    "sitecustomize",
    "usercustomize",
    "adt",
    "tvm",
    "numpy",
    "onnx",
    "onnxruntime",
    "json",
    "cattrs",
)
PROGRAMS = ("git", "sh", "cmake", "ninja", "cc", "adb", "keytool", "aapt2")
STRANGER = "http://127.0.0.1:9/stranger"


def lay_traps(directory: Path, note: Path, *, upstream: str) -> None:
    """Fill *directory* with files that add a line to the file *note* when they are run.

    Args:
        upstream: address that git's configuration sends elsewhere.
    """
    directory.mkdir(exist_ok=True)
    for name in MODULES:
        (directory / f"{name}.py").write_text(f"open({str(note)!r}, 'a').write('{name}.py\\n')\n")
    for name in PROGRAMS:
        (directory / name).write_text(f"#!/bin/sh\necho {name} >>{note}\n")
        (directory / name).chmod(0o755)
    for name in ("pip.conf", "setup.cfg"):
        (directory / name).write_text(f"[global]\nindex-url = {STRANGER}\n")
    run = f'execute_process(COMMAND sh -c "echo cmake >>{note}")\n'
    for name in ("CMakeLists.txt", "PreLoad.cmake", "CTestConfig.cmake"):
        (directory / name).write_text(run)
    for name in ("CMakePresets.json", "CMakeUserPresets.json"):
        (directory / name).write_text("{")  # no program that looks here goes on
    (directory / "build.ninja").write_text(f"rule mark\n  command = echo ninja >>{note}\nbuild all: mark\n")
    (directory / "pyproject.toml").write_text("[tool.pip]\n[build-system]\nrequires = ['stranger']\n")
    subprocess.run(["git", "init", "-q", directory], check=True)
    with (directory / ".git/config").open("a") as file:
        file.write(
            f"[url \"ext::sh -c 'echo git >>{note}' \"]\n\tinsteadOf = {upstream}\n"
            f'[protocol "ext"]\n\tallow = always\n[core]\n\tfsmonitor = echo git >>{note};\n'
        )
