"""Run the installed `adt` program as a user would."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ADT = Path(sys.executable).parent / "adt"


def adt(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run `adt` with *arguments* and return how it ended."""
    words = [str(ADT), *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=1500, cwd=cwd)


def adt_json(*arguments: object, cwd: Path | None = None) -> dict[str, Any]:
    """Run `adt … --json`, which must work, and return its document."""
    done = adt(*arguments, "--json", cwd=cwd)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document
