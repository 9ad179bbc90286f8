"""Find the source directories that travel with adt: cmake_presets/, cpp_runner/, templates/."""

from __future__ import annotations

from pathlib import Path

import adt


def resource(name: str) -> Path:
    """The directory *name*, in an installed wheel (``adt/share``) or in a checkout.

    Raises:
        FileNotFoundError: the installation is incomplete.
    """
    package = Path(adt.__file__).resolve().parent
    for candidate in (package / "share" / name, package.parents[1] / name):
        if candidate.is_dir():
            return candidate
    raise FileNotFoundError(f"adt's own directory {name}/ is missing beside {package}; install adt again")
