"""The command line's side of an option: what typer must know of a field, and commands made of a request."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from adt.api.requests import Deploying
from adt.cli import completions
from adt.options.option import OF_FIELD, REQUIRED, Option, options_of, types_of
from adt.options.sections import BuildSettings, DeviceSettings, VerifySettings

Given = dict[str, Any]
"""The keywords of a verb, as the command line gave them; None is "not given"."""


def flag(kind: type, name: str) -> Any:
    """What a parameter of a command is annotated with to be the option *name* of *kind*."""
    return _shown(options_of(kind)[name], name)


def _shown(about: Option, name: str) -> Any:
    if about.positional:
        return typer.Argument(help=about.help, metavar=about.metavar or None)
    offered: Any = getattr(completions, about.complete) if about.complete else None
    if about.choices:
        offered = completions.offer(lambda: about.choices)
    return typer.Option(
        *about.flags,
        help=about.help,
        metavar=about.metavar or None,
        autocompletion=offered,
        min=about.least,
        max=about.most,
    )


Platform = Annotated[str | None, flag(BuildSettings, "platform")]
Ndk = Annotated[str | None, flag(BuildSettings, "ndk")]
Serial = Annotated[str | None, flag(DeviceSettings, "serial")]
Timeout = Annotated[float | None, flag(DeviceSettings, "timeout")]
Bundle = Annotated[Path | None, flag(Deploying, "bundle")]
Seed = Annotated[int | None, flag(VerifySettings, "seed")]


def command_of(request: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of *request*, which its function gets first, as one dictionary of keywords.

    Parameters that the function has itself come after them, or in the place of one with the same name.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        _, *own = inspect.signature(function, eval_str=True).parameters.values()
        mine = {one.name for one in own}
        kinds, options = types_of(request), options_of(request)
        from_request = {
            name: about for name, about in options.items() if about.cli is not None and name not in mine
        }
        parameters = [_parameter(name, about, kinds[name]) for name, about in from_request.items()]

        @functools.wraps(function)
        def command(**values: Any) -> None:
            given = {
                name: _value(values.pop(name), about, kinds[name]) for name, about in from_request.items()
            }
            function(given, **values)

        every = [*parameters, *(one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own)]
        every.sort(key=lambda one: not _is_argument(one))
        command.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
        command.__annotations__ = {one.name: one.annotation for one in every}
        return command

    return decorate


def _is_argument(parameter: inspect.Parameter) -> bool:
    extras = getattr(parameter.annotation, "__metadata__", ())
    return any(isinstance(one, type(typer.Argument())) for one in extras)


def _parameter(name: str, about: Option, kind: Any) -> inspect.Parameter:
    if typing.get_origin(kind) is tuple:
        kind = list[typing.get_args(kind)[0]]  # type: ignore[misc]
    if about.cli is not OF_FIELD:
        kind = about.cli
    required = about.default is REQUIRED
    default = None if about.key or required or about.default == () else about.default
    if default is None and not required:
        kind = kind | None
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        annotation=Annotated[kind, _shown(about, name)],
        default=inspect.Parameter.empty if required else default,
    )


def _value(value: Any, about: Option, kind: Any) -> Any:
    """As the request takes it."""
    if about.separator and value:
        words = [value] if isinstance(value, str) else value
        return [each for word in words for each in word.split(about.separator) if each]
    return (value or None) if kind is bool and about.key and _one_way(about) else value


def _one_way(about: Option) -> bool:
    """A flag that can only switch on: absent it says nothing."""
    return bool(about.flags) and not any("/" in one for one in about.flags)
