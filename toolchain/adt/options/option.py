"""One option of a verb, written once: its type, default, documentation, flag and setting.

A class of :func:`options` is a frozen dataclass with keywords only, whose fields are options. The types below
are what a caller may give and what the field then is: ``Text`` takes None for "not said" and is a ``str``.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
import re
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, dataclass_transform

Class = TypeVar("Class")

if TYPE_CHECKING:
    Given = TypeVar("Given", contravariant=True)
    Kept = TypeVar("Kept", covariant=True)

    class _Field(Generic[Given, Kept]):
        """To type checkers: a field that takes one type and is of another."""

        def __get__(self, owner: object, kind: Any = None) -> Kept: ...
        def __set__(self, owner: object, value: Given) -> None: ...

    AnyPath = str | os.PathLike[str]
    PathTo = _Field[AnyPath, Path]
    MaybePath = _Field[AnyPath | None, Path | None]
    Paths = _Field[Sequence[AnyPath] | None, tuple[Path, ...]]
    OneOrMorePaths = _Field[AnyPath | Sequence[AnyPath] | None, tuple[Path, ...]]
    Text = _Field[str | None, str]
    Directory = _Field[AnyPath | None, str]
    Switch = _Field[bool | str | None, str]
    Texts = _Field[Sequence[str] | None, tuple[str, ...]]
    Files = _Field[Sequence[AnyPath] | None, tuple[str, ...]]
    Flag = _Field[bool | None, bool]
    Number = _Field[int | None, int]
    Real = _Field[float | None, float]
else:
    PathTo, MaybePath, Paths = Path, Path | None, tuple[Path, ...]
    OneOrMorePaths, Files = Paths, tuple[str, ...]
    Text = Directory = Switch = str
    Texts = tuple[str, ...]
    Flag, Number, Real = bool, int, float


@dataclass
class Option:
    """What is known of one option besides its name and type."""

    doc: str
    """For the documentation, of Python and of the settings."""
    default: Any
    help: str
    """For ``--help``."""
    key: str
    """``section.key`` of the setting that it is; empty: it is none."""
    flags: tuple[str, ...]
    """Empty: the field's name with dashes."""
    metavar: str
    choices: tuple[str, ...]
    """Shown as the metavar, and offered by shell completion."""
    complete: str
    """What shell completion offers (:mod:`adt.cli.completions`)."""
    least: float | None
    most: float | None
    cli: Any
    """The type that the command line takes, where it is not the field's; None: Python alone has it."""
    separator: str
    """Between values that one word of the command line may hold."""
    positional: bool

    @property
    def variable(self) -> str:
        """The environment's name of the setting."""
        return "ADT_" + self.key.replace(".", "_").upper()


REQUIRED = dataclasses.MISSING
FIRST_CLAUSE = re.compile(r"; |: | \(|\. ")
"""Ends the part of a setting's documentation that is its help, unless it has one of its own."""
OF_FIELD = object()
"""The command line takes the field's type."""


def option(
    doc: str,
    *,
    default: Any = REQUIRED,
    kw_only: bool = True,
    help: str = "",
    key: str = "",
    flags: Sequence[str] = (),
    metavar: str = "",
    choices: Sequence[str] = (),
    complete: str = "",
    least: float | None = None,
    most: float | None = None,
    cli: Any = OF_FIELD,
    separator: str = "",
) -> Any:
    """A field that is an option; see :class:`Option`. The help is the documentation unless it is given.

    Args:
        kw_only: False for what is given by its place, an argument.
    """
    about = Option(
        doc,
        default,
        help or doc,
        key,
        tuple(flags),
        metavar or "|".join(choices),
        tuple(choices),
        complete,
        least,
        most,
        cli,
        separator,
        not kw_only,
    )
    return dataclasses.field(default=None if key else default, kw_only=kw_only, metadata={"option": about})


def python(doc: str, *, default: Any) -> Any:
    """A field that only Python can give."""
    return option(doc, default=default, cli=None)


@dataclass_transform(kw_only_default=True, field_specifiers=(option, python))
def options(section: str = "") -> Callable[[type[Class]], type[Class]]:
    """Make a class of options; those written in it are settings of *section*, where it is one."""

    def decorate(kind: type[Class]) -> type[Class]:
        for name in inspect.get_annotations(kind) if section else ():
            field = kind.__dict__[name]
            about = field.metadata["option"]
            about.key = about.key or f"{section}.{name}"
            if about.help == about.doc:
                about.help = FIRST_CLAUSE.split(about.doc)[0].replace("``", "").removesuffix(".") + "."
            field.default = None
        return dataclass(init=False, repr=False, eq=False, kw_only=True)(kind)

    return decorate


class Options:
    """What a frozen dataclass can do. It is written here once: made for each class, as dataclasses do it, it
    would take longer than all else at the start of a command.
    """

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        known = options_of(type(self))
        places = [name for name, about in known.items() if about.positional]
        for name, value in zip(places, arguments, strict=False):
            if name in keywords:
                raise TypeError(f"got multiple values for argument {name!r}")
            keywords[name] = value
        if len(arguments) > len(places):
            raise TypeError(f"takes {len(places)} positional arguments but {len(arguments)} were given")
        for name in keywords.keys() - known.keys():
            raise TypeError(f"got an unexpected keyword argument {name!r}")
        for name, about in known.items():
            if name not in keywords and about.default is REQUIRED:
                raise TypeError(f"missing a required argument: {name!r}")
        self._complete({name: keywords.get(name) for name in known})

    def _complete(self, given: dict[str, Any]) -> None:
        """Set every field; None is "not given"."""
        for name, about in options_of(type(self)).items():
            object.__setattr__(self, name, about.default if given[name] is None else given[name])

    def __setattr__(self, name: str, value: object) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and _values(self) == _values(other)

    def __hash__(self) -> int:
        return hash(_values(self))

    def __repr__(self) -> str:
        pairs = zip(options_of(type(self)), _values(self), strict=True)
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in pairs)})"


def _values(instance: Any) -> tuple[Any, ...]:
    return tuple(getattr(instance, name) for name in options_of(type(instance)))


def signature_of(kind: type) -> inspect.Signature:
    """How a class of options is called."""
    fields = sorted(dataclasses.fields(kind), key=lambda field: bool(field.kw_only))
    return inspect.Signature(
        [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY if field.kw_only else inspect.Parameter.POSITIONAL_OR_KEYWORD,
                annotation=field.type,
                default=inspect.Parameter.empty if field.default is REQUIRED else field.default,
            )
            for field in fields
        ]
    )


def options_of(kind: type) -> dict[str, Option]:
    """The options of a class by the field's name, in their order."""
    return {field.name: field.metadata["option"] for field in dataclasses.fields(kind)}


def types_of(kind: type) -> dict[str, Any]:
    """The type of each field, None not counted."""
    return {name: _bare(hint) for name, hint in typing.get_type_hints(kind).items()}


def _bare(hint: Any) -> Any:
    kinds = [one for one in typing.get_args(hint) if one is not type(None)]
    return kinds[0] if type(None) in typing.get_args(hint) and len(kinds) == 1 else hint
