"""Kinds of files and directories that users name, to say what one is where another was to be named."""

from __future__ import annotations

import os
from pathlib import Path
from shlex import quote

from adt.errors import AdtError, PackageError

PACKAGE, BUNDLE, MODEL, DATABASE = "package", "bundle", "model", "tuning database"
MARKS = {"mod.json": PACKAGE, "bundle.json": BUNDLE, "records.sqlite": DATABASE}
"""Kind of a directory by the file that it has."""
MODELS = (".onnx", ".tflite", ".lite", ".pt2", ".keras", ".h5", ".hdf5", ".relax")
REMEDIES = {
    (PACKAGE, MODEL): "Compile it, and name the package: adt compile {path} -o {stem}-pkg",
    (PACKAGE, ""): "`adt compile MODEL -o {path}` makes one; check the path.",
    (DATABASE, ""): "`adt tune MODEL --db {path}` makes one; check the path.",
    (MODEL, PACKAGE): "It is compiled already: adt run {path}",
    PACKAGE: "Name a directory or .tar that `adt compile MODEL` wrote.",
    BUNDLE: "`adt bundles` lists those that are there; adt build-target --for PLATFORM builds one.",
    DATABASE: "Name a directory that `adt tune MODEL --db DIR` made.",
    MODEL: "Name a model: an .onnx, .tflite, .pt2, .keras or .h5 file.",
}
"""Remedy by the kind that is to be named and the kind that is there, or by the first alone."""


def kind_of(path: Path) -> str:
    """Return the kind of thing at *path*, for people; empty if nothing is there."""
    if path.is_dir():
        kinds = (kind for mark, kind in MARKS.items() if os.path.lexists(path / mark))
        return next(kinds, "directory of something else")
    suffixes = dict.fromkeys(MODELS, MODEL) | {".tar": PACKAGE}
    return suffixes.get(path.suffix.lower(), "file of something else") if path.exists() else ""


def not_a(wanted: str, path: Path, error: type[AdtError] = PackageError) -> AdtError:
    """Return the error for *path*, which is nothing of the kind *wanted*."""
    kind = kind_of(path)
    remedy = REMEDIES.get((wanted, kind)) or REMEDIES[wanted]
    return error(
        f"{path} is a {kind}, not a {wanted}" if kind else f"there is no {wanted} {path}",
        remedy=remedy.format(path=quote(str(path)), stem=quote(path.stem)),
    )
