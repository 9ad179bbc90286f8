"""Imports go one way through the house (docs/contributing.md); nothing goes round in a circle."""

import ast
import functools
import graphlib
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

import adt

ROOT = Path(adt.__file__).parent
BELOW = {
    "verbs": {"cli", "quantization", "checkup", "measure", "tuning", "integrate"},
    "cli": {"device", "compiler"},
    "checkup": {"rpc", "compiler"},
    "measure": {"device", "compiler"},
    "tuning": {"rpc", "compiler"},
    "quantization": {"compiler"},
    "rpc": {"device"},
    "integrate": {"package"},
    "device": {"virtual", "package"},
    "compiler": {"package"},
    "package": {"bundle"},
    "virtual": {"host"},
    "bundle": {"host"},
    "host": {"options"},
    "options": {"errors"},
    "errors": set(),
}
"""The packages right below each one; it may import those, and what is below them."""
FREE = {"limits", "numerics"}
"""Modules of their own that any package may import."""


FILES = {
    ".".join(("adt", *file.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__"): file
    for file in ROOT.rglob("*.py")
}
"""Every file of ours by the module that it is."""


@functools.cache
def imports(file: Path) -> frozenset[tuple[int, str]]:
    """Return line and module of everything of ours that *file* imports, inside functions and for types only, too."""
    lines: set[tuple[int, str]] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "adt":
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            lines |= {(node.lineno, name if name in FILES else node.module) for name in names}
        elif isinstance(node, ast.Import):
            lines |= {(node.lineno, alias.name) for alias in node.names if alias.name.startswith("adt.")}
    return frozenset(lines)


def below(package: str) -> set[str]:
    """Return all that *package* may import."""
    return BELOW[package].union(*map(below, BELOW[package]))


def test_imports_go_one_way() -> None:
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert packages | {"errors"} == set(BELOW)
    assert {path.stem for path in ROOT.glob("*.py")} == FREE | {"__init__", "__main__", "errors"}
    wrong = [
        f"{file.relative_to(ROOT)}:{line} imports {module}"
        for package in packages
        for file in (ROOT / package).rglob("*.py")
        for line, module in imports(file)
        if (name := module.split(".")[1] if "." in module else "")
        and name not in below(package) | {package} | FREE
    ]
    assert not wrong


@pytest.mark.parametrize("package", sorted({module.rpartition(".")[0] for module in FILES} - {""}))
def test_folders_and_files_of_a_package_form_no_circle(package: str) -> None:
    def child(module: str) -> str:
        """Return the folder or file right inside *package* that holds *module*; empty: it lies elsewhere."""
        return module.removeprefix(f"{package}.").split(".")[0] if module.startswith(f"{package}.") else ""

    graph: dict[str, set[str]] = {}
    for module, file in FILES.items():
        if own := child(module):
            graph.setdefault(own, set()).update({child(name) for _, name in imports(file)} - {own, ""})
    graphlib.TopologicalSorter(graph).prepare()  # names the children of a circle


def test_no_file_imports_itself_through_others() -> None:
    graph = {module: {name for _, name in imports(file)} - {module} for module, file in FILES.items()}
    assert sum(map(len, graph.values())) > len(graph), "imports are seen at all"
    graphlib.TopologicalSorter(graph).prepare()  # names the files of a circle


ROLE = re.compile(r":(?:mod|func|class|data|attr|meth|exc):`~?(adt\.[\w.]+)`")


def exists(name: str) -> bool:
    """Return True if *name* is a module of ours, or one that holds a definition of that name."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        if (module := ".".join(parts[:length])) in FILES:
            file = FILES[module] if module != "adt" else ROOT / "__init__.pyi"
            return all(re.search(rf"\b{part}\b", file.read_text()) for part in parts[length:])
    return False


@pytest.mark.parametrize("folder", ["bench", "docs", "examples"])
def test_scripts_import_what_exists(folder: str) -> None:
    files = sorted((Path(__file__).parents[2] / folder).glob("*.py"))
    wrong = [
        f"{file.name}: {name}"
        for file in files
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module
        for name in [f"{node.module}.{alias.name}" for alias in node.names]
        if (
            not exists(name)
            if name.startswith("adt.")
            else not is_importable(node.module.split(".")[0], file.parent)
        )
    ]
    assert files and not wrong


def is_importable(package: str, folder: Path) -> bool:
    """Return True if *package* lies in *folder*, among the tests' support, or is installed."""
    beside = (folder / f"{package}.py", Path(__file__).parents[1] / package)
    return any(path.exists() for path in beside) or find_spec(package) is not None


def test_references_in_docstrings_lead_somewhere() -> None:
    dead = [
        f"{file.relative_to(ROOT)}: {name}"
        for file in FILES.values()
        for name in ROLE.findall(file.read_text())
        if not exists(name)
    ]
    assert not dead
