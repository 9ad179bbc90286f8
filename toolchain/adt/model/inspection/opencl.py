"""Take the OpenCL program apart: one text and the facts of each kernel."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

SECTION = re.compile(r"^// Function: (\S+)\n", re.MULTILINE)
PROTOTYPE = re.compile(r"^__kernel [^\n{]*?(\w+)\(([^\n{]*)\);\n", re.MULTILINE)
DEFINITION = re.compile(r"__kernel [^{;]*?(\w+)\(([^{;]*)\)\s*\{")
IMAGE = re.compile(r"\bimage[123]d(?:_array)?_t\b")
LAUNCHED = re.compile(r"_kernel(?:_\d+)?$")


@dataclass(frozen=True)
class KernelSource:
    """One kernel of the program."""

    name: str
    textures: tuple[str, ...]
    """Image arguments with their access: ``read_only x``."""
    buffers: tuple[str, ...]
    """Names of pointer arguments."""
    text: str
    """Compiles on its own; begins with a comment that names the images."""

    @property
    def function(self) -> str:
        """The module's function that launches it."""
        return LAUNCHED.sub("", self.name)


def split(program: str) -> tuple[KernelSource, ...]:
    """The kernels of *program*, which TVM writes in sections that repeat every prototype."""
    return tuple(_kernel(name, text) for name, text in _sections(program))


def _sections(program: str) -> Iterator[tuple[str, str]]:
    _, *parts = SECTION.split(program)
    yield from zip(parts[::2], parts[1::2], strict=True)


def _kernel(name: str, section: str) -> KernelSource:
    alone = PROTOTYPE.sub("", section).strip()
    definition = next((d for d in DEFINITION.finditer(alone) if d[1] == name), None)
    textures, buffers = _arguments(definition[2]) if definition else ((), ())
    note = f"// textures: {', '.join(textures)}\n" if textures else "// textures: none\n"
    return KernelSource(name, textures, buffers, f"{note}{alone}\n")


def _arguments(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    textures, buffers = [], []
    for argument in text.split(","):
        words = re.findall(r"\w+", argument)
        if IMAGE.search(argument):
            access = next((w.strip("_") for w in words if w.strip("_") in ACCESS), "read_only")
            textures.append(f"{access} {words[-1]}")
        elif "*" in argument:
            buffers.append(words[-1])
    return tuple(textures), tuple(buffers)


ACCESS = ("read_only", "write_only", "read_write")
"""OpenCL's access qualifiers; without one an image is read."""
