"""The shell scripts that run on devices: files of their own, which shellcheck reads."""

from __future__ import annotations

from functools import cache
from pathlib import Path

INCLUDE = ". ./"
"""A line that begins so, ``. ./NAME.sh``, stands for the text of that script: a device gets one text."""


@cache
def script(name: str) -> str:
    """Return the text of NAME.sh with what it includes, without the lines that are comments only."""
    lines = []
    for line in Path(__file__).with_name(f"{name}.sh").read_text().splitlines():
        if line.startswith(INCLUDE):
            lines.append(script(line.removeprefix(INCLUDE).removesuffix(".sh")))
        elif not line.lstrip().startswith("#"):
            lines.append(f"{line}\n")
    return "".join(lines)
