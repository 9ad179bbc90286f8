"""The table of TVM's tutorials (tests/seeds.md) names verbs, options, functions, tests and examples that there are."""

import re
from pathlib import Path
from typing import Any

import pytest
import typer

import adt
from adt.cli.app import app

TESTS = Path(__file__).parents[1]
ROWS = [
    [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
    for line in (TESTS / "seeds.md").read_text().splitlines()
    if line.startswith("| ") and not line.startswith(("| then ", "| --- "))
]


def command_of(words: list[str]) -> Any:
    """Return the program's command that *words* begin with."""
    command: Any = typer.main.get_command(app)
    for word in words:
        if not hasattr(command, "commands"):
            break
        command = command.commands[word]
    return command


def test_there_are_rows_for_all_five() -> None:
    assert len(ROWS) > 80
    assert all(len(row) == 3 and all(row) for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:40])
def test_a_row_is_true(row: list[str]) -> None:
    _, now, shown = row
    for code in re.findall(r"`adt ([^`]+)`", now):
        words = code.split()
        command = command_of(words)
        known = {name for param in command.params for name in (*param.opts, *param.secondary_opts)}
        assert {word for word in words if word.startswith("--")} <= known
        assert not hasattr(command, "commands"), f"{code} is no whole verb"
    assert set(re.findall(r"`adt\.(\w+)\(", now)) <= adt.NAMES.keys()
    places = re.findall(r"`(test_\w+\.py)::(test_\w+)`", shown)
    for file, name in places:
        assert any(f"def {name}(" in path.read_text() for path in TESTS.rglob(file)), f"{file} has no {name}"
    examples = re.findall(r"`(examples/\S+)`", shown)
    assert all((TESTS.parent / example).is_file() for example in examples)
    assert places or examples or "left out: " in now
