"""Values that shell completion offers: in a moment and without a word, or none at all."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from importlib import import_module

SERVER_SECONDS = 1.0
"""Seconds that the adb server may take to list devices; it is not started for that."""

Complete = Callable[[str], list[str]]


def offer(values: Callable[[], Iterable[str]], *, several: bool = False) -> Complete:
    """Make a callback that offers the values that begin with the typed text, and nothing if *values* fails.

    With *several*, values are listed with commas: the last is completed, with those not named yet.
    """

    def complete(incomplete: str) -> list[str]:
        logging.disable()
        before, comma, begun = incomplete.rpartition(",") if several else ("", "", incomplete)
        try:
            named = before.split(",")
            return [before + comma + v for v in values() if v.startswith(begun) and v not in named]
        except Exception:  # a shell that is waiting for words shows no error
            return []

    return complete


def _serials() -> list[str]:
    from adt.device import selection
    from adt.device.transport import adb

    if not adb.server_listens():
        return []
    text = adb.query("host:devices-l", doing="completing serials", seconds=SERVER_SECONDS)
    return [device.serial for device in selection.parse_listing(text)]


def _table(module: str, name: str) -> Callable[[], list[str]]:
    """Make a function that imports a table of *module* and returns its names."""
    return lambda: list(getattr(import_module(module), name))


def _processors() -> list[str]:
    from adt.compiler.targets.socs import SOCS

    return ["native", *(soc.name for soc in SOCS)]


def _libraries() -> list[str]:
    from adt.bundle.libraries import AUTO, LIBRARIES, NONE

    return [*LIBRARIES, AUTO, NONE]


TABLES = {
    "platform": _table("adt.bundle.platforms", "PLATFORMS"),
    "target": _table("adt.compiler.targets.parser", "NAMES"),
    "processor": _processors,
    "libraries": _libraries,
}
"""Names that help pages list, by the kind of words; `adt presets` lists the presets of platforms."""


def _bundles() -> list[str]:
    from adt.bundle.bundle import cached_bundles

    return [bundle.path.name for bundle in cached_bundles()]


def _virtual_devices() -> list[str]:
    from adt.virtual import state

    return [home.name for home in state.homes()]


serial = offer(_serials)
serials = offer(_serials, several=True)
platform = offer(_table("adt.bundle.platforms", "PRESETS"))
target = offer(TABLES["target"])
processor = offer(_processors)
libraries = offer(_libraries, several=True)
bundle = offer(_bundles)
virtual_device = offer(_virtual_devices)
