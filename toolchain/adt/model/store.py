"""Keep the source model of each package by its sha256, so that it can be verified later."""

from __future__ import annotations

import shutil
from pathlib import Path

from adt.errors import ModelError
from adt.host import cache
from adt.model.package import ModelPackage


def _entry(sha256: str) -> str:
    return f"models/{sha256}"


def keep(model: Path, sha256: str) -> None:
    """Copy the ONNX file *model* and the external data that it names into the cache."""

    def copy(directory: Path) -> None:
        shutil.copyfile(model, directory / "model.onnx")
        for name in external_data(model):
            destination = directory / name
            destination.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(model.parent / name, destination)

    cache.entry(_entry(sha256), copy)


def external_data(model: Path) -> tuple[str, ...]:
    """Relative paths of the data files that an ONNX file keeps outside itself."""
    import onnx
    from onnx.external_data_helper import ExternalDataInfo, uses_external_data

    graph = onnx.load(str(model), load_external_data=False).graph
    return tuple(sorted({ExternalDataInfo(t).location for t in graph.initializer if uses_external_data(t)}))


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
    if kept := cache.lookup(_entry(source.sha256)):
        return kept / "model.onnx"
    raise ModelError(
        f"the model {source.file} that {package.path} was compiled from is not in this machine's cache",
        remedy="Name it with --model FILE, or compile it here once more.",
    )


def model_sha256(model: Path) -> str:
    """One sha256 of an ONNX file and of the external data that it names."""
    import hashlib

    parts = [cache.file_sha256(model)]
    parts += [cache.file_sha256(model.parent / name) for name in external_data(model)]
    return parts[0] if len(parts) == 1 else hashlib.sha256("".join(parts).encode()).hexdigest()
