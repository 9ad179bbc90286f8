"""The instructions of the Dockerfile."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def instructions() -> list[tuple[str, str]]:
    """Return each instruction's name and the rest of it, continued lines joined."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", "")
    return [tuple(line.split(maxsplit=1)) for line in text.splitlines() if re.match("[A-Z]", line)]  # type: ignore[misc]
