"""Run `adt` as a user would, in a fork that has its libraries loaded (fork_server), or in this process."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from support.devices.fork_server import forked_adt

ADT = Path(sys.executable).parent / "adt"
"""The installed program: for tests of its start, of what it imports, and of equal bytes from two processes."""


MAIN = 'import sys; sys.argv[0] = "adt"; from adt.cli.main import main; main()'
"""Code of the program, for an interpreter whose modules a test prepares."""


def real_program(name: str) -> str | None:
    """Return where the program *name* lies, the system's first: elsewhere on PATH may be a compiler cache's
    link of that name, which starts nothing without the rest of PATH."""
    return shutil.which(name, path=f"/usr/bin:/bin:{os.environ['PATH']}")


def try_program(
    *words: object, cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a program with more variables in its *environment*, and return how it ended."""
    command, env = list(map(str, words)), {**os.environ, **environment}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=1500, cwd=cwd, env=env
    )


def run_program(
    *words: object, cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a program as :func:`try_program`; it must work."""
    done = try_program(*words, cwd=cwd, **environment)
    assert done.returncode == 0, f"{words}:\n{done.stdout}{done.stderr}"
    return done


def program_output(*words: object, cwd: Path | None = None, **environment: str) -> str:
    """Run a program, which must work, and return what it wrote to its standard output."""
    return run_program(*words, cwd=cwd, **environment).stdout


def write_program(path: Path, script: str) -> Path:
    """Write a program of the shell that runs *script*."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def command_lines(text: str, variable: str | None = None) -> dict[int, str]:
    """Return by pid the command lines, words apart by blanks, that contain *text*.

    Args:
        variable: ``NAME=VALUE`` in the environment of those processes.
    """
    lines = {}
    for process in psutil.process_iter(["cmdline", "environ"]):
        line, environment = " ".join(process.info["cmdline"] or ()), process.info["environ"] or {}
        matches = (
            variable is None or environment.get(variable.partition("=")[0]) == variable.partition("=")[2]
        )
        if text in line and matches and process.pid != os.getpid():
            lines[process.pid] = line
    return lines


def path_with_adt() -> str:
    """Return PATH with an `adt` that is a fork, for shells."""
    return f"{Path(forked_adt(str(ADT))).parent}:{ADT.parent}:{os.environ['PATH']}"


def adt(
    *arguments: object,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
    program: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run `adt` with *arguments* and return how it ended: a fork, unless *program* is given."""
    words = [str(program or forked_adt(str(ADT))), *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=1500, cwd=cwd, env=env)


def adt_json(*arguments: object, **options: Any) -> dict[str, Any]:
    """Run `adt … --json`, which must work, and return its document."""
    done = adt(*arguments, "--json", **options)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def invoke(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the command line `adt` with *arguments* in this process, which needs no start of a program."""
    from typer.testing import CliRunner

    from adt.cli.app import app

    words = list(map(str, arguments))
    logger = logging.getLogger("adt")
    handlers, propagate, level = logger.handlers[:], logger.propagate, logger.level
    done = CliRunner().invoke(app, words)
    logger.handlers[:], logger.propagate = (
        handlers,
        propagate,
    )  # the command line's write to a stream that is closed
    logger.setLevel(level)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return subprocess.CompletedProcess(words, done.exit_code, done.stdout, done.stderr)


def invoke_json(*arguments: object) -> dict[str, Any]:
    """Run `adt … --json` in this process, which must work, and return its document."""
    done = invoke(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


@dataclass(frozen=True)
class Finished:
    """Result of rtvm."""

    code: int
    out: str
    err: str

    @classmethod
    def of(cls, *words: object, **environment: str) -> Finished:
        done = try_program(*words, **environment)
        return cls(done.returncode, done.stdout, done.stderr)

    @property
    def json(self) -> dict[str, Any]:
        """Its document; it must have worked."""
        assert self.code == 0, self.err
        document: dict[str, Any] = json.loads(self.out)
        return document

    def refused(self, code: int, *words: str) -> None:
        """Expect *code*, nothing on stdout, and an error and a remedy that has all *words* in them."""
        assert self.code == code, self.err
        assert self.out == ""
        assert "rtvm: error: " in self.err
        assert "\nremedy: " in self.err
        assert "Traceback" not in self.err
        for word in words:
            assert word in self.err, self.err
