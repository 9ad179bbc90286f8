"""What a verb is asked for: a frozen dataclass of its options, complete once it is made."""

from __future__ import annotations

import functools
import inspect
import os
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, Self, TypeVar

from adt.options.option import REQUIRED, Option, Options, options_of, signature_of, types_of
from adt.options.resolve import Resolved, load_settings
from adt.options.sections import Settings

Keywords = ParamSpec("Keywords")
Asked = TypeVar("Asked")
Result = TypeVar("Result")


class Request(Options):
    """What was not said gets its value as every setting does, or its default.

    Raises:
        ConfigError: a setting cannot be, see :func:`adt.options.resolve.load_settings`.
    """

    resolved: Resolved

    def _complete(self, given: dict[str, Any]) -> None:
        known, kinds = options_of(type(self)), types_of(type(self))
        resolved = load_settings(
            {about.key: _said(about, given[name]) for name, about in known.items() if about.key}
        )
        for name, about in known.items():
            if given[name] is None and about.default is REQUIRED:
                raise TypeError(f"{name} is None")
            value = about.default if given[name] is None else _kept(kinds[name], given[name])
            object.__setattr__(self, name, resolved.values[about.key] if about.key else value)
        object.__setattr__(self, "resolved", resolved)

    @property
    def settings(self) -> Settings:
        """Every setting, also those that are no options of the verb."""
        return self.resolved.settings

    def named(self, name: str) -> Any:
        """The value of a setting that the caller gave; None where another place decided it."""
        origin = self.resolved.origins[options_of(type(self))[name].key]
        return getattr(self, name) if origin == "flag" else None

    def but(self, **changes: Any) -> Self:
        """The same, asked with *changes*."""
        same = {
            name: self.named(name) if about.key else getattr(self, name)
            for name, about in options_of(type(self)).items()
        }
        return type(self)(**same | changes)


def _said(about: Option, value: Any) -> Any:
    """The value of a setting: none of nothing at all; on or off of one that is also ``auto``."""
    if isinstance(value, list | tuple) and not value:
        return None
    return ("on" if value else "off") if isinstance(value, bool) and about.cli is bool else value


def _kept(kind: Any, value: Any) -> Any:
    """*value* as the field has it: paths and sequences may be given in several ways."""
    if kind is Path and isinstance(value, str | os.PathLike):
        return Path(value)
    if kind in (tuple[Path, ...], tuple[str, ...]):
        values = (value,) if isinstance(value, str | os.PathLike) else value
        return tuple(map(Path if kind == tuple[Path, ...] else os.fspath, values))
    return value


def takes(
    request: Callable[Keywords, Asked],
) -> Callable[[Callable[[Asked], Result]], Callable[Keywords, Result]]:
    """Let a function that takes a request be called with its keywords; they go to the documentation."""

    def decorate(function: Callable[[Asked], Result]) -> Callable[Keywords, Result]:
        @functools.wraps(function)
        def verb(*args: Keywords.args, **kwargs: Keywords.kwargs) -> Result:
            try:
                asked = request(*args, **kwargs)
            except TypeError as why:
                raise TypeError(f"{function.__name__}(): {why}") from why
            return function(asked)

        kind, returned = typing.cast(type, request), inspect.get_annotations(function).get("return")
        verb.__signature__ = signature_of(kind).replace(return_annotation=returned)  # type: ignore[attr-defined]
        verb.__doc__ = _documentation(function.__doc__ or "", kind)
        return verb

    return decorate


def _documentation(text: str, request: type) -> str:
    """*text* with what each keyword means, before the errors."""
    written, raises, errors = inspect.cleandoc(text).partition("\nRaises:")
    lines = "".join(f"    {name}: {_meaning(about)}\n" for name, about in options_of(request).items())
    return f"{written.rstrip()}\n\nArgs:\n{lines}{raises}{errors}"


def _meaning(about: Option) -> str:
    if about.key:
        return f"{about.doc} None: {about.key} of the settings."
    return about.doc if about.default in (None, "", ()) else f"{about.doc} Default: {about.default!r}."
