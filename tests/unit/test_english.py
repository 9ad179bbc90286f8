"""Docstrings begin with a verb or a noun, which tells a reader what the thing is."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import adt
from adt.host.directories import resource

TOP = Path(__file__).parents[2]
SOURCES = (Path(adt.__file__).parent, *(TOP / name for name in ("tests", "docs", "bench", "examples")))
"""The product, wherever it is installed, and all other Python of the repository."""
FORBIDDEN = re.compile(
    r"(What|Of|That|Those|Whether|How|Where|Such|So|Who|Whose|Which|When|Why|Same|The same)\b|…|\.\.\.|[a-z]"
)
"""Beginnings that withhold the noun, and fragments."""


def docstrings(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and content of each docstring of a module, a class, a function or an attribute."""
    for node in ast.walk(ast.parse(text)):
        for each in getattr(node, "body", []) if not isinstance(node, ast.Lambda | ast.IfExp) else []:
            if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant):
                yield each.lineno, str(each.value.value).strip()


@pytest.mark.parametrize(
    "text", ["What it is.", "Of the key.", "… so many.", "libadt_runner.", "Whether it is."]
)
def test_the_rule_refuses(text: str) -> None:
    assert FORBIDDEN.match(text)


def test_docstrings_begin_with_a_verb_or_a_noun() -> None:
    faults = [
        f"{path.relative_to(root)}:{line}: {text.splitlines()[0]}"
        for root in SOURCES
        for path in sorted(root.rglob("*.py"))
        for line, text in docstrings(path.read_text())
        if FORBIDDEN.match(text)
    ]
    assert not faults, "\n".join(faults)


def test_comments_of_the_interface_begin_with_a_verb_or_a_noun() -> None:
    """Read the headers of the C and C++ interface and the Java runtime, whose comments are documentation."""
    runner = resource("cpp_runner")
    files = sorted([*runner.glob("include/adt/*.h"), *runner.glob("java/**/*.java")])
    faults = [
        f"{path.name}: {text}"
        for path in files
        for start, text in re.findall(
            r"\n( *(?:///|/\*\*)) +(\S[^\n]*)",
            re.sub(r"(?<=\n)( */// [^\n]*\n)( */// [^\n]*\n)+", r"\1", path.read_text()),
        )
        if FORBIDDEN.match(text) and not text[0].islower()
    ]
    assert len(files) > 20 and not faults, "\n".join(faults)
