"""Inputs of a model from files: ``FILE`` or ``NAME=FILE``, arrays (.npz, .npy), plain bytes and pictures."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adt.errors import InputError
from adt.host.document import form
from adt.host.npz import DamagedNpz, named_arrays, read_npy
from adt.limits import MOST_ARRAY_BYTES
from adt.numerics import Array
from adt.package.inputs.pictures import PictureOptions, pictures_as_input
from adt.package.manifest import Entry, TensorSpec, kind, taken_inputs

RAW = (".raw", ".bin")
SUFFIXES = (".npz", ".npy", *RAW)


def _kind(array: Array) -> dict[str, Any]:
    return {"dtype": array.dtype.name, "shape": array.shape}


@dataclass(frozen=True)
class InputArray:
    """One input as it was given."""

    name: str
    array: Array = field(metadata=form(convert=_kind, flat=True))
    source: str
    """Description of where it is from and how it was converted."""


def read_inputs(
    entry: Entry, files: Sequence[str], images: Sequence[str] = (), picture: PictureOptions | None = None
) -> tuple[InputArray, ...]:
    """Read the inputs of *entry* from *files* and *images*, in this order.

    A file is ``FILE.npz`` for inputs by name; ``FILE.npy``, ``FILE.raw`` or ``FILE.bin`` for the only input;
    or ``NAME=FILE``. Raw files have the bytes of the input's shape and dtype, little-endian, in C order.
    Images are ``FILE`` for the only input that takes pictures, or ``NAME=FILE``; several for one input are
    its batch.
    """
    given = [each for text in files for each in _read(*_split(text, entry), entry)]
    batches: dict[str, list[Path]] = {}
    for text in images:
        name, path = _split(text, entry)
        batches.setdefault(name or _for_pictures(entry), []).append(path)
    for name, paths in batches.items():
        array, how = pictures_as_input(paths, _spec(entry, name), picture or PictureOptions())
        given.append(InputArray(name, array, how))
    counts = Counter(each.name for each in given)
    if twice := sorted(name for name, count in counts.items() if count > 1):
        raise InputError(f"input {', '.join(twice)} is given twice", remedy="Name each input once.")
    return tuple(given)


def _split(text: str, entry: Entry) -> tuple[str, Path]:
    """Return the name of the input, empty for none, and the file, whose name may hold a = sign, too."""
    names = [spec.name for spec in entry.inputs if text.startswith(f"{spec.name}=")]
    if names:
        name = max(names, key=len)
        return name, Path(text[len(name) + 1 :])
    if "=" in text and not Path(text).exists():
        raise InputError(
            f"the model has no input {text.partition('=')[0]!r}", remedy=f"It takes {_names(entry)}."
        )
    return "", Path(text)


def _names(entry: Entry) -> str:
    return ", ".join(f"{spec.name}: {kind(spec)}" for spec in entry.inputs) or "no inputs"


def _spec(entry: Entry, name: str) -> TensorSpec:
    return next(spec for spec in entry.inputs if spec.name == name)


def _read(name: str, path: Path, entry: Entry) -> list[InputArray]:
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(
            f"{path} is no file of arrays: its name ends with none of {', '.join(SUFFIXES)}",
            remedy="Write it with numpy.savez or numpy.save; pictures go in with --image.",
        )
    if not path.is_file():
        raise InputError(f"there is no input file {path}", remedy="Check --input.")
    if suffix == ".npz":
        return _npz(path, name, entry)
    spec = _spec(entry, name or _only(entry, path))
    return [InputArray(spec.name, _npy(path) if suffix == ".npy" else _raw(path, spec), str(path))]


def _only(entry: Entry, path: Path) -> str:
    if len(entry.inputs) != 1:
        raise InputError(
            f"{path} is for one input, and the model takes {_names(entry)}",
            remedy=f"Give an .npz file of arrays by these names; adt run takes --input NAME={path}, too.",
        )
    return entry.inputs[0].name


def _for_pictures(entry: Entry) -> str:
    """Return the input of an --image without a name: the only one, or the only one of a picture's rank."""
    only = len(entry.inputs) == 1
    candidates = [spec for spec in entry.inputs if only or len(spec.shape) in (3, 4)]
    if len(candidates) != 1:
        raise InputError(
            f"{'several inputs' if candidates else 'no input'} may take a picture: the model has "
            f"{_names(entry)}",
            remedy="Give an .npz file of arrays by these names"
            + ("; adt run takes --image NAME=FILE, too." if candidates else "."),
        )
    return candidates[0].name


def _npz(path: Path, name: str, entry: Entry) -> list[InputArray]:
    arrays = named_arrays(path)
    if not name:
        return [InputArray(key, array, str(path)) for key, array in taken_inputs(entry, arrays).items()]
    if name not in arrays and len(arrays) != 1:
        raise InputError(
            f"{path} has no array {name}, but {', '.join(arrays) or 'none'}",
            remedy=f"Name the array {name}, or give a file with one array.",
        )
    return [InputArray(name, arrays.get(name, next(iter(arrays.values()))), str(path))]


def _npy(path: Path) -> Array:
    try:
        with path.open("rb") as file:
            return read_npy(file, path.stat().st_size)
    except (DamagedNpz, OSError) as error:
        raise InputError(
            f"{path} is not an .npy file of a plain array: {error}",
            remedy="Write it with numpy.save(path, array).",
        ) from error


def _raw(path: Path, spec: TensorSpec) -> Array:
    import numpy as np

    try:
        dtype = np.dtype(spec.dtype).newbyteorder("<")
    except TypeError as error:
        what = f"input {spec.name} is {kind(spec)}, of which numpy knows no bytes"
        raise InputError(what, remedy="Give it as .npz.") from error
    try:
        size = path.stat().st_size
        data = np.fromfile(path, dtype=np.uint8) if size <= MOST_ARRAY_BYTES else np.empty(0, np.uint8)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}", remedy="Check --input.") from error
    fixed = math.prod(extent for extent in spec.shape if isinstance(extent, int)) * dtype.itemsize
    open_extents = [extent for extent in spec.shape if isinstance(extent, str)]
    if len(open_extents) > 1:
        raise InputError(
            f"input {spec.name} is {kind(spec)}: plain bytes do not say how large its open dimensions are",
            remedy="Give it as .npy or .npz, or compile with --shape.",
        )
    if size > MOST_ARRAY_BYTES or (size % max(1, fixed) if open_extents else size != fixed):
        size_text = f"a multiple of {fixed:,}" if open_extents else f"{fixed:,}"
        raise InputError(
            f"{path} has {size:,} bytes, the input {spec.name}, {kind(spec)}, takes {size_text}",
            remedy="Write the array's bytes alone, in the input's dtype: array.astype(dtype).tofile(path).",
        )
    shape = [size // max(1, fixed) if isinstance(extent, str) else extent for extent in spec.shape]
    # asarray: of a shape without dimensions astype makes a scalar
    return np.asarray(data.view(dtype).reshape(shape).astype(spec.dtype))
