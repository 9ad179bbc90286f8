"""Where adt keeps its files on this machine."""

from __future__ import annotations

import os
from pathlib import Path


def cache_dir() -> Path:
    """The directory of everything that adt can make again: ``$ADT_CACHE_DIR``, else ``~/.cache/adt``."""
    return _directory("ADT_CACHE_DIR", "XDG_CACHE_HOME", "~/.cache")


def data_dir() -> Path:
    """The directory of what was measured, which cannot be made again: ``$ADT_DATA_DIR``, else
    ``~/.local/share/adt``."""
    return _directory("ADT_DATA_DIR", "XDG_DATA_HOME", "~/.local/share")


def state_dir() -> Path:
    """The directory of what runs: ``~/.local/state/adt``."""
    return _directory("", "XDG_STATE_HOME", "~/.local/state")


def _directory(variable: str, base: str, default: str) -> Path:
    if explicit := os.environ.get(variable):
        return Path(explicit).expanduser().absolute()
    return Path(os.environ.get(base) or default).expanduser().absolute() / "adt"
