"""The table of the command line's verbs, from what the modules of ``adt.verbs`` register."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

from typer.models import CommandInfo

from adt import cli, verbs
from adt.cli.app import VERBS, app, command_name

DIRECTORY = Path(cli.__file__).parent


def verb_table() -> str:
    """Return the table of verbs that the command line reads before it imports one: ``adt/cli/verbs.json``.

    The command line of this process knows it from then on.
    """
    for path in sorted(Path(verbs.__file__).parent.glob("*.py")):
        import_module(f"adt.verbs.{path.stem}")
    rows = {
        command_name(command): _row([command], command.callback.__doc__)
        for command in app.registered_commands
    }
    for group in app.registered_groups:
        instance: Any = group.typer_instance
        rows[group.name] = _row(instance.registered_commands, instance.info.help)
    VERBS.clear()
    VERBS.update(sorted(rows.items()))
    return json.dumps(VERBS, indent=2, ensure_ascii=False) + "\n"


def _row(commands: Iterable[CommandInfo], text: str) -> dict[str, Any]:
    modules = sorted({command.callback.__module__.rpartition(".")[2] for command in commands})
    return {"modules": modules, "title": " ".join(inspect.cleandoc(text).partition("\n\n")[0].split())}
