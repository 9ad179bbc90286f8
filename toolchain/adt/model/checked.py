"""What came of running a package's kernels on the machine that compiled it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class CheckedOutput:
    """How far one output was from the CPU's."""

    name: str
    difference: float
    """Greatest difference, as a share of the output's greatest magnitude; of whole numbers, the
    share that differs."""
    floating: bool
    passed: bool = True
    """It is within the limit, or off by one quantum where it was quantised."""
    nothing_finite: bool = False
    """It is NaN or infinite everywhere, on the CPU, too."""


@dataclass(frozen=True)
class Checked:
    """The kernels ran here and computed what the CPU does."""

    device: str
    """OpenCL device, for people."""
    inputs: str
    """What they computed on."""
    limit: float
    """Largest difference that passes."""
    outputs: tuple[CheckedOutput, ...]

    @property
    def worst(self) -> float:
        """Largest difference of an output."""
        return max((row.difference for row in self.outputs), default=0.0)


@dataclass(frozen=True)
class Unchecked:
    """They did not run here."""

    reason: str


def save(checked: Checked | Unchecked | None, path: Path) -> None:
    """Write *checked* to the JSON file *path*; None writes nothing."""
    if checked is not None:
        path.write_text(json.dumps(asdict(checked)))


def load(path: Path) -> Checked | Unchecked | None:
    """What :func:`save` wrote; None without the file."""
    if not path.is_file():
        return None
    facts = json.loads(path.read_text())
    if "reason" in facts:
        return Unchecked(**facts)
    return Checked(**{**facts, "outputs": tuple(CheckedOutput(**row) for row in facts["outputs"])})
