"""Requests of every verb."""

from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

from adt import verbs
from adt.options.option import Options

_MODULES = [import_module(f"adt.verbs.{file.stem}") for file in Path(verbs.__file__).parent.glob("*.py")]
KINDS = tuple(
    {
        value: None
        for module in _MODULES
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Options) and value.__name__.endswith("Request")
        if value.__module__.startswith("adt.verbs.")
    }
)
"""Their classes."""
requests = SimpleNamespace(**{kind.__name__: kind for kind in KINDS})
"""Each by its name."""
