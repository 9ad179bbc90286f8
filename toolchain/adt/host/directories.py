"""Directories that travel with adt, and those that it keeps on this machine."""

from __future__ import annotations

import os
from pathlib import Path

import adt


def resource(name: str) -> Path:
    """Return the directory *name* (cmake_presets, cpp_runner, templates): of an installed wheel
    (``adt/share``), or of a checkout.

    Raises:
        FileNotFoundError: the installation is incomplete.
    """
    package = Path(adt.__file__).resolve().parent
    for candidate in (package / "share" / name, package.parents[1] / name):
        if candidate.is_dir():
            return candidate
    raise FileNotFoundError(f"adt's own directory {name}/ is missing beside {package}; install adt again")


def cache_dir() -> Path:
    """Return the directory of all that adt can make again: ``$ADT_CACHE_DIR``, else ``~/.cache/adt``."""
    return _directory("ADT_CACHE_DIR", "XDG_CACHE_HOME", "~/.cache")


def data_dir() -> Path:
    """Return the directory of measurements, which cannot be made again: ``$ADT_DATA_DIR``, else
    ``~/.local/share/adt``."""
    return _directory("ADT_DATA_DIR", "XDG_DATA_HOME", "~/.local/share")


def state_dir() -> Path:
    """Return the directory of what runs now: ``~/.local/state/adt``."""
    return _directory("", "XDG_STATE_HOME", "~/.local/state")


def _directory(variable: str, base: str, default: str) -> Path:
    if explicit := os.environ.get(variable):
        return Path(explicit).expanduser().absolute()
    return Path(os.environ.get(base) or default).expanduser().absolute() / "adt"
