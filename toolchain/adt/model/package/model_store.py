"""Keep the source model of each package by its sha256, so that it can be verified later."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from adt.errors import ModelError
from adt.host import cache
from adt.model.importers import formats
from adt.model.importers.onnx.file import external_data
from adt.model.package.package import ModelPackage


def _entry(sha256: str) -> str:
    return f"models/{sha256}"


def keep(model: Path, sha256: str) -> Path:
    """Copy the model file *model*, and the data files that it names, into the cache; return the copy.

    Raises:
        ModelError: it is of no format that adt reads.
    """
    format = formats.format_of(model)
    suffix = ".h5" if format == formats.KERAS and model.suffix != ".keras" else formats.EXTENSIONS[format]
    name = f"model{suffix}"

    def copy(directory: Path) -> None:
        shutil.copyfile(model, directory / name)
        for other in external_data(model) if format == formats.ONNX else ():
            destination = directory / other
            destination.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(model.parent / other, destination)

    return cache.entry(_entry(sha256), copy)[0] / name


def source_model(package: ModelPackage, explicit: Path | None = None) -> Path:
    """The model that *package* was compiled from: *explicit*, or the copy that compiling kept.

    Raises:
        ModelError: *explicit* is another model, or no copy is there.
    """
    source = package.manifest.source
    if explicit is not None:
        if not explicit.is_file():
            raise ModelError(f"there is no model file {explicit}", remedy="Check --model.")
        if model_sha256(explicit) != source.sha256:
            raise ModelError(
                f"{explicit} is not the model that {package.path} was compiled from ({source.file})",
                remedy="Name that model, or compile this one.",
            )
        return explicit
    if copy := cache.lookup(_entry(source.sha256)):
        return next(copy.glob("model.*"))
    raise ModelError(
        f"the model {source.file} that {package.path} was compiled from is not in this machine's cache",
        remedy="Name it with --model FILE, or compile it here once more.",
    )


def model_sha256(model: Path) -> str:
    """One sha256 of a model file and of the data files that it names.

    Raises:
        ModelError: it is of no format that adt reads.
    """
    parts = [cache.file_sha256(model)]
    if formats.format_of(model) == formats.ONNX:
        try:
            parts += [cache.file_sha256(model.parent / name) for name in external_data(model)]
        except Exception:  # no ONNX file after all, or data missing: the importer says what is wrong
            return parts[0]
    return parts[0] if len(parts) == 1 else hashlib.sha256("".join(parts).encode()).hexdigest()
