"""On 80 columns no word is broken: in help, and in what is said on a terminal."""

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer

from adt.bundle import build
from adt.cli import terminal
from adt.cli.app import app
from support import waiting
from support.devices.programs import MAIN

COLUMNS = 80


def commands(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield path, command
    for name, child in getattr(command, "commands", {}).items():
        yield from commands(f"{path} {name}", child)


def words_of_help(path: str, command: Any, width: int) -> list[str]:
    context = command.make_context(
        path, [], resilient_parsing=True, terminal_width=width, max_content_width=width
    )
    text: str = command.get_help(context)
    assert width > COLUMNS or max(map(len, text.splitlines())) <= COLUMNS, path
    return text.split()


@pytest.mark.parametrize(
    ("path", "command"), list(commands("adt", typer.main.get_command(app))), ids=lambda value: str(value)
)
def test_help_breaks_no_word(path: str, command: Any) -> None:
    whole = set(words_of_help(path, command, 5000))
    shortened = (word for word in words_of_help(path, command, COLUMNS) if not word.endswith("..."))
    assert [word for word in shortened if word not in whole] == []


def on_terminal(*arguments: str, program: str = MAIN) -> str:
    """Return the command's output on a terminal of 80 columns, without colours."""
    text = waiting.on_terminal([sys.executable, "-c", program, *arguments], COLUMNS=str(COLUMNS))
    return re.sub(r"\x1b\[[0-9;]*m", "", text.replace("\r\n", "\n"))


def piped(*arguments: str, program: str = MAIN) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.stdout


SAYS = """
import typer
from adt.cli.app import Json
from adt.cli.app import app
from adt.errors import AdtError

@app.command("say")
def say(as_json: Json = False):
    typer.echo("    a finding of " + "many words " * 20)
    typer.echo("x" * 100 + " " + "words " * 20)
    raise AdtError("what happened " * 10, remedy="Do this. " * 12 + "\\n  adt compile " + "model " * 30)

import sys
sys.argv[0] = "adt"
from adt.cli.main import main
main()
"""


@pytest.mark.parametrize(
    ("arguments", "program"),
    [
        (["say"], SAYS),
        (["presets"], MAIN),
        (["doctor", "ndk"], MAIN),
        (["compile", "m.onnx", "--nope"], MAIN),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_terminal_gets_whole_words(
    arguments: list[str], program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    lines = on_terminal(*arguments, program=program).splitlines()
    long = [line for line in lines if len(line) > COLUMNS]
    assert all(" " not in line.strip() or line.strip().startswith("adt ") for line in long), long
    words = piped(*arguments, program=program).split()
    assert len(" ".join(words)) > COLUMNS
    shown_words = {word for line in lines for word in line.split()}
    assert [word for word in words if word not in shown_words and not re.search(r"\d", word)] == []


def test_a_continued_line_is_indented() -> None:
    lines = on_terminal("say", program=SAYS).splitlines()
    assert lines[0].startswith("    a finding") and lines[1].startswith("      ")
    assert lines[1][6] != " "
    assert any(line.startswith("  adt compile") and len(line) > 180 for line in lines), (
        "a command stays whole"
    )


HOSTILE = "a\x1b]0;x\x07b\x1b[2Jc\x1b[8md\x9b2Je\rf\x7fg\u202eh\ud800"
SHOWN = r"a\x1b]0;x\x07b\x1b[2Jc\x1b[8md\x9b2Je\rf\x7fg\u202eh\ud800"
SAYS_NAMES = f"""
import logging, sys, typer
from adt.verbs.deploy import live_table
from adt.cli.terminal import status_line
from adt.cli.app import app

NAME = {HOSTILE!r}

@app.command("say")
def say():
    typer.echo("\\tone " + NAME + typer.style("red", fg="red"))
    logging.getLogger("adt").warning("two %s", NAME)
    with status_line("three") as show:
        show(NAME)
    with live_table([NAME], quiet=False):
        logging.getLogger("adt").warning("four %s", NAME)
    raise ValueError("five " + NAME)

sys.argv[0] = "adt"
from adt.cli.main import main
main()
"""


def test_names_do_not_control_the_terminal() -> None:
    text = piped("say", program=SAYS_NAMES)
    assert text.startswith("\tone " + r"a\x1b]0;x\x07b")
    assert SHOWN in text and not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", text)
    shown = on_terminal("say", program=SAYS_NAMES)
    for code in ("\x1b]", "\x07", "\x1b[2J", "\x1b[8m", "\x9b", "\x7f", "\u202e"):
        assert code not in shown
    assert shown.count("\\x1b]0;x") >= 4


def test_a_pipe_gets_the_state_now_and_then_while_there_is_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "LINE_SECONDS", 0.02)
    lines = ""
    with terminal.status_line("build-target") as show:
        show("1 of 2, about 3 s left: a.cc")
        while lines.count("build-target: 1 of 2, about 3 s left: a.cc\n") < 2:
            lines += capsys.readouterr().err
        show("")
        time.sleep(0.1)  # a line may be under way
        capsys.readouterr()
        time.sleep(0.2)
    assert capsys.readouterr().err == ""


def test_a_build_says_how_much_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    times = iter((0.0, 1.0, 12.0, 40.0))
    monkeypatch.setattr(build, "time", SimpleNamespace(monotonic=times.__next__))
    on_line = build.progress_of_ninja(shown.append)
    for line in (
        "[0/2] Re-checking globbed directories...",
        "[1/20] Building a.o",
        "[5/20] Building C object x/b.o",
        "a.c: note",
        "[20/20] Linking y/l.so",
    ):
        on_line(line)
    assert shown == [
        "compiling",
        "1 of 20: Building a.o",
        "5 of 20, about 30 s left: b.o",
        "20 of 20, about 0 s left: l.so",
    ]


def test_a_document_is_not_touched() -> None:
    assert on_terminal("say", "--json", program=SAYS).splitlines()[1].count("words") == 20
