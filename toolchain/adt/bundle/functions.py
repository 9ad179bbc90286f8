"""The global functions that a built runtime registers, read from the sources that it was built of.

What was cross-built does not run here to be asked. Each name stands as a literal where it is
registered, and Ninja knows which sources were compiled. A name cannot be looked for in the
libraries instead: a compiler keeps some only as part of another text, or as instructions.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from adt.errors import BuildError
from adt.host.process import run
from adt.host.tools import ninja

_REGISTERED = re.compile(r'\.def(?:_packed|_method)?\(\s*((?:"[^"]*"\s*)+)')


def registered_functions(build_dir: Path) -> tuple[str, ...]:
    """Return the dotted names of the functions that the libraries in *build_dir* register, sorted."""
    listing = run(
        [ninja().path, "-C", build_dir, "-t", "compdb"],
        error=BuildError,
        what=f"asking Ninja what was compiled in {build_dir} failed",
    )
    names: set[str] = set()
    for command in json.loads(listing.stdout):
        directory = Path(command["directory"])
        if not (directory / command["output"]).is_file():
            continue
        for file in sources_of(directory / command["file"]):
            program = "apps" in file.parts  # tvm_rpc, whose own functions no library has
            if file.suffix == ".cc" and not program:
                text = file.read_text(errors="replace")
                names |= {"".join(re.findall('"([^"]*)"', match[1])) for match in _REGISTERED.finditer(text)}
    return tuple(sorted(name for name in names if "." in name))


def sources_of(file: Path) -> list[Path]:
    """Return the sources that CMake joined in *file* (UNITY_BUILD), else *file* alone."""
    if (file.parent.name, file.suffix) != ("Unity", ".cxx"):
        return [file]
    return [Path(name) for name in re.findall(r'^#include "(.+)"$', file.read_text(), re.MULTILINE)]
