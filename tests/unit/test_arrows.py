"""Imports go one way through the house (docs/contributing.md); nothing goes round in a circle."""

from __future__ import annotations

import ast
import graphlib
from collections.abc import Iterator
from pathlib import Path

import adt

ROOT = Path(adt.__file__).parent
ARTEFACTS = {"model", "bundle", "host", "options", "errors"}
BELOW = {
    "cli": {
        "api",
        "quantize",
        "integrate",
        "measure",
        "tuning",
        "checkup",
        "rpc",
        "device",
        "virtual",
        *ARTEFACTS,
    },
    "api": {
        "quantization",
        "integrate",
        "measure",
        "tuning",
        "checkup",
        "rpc",
        "device",
        "virtual",
        *ARTEFACTS,
    },
    "checkup": {"rpc", "device", "virtual", *ARTEFACTS},
    "measure": {"device", *ARTEFACTS},
    "tuning": {"rpc", "device", *ARTEFACTS},
    "rpc": {"device", *ARTEFACTS},
    "integrate": ARTEFACTS,
    "quantization": {"model", "host", "options", "errors"},
    "device": {"virtual", *ARTEFACTS},
    "virtual": {"host", "options", "errors"},
    "model": {"bundle", "host", "options", "errors"},
    "bundle": {"host", "options", "errors"},
    "host": {"options", "errors"},
    "options": {"errors"},
}
"""What each package may import; of the model and the bundle, the device takes the manifests."""


FILES = {
    ".".join(("adt", *file.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__"): file
    for file in ROOT.rglob("*.py")
}
"""Every file of ours by the module that it is."""


def imports(file: Path) -> Iterator[tuple[int, str]]:
    """Line and module of everything of ours that *file* imports, inside functions and for types only, too."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "adt":
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield node.lineno, inner if inner in FILES else node.module
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("adt."):
                    yield node.lineno, alias.name


def test_imports_go_one_way() -> None:
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert packages == set(BELOW)
    wrong = [
        f"{file.relative_to(ROOT)}:{line} imports {name}"
        for package, below in BELOW.items()
        for file in (ROOT / package).rglob("*.py")
        for line, module in imports(file)
        if (name := module.split(".")[1] if "." in module else "") in packages | {"errors"}
        and name not in below | {package}
    ]
    assert not wrong


def test_no_file_imports_itself_through_others() -> None:
    graph = {module: {name for _, name in imports(file)} - {module} for module, file in FILES.items()}
    assert sum(map(len, graph.values())) > len(graph), "imports are seen at all"
    graphlib.TopologicalSorter(graph).prepare()  # names the files of a circle
