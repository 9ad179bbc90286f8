"""Request of a verb: a frozen record of its options, complete once it is made."""

from __future__ import annotations

import ast
import contextlib
import copy
import functools
import inspect
import sys
import typing
from collections.abc import Callable, Mapping
from importlib import import_module
from types import SimpleNamespace
from typing import Any, ParamSpec, Protocol, Self, TypeVar, overload

from adt.options.option import REQUIRED, Option, Options, options_of, signature_of, values_of
from adt.options.resolve import Resolved, executed, load_settings, override, show_programs
from adt.options.sections import Settings

Keywords = ParamSpec("Keywords")
Asked = TypeVar("Asked", contravariant=True)
Result = TypeVar("Result", covariant=True)


class Request(Options):
    """Options of a verb; one that is not given gets its value as every setting does, or its default."""

    def _complete(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        flags = self._flags(arguments)
        settings = self._settings(resolve_settings(flags)) if flags else {}  # before any file is looked at
        arguments = {
            name: about.complete(arguments[name], arguments) if about.complete else arguments[name]
            for name, about in self._options.items()
        }
        return super()._complete(arguments) | settings

    def _flags(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return {
            self._options[name].key: _setting(self._options[name], value)
            for name, value in arguments.items()
            if self._options[name].key
        }

    def _settings(self, resolved: Resolved) -> dict[str, Any]:
        keys = {name: about.key for name, about in self._options.items() if about.key}
        return {name: resolved.values[key] for name, key in keys.items()} | {"_resolved": resolved}

    @property
    def resolved(self) -> Resolved:
        """Every setting and where it came from."""
        if "_resolved" not in self.__dict__:  # none of its options is a setting
            self.__dict__["_resolved"] = load_settings({})
        resolved: Resolved = self.__dict__["_resolved"]
        return resolved

    @property
    def settings(self) -> Settings:
        """Every setting, also those that are no options of the verb."""
        return self.resolved.settings

    def named(self, name: str) -> Any:
        """Return the value of a setting that the caller gave; None where another place decided it."""
        return self.resolved.given(options_of(type(self))[name].key)

    def keywords_of(self, other: type[Options], *without: str) -> dict[str, Any]:
        """Return the keywords, but *without* some, with which *other* asks for the same."""
        return {
            name: self.named(name) if about.key else getattr(self, name)
            for name, about in options_of(other).items()
            if name in self._options and name not in without
        }

    def but(self, **changes: Any) -> Self:
        """Return a copy with *changes*. No setting is looked up again; one that is None stays as it is."""
        asked = copy.copy(self)
        values = super()._complete(values_of(self) | changes)
        if flags := self._flags(changes):
            values |= self._settings(override(self.resolved, flags))
        asked.__dict__.update(values)
        return asked


def resolve_settings(flags: Mapping[str, object]) -> Resolved:
    """Resolve every setting, *flags* by ``section.key``, and show what a project's file has executed."""
    resolved = load_settings(flags)
    if not flags.keys().isdisjoint(executed()):
        show_programs(resolved)
    return resolved


def _setting(about: Option, value: Any) -> Any:
    """Return the value of a setting: None for an empty list; on or off for one that is also ``auto``."""
    if isinstance(value, Mapping):  # shapes, and extents of symbols
        texts = {n: f"={v}" if isinstance(v, int) else f":{','.join(map(str, v))}" for n, v in value.items()}
        value = [name + text for name, text in texts.items()]
    if isinstance(value, list | tuple) and not value:
        return None
    return ("on" if value else "off") if isinstance(value, bool) and about.cli is bool else value


class Verb(Protocol[Keywords, Asked, Result]):
    """A function that takes a request, or the keywords that make one."""

    @overload
    def __call__(self, request: Asked, /) -> Result: ...
    @overload
    def __call__(self, *args: Keywords.args, **kwargs: Keywords.kwargs) -> Result: ...


def takes(
    request: Callable[Keywords, Asked],
) -> Callable[[Callable[[Asked], Result]], Verb[Keywords, Asked, Result]]:
    """Let a function that takes a request be called with its keywords; they go to the documentation."""

    def decorate(function: Callable[[Asked], Result]) -> Verb[Keywords, Asked, Result]:
        @functools.wraps(function)
        def verb(*args: Any, **kwargs: Any) -> Result:
            if len(args) == 1 and isinstance(args[0], kind) and not kwargs:
                return function(typing.cast(Asked, args[0]))
            try:
                asked = request(*args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{function.__name__}(): {error}") from error
            return function(asked)

        kind, returned = typing.cast(type, request), inspect.get_annotations(function).get("return")
        verb.request = kind  # type: ignore[attr-defined]
        verb.__signature__ = signature_of(kind).replace(return_annotation=returned)  # type: ignore[attr-defined]
        # What each keyword means goes before the errors.
        written, raises, errors = inspect.cleandoc(function.__doc__ or "").partition("\nRaises:")
        lines = "".join(f"    {name}: {_meaning(about)}\n" for name, about in options_of(kind).items())
        verb.__doc__ = f"{written.rstrip()}\n\nArgs:\n{lines}{raises}{errors}"
        return typing.cast(Verb[Keywords, Asked, Result], verb)

    return decorate


def _meaning(about: Option) -> str:
    default = "" if about.default in (None, "", (), REQUIRED) else f" Default: {about.default!r}."
    return f"{about.doc}{default}" + (f" None: the setting {about.key}." if about.key else "")


class _Names(dict[str, Any]):
    """Names of a module, also those that it imports for type checkers alone."""

    def __missing__(self, name: str) -> Any:
        for line in ast.walk(ast.parse(inspect.getsource(sys.modules[self["__name__"]]))):
            for alias in line.names if isinstance(line, ast.Import | ast.ImportFrom) else ():
                if name == (alias.asname or alias.name):
                    with contextlib.suppress(ImportError):  # of TVM, where it is not installed
                        module = import_module(getattr(line, "module", alias.name))
                        return getattr(module, name, module)
                    return Any
        raise KeyError(name)


@functools.cache
def with_types(verb: Any) -> Any:
    """Put types in the place of names in the annotations of *verb*, a function, and have its result print."""
    if not inspect.isfunction(verb):
        return verb
    types: dict[str, Any] = {}
    for owner in filter(None, (verb, vars(verb).get("request"))):
        holder = SimpleNamespace(__annotations__=inspect.get_annotations(owner))
        names = _Names(vars(sys.modules[owner.__module__]))
        hints = typing.get_type_hints(holder, localns=names, include_extras=True)
        types |= {name: getattr(hint, "__metadata__", (hint,))[0] for name, hint in hints.items()}
    _print_result(verb, types["return"])
    signature = inspect.signature(verb)
    verb.__annotations__ = {name: types[name] for name in (*signature.parameters, "return")}
    parameters = [each.replace(annotation=types[name]) for name, each in signature.parameters.items()]
    signature = signature.replace(parameters=parameters, return_annotation=types["return"])
    vars(verb)["__signature__"] = signature
    return verb


def _print_result(verb: Any, kind: Any) -> None:
    """Have ``str`` of a *kind*, the result of *verb*, be what the command line prints; ``repr`` is short."""
    returned = inspect.get_annotations(inspect.unwrap(verb))["return"]
    for lines in filter(inspect.isfunction, [*vars(sys.modules[verb.__module__]).values()]):
        if lines.__name__.endswith("lines") and returned in [*inspect.get_annotations(lines).values()][:1]:
            kind.__str__ = lambda result, lines=lines: "\n".join(lines(result)).strip("\n")
            kind.__repr__ = lambda result: f"<{type(result).__name__}: {str(result).partition(chr(10))[0]}>"
