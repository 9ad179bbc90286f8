"""Commands of the command line, made of the options that they take (:mod:`adt.options`)."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import typer

from adt.cli import completions
from adt.cli.app import Json, Verbose, app, emit_json
from adt.errors import AdtError
from adt.options.option import OF_FIELD, Option, Options, options_of, types_of

Keywords = dict[str, Any]
"""The keywords of a verb, as the command line gave them; None is "not given"."""


@dataclass(frozen=True)
class Rendering:
    """Output of a command at its end, and its exit code."""

    verb: str
    """Verb of the document's schema."""
    fields: Callable[[], dict[str, Any]]
    """Fields of the document."""
    lines: Iterable[str]
    """For people; made one by one while they are printed."""
    error: AdtError | None = None
    """Raised after the lines. A document says it all: then only its exit code counts."""
    exit_code: int = 0
    """Without an error."""

    def show(self, *, as_json: bool) -> None:
        """Print one of them."""
        if as_json:
            emit_json(self.verb, self.fields())
        else:
            for line in self.lines:
                typer.echo(line)
        if self.error and not as_json:
            raise self.error
        if code := self.error.exit_code if self.error else self.exit_code:
            raise typer.Exit(code)


def command(
    example: str,
    request: type[Options] | None = None,
    flags: type[Options] | None = None,
    *,
    group: typer.Typer = app,
    name: str | None = None,
    json: bool = True,
    **about: Any,
) -> Callable[[Callable[..., Rendering | None]], Callable[..., Rendering | None]]:
    """Register a function as a command with the options of *request* and *flags*, --json and --verbose.

    It gets the request's options as keywords for the function of :mod:`adt.api` and an instance of *flags*,
    what the command line alone has, and returns what is printed; what is None here is left out. One that
    shows something while it works takes *as_json*, too. An option of *flags* takes the place of the
    request's with the same name.
    """
    ours = _on_command_line(flags)
    theirs = {name: about for name, about in _on_command_line(request).items() if name not in ours}

    def decorate(function: Callable[..., Rendering | None]) -> Callable[..., Rendering | None]:
        streams = "as_json" in inspect.signature(function).parameters

        @functools.wraps(function)
        def run(verbose: bool, as_json: bool = False, **values: Any) -> None:
            parts: list[Any] = [_given(values, theirs)] if request else []
            parts += [flags(**_given(values, ours))] if flags else []
            rendering = function(*parts, *([as_json] if streams else ()))
            if rendering is not None:
                rendering.show(as_json=as_json)

        kinds = (types_of(request) if request else {}) | (types_of(flags) if flags else {})
        parameters = [_parameter(name, about, kinds[name]) for name, about in (theirs | ours).items()]
        parameters.sort(key=lambda parameter: not isinstance(parameter.annotation.__metadata__[0], ARGUMENT))
        parameters += [_keyword("as_json", Json, False)] if json else []
        parameters += [_keyword("verbose", Verbose, False)]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        group.command(name, epilog=f"Example: {example}", **about)(run)
        return function

    return decorate


ARGUMENT = type(typer.Argument())


def _on_command_line(kind: type[Options] | None) -> dict[str, Option]:
    every = options_of(kind) if kind else {}
    return {name: about for name, about in every.items() if about.cli is not None}


def _given(values: Mapping[str, Any], options: Mapping[str, Option]) -> Keywords:
    return {name: _value(values[name], about) for name, about in options.items()}


def _value(value: Any, about: Option) -> Any:
    """As the request takes it."""
    if about.separator and value:
        words = [value] if isinstance(value, str) else value
        return [each for word in words for each in word.split(about.separator) if each]
    if isinstance(value, bool) and _one_way(about):
        return value != about.default if value or not about.key else None  # absent it says nothing
    return value


def _one_way(about: Option) -> bool:
    """A switch whose flag is for the other value than the default."""
    return isinstance(about.default, bool) and (
        not any("/" in flag for flag in about.flags)
        if about.flags
        else about.default is False and not about.key
    )


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _parameter(name: str, about: Option, kind: Any) -> inspect.Parameter:
    """The parameter of typer's function for the option *name*, whose field is of the type *kind*."""
    flags, default, offers = about.flags, about.default, None
    if about.cli is not OF_FIELD:
        kind = about.cli
    if about.choices:
        offers = completions.offer(lambda: about.choices)
        if _is_argument(about):  # one that is none of these is a mistake of usage
            kind = _each(kind, StrEnum(name, {choice: choice for choice in about.choices}))
    elif about.offers:
        offers = getattr(completions, about.offers)
    if typing.get_origin(kind) is tuple and typing.get_args(kind)[-1] is ...:
        kind = list[typing.get_args(kind)[0]]  # type: ignore[misc]
    if _one_way(about):
        flags, default = flags or (about.flag,), False
    if about.key or default == ():
        default = None
    shown: dict[str, Any] = {"help": about.short, "metavar": about.metavar or None, "autocompletion": offers}
    if _is_argument(about):
        info = typer.Argument(**shown)
    else:
        shown["metavar"] = shown["metavar"] or "|".join(about.choices) or None
        info = typer.Option(*flags, min=about.least, max=about.most, **shown)
    return _keyword(name, Annotated[kind | None if default is None else kind, info], default)


def _is_argument(about: Option) -> bool:
    return not about.kw_only and not about.flags


def _each(kind: Any, choice: Any) -> Any:
    """*kind*, one text or several, of choices."""
    return tuple[choice, ...] if typing.get_origin(kind) is tuple else choice
