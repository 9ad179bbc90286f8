"""The format of a model file, on which its suffix and its content must agree.

The sender chose the content, the user saw the name: a name of data never leads to code.
"""

from __future__ import annotations

import re
import shlex
import zipfile
from pathlib import Path

from adt.errors import ModelError
from adt.host.artefact import BUNDLE, MODEL, MODELS, PACKAGE, kind_of, not_a

ONNX, TFLITE, TORCH, KERAS, RELAX = "onnx", "tflite", "torch", "keras", "relax"

SUFFIXES = dict(zip(MODELS, (ONNX, TFLITE, TFLITE, TORCH, KERAS, KERAS, KERAS, RELAX), strict=True))
EXTENSIONS = {ONNX: ".onnx", TFLITE: ".tflite", TORCH: ".pt2", KERAS: ".keras", RELAX: ".relax"}
"""Suffix under which a model of each format is kept."""
CODE = {TORCH: "a PyTorch program, which is partly unpickled", RELAX: "a Relax module, whose kernels are run"}
"""Formats that run code of whoever made the file, and what they are."""
EXPORT = "Save the model with torch.export.save(torch.export.export(model, inputs), 'model.pt2')."
READS = "adt reads .onnx, .tflite, .pt2 (torch.export.save), .keras and .h5 files"
HDF5 = b"\x89HDF\r\n\x1a\n"
WINDOWS = re.compile(r"[A-Za-z]:[\\/]")
_CALLABLE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def is_callable(model: Path | str) -> bool:
    """True if *model* is spelled ``module:function`` and is no file."""
    return bool(_CALLABLE.fullmatch(str(model))) and not Path(model).exists()


def require_model(model: Path | str) -> None:
    """Check that *model* is a file of a format that adt reads, or spelled as a callable."""
    if not is_callable(model):
        format_of(Path(model))


def code_of(model: Path | str) -> str:
    """Describe the code that *model* runs by its spelling; empty if it is spelled as data."""
    if is_callable(model):
        return "a Python function, which is called"
    return CODE.get(SUFFIXES.get(Path(model).suffix.lower(), ""), "")


def format_of(path: Path) -> str:
    """Return ``onnx``, ``tflite``, ``torch``, ``keras`` or ``relax``; code must have the suffix of such."""
    require_file(path)
    spelled = SUFFIXES.get(path.suffix.lower(), "")
    format = _content_format(path, spelled)
    if format == spelled or not (spelled or format in CODE):
        return format
    renamed = path.with_suffix(EXTENSIONS[format])
    raise ModelError(
        f"{path} is {CODE.get(format, f'a {format} model')}, and its name does not say so",
        remedy=f"If it is what you expect: mv {shlex.quote(str(path))} {shlex.quote(str(renamed))}",
    )


def require_file(path: Path) -> None:
    """Check that *path* is a regular file."""
    if kind_of(path) in (PACKAGE, BUNDLE):
        raise not_a(MODEL, path, ModelError)
    if path.is_dir():
        remedy = "Convert it first: tf2onnx or the TFLite converter read SavedModel directories."
        raise ModelError(f"{path} is a directory, not a model file", remedy=remedy)
    if not path.is_file():
        remedy = "Check the path."
        if WINDOWS.match(str(path)):
            remedy = f'In WSL2 it is "$(wslpath {shlex.quote(str(path))})".'
        raise ModelError(f"there is no model file {path}", remedy=remedy)


def _content_format(path: Path, spelled: str) -> str:
    """Tell the format from the content; *spelled*, that of the suffix, where the content does not tell."""
    with path.open("rb") as file:
        head = file.read(64)
    if not head:
        raise ModelError(f"{path} is empty", remedy="Export or download it again.")
    if head[4:8] == b"TFL3":
        return TFLITE
    if head.startswith(HDF5):
        return KERAS
    if head.startswith(b"PK\x03\x04"):
        return _zip_format(path, spelled)
    if head.startswith((b"\x80\x02", b"\x80\x04")):
        raise ModelError(
            f"{path} holds pickled Python objects (weights, or a whole module), not a program", remedy=EXPORT
        )
    # The field ir_version (1, a small number), then another low field.
    may_be_onnx = len(head) > 2 and head[0] == 0x08 and head[1] < 32
    if spelled == ONNX or (not spelled and may_be_onnx):
        return ONNX
    if spelled:
        raise ModelError(
            f"{path} is no {spelled} model, or is damaged: its content is something else",
            remedy="Export or download it again.",
        )
    raise ModelError(
        f"{path} is of a format that adt does not read",
        remedy=f"{READS}, and Python callables spelled module:function.",
    )


def _zip_format(path: Path, spelled: str) -> str:
    """Tell the format of an archive from its members' names, or *spelled* from the suffix."""
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
    if any(f"/{name}".endswith("/data.pkl") for name in names):
        raise ModelError(
            f"{path} holds TorchScript or pickled weights, not an exported program", remedy=EXPORT
        )
    if spelled in (TORCH, KERAS):
        return spelled
    raise ModelError(f"{path} is an archive of a kind that adt does not read", remedy=f"{READS}.")
