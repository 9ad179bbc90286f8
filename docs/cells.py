"""A page of an example that is written in cells, as notebooks are: `# %%` begins code, `# %% [markdown]` text."""

from __future__ import annotations

import re
from pathlib import Path

CELL = re.compile(r"^# %%(.*)\n", re.M)
LANGUAGES = {".py": "python", ".sh": "sh"}


def page(example: Path) -> str:
    """Return the text as it is, and the code in blocks; what comes before the first cell is left out."""
    language = LANGUAGES[example.suffix]
    _, *cells = CELL.split(example.read_text())
    blocks = []
    for kind, body in zip(cells[::2], cells[1::2], strict=True):
        if kind == " [markdown]":
            blocks.append(re.sub(r"^# ?", "", body.strip(), flags=re.M))
        else:
            blocks.append(f"```{language}\n{body.strip()}\n```")
    return "\n\n".join(blocks) + "\n"
