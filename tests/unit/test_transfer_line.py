"""Progress of a transfer: on a terminal only, and only when it takes long."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.devices.programs import invoke, try_program
from support.waiting import on_terminal

PROGRAM = """
import sys
from adt.cli import terminal
from adt.cli.app import app
from adt.errors import AdtError
from adt.host.transfers import observer

terminal.QUIET_SECONDS = float(sys.argv.pop(1))

@app.command("send")
def send():
    for done in (0, 25, 100):
        if tell := observer.get():
            tell("mod.so", done * 1_000_000, 100_000_000)
    if tell:
        tell("mod.params", 1, 2)
        raise AdtError("it broke", remedy="-")

app()
"""


def test_a_long_transfer_has_a_line_that_goes_away() -> None:
    lines = on_terminal([sys.executable, "-c", PROGRAM, "0", "send"]).split("\r\x1b[K")
    assert " 25 % of 100.0 MB: mod.so" in lines
    assert lines[-2].strip() == "50 % of 0.0 MB: mod.params"
    assert "error:" in lines[-1], "an error does not stand behind a line that is left"


def test_a_short_transfer_has_none() -> None:
    assert "%" not in on_terminal([sys.executable, "-c", PROGRAM, "3600", "send"])


def test_piped_there_is_none() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, "0", "send"], capture_output=True, check=True)
    assert done.stderr == done.stdout == b""


SILENT = """
import sys
from adt.cli.app import app
from adt.host.transfers import silence

@app.command("wait")
def wait():
    tell = silence.get()
    for seconds in (5, 6, 7, 10, 19, 20, 0, 5, 0):
        tell(f"running m on S: {seconds} s so far", seconds)
    print("outputs")

app()
"""


def test_silence_has_a_line_that_goes_away_or_few_lines() -> None:
    shown = on_terminal([sys.executable, "-c", SILENT, "wait"]).split("\r\x1b[K")
    assert "running m on S: 6 s so far" in shown and shown[-1] == "outputs\r\n"
    piped = subprocess.run([sys.executable, "-c", SILENT, "wait"], capture_output=True, check=True, text=True)
    assert piped.stderr.splitlines() == [f"running m on S: {seconds} s so far" for seconds in (5, 10, 20)]
    assert piped.stdout == "outputs\n"


COLOURED = SILENT.replace("import sys", "import typer\nfrom adt.errors import AdtError").replace(
    'print("outputs")', "typer.secho('outputs', fg='green')\n    raise AdtError('no', remedy='none')"
)


@pytest.mark.parametrize(
    ("environ", "coloured", "moving"),
    [
        ({}, True, True),
        ({"NO_COLOR": "1", "CLICOLOR_FORCE": "1"}, False, True),
        ({"CLICOLOR": "0"}, False, True),
        ({"CLICOLOR": "0", "CLICOLOR_FORCE": "1"}, True, True),
        ({"TERM": "dumb"}, False, False),
    ],
)
def test_the_environment_decides_on_colours(environ: dict[str, str], coloured: bool, moving: bool) -> None:
    words = [sys.executable, "-c", COLOURED, "wait"]
    shown = on_terminal(words, **environ)
    assert ("\x1b[31m" in shown, "\x1b[32m" in shown, "\x1b[K" in shown) == (coloured, coloured, moving)
    piped = subprocess.run(words, capture_output=True, env=os.environ | environ, check=False)
    forced = coloured and "CLICOLOR_FORCE" in environ
    assert (b"\x1b[31m" in piped.stderr, b"\x1b[32m" in piped.stdout) == (forced, forced)


PRINTING = """
import ctypes, os, signal, sys
from adt.cli.main import main
from adt.device import probe
from adt.host.process import run

def overview(**_):
    run(["true"])
    os.write(2, b"LLVM: from a library\\n")
    exec(then)
    return ()

then, probe.overview = sys.argv.pop(1), overview
main()
"""
LIBRARY, INTERRUPTED = "LLVM: from a library\n", "interrupted: what was complete before is still there\n"


@pytest.mark.parametrize(
    ("then", "code", "shown"),
    [
        ("pass", 0, ""),
        ("signal.raise_signal(signal.SIGINT)", 130, INTERRUPTED),
        ("os.abort()", -signal.SIGABRT, LIBRARY),
        ("ctypes.CDLL(None).exit(1)", 1, LIBRARY),
        ("pass  # -v", 0, rf"\$ true  # \d\.\d s\n{LIBRARY}"),
    ],
)
def test_what_libraries_print_is_shown_where_it_explains_the_end(then: str, code: int, shown: str) -> None:
    words = [then, "devices", *["-v"] * then.endswith("-v")]
    done = try_program(sys.executable, "-c", PRINTING, *words)
    assert done.returncode == code and re.fullmatch(shown, done.stderr), done.stderr


def test_a_file_that_is_no_model_is_refused_without_the_words_of_a_library(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"\x08\x08\x12\x00\xff\xff")
    done = invoke("quantize", tmp_path / "m.onnx", "-o", tmp_path / "q.onnx")
    assert [line.split(": ")[0] for line in done.stderr.splitlines()] == ["error", "remedy"]
