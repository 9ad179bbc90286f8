"""What a generator hands to the writer: text of adt's own, text that becomes the user's, and copies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class TextFile:
    """A file made from a template."""

    path: str
    """Below the output directory, with ``/``."""
    text: str
    users: bool = False
    """It is the user's from then on: written once, and never touched again."""
    executable: bool = False


@dataclass(frozen=True)
class CopiedFile:
    """A file of a package or a bundle."""

    path: str
    source: Path


OutputFile = TextFile | CopiedFile
