"""Programs that adt drives: where they were found, and the versions that they print."""

from __future__ import annotations

import hashlib
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from adt.errors import ToolNotFound
from adt.host.extras import install_command
from adt.host.process import run, which

Version = tuple[int, ...]


@dataclass(frozen=True)
class Tool:
    """A program on this machine."""

    name: str
    path: Path
    origin: str
    """Source of the path: ``PATH``, ``adt's own environment``, …"""


def find_tool(name: str, *, remedy: str = "", own_first: bool = False) -> Tool:
    """Find program *name*; *own_first*: beside our Python before PATH (cmake and ninja come with adt's
    wheel).

    *remedy* says how to get it; empty: with the Python package of its name.
    """
    own = Path(sys.executable).parent / name
    if own_first and own.is_file():
        return Tool(name, own, "adt's own environment")
    if path := which(name):
        return Tool(name, Path(path).absolute(), "PATH")
    if own.is_file():
        return Tool(name, own, "adt's own environment")
    raise ToolNotFound(f"`{name}` is not on PATH", remedy=remedy or install_command(name))


def compiler_identity(compiler: Path) -> str:
    """Identify the GCC or clang *compiler* by version, and a digest of what ``-v`` prints but paths."""
    done = run([compiler, "-v"], env={"LC_ALL": "C"}, check=False)
    lines = [
        " ".join(word for word in line.split() if "/" not in word)
        for line in (done.stdout + done.stderr).splitlines()
    ]
    version = next((line for line in lines if " version " in line), compiler.name)
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    return f"{version}, {digest[:12]}"


def cmake() -> Tool:
    """Find CMake, the one installed with adt first: presets need a version of 3.26 or newer."""
    return find_tool("cmake", own_first=True)


def ninja() -> Tool:
    """Find Ninja, the one installed with adt first."""
    return find_tool("ninja", own_first=True)


def parse_version(text: str, *, after: str = "") -> Version:
    """Return the first dotted number in *text*, or of a line that begins with *after*; empty: none."""
    start = rf"^{re.escape(after)} " if after else ""
    match = re.search(rf"{start}(\d+(?:\.\d+)+)", text, re.MULTILINE)
    return tuple(map(int, match[1].split("."))) if match else ()
