"""One option of a verb, written once: its type, default, documentation, flag and setting.

A class of :class:`Options` is a frozen record with keywords only, whose fields are options. The types below
are what a caller may give and what the field then is: ``Text`` takes None for "not given" and is a ``str``.
"""

from __future__ import annotations

import builtins
import inspect
import os
import re
import sys
import typing
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, Self, TypeVar, overload

from adt.errors import ConfigError

AnyPath = str | os.PathLike[str]
if TYPE_CHECKING:
    Accepted = TypeVar("Accepted", contravariant=True)
    Value = TypeVar("Value", covariant=True)

    class _Field(Generic[Accepted, Value]):
        """To type checkers: a field that takes one type and is of another."""

        @overload
        def __get__(self, owner: None, kind: Any = None) -> Any: ...
        @overload
        def __get__(self, owner: object, kind: Any = None) -> Value: ...
        def __get__(self, owner: object, kind: Any = None) -> Any: ...
        def __set__(self, owner: object, value: Accepted) -> None: ...

else:

    class _Field:  # for help
        __class_getitem__ = staticmethod(lambda kinds: Annotated[kinds[1], kinds[0]])


PathTo = _Field[AnyPath, Path]
MaybePath = _Field[AnyPath | None, Path | None]
Paths = _Field[Sequence[AnyPath] | None, tuple[Path, ...]]
OneOrMorePaths = _Field[AnyPath | Sequence[AnyPath] | None, tuple[Path, ...]]
Text = _Field[str | None, str]
Directory = _Field[AnyPath | None, str]
Switch = _Field[bool | str | None, str]
Texts = _Field[Sequence[str] | None, tuple[str, ...]]
OneOrMoreTexts = _Field[str | Sequence[str] | None, tuple[str, ...]]
Files = _Field[Sequence[AnyPath] | None, tuple[str, ...]]
Shapes = _Field[Sequence[str] | Mapping[str, int | Sequence[int]] | None, tuple[str, ...]]
Flag = _Field[bool | None, bool]
Number = _Field[int | None, int]
Real = _Field[float | None, float]

REQUIRED: Any = inspect.Parameter.empty
FIRST_CLAUSE = r"; |: | \(|\. "
"""Ends it."""
DEFAULT_CLAUSE = r"; (?:else|empty:|0:|negative:) "
"""Begins what is taken without the option, where its default does not tell."""
OF_FIELD = object()
"""The command line takes the field's type."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `` Did you mean 'x'?``, or nothing."""
    import difflib

    close = difflib.get_close_matches(word, list(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


@dataclass(eq=False, slots=True)
class Option:
    """Properties of one option besides its name and type."""

    doc: str
    """For the documentation, of Python and of the settings."""
    flags: tuple[str, ...]
    """Empty: the field's name with dashes."""
    default: Any = REQUIRED
    kw_only: bool = True
    """False for what is given by its place, an argument."""
    help: str = ""
    """For ``--help``, unless it is the documentation, of a setting its first clause."""
    key: str = ""
    """``section.key`` of the setting that it is; empty: it is none."""
    metavar: str = ""
    choices: Sequence[str] = ()
    """Shown as the metavar, and offered by shell completion."""
    offers: str = ""
    """Kind of words that shell completion offers (:mod:`adt.cli.completions`)."""
    check: Callable[[Any], object] | None = None
    """Raises, before any work, what is wrong with a value: an output that cannot be written."""
    executes: bool | None = None
    """True if adt, or a device, runs code from the place that a setting names; False if it only reads there.
    None: it names no place. What a project's file has executed is shown first."""
    least: float = 0
    """Range of a number."""
    most: float | None = None
    cli: Any = OF_FIELD
    """The type that the command line takes, where it is not the field's; None: Python alone has it."""
    separator: str = ""
    """Between values that one word of the command line may hold."""
    parse: Callable[[Any], Any] | None = None
    """Makes the field's value of what the command line took; not called for an absent option."""
    complete: Callable[[Any, Mapping[str, Any]], Any] | None = None
    """Replaces the value that a request was given; takes the values of its other options, too."""
    name: str = ""

    @property
    def short(self) -> str:
        """Sentence for ``--help``."""
        text, clause = self.help or self.doc, DEFAULT_CLAUSE if self.help or not self.key else FIRST_CLAUSE
        return re.split(clause, text.replace("``", ""))[0].removesuffix(".") + "."

    @property
    def default_text(self) -> str:
        """Text of what is taken without it, for help pages and documentation; empty: nothing to tell."""
        _, *clause = re.split(DEFAULT_CLAUSE, f"{self.help} {self.doc}".replace("``", ""), maxsplit=1)
        if clause or self.default in (REQUIRED, None, "", ()):
            return re.split(FIRST_CLAUSE, clause[0])[0].removesuffix(".") if clause else ""
        if isinstance(self.default, bool | float):
            return f"{self.default:g}" if isinstance(self.default, float) else ("off", "on")[self.default]
        return str(self.default)

    @property
    def flag(self) -> str:
        """The first of its flags."""
        return self.flags[0] if self.flags else f"--{self.name.replace('_', '-')}"

    @property
    def variable(self) -> str:
        """The environment's name of the setting."""
        return "ADT_" + self.key.replace(".", "_").upper()

    def checked(self, value: Any, name: str = "") -> Any:
        """Return *value*, given as *name*; ConfigError if it is out of the range or none of the choices."""
        name = name or (self.flag if self.kw_only or self.flags else self.name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            least, most = self.least, self.most or sys.float_info.max
            if not least <= value <= most:
                bounds = f"from {least:.12g} to {most:.12g}" if self.most else f"of at least {least:.12g}"
                raise ConfigError(
                    f"{name}: {value} is not a number {bounds}", remedy=f"Give {name} a number {bounds}."
                )
        words = (value,) if isinstance(value, str) else value if isinstance(value, list | tuple) else ()
        for word in map(str, words) if self.choices else ():
            if word not in (*self.choices, self.default):
                raise ConfigError(
                    f"{name}: {word!r} is none of its values.{did_you_mean(word, self.choices)}",
                    remedy=f"Give one of {', '.join(self.choices)}.",
                )
        if self.check and value is not None:
            self.check(value)
        return value


def option(doc: str | Option, /, *flags: str, **about: Any) -> Any:
    """Make a field that is an option, see :class:`Option`: a new one, or a shared one with changes."""
    return replace(doc, **about) if isinstance(doc, Option) else Option(doc, flags, **about)


def python(doc: str, **about: Any) -> Any:
    """Make a field that only Python can give."""
    return Option(doc, (), cli=None, **about)


@typing.dataclass_transform(kw_only_default=True, field_specifiers=(option, python))
class Options:
    """A frozen record of the options that a class writes; with a *section* they are settings of it."""

    _options: ClassVar[Mapping[str, Option]] = {}
    _signature: ClassVar[inspect.Signature]
    _types: ClassVar[dict[str, Any]]

    def __init_subclass__(cls, section: str = "") -> None:
        assert not any(vars(base).get("_options") for base in cls.__mro__[1:]), "options are not inherited"
        cls._options = {name: about for name, about in vars(cls).items() if isinstance(about, Option)}
        for name, about in cls._options.items():
            about.name = name
            if section:
                about.key = about.key or f"{section}.{name}"

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        values = signature_of(type(self)).bind(*arguments, **keywords).arguments
        for name, about in self._options.items():  # before any model is fetched
            if not about.key:
                about.checked(values.get(name))
        self.__dict__.update(self._complete({name: values.get(name) for name in self._options}))

    def _complete(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the value of every field; None is "not given"."""
        kinds = types_of(type(self))
        return {
            name: _field_value(name, kinds[name], arguments[name], about.default)
            for name, about in self._options.items()
        }

    def but(self, **changes: Any) -> Self:
        """Return a copy with *changes*."""
        return type(self)(**values_of(self) | changes)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"cannot assign to field {name!r}")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and values_of(self) == values_of(other)

    def __hash__(self) -> int:
        return hash(tuple(values_of(self).values()))

    def __repr__(self) -> str:
        pairs = (f"{name}={value!r}" for name, value in values_of(self).items())
        return f"{type(self).__name__}({', '.join(pairs)})"


def options_of(kind: type[Options]) -> Mapping[str, Option]:
    """Return the options of a class by the field's name, in their order."""
    return kind._options


def values_of(instance: Options) -> dict[str, Any]:
    """Return the values of *instance* by the field's name, in their order."""
    return {name: getattr(instance, name) for name in instance._options}


def signature_of(kind: type[Options]) -> inspect.Signature:
    """Return the signature with which a class of options is called."""
    if "_signature" not in vars(kind):
        parameters = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY if about.kw_only else inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=None if about.key else about.default,
            )
            for name, about in sorted(kind._options.items(), key=lambda item: item[1].kw_only)
        ]
        kind._signature = inspect.Signature(parameters)
    return kind._signature


def types_of(kind: type[Options]) -> dict[str, Any]:
    """Return the type of each field, None not counted."""
    if "_types" not in vars(kind):
        own = SimpleNamespace(__annotations__=inspect.get_annotations(kind))
        names = vars(builtins) | vars(sys.modules[kind.__module__])
        # Any for what the module imports for type checkers alone
        hints = typing.get_type_hints(own, localns=defaultdict(lambda: Any, names))
        kind._types = {name: without_none(hints[name]) for name in kind._options}
    return kind._types


def without_none(hint: Any) -> Any:
    """Return a type without None as one of its kinds."""
    kinds = [kind for kind in typing.get_args(hint) if kind is not type(None)]
    return kinds[0] if type(None) in typing.get_args(hint) and len(kinds) == 1 else hint


def _field_value(name: str, kind: Any, value: Any, default: Any) -> Any:
    """Return *value* as the field has it: paths and sequences may be given in several ways."""
    if value is None and default is REQUIRED:
        raise TypeError(f"{name} is None")
    if value is None:
        return default
    if kind is Path and isinstance(value, str | os.PathLike):
        return Path(value)
    if kind in (tuple[Path, ...], tuple[str, ...]):
        values = (value,) if isinstance(value, str | os.PathLike) else value
        if not isinstance(values, Iterable):
            raise TypeError(f"{name} = {value!r} is not a list")
        return tuple(map(Path if kind == tuple[Path, ...] else os.fspath, values))
    return value
