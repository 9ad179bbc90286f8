"""Resolve the settings: flag > ``ADT_*`` > adt.toml > [tool.adt] > defaults, and remember which."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from adt.errors import ConfigError
from adt.limits import read_text
from adt.options.option import Option, did_you_mean, options_of, types_of
from adt.options.sections import SECTIONS, Settings

log = logging.getLogger("adt.settings")

PROJECT_FILE = "adt.toml"
PYPROJECT = "pyproject.toml"
NOT_SETTINGS = {
    "ADT_CACHE_DIR": "Where everything that can be made again is kept; default `~/.cache/adt`.",
    "ADT_DATA_DIR": "Where benchmarks are kept (`adt report`); default `~/.local/share/adt`.",
    "ADT_EMULATOR_APT_SOURCE": "A one-line deb source for the virtual device's packages.",
    "ADT_KEYSTORE_PASSWORD": "Password of the keystore that `adt apk --keystore` signs with.",
    "ADT_KEY_PASSWORD": "Password of the key in it, when it has one of its own.",
    "ADT_SAFE_DIRECTORY": "Directories (`:` between) of settings and caches to trust, whoever writes them.",
}
"""Variables with our prefix that are no settings, and what they mean."""
TOOL_TABLE = " [tool.adt]"
TRUE = ("1", "true", "on", "yes")
TEXTS = tuple[str, ...]
FALSE = ("0", "false", "off", "no")


@dataclass(frozen=True)
class Resolved:
    """The settings, and for each ``section.key`` the place its value came from."""

    settings: Settings
    origins: Mapping[str, str]
    values: Mapping[str, Any]
    """The settings by ``section.key``."""

    def given(self, key: str) -> Any:
        """Return the value of a setting that the caller gave; None where another place decided it."""
        return self.values[key] if self.origins[key] == "flag" else None


def load_settings(
    flags: Mapping[str, object] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    start: Path | None = None,
) -> Resolved:
    """Resolve every setting: *flags* by ``section.key``, *environ*, and files from *start* upwards."""
    environ = os.environ if environ is None else environ
    return _overlaid({}, {}, _layers(flags or {}, environ, start or Path.cwd()))


def override(resolved: Resolved, flags: Mapping[str, object]) -> Resolved:
    """Put those of *flags* that are not None into *resolved*, as if the command line had given them."""
    return _overlaid(resolved.values, resolved.origins, [_flag_layer(flags)])


def _overlaid(
    values: Mapping[str, Any], origins: Mapping[str, str], layers: Iterable[tuple[str, Mapping[str, object]]]
) -> Resolved:
    """Put each of *layers*, the weakest first, on top of the settings *values*."""
    values, origins = {**values}, {**origins}
    for origin, layer in layers:
        for key, value in layer.items():
            values[key] = _typed(key, value, origin)
            origins[key] = origin
    sections: dict[str, Any] = {
        name: section(**{field: values[about.key] for field, about in options_of(section).items()})
        for name, section in SECTIONS.items()
    }
    return Resolved(Settings(**sections), origins, values)


def _layers(
    flags: Mapping[str, object], environ: Mapping[str, str], start: Path
) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield (origin, flat values), weakest first."""
    known = known_options()
    yield "default", {key: about.default for key, (about, _) in known.items()}
    file = _upwards(start, PYPROJECT, environ)
    if file and (tool := _toml(file).get("tool", {}).get("adt")):
        yield f"{file}{TOOL_TABLE}", _flatten(tool, f"{file}{TOOL_TABLE}")
    file = _upwards(start, PROJECT_FILE, environ)
    if file:
        yield str(file), _flatten(_toml(file), str(file))
    names = {about.variable: key for key, (about, _) in known.items()}
    for variable, text in sorted(environ.items()):
        if variable.startswith("ADT_") and not variable.startswith("ADT_TEST_"):
            if variable in names:
                yield variable, {names[variable]: text}
            elif variable not in NOT_SETTINGS:
                raise _unknown(variable, [*names, *NOT_SETTINGS], "the environment")
    yield _flag_layer(flags)


def _flag_layer(flags: Mapping[str, object]) -> tuple[str, dict[str, object]]:
    return "flag", {key: value for key, value in flags.items() if value is not None}


@cache
def known_options() -> dict[str, tuple[Option, Any]]:
    """Return every setting by ``section.key``: its option, and the type that it has."""
    return {
        about.key: (about, types_of(section)[field])
        for section in SECTIONS.values()
        for field, about in options_of(section).items()
    }


def _upwards(start: Path, name: str, environ: Mapping[str, str]) -> Path | None:
    """Find the nearest file *name* of *start* and the directories above; None where there is none to be read.

    Settings name programs to run and servers to talk to. Whoever owns the directory may put any file there,
    a link to one of the user's as well: a file counts only if it, a link to it, and its directory are ours.
    """
    path = next((d / name for d in (start, *start.parents) if (d / name).is_file()), None)
    if path is None:
        return None
    safe = environ.get("ADT_SAFE_DIRECTORY", "").split(":")
    owners = {status.st_uid for status in (path.stat(), path.lstat(), path.parent.stat())}
    others = owners - {os.geteuid(), 0}
    if not others or "*" in safe or str(path.parent) in safe:
        return path
    if name == PROJECT_FILE or b"tool.adt" in path.read_bytes():
        _warn_of_owner(path, min(others))
    return None


@cache
def executed() -> frozenset[str]:
    """Return the settings that name a place whose code is run, by ``section.key``."""
    return frozenset(key for key, (about, _) in known_options().items() if about.executes)


def show_programs(resolved: Resolved) -> None:
    """Show what a project's file has adt run, to whoever came by the project; for verbs that may run it."""
    for key in sorted(executed()):
        value, origin = resolved.values[key], resolved.origins[key]
        if value and Path(origin.removesuffix(TOOL_TABLE)).is_absolute():
            _show_program(key, value, origin)


@cache
def _show_program(key: str, value: str, origin: str) -> None:
    """Log it once for each setting."""
    log.info("%s sets %s = %s: what adt needs from there is run", origin, key, value)


@cache
def _warn_of_owner(path: Path, owner: int) -> None:
    """Warn once for each file: a command resolves its settings several times."""
    log.warning(
        "%s, a link to it or its directory belongs to another user (%d): it is not read; if you trust it: "
        "export ADT_SAFE_DIRECTORY=%s",
        path,
        owner,
        path.parent,
    )


def _toml(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}", remedy="Mend the line it names.") from error


def _flatten(table: Mapping[str, Any], where: str) -> dict[str, object]:
    flat: dict[str, object] = {}
    for section, content in table.items():
        if section not in SECTIONS:
            raise _unknown(section, SECTIONS, where)
        if not isinstance(content, Mapping):
            raise ConfigError(f"{where}: {section} must be a table", remedy=f"Write [{section}].")
        known = [key.partition(".")[2] for key in known_options() if key.startswith(f"{section}.")]
        for key, value in content.items():
            if key not in known:
                raise _unknown(key, known, f"{where}, [{section}]")
            flat[f"{section}.{key}"] = value
    return flat


def _unknown(word: str, known: Iterable[str], where: str) -> ConfigError:
    known = sorted(known)
    return ConfigError(
        f"unknown setting {word!r} in {where}.{did_you_mean(word, known)}",
        remedy=f"Known: {', '.join(known)}.",
    )


def _typed(key: str, value: object, origin: str) -> object:
    """Check or convert one value; text from the environment is converted, TOML must have the type."""
    about, kind = known_options()[key]
    name, where = (about.name, "") if origin == "flag" else (key, f" (from {origin})")
    converted: object = None
    shown = "a number of thousands of digits"
    with contextlib.suppress(ValueError, OverflowError):
        shown = repr(value)
        converted = _converted(value, kind)
    if converted is None:
        raise ConfigError(
            f"{name} = {shown}{where} is not of type {'list of str' if kind == TEXTS else kind.__name__}",
            remedy=f"Give {name} a value of that type.",
        )
    if origin == "flag" or converted != about.default:  # a file may spell what is not given
        about.checked(converted, about.flag if origin == "flag" else f"{key} (from {origin})")
    return converted


def _converted(value: object, kind: Any) -> object:
    """Convert *value* to *kind*; None, or ValueError, where that cannot be."""
    if kind == TEXTS:
        if isinstance(value, str):
            return tuple(part for part in value.split(";") if part)
        listed = isinstance(value, list | tuple) and all(isinstance(part, str) for part in value)
        return tuple(value) if listed else None  # type: ignore[arg-type]
    if kind is bool and isinstance(value, str):
        return value.lower() in TRUE if value.lower() in TRUE + FALSE else None
    if isinstance(value, bool) != (kind is bool):
        return None
    if kind is float and isinstance(value, int | float | str):
        return float(value)
    if kind is int and isinstance(value, int | str):
        return int(value) if abs(int(value)) < 1 << 63 else None
    if kind is str and isinstance(value, os.PathLike):
        return os.fspath(value)
    return value if isinstance(value, kind) else None
