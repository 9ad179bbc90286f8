"""Store of the source models of packages by their sha256, for a later verification."""

from __future__ import annotations

import hashlib
import io
import re
import shutil
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from adt.compiler.importers import formats
from adt.errors import ModelError
from adt.host import cache
from adt.package.package import ModelPackage

_STORE = "models"
"""Directory in the cache; only :func:`keep` writes there, after the model was trusted."""
_NAMES = [f"model{suffix}" for suffix in (*formats.EXTENSIONS.values(), ".h5")]
"""Names of the model in an entry, ONNX first."""


def _kept(sha256: str) -> Path | None:
    """Return the model that the store has under *sha256*, which may be anything that a package says."""
    entry = cache.lookup(f"{_STORE}/{sha256}") if re.fullmatch("[0-9a-f]{64}", sha256) else None
    # The first name that is there: only ONNX has data files, and they may have the other names.
    return next((file for name in _NAMES if (file := entry / name).is_file()), None) if entry else None


def require_trusted(model: Path | str, trust: bool) -> None:
    """Refuse a model that is code, unless the user trusts it or adt kept it here."""
    kind, path = formats.code_of(model), Path(model).absolute()
    stored = path.parent.parent == cache.cache_dir() / _STORE and path == _kept(path.parent.name)
    if not kind or trust or stored:
        return
    formats.require_model(model)
    raise ModelError(
        f"{model} is code: {kind}",
        remedy="If you trust whoever made it, let it run with your rights: --trust (in Python trust=True)."
        " An ONNX or TFLite file is data, and needs no trust.",
    )


def keep(model: Path, sha256: str) -> Path:
    """Copy the model file *model*, and the data files that it names, into the cache; return the copy."""
    format = formats.format_of(model)
    suffix = ".h5" if format == formats.KERAS and model.suffix != ".keras" else formats.EXTENSIONS[format]
    name = f"model{suffix}"

    def copy(directory: Path) -> None:
        shutil.copyfile(model, directory / name)
        for other, source in _data_of(model, format):
            if PurePosixPath(other).parts[0] in (name, cache.STAMP):
                raise ModelError(
                    f"the data file {other} of {model.name} has a name that adt's store of models needs",
                    remedy="Save the model again: onnx.save(model, 'new.onnx', save_as_external_data=True,"
                    " location='new.data')",
                )
            destination = directory / other
            destination.parent.mkdir(parents=True, exist_ok=True)
            with destination.open("xb") as target:
                shutil.copyfileobj(source, target)

    return cache.entry(f"{_STORE}/{sha256}", copy)[0] / name


def source_model(package: ModelPackage, explicit: Path | None = None) -> Path:
    """Return the model that *package* was compiled from: *explicit*, of the user, or the stored copy."""
    source = package.manifest.source
    if explicit is not None:
        if model_sha256(explicit) != source.sha256:
            raise ModelError(
                f"{explicit} is not the model that {package.path} was compiled from ({source.file})",
                remedy="Name that model, or compile this one.",
            )
        return keep(explicit, source.sha256)
    if copy := _kept(source.sha256):
        return copy
    raise ModelError(
        f"the model {source.file} that {package.path} was compiled from is not in this machine's cache",
        remedy="Name it with --model FILE, or compile it here once more.",
    )


def model_sha256(model: Path) -> str:
    """Return one sha256 of a model file and of the data files that it names."""
    format, parts = formats.format_of(model), [cache.file_sha256(model)]
    parts += [hashlib.file_digest(file, "sha256").hexdigest() for _, file in _data_of(model, format)]
    return parts[0] if len(parts) == 1 else hashlib.sha256("".join(parts).encode()).hexdigest()


def _data_of(model: Path, format: str) -> Iterator[tuple[str, io.BufferedReader]]:
    """Yield the name of each data file that *model* names, and the open file."""
    if format == formats.ONNX:
        from adt.compiler.importers.onnx.file import data_files, open_data  # onnx takes long to import

        for name in data_files(model):
            with open_data(model, name) as file:
                yield name, file
