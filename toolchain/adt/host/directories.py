"""Directories that travel with adt, and those that it keeps here, which no other user decides about."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from shlex import quote

import adt
from adt.errors import DiskError

_CACHE = "ADT_CACHE_DIR", "XDG_CACHE_HOME", "~/.cache"
_DATA = "ADT_DATA_DIR", "XDG_DATA_HOME", "~/.local/share"
_STATE = "", "XDG_STATE_HOME", "~/.local/state"


def resource(name: str) -> Path:
    """Return the directory *name* (cmake_presets, templates, …) of a wheel (``adt/share``) or a checkout."""
    package = Path(adt.__file__).resolve().parent
    for candidate in (package / "share" / name, package.parents[1] / name):
        if candidate.is_dir():
            return candidate
    raise FileNotFoundError(f"adt's own directory {name}/ is missing beside {package}; install adt again")


def cache_dir() -> Path:
    """Return the directory of what adt can make again: ``$ADT_CACHE_DIR``, else ``$XDG_CACHE_HOME/adt``, else
    ``~/.cache/adt``.
    """
    return _own(*_CACHE)


def data_dir() -> Path:
    """Return the directory of measurements, kept for good: ``$ADT_DATA_DIR``, else ``~/.local/share/adt``."""
    return _own(*_DATA)


def state_dir() -> Path:
    """Return the directory of what runs: ``~/.local/state/adt``."""
    return _own(*_STATE)


def variable_of(path: Path) -> str:
    """Return the environment variable that chooses the directory that *path* is in; empty for another one."""
    places = {(place[0] or place[1]): _path(*place) for place in (_CACHE, _DATA, _STATE)}
    return next((name for name, place in places.items() if path.absolute().is_relative_to(place)), "")


def _path(variable: str, base: str, default: str) -> Path:
    if explicit := os.environ.get(variable):
        return Path(explicit).expanduser().absolute()
    return Path(os.environ.get(base) or default).expanduser().absolute() / "adt"


def _own(variable: str, base: str, default: str) -> Path:
    """Return the directory if only this user and root decide what is in it: files there are run."""
    path = _path(variable, base, default)
    safe = os.environ.get("ADT_SAFE_DIRECTORY", "").split(":")
    if "*" not in safe and str(path) not in safe and (fault := _fault(path)):
        raise DiskError(
            f"{fault}; adt keeps programs below {path}",
            remedy=f"Set {variable or base} to a directory that only you can write to. If you trust "
            f"everybody who can write there: export ADT_SAFE_DIRECTORY={quote(str(path))}",
        )
    return path


def _fault(path: Path) -> str:
    """Say why another user could write to the directory *path*, or lead it elsewhere; empty: none could."""
    trusted = (0, os.geteuid())
    for link in (path, *path.parents):
        if link.is_symlink() and link.lstat().st_uid not in trusted:
            return f"{link} is a link of another user's"
    real = Path(os.path.realpath(path))
    for place in filter(lambda place: os.access(place, os.F_OK), (real, *real.parents)):
        status, above = place.stat(), place.parent.stat()
        if status.st_uid not in trusted and (place == real or above.st_mode & stat.S_IWOTH):
            return f"{place} belongs to another user ({status.st_uid})"
        sticky = status.st_mode & stat.S_ISVTX and place != real  # what is made in it stays its owner's
        if status.st_mode & stat.S_IWOTH and not sticky:
            return f"{place} can be written by every user"
    return ""
