"""Version numbers in what programs print."""

from __future__ import annotations

import re

Version = tuple[int, ...]


def parse_version(text: str, *, after: str = "") -> Version:
    """The first dotted number in *text*; empty when there is none.

    Args:
        after: only at the start of a line, behind this word.
    """
    start = rf"^{re.escape(after)} " if after else ""
    match = re.search(rf"{start}(\d+(?:\.\d+)+)", text, re.MULTILINE)
    return tuple(map(int, match[1].split("."))) if match else ()
