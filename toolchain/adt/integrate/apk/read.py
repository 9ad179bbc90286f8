"""Look into an APK: what it is called, and what of it runs where."""

from __future__ import annotations

import re
import zipfile
from dataclasses import dataclass
from pathlib import Path

from adt.errors import InputError
from adt.integrate.apk.entries import BENCH_PLAN
from adt.integrate.apk.manifest import NAME
from adt.limits import parse_json

STEM = re.compile("[a-z0-9_]+")
LARGEST_PLAN = 1 << 20
"""Bytes; a real one has some hundred for each model."""


@dataclass(frozen=True)
class ApkContents:
    """What adt must know of an APK to install and to run it."""

    app: str
    """Application id; empty: `adt apk` did not make it."""
    stems: tuple[str, ...]
    """The models that it measures, by their directories."""
    abis: tuple[str, ...]
    """That it has libraries for; none: it runs on every one."""


def read_apk(path: Path) -> ApkContents:
    """Look into the APK *path*.

    Raises:
        InputError: there is no file, or it is no APK.
    """
    remedy = "Name an APK, such as `adt apk` writes."
    if not path.is_file():
        raise InputError(f"there is no APK {path}", remedy=remedy)
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            app, stems = _plan(archive) if BENCH_PLAN in names else ("", ())
    except Exception as why:  # zipfile, zlib and the plan's fields: BadZipFile, RuntimeError, KeyError, …
        raise InputError(f"{path} is no APK, or is damaged: {why}", remedy=remedy) from why
    if NAME not in names:
        raise InputError(f"{path} is no APK: it has no {NAME}", remedy=remedy)
    libraries = [found[1] for name in names if (found := re.fullmatch(r"lib/([^/]+)/[^/]+\.so", name))]
    return ApkContents(app, stems, tuple(dict.fromkeys(libraries)))


def _plan(archive: zipfile.ZipFile) -> tuple[str, tuple[str, ...]]:
    """Application id and models."""
    with archive.open(BENCH_PLAN) as file:
        found = parse_json(file.read(LARGEST_PLAN))
    app, stems = found["app"], tuple(model["stem"] for model in found["models"])
    if not re.fullmatch(r"\w+(\.\w+)+", app, re.ASCII) or not all(map(STEM.fullmatch, stems)):
        raise ValueError(f"{BENCH_PLAN} has names that adt does not give")  # they become paths
    return app, stems
