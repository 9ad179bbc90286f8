"""Which format a model has: by its content where that tells, by its suffix otherwise."""

from __future__ import annotations

import re
import shlex
import zipfile
from pathlib import Path

from adt.errors import ModelError

ONNX, TFLITE, TORCH, KERAS, RELAX = "onnx", "tflite", "torch", "keras", "relax"

SUFFIXES = {
    ".onnx": ONNX,
    ".tflite": TFLITE,
    ".lite": TFLITE,
    ".pt2": TORCH,
    ".keras": KERAS,
    ".h5": KERAS,
    ".hdf5": KERAS,
}
EXTENSIONS = {ONNX: ".onnx", TFLITE: ".tflite", TORCH: ".pt2", KERAS: ".keras", RELAX: ".relax"}
"""Suffix under which a model of each format is kept."""
HDF5 = b"\x89HDF\r\n\x1a\n"
WINDOWS = re.compile(r"[A-Za-z]:[\\/]")
_CALLABLE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def is_callable(model: Path | str) -> bool:
    """Whether *model* is spelled ``module:function`` and is no file."""
    return bool(_CALLABLE.fullmatch(str(model))) and not Path(model).exists()


def require_model(model: Path | str) -> None:
    """Check that *model* is a file of a format that adt reads, or spelled as a callable.

    Raises:
        ModelError: see :func:`format_of`.
    """
    if not is_callable(model):
        format_of(Path(model))


def format_of(path: Path) -> str:
    """``onnx``, ``tflite``, ``torch``, ``keras`` or ``relax``.

    Raises:
        ModelError: the file is missing, empty, or of a format that adt does not read.
    """
    if path.is_dir():
        remedy = "Convert it first: tf2onnx or the TFLite converter read SavedModel directories."
        raise ModelError(f"{path} is a directory, not a model file", remedy=remedy)
    if not path.is_file():
        remedy = "Check the path."
        if WINDOWS.match(str(path)):
            remedy = f'In WSL2 it is "$(wslpath {shlex.quote(str(path))})".'
        raise ModelError(f"there is no model file {path}", remedy=remedy)
    with path.open("rb") as file:
        head = file.read(64)
    if not head:
        raise ModelError(f"{path} is empty", remedy="Export or download it again.")
    if head[4:8] == b"TFL3":
        return TFLITE
    if head.startswith(HDF5):
        return KERAS
    if head.startswith(b"PK\x03\x04"):
        return _zip_format(path)
    if head.startswith((b"\x80\x02", b"\x80\x04")):
        raise ModelError(
            f"{path} holds pickled Python objects (weights, or a whole module), not a program",
            remedy="Save the model with torch.export.save(torch.export.export(model, inputs), 'model.pt2').",
        )
    by_suffix = SUFFIXES.get(path.suffix.lower())
    if by_suffix == ONNX or (by_suffix is None and _looks_like_onnx(head)):
        return ONNX
    if by_suffix is not None:
        raise ModelError(
            f"{path} is no {by_suffix} model, or is damaged: its content is something else",
            remedy="Export or download it again.",
        )
    raise ModelError(
        f"{path} is of a format that adt does not read",
        remedy="adt reads .onnx, .tflite, .pt2 (torch.export.save), .keras and .h5 files,"
        " and Python callables spelled module:function.",
    )


def _looks_like_onnx(head: bytes) -> bool:
    """An ONNX file begins with the field ``ir_version`` (1, a small number) and then another low field."""
    return len(head) > 2 and head[0] == 0x08 and head[1] < 32


def _zip_format(path: Path) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise ModelError(f"{path} is truncated or damaged", remedy="Export or download it again.") from error
    if "relax.npy" in names:
        return RELAX
    if "config.json" in names and "metadata.json" in names:
        return KERAS
    if any(name.endswith(("models/model.json", "serialized_exported_program.json")) for name in names):
        return TORCH
    if any(name.endswith("/data.pkl") or name == "data.pkl" for name in names):
        raise ModelError(
            f"{path} holds TorchScript or pickled weights, not an exported program",
            remedy="Save the model with torch.export.save(torch.export.export(model, inputs), 'model.pt2').",
        )
    by_suffix = SUFFIXES.get(path.suffix.lower())
    if by_suffix in (TORCH, KERAS):
        return by_suffix
    raise ModelError(
        f"{path} is an archive of a kind that adt does not read",
        remedy="adt reads .onnx, .tflite, .pt2 (torch.export.save), .keras and .h5 files.",
    )
