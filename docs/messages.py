"""Every error message of adt, read from the source: what it says, its class, its remedy.

An error is raised as ``Kind("what", remedy="…")`` or handed to a function that
raises it as ``run(…, error=Kind, what="…", remedy="…")``. Parts that are only
known when it happens appear as ``…``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import adt
from adt.errors import all_errors

ROOT = Path(adt.__file__).parent
OPEN = "…"
"""Placeholder of a value that is known at run time."""


@dataclass(frozen=True)
class Message:
    """One error that a user can meet."""

    area: str
    """The package that raises it: ``host``, ``target``, …"""
    kind: str
    """Name of the class in :mod:`adt.errors`."""
    exit_code: int
    what: str
    remedy: str


def messages() -> list[Message]:
    """Collect all messages, by area and exit code, each once."""
    codes = {error.__name__: error.exit_code for error in all_errors()}
    found = set()
    for file in ROOT.rglob("*.py"):
        area = file.relative_to(ROOT).parts[0].removesuffix(".py")
        for call, constants in _calls(ast.parse(file.read_text()), {}):
            if error := _error(call, codes, constants):
                kind, what, remedy = error
                found.add(Message(area, kind, codes[kind], what, remedy))
    return sorted(found, key=lambda m: (m.area, m.exit_code, m.what, m.remedy))


def _error(
    call: ast.Call, codes: Mapping[str, int], constants: Mapping[str, str]
) -> tuple[str, str, str] | None:
    """Return class, message and remedy of the error that *call* makes or is told to raise, if any."""
    named = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    if isinstance(call.func, ast.Name) and call.func.id in codes and call.args:
        kind, what = call.func.id, call.args[0]
    elif isinstance(error := named.get("error"), ast.Name) and error.id in codes and "what" in named:
        kind, what = error.id, named["what"]
    else:
        return None
    said = _text(what, constants)
    if said.strip(OPEN + " ;:,.()") == "":  # another error's message, passed on
        return None
    return kind, said, _text(named.get("remedy", ast.Constant("")), constants)


def _calls(node: ast.AST, constants: Mapping[str, str]) -> Iterator[tuple[ast.Call, Mapping[str, str]]]:
    """Yield each call within *node*, with the texts of names (``REMEDY = "…"``) that it can see."""
    if isinstance(node, ast.Module | ast.FunctionDef):
        constants = {**constants, **dict(_assigned_texts(node))}
    if isinstance(node, ast.Call):
        yield node, constants
    for child in ast.iter_child_nodes(node):
        yield from _calls(child, constants)


def _assigned_texts(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the names that are assigned a text in the module or function *node*, not in functions within."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Assign) and isinstance(target := child.targets[0], ast.Name):
            text = _text(child.value, {})
            if text != OPEN:
                yield target.id, text
        elif not isinstance(child, ast.FunctionDef):
            yield from _assigned_texts(child)


def _text(node: ast.expr, constants: Mapping[str, str]) -> str:
    """Return the text of an expression, with OPEN for what is not a literal."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_text(part, constants) for part in parts)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _text(left, constants) + _text(right, constants)
        case ast.Name(id=name):
            return constants.get(name, OPEN)
    return OPEN
