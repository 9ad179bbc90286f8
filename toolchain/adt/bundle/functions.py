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
        file = directory / command["file"]
        program = "apps" in file.parts  # tvm_rpc, whose own functions no library has
        if file.suffix == ".cc" and not program and (directory / command["output"]).is_file():
            source = file.read_text(errors="replace")
            names |= {"".join(re.findall('"([^"]*)"', match[1])) for match in _REGISTERED.finditer(source)}
    return tuple(sorted(name for name in names if "." in name))
