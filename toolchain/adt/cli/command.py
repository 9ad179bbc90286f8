"""Commands of the command line, made of the options that they take (:mod:`adt.options`)."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from adt.cli import completions
from adt.cli.app import Command, Json, Verbose, app
from adt.cli.endings import document
from adt.errors import AdtError
from adt.host.document import document_of
from adt.options.option import OF_FIELD, REQUIRED, Option, options_of, types_of, without_none


@dataclass(frozen=True)
class Rendering:
    """Output of a command at its end, and its exit code."""

    verb: str
    """Verb of the document's schema."""
    result: Any
    """Contents of the document (:mod:`adt.host.document`): a record, or fields by name, or their maker."""
    lines: Iterable[str]
    """For people; made one by one while they are printed."""
    error: AdtError | None = None
    """Raised after the lines. A document says it all: then only its exit code counts."""
    exit_code: int = 0
    """Without an error."""

    def show(self, *, as_json: bool) -> None:
        """Print one of them."""
        if as_json:
            result = self.result() if callable(self.result) else self.result
            typer.echo(document(self.verb, document_of(result)))
        else:
            for line in self.lines:
                typer.echo(line)
        if self.error and not as_json:
            raise self.error
        if code := self.error.exit_code if self.error else self.exit_code:
            raise typer.Exit(code)


@dataclass(frozen=True)
class _Argument:
    """One argument of a command's function: a record of options, or the value of one option."""

    name: str
    make: Callable[..., Any] | None
    """Makes the record; None: the only option's value is the argument."""
    options: Mapping[str, Option]
    types: Mapping[str, Any]

    def value(self, words: Mapping[str, Any]) -> Any:
        """Return the argument, made of the values that the command line gave."""
        values = {name: _value(words[name], about) for name, about in self.options.items()}
        return self.make(**values) if self.make else values[self.name]


def command(
    *examples: str,
    phone: bool = False,
    group: typer.Typer = app,
    name: str | None = None,
    json: bool = True,
    **about: Any,
) -> Callable[[Callable[..., Rendering | None]], Callable[..., Rendering | None]]:
    """Register a function as a command with the options that it takes, --json and --verbose.

    Each parameter is a class of options, of which the function gets an instance (or, annotated as a
    ``partial`` of it, what makes the instance), or it is annotated with one option. An option takes the place
    of one of an earlier parameter with the same name. A command that shows something while it works takes
    *as_json*, too. It returns what is printed at its end. Of two examples the second needs a phone; with
    *phone* it is the first one with a serial.
    """

    def decorate(function: Callable[..., Rendering | None]) -> Callable[..., Rendering | None]:
        hints = typing.get_type_hints(function, include_extras=True)
        streams = hints.pop("as_json", None) is not None
        arguments = _arguments({name: hint for name, hint in hints.items() if name != "return"})

        @functools.wraps(function)
        def run(verbose: int, as_json: bool = False, **words: Any) -> None:
            values = {argument.name: argument.value(words) for argument in arguments}
            rendering = function(**values, **({"as_json": as_json} if streams else {}))
            if rendering is not None:
                rendering.show(as_json=as_json)

        options = {name: about for argument in arguments for name, about in argument.options.items()}
        types = {name: argument.types[name] for argument in arguments for name in argument.options}
        parameters = [_parameter(name, about, types[name]) for name, about in options.items()]
        parameters.sort(key=lambda parameter: not isinstance(parameter.annotation.__metadata__[0], ARGUMENT))
        parameters += [_keyword("as_json", Json, False)] if json else []
        parameters += [_keyword("verbose", Verbose, 0)]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        both = (*examples, f"{examples[0]} --serial SERIAL") if phone else examples
        kind = type("VerbCommand", (Command,), {"options": options, "examples": both, "phone": phone})
        title = name or function.__name__.removesuffix("_command").replace("_", "-")
        group.command(title, cls=kind, epilog=f"Example: {examples[0]}", **about)(run)
        return function

    return decorate


ARGUMENT = type(typer.Argument())


def _arguments(hints: Mapping[str, Any]) -> list[_Argument]:
    """Return the arguments of a function whose parameters are annotated with *hints*."""
    arguments: list[_Argument] = []
    taken: set[str] = set()
    for name, hint in reversed([*hints.items()]):
        options, types, make = _options(name, hint)
        free = {name: about for name, about in options.items() if about.cli is not None and name not in taken}
        arguments.insert(0, _Argument(name, make, free, types))
        taken |= free.keys()
    return arguments


def _options(
    name: str, hint: Any
) -> tuple[Mapping[str, Option], Mapping[str, Any], Callable[..., Any] | None]:
    """Return the options of a parameter, their types, and what makes its argument of several values."""
    if typing.get_origin(hint) is Annotated:
        kind, about = typing.get_args(hint)
        return {name: replace(about, name=name)}, {name: without_none(kind)}, None
    if typing.get_origin(hint) is functools.partial:
        (kind,) = typing.get_args(hint)
        return options_of(kind), types_of(kind), functools.partial(functools.partial, kind)
    return options_of(hint), types_of(hint), hint


def _value(value: Any, about: Option) -> Any:
    """Return *value* as the field has it; None is "not given"."""
    if about.separator and value:
        words = [value] if isinstance(value, str) else value
        return [each for word in words for each in word.split(about.separator) if each]
    if isinstance(value, bool) and _one_way(about):
        return value != about.default if value or not about.key else None  # absent it says nothing
    return about.parse(value) if about.parse and value else value


def _one_way(about: Option) -> bool:
    """Return True if the flag of a switch is for the other value than the default."""
    return isinstance(about.default, bool) and (
        not any("/" in flag for flag in about.flags)
        if about.flags
        else about.default is False and not about.key
    )


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _parameter(name: str, about: Option, kind: Any) -> inspect.Parameter:
    """Make the parameter of typer's function for the option *name*, whose field is of the type *kind*."""
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
    shown: dict[str, Any] = {"help": about.short, "autocompletion": offers, "show_default": False}
    shown["callback"] = lambda value: about.checked(value)  # before any value is used
    if _is_argument(about):
        word, several = _metavar(about, name), typing.get_origin(kind) in (list, tuple)
        word = word if about.default is REQUIRED else f"[{word}]"
        info = typer.Argument(metavar=word + "..." * several, **shown)
    else:
        shown["metavar"] = None if kind is bool else _metavar(about, METAVARS.get(kind) or name)
        info = typer.Option(*flags, min=about.least, max=about.most, **shown)
    return _keyword(name, Annotated[kind | None if default is None else kind, info], default)


METAVARS = {int: "N", float: "NUMBER", Path: "FILE"}


def _metavar(about: Option, name: str) -> str:
    """Return what stands for an option's value: its own word, the choices, the range, or its *name*."""
    if about.metavar or about.choices:
        return about.metavar or f"{{{','.join(about.choices)}}}"
    if type(about.least) is type(about.most) is int:
        return f"{about.least}..{about.most}"
    return name.upper()


def _is_argument(about: Option) -> bool:
    return not about.kw_only and not about.flags


def _each(kind: Any, choice: Any) -> Any:
    """Return the type *kind*, one text or several, with *choice* in the place of text."""
    return tuple[choice, ...] if typing.get_origin(kind) is tuple else choice
