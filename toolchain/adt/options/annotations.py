"""Types of verbs, for ``help`` and ``typing.get_type_hints``, in place of the names in their source.

Modules of verbs import most types for type checkers alone, since importing them takes long. Here they are
imported once a program has asked for a verb that has them.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import sys
import typing
from collections.abc import Mapping
from importlib import import_module
from types import FunctionType, SimpleNamespace
from typing import Any, TypeVar

from adt.options.option import options_of

Verb = TypeVar("Verb")


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


def _types(annotations: Mapping[str, Any], module: str) -> dict[str, Any]:
    """Return the types that *annotations* of a *module* name; of an option what a caller may give."""
    holder, names = SimpleNamespace(__annotations__=annotations), _Names(vars(sys.modules[module]))
    hints = typing.get_type_hints(holder, localns=names, include_extras=True).items()
    return {name: hint.__metadata__[0] if hasattr(hint, "__metadata__") else hint for name, hint in hints}


def _print_result(verb: FunctionType, kind: Any) -> None:
    """Have ``str`` of a *kind*, the result of *verb*, be what the command line prints; ``repr`` is short.

    The function that yields the lines is in the module of the verb, and takes the result.
    """
    returned = inspect.get_annotations(inspect.unwrap(verb))["return"]
    for lines in filter(inspect.isfunction, [*vars(sys.modules[verb.__module__]).values()]):
        takes = next(iter(inspect.get_annotations(lines).values()), "")
        if lines.__name__.endswith("lines") and takes == returned:
            kind.__str__ = lambda result, lines=lines: "\n".join(lines(result)).strip("\n")
            kind.__repr__ = lambda result: f"<{type(result).__name__}: {str(result).partition(chr(10))[0]}>"


@functools.cache
def with_types(verb: Verb) -> Verb:
    """Put types in the place of names in the annotations of *verb*, a function."""
    if not inspect.isfunction(verb):
        return verb
    types = _types(inspect.get_annotations(inspect.unwrap(verb)), verb.__module__)
    _print_result(verb, types["return"])
    if request := vars(verb).get("request"):
        fields = inspect.get_annotations(request)
        types = {
            "return": types["return"],
            **_types({name: fields[name] for name in options_of(request)}, request.__module__),
        }
    signature = inspect.signature(verb)
    parameters = [each.replace(annotation=types[name]) for name, each in signature.parameters.items()]
    signature = signature.replace(parameters=parameters, return_annotation=types["return"])
    verb.__annotations__, vars(verb)["__signature__"] = types, signature
    return verb
