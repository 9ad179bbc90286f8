"""Identifiers for C++, Java and Kotlin out of any text, all different and none a word of these languages.

A name goes through one way: :func:`words` takes what is a letter or a digit of ASCII out of the text,
:class:`Names` gives each list of words a form that is free, and :class:`Name` spells it as each
language does. Whatever the text was, an identifier matches ``[A-Za-z][A-Za-z0-9_]*``.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

from adt.errors import ConfigError
from adt.integrate import reserved

LONGEST = 48
"""Characters of an identifier; what is longer ends after the last word that fits."""
CLASS_REMEDY = "Give a name such as Detector: --class NAME=Detector."
PACKAGE_REMEDY = (
    "Give two or more words in lower case, a domain of yours first: --package com.example.vision."
)

_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+[0-9]*|[A-Z]+[0-9]*|[0-9]+")


@dataclass(frozen=True)
class Name:
    """One name in the forms of each language."""

    words: tuple[str, ...]
    """Lower case; the first begins with a letter."""

    @property
    def snake(self) -> str:
        """``input_ids``."""
        return "_".join(self.words)

    @property
    def camel(self) -> str:
        """``inputIds``."""
        return self.words[0] + "".join(word.capitalize() for word in self.words[1:])

    @property
    def pascal(self) -> str:
        """``InputIds``."""
        return "".join(word.capitalize() for word in self.words)

    @property
    def constant(self) -> str:
        """``INPUT_IDS``."""
        return self.snake.upper()

    @property
    def key(self) -> str:
        """What two names must not share: without underscores and case, all forms differ."""
        return "".join(self.words)


class Names:
    """Gives names that differ from each other and from what is reserved."""

    def __init__(self, taken: Iterable[str] = (), endings: Iterable[str] = ()) -> None:
        """
        Args:
            taken: names in snake case that are never given.
            endings: last words that no name ends with.
        """
        self._taken = {one.replace("_", "").lower() for one in taken}
        self._endings = frozenset(endings)

    def give(self, text: str, noun: str, *, number: int | None = None) -> Name:
        """A name for *text* that nothing has yet.

        Args:
            text: any text.
            noun: what it names (``input``); added where the text alone makes no name, or a reserved one.
            number: which of its kind it is, for a text with no letter or digit.
        """
        found = words(text)
        if not found:
            found = [noun] if number is None else [noun, str(number)]
        elif found[0][0].isdigit():
            found = [noun, *found]
        name = Name(tuple(found))
        if not self._free(name) and found[-1] != noun:
            name = Name((*found, noun))
        count = 2
        while not self._free(name):
            name = Name((*found, noun, str(count)) if found[-1].isdigit() else (*found, str(count)))
            count += 1
        self.take(name)
        return name

    def take(self, name: Name) -> None:
        """Keep *name* from being given."""
        self._taken.add(name.key)

    def has(self, name: Name) -> bool:
        """Whether *name* is reserved or given already."""
        return not self._free(name)

    def _free(self, name: Name) -> bool:
        return name.key not in self._taken and name.words[-1] not in self._endings


def words(text: str) -> list[str]:
    """The words of *text* in lower case: runs of ASCII letters and digits, cut where camel case begins one.

    Accents go (``Größe`` is ``gro``, ``e``; ``é`` is ``e``), everything else separates.
    """
    plain = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    found: list[str] = []
    length = 0
    for match in _WORD.finditer(plain):
        word = match.group().lower()
        length += len(word) + 1
        if found and length > LONGEST:
            break
        found.append(word[:LONGEST])
    return found


def method_names() -> Names:
    """For the entries of one model, as methods of its class."""
    return Names(reserved.LANGUAGES | reserved.QUALIFIERS | reserved.OBJECT | reserved.METHODS)


def tensor_names() -> Names:
    """For inputs and outputs of one entry, as fields, methods and parameters."""
    return Names(reserved.LANGUAGES | reserved.QUALIFIERS | reserved.OBJECT)


def class_names(project: str) -> Names:
    """For the models of the project called *project*: classes, files, CMake targets and directories."""
    taken = reserved.LANGUAGES | reserved.PLATFORM | reserved.CLASSES | {project}
    return Names(taken, reserved.CLASS_ENDINGS)


def check_class(text: str, names: Names) -> Name:
    """The class that a user asked for by name; *names* does not give it again.

    Raises:
        ConfigError: it is no class's name, or reserved, or given already.
    """
    if not re.fullmatch(r"[A-Z][A-Za-z0-9]{0,47}", text):
        raise ConfigError(
            f"{text!r} is no name of a class: a capital letter, then letters and digits, at most {LONGEST}",
            remedy=CLASS_REMEDY,
        )
    name = Name(tuple(words(text)))
    if names.has(name):
        raise ConfigError(
            f"no class can be called {text}: the generated code, its languages or another model have it",
            remedy=CLASS_REMEDY,
        )
    names.take(name)
    return name


def check_package(java_package: str) -> None:
    """Refuse a name that is no Java package of an application.

    Raises:
        ConfigError: it is none, or reserved.
    """
    parts = java_package.split(".")
    if len(java_package) > 120 or not all(re.fullmatch(r"[a-z][a-z0-9_]*", part) for part in parts):
        raise ConfigError(
            f"{java_package!r} is no name of a package for an application", remedy=PACKAGE_REMEDY
        )
    if len(parts) < 2:
        raise ConfigError(
            f"the package {java_package} has one part, Android wants two", remedy=PACKAGE_REMEDY
        )
    if used := [part for part in parts if part in reserved.PACKAGE_PARTS]:
        raise ConfigError(
            f"the package {java_package} has the reserved word {used[0]} in it", remedy=PACKAGE_REMEDY
        )
    if parts[0] in reserved.PACKAGE_ROOTS:
        raise ConfigError(
            f"the package {java_package} begins with {parts[0]}, which belongs to the platform",
            remedy=PACKAGE_REMEDY,
        )


def project_name(java_package: str) -> str:
    """``vision`` for ``com.example.vision``; ``example_app`` for ``com.example.app``, not ``app``.

    Args:
        java_package: one that :func:`check_package` took.
    """
    parts = java_package.split(".")
    name = parts[-1]
    if _reserved_project(name):
        name = "_".join(parts[-2:])
    name = re.sub("_+", "_", name).strip("_")
    return f"{name}_project" if _reserved_project(name) else name


def _reserved_project(name: str) -> bool:
    return name in reserved.CPP | reserved.MACROS | reserved.DIRECTORIES
