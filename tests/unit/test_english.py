"""Docstrings begin with a verb or a noun, which tells a reader what the thing is."""

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
VERBS = frozenset((TOP / "tests/support/verbs.txt").read_text().split())
"""Beginnings of a function's docstring: a verb in its base form, or "True if" of a predicate."""


def docstrings(nodes: list[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield line and content of each docstring of a module, a class, a function or an attribute."""
    for node in nodes:
        for each in getattr(node, "body", []) if not isinstance(node, ast.Lambda | ast.IfExp) else []:
            if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant):
                yield each.lineno, str(each.value.value).strip()


def without_a_verb(nodes: list[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield line and content of each function's docstring that begins with no verb; a property's begins with a noun."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node) or "Return nothing."
            is_property = any("property" in ast.unparse(decorator) for decorator in node.decorator_list)
            if not is_property and re.split(r"[^A-Za-z-]", docstring)[0] not in VERBS:
                yield node.body[0].lineno, docstring


def faults(text: str) -> list[str]:
    """Return line and beginning of each docstring in *text* that begins neither with a verb nor with a noun."""
    nodes = [*ast.walk(ast.parse(text))]
    forbidden = {(line, docstring) for line, docstring in docstrings(nodes) if FORBIDDEN.match(docstring)}
    return [
        f"{line}: {docstring.splitlines()[0]}"
        for line, docstring in sorted(forbidden | set(without_a_verb(nodes)))
    ]


@pytest.mark.parametrize(
    "docstring",
    ["What it is.", "Of the key.", "… so many.", "libadt_runner.", "Whether it is."],
)
def test_the_rule_refuses(docstring: str) -> None:
    assert faults(f'key = 1\n"""{docstring}"""') == [f"2: {docstring}"]


@pytest.mark.parametrize(
    ("function", "refused"),
    [
        ('def f(): """Return the key."""', False),
        ('def f(): """True if it is a key."""', False),
        ("def f(): pass", False),
        ('@functools.cached_property\ndef f(self): """The key."""', False),
        ('class A: """The key."""', False),
        ('def f(): """The key."""', True),
        ('async def f(): """Returns the key."""', True),
        ('def f():\n  def g(): """It returns a key."""', True),
    ],
)
def test_the_rule_asks_functions_for_a_verb(function: str, refused: bool) -> None:
    assert bool(faults(function)) is refused


def test_docstrings_begin_with_a_verb_or_a_noun() -> None:
    messages = [
        f"{path.relative_to(root)}:{fault}"
        for root in SOURCES
        for path in sorted(root.rglob("*.py"))
        for fault in faults(path.read_text())
    ]
    assert not messages, "\n".join(messages)


def test_comments_of_the_interface_begin_with_a_verb_or_a_noun() -> None:
    """Read the headers of the C and C++ interface and the Java runtime, whose comments are documentation."""
    runner = resource("cpp_runner")
    files = sorted([*runner.glob("include/adt/*.h"), *runner.glob("java/**/*.java")])
    messages = [
        f"{path.name}: {text}"
        for path in files
        for start, text in re.findall(
            r"\n( *(?:///|/\*\*)) +(\S[^\n]*)",
            re.sub(r"(?<=\n)( */// [^\n]*\n)( */// [^\n]*\n)+", r"\1", path.read_text()),
        )
        if FORBIDDEN.match(text) and not text[0].islower()
    ]
    assert len(files) > 20 and not messages, "\n".join(messages)
