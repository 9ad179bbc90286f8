"""Refusals of the CMake presets."""

from pathlib import Path

from adt.host.directories import resource
from adt.host.process import cmake
from support.devices.programs import try_program


def cmake_refusal(preset: str, build: Path, *definitions: str) -> str:
    """Return CMake's message, on one line, when it refuses to configure."""
    words = (cmake().path, "--preset", preset, "-B", build, *definitions)
    done = try_program(*words, cwd=resource("cmake_presets"))
    assert done.returncode != 0
    return " ".join(done.stderr.split())
