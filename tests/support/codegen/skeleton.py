"""A generated file without what is only text in it: comments and the contents of literals.

Two files that differ only in text have one skeleton. So a name that got out of its literal or
comment and became code is found, whatever it says.
"""

import json
import re
import tomllib
from pathlib import PurePosixPath
from typing import Any
from xml.etree import ElementTree


class Unclosed(ValueError):
    """A comment or literal that does not end."""


def skeleton(path: str, text: str) -> object:
    """Return the structure of the file *path* with *text*; of a kind that holds no code, its name.

    Raises:
        ValueError: it is no such file: a literal without an end, XML that is not well formed.
    """
    name = PurePosixPath(path).name
    kind = PurePosixPath(path).suffix
    if name == "CMakeLists.txt" or kind == ".cmake" or name.endswith(".cmake.in"):
        return cmake(text)
    if kind == ".java":
        return c_like(java_escapes(text), nested=False)
    if kind in (".kt", ".kts"):
        return c_like(text, nested=True, templates=True)
    if kind in (".cc", ".h", ".c"):
        if re.search(r"\\\n|\?\?/", text):
            raise Unclosed("a line that is continued")  # generated code has none: it would be a name's
        return c_like(text, nested=False)
    if kind == ".xml":
        return tags(ElementTree.fromstring(text))
    if kind == ".toml":
        return keys(tomllib.loads(text))
    if kind == ".json":
        return keys(json.loads(text))
    if kind in (".properties", ".pro") or name == ".gitignore":
        return [line for line in text.splitlines() if not line.startswith("#")]
    return kind


def java_escapes(text: str) -> str:
    """Return the text that javac sees: it turns escapes like ``\u000a`` into characters before anything
    else."""
    return re.sub(
        r"(?<!\\)((?:\\\\)*)\\u+([0-9a-fA-F]{4})", lambda match: match[1] + chr(int(match[2], 16)), text
    )


def c_like(text: str, *, nested: bool, templates: bool = False) -> list[str]:
    """Return the tokens of C++, Java or Kotlin, each literal as ``""``.

    Args:
        nested: comments nest, as Kotlin's do.
        templates: a ``$`` in a literal is code, as in Kotlin.
    """
    tokens: list[str] = []
    position = 0
    while token := TOKEN.match(text, position):
        word, position = token.group(), token.end()
        if word == "/*":
            position = _comment_end(text, token.start(), nested)
        elif word in ('"', "'"):
            raise Unclosed(text[token.start() : token.start() + 80])
        elif word.startswith(('"', "'")) and not word.startswith('"""'):
            code = re.findall(r"(?<!\\)(?:\\\\)*\$(\{[^}]*\}|\w+)", word) if templates else []
            tokens.append('""' + "".join(code))
        elif not word.startswith("//") and not word.isspace():
            tokens.append(word)
    return tokens


TOKEN = re.compile(
    r"""//[^\n\r]* | /\*
    | \"{3} .*? \"{3}                              # ours alone: no name goes into these
    | "(?:[^"\\\n\r]|\\[^\n\r])*" | '(?:[^'\\\n\r]|\\[^\n\r])*'
    | \w+ | \s+ | .""",
    re.DOTALL | re.VERBOSE,
)
MARK = re.compile(r"/\*|\*/")


def _comment_end(text: str, position: int, nested: bool) -> int:
    depth = 0
    for mark in MARK.finditer(text, position):
        if mark.group() == "*/":
            depth -= 1
            if depth == 0 or not nested:
                return mark.end()
        else:
            depth += 1
    raise Unclosed(text[position : position + 80])


def cmake(text: str) -> list[str]:
    """Return the tokens of CMake, each quoted argument as ``""`` and what it refers to."""
    tokens: list[str] = []
    for token in re.finditer(r'#[^\n]*|"(?:[^"\\]|\\.)*"|"|\s+|[^\s"#()]+|[()]', text, re.DOTALL):
        word = token.group()
        if word == '"':
            raise Unclosed(text[token.start() : token.start() + 80])
        if word.startswith('"'):
            tokens.append('""' + "".join(re.findall(r"(?<!\\)(?:\\\\)*(\$\{[^}]*\}|\$<[^>]*>|@\w+@)", word)))
        elif not word.startswith("#") and not word.isspace():
            tokens.append(word)
    return tokens


def tags(element: ElementTree.Element) -> list[Any]:
    return [element.tag, sorted(element.attrib), [tags(child) for child in element]]


def keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: keys(element) for key, element in value.items()}
    if isinstance(value, list):
        return [keys(element) for element in value]
    return type(value).__name__
