"""Ends of commands that did not work: one message for people, one document with ``--json``."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from typing import Any

from adt.host.interrupts import arrived


def document(verb: str, fields: dict[str, Any]) -> str:
    """Write one JSON document: ``schema`` is ``adt.<verb>``, ``schema_version`` 1, then *fields*."""
    head = {"schema": f"adt.{verb}", "schema_version": 1}
    return json.dumps(head | fields | head, indent=2, default=str)


def has_flag(arguments: Sequence[str], *flags: str) -> bool:
    """Return True if one of *flags* is among *arguments*, the command line."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return not set(flags).isdisjoint(arguments[:end])


def error_document(
    arguments: Sequence[str], kind: str, exit_code: int, what: str, remedy: str, details: str = ""
) -> None:
    """Print the document of an error when *arguments*, the command line, ask for one."""
    if has_flag(arguments, "--json"):
        fields = {"error": kind, "exit_code": exit_code, "what": what, "remedy": remedy, "details": details}
        sys.stdout.write(document("error", fields) + "\n")
        sys.stdout.flush()


def interrupted(arguments: Sequence[str]) -> int:
    """Say that ctrl-C or TERM ended the command; returns the exit code."""
    code = arrived()
    if reaper := sys.modules.get("adt.host.reaper"):  # imported only where something is to be cleaned up
        reaper.explain_end()
    remedy = "Run it again: what was complete before is still there."
    sys.stderr.write("interrupted: what was complete before is still there\n")
    error_document(arguments, "Interrupted", code, "interrupted", remedy)
    return code


def command_with(options: Sequence[str]) -> str:
    """Return this command line with *options* after it, ready to be pasted."""
    return shlex.join(["adt", *sys.argv[1:], *options])
