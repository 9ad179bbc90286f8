"""Imports go one way through the house (docs/architecture.md); nothing goes round in a circle."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import adt

ROOT = Path(adt.__file__).parent
ARTEFACTS = {"model", "target", "host", "config", "errors"}
BELOW = {
    "cli": {"api", "integrate", "measure", "tuning", "checkup", "rpc", "device", *ARTEFACTS},
    "api": {"integrate", "measure", "tuning", "checkup", "rpc", "device", *ARTEFACTS},
    "checkup": {"rpc", "device", *ARTEFACTS},
    "measure": {"device", *ARTEFACTS},
    "tuning": {"rpc", "device", *ARTEFACTS},
    "rpc": {"device", *ARTEFACTS},
    "integrate": ARTEFACTS,
    "device": ARTEFACTS,
    "model": {"target", "host", "config", "errors"},
    "target": {"host", "config", "errors"},
    "host": {"config", "errors"},
    "config": {"errors"},
}
"""What each package may import; of the model and the target, the device takes the manifests."""


def imports(file: Path) -> Iterator[tuple[int, str]]:
    """Line and first part below ``adt`` of everything of ours that *file* imports, inside functions, too."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "adt":
            parts = node.module.split(".")
            for name in [parts[1]] if len(parts) > 1 else [alias.name for alias in node.names]:
                yield node.lineno, name
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("adt."):
                    yield node.lineno, alias.name.split(".")[1]


def test_imports_go_one_way() -> None:
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert packages == set(BELOW)
    wrong = [
        f"{file.relative_to(ROOT)}:{line} imports {name}"
        for package, below in BELOW.items()
        for file in (ROOT / package).rglob("*.py")
        for line, name in imports(file)
        if name in packages | {"errors"} and name not in below | {package}
    ]
    assert not wrong
