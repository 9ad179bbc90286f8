"""Samples of a model's inputs: pictures, files of arrays, or made-up ones where that is asked for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from adt.errors import ConfigError, InputError
from adt.host.contained import regular_files
from adt.numerics import Array
from adt.package.inputs.files import SUFFIXES, read_inputs
from adt.package.inputs.pictures import PictureOptions
from adt.package.inputs.random import random_inputs
from adt.package.manifest import Entry, check_inputs

EVERY = 5  # the last of so many samples is held back
RANDOM = re.compile(r"random:(\d{1,4})")


@dataclass(frozen=True)
class Samples:
    """Samples in their order: at least two, if ranges are taken from some."""

    what: str
    made_up: bool
    """They are random: what is computed with them says nothing of real inputs."""
    arrays: tuple[Mapping[str, Array], ...]
    """Each by the inputs' names."""
    calibrates: bool = True
    """Else all are held back."""

    @property
    def every(self) -> int:
        """The last of so many is held back; of fewer than :data:`EVERY`, the last one."""
        return min(EVERY, len(self.arrays)) if self.calibrates else 1

    @property
    def calibrating(self) -> list[Mapping[str, Array]]:
        """The samples that ranges are taken from."""
        return [array for number, array in enumerate(self.arrays, start=1) if number % self.every]

    @property
    def held_back(self) -> list[Mapping[str, Array]]:
        """The samples that accuracy is measured on."""
        return list(self.arrays[self.every - 1 :: self.every])


def read_samples(
    model: str,
    entry: Entry,
    sources: Sequence[str],
    picture: PictureOptions | None = None,
    *,
    calibrates: bool = True,
) -> Samples:
    """Read the samples in *sources*: directories, files, or ``random:N``, for inputs of fixed shapes.

    Of a directory every file below it is read, by name, and no link is followed; what is no file of arrays is
    a picture. An array of several batches in a row has several samples. If ranges are not taken from them
    (*calibrates*) there may be none. InputError for what is no sample, or fewer than two.
    """
    if not sources and not calibrates:
        return Samples("", False, (), calibrates)
    if not sources:
        raise ConfigError(
            f"there is nothing to calibrate {model} on",
            remedy="Give what it will see: --calibrate DIR of pictures, or .npz files. For a trial of the "
            "speed made-up inputs do: --calibrate random:16",
        )
    made_up = [match for text in sources if (match := RANDOM.fullmatch(text))]
    if made_up and len(sources) > 1:
        raise ConfigError("made-up samples beside real ones", remedy=f"Leave {made_up[0][0]} away.")
    files = [] if made_up else [file for text in sources for file in _files(Path(text))]
    if picture and all(_has_arrays(file) for file in files):
        raise InputError("options of pictures are given, and no picture", remedy="Leave them away.")
    arrays = [sample for file in files for sample in _read(model, entry, file, picture)]
    if made_up:
        arrays = [random_inputs(entry.inputs, seed) for seed in range(int(made_up[0][1]))]
    if len(arrays) < 1 + calibrates:
        raise InputError(
            f"{' '.join(sources)} has {len(arrays)} samples: it takes one to calibrate on and another "
            "one to compare with",
            remedy="Give more: some hundred that are like what the model will see.",
        )
    return Samples(" ".join(sources), bool(made_up), tuple(arrays), calibrates)


def _has_arrays(file: Path) -> bool:
    return file.suffix.lower() in SUFFIXES


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        files = [path / name for name in regular_files(path)]
        if files := [file for file in files if not file.name.startswith(".")]:
            return files
        raise InputError(
            f"there is no file in {path}",
            remedy="Put samples there, pictures or .npz files, or name another.",
        )
    if not path.exists():
        raise InputError(
            f"there is no file or directory {path}", remedy="Check --calibrate; random:N makes N samples up."
        )
    return [path]


def _read(model: str, entry: Entry, file: Path, picture: PictureOptions | None) -> list[Mapping[str, Array]]:
    """Read the samples in *file*: one, or several where its arrays are a multiple of the inputs."""
    inputs, pictures = ([str(file)], []) if _has_arrays(file) else ([], [str(file)])
    arrays = {each.name: each.array for each in read_inputs(entry, inputs, pictures, picture)}
    counts = {_batches(arrays[spec.name], spec.shape) for spec in entry.inputs if spec.name in arrays}
    count = counts.pop() if len(counts) == 1 else 1
    parts = (np.split(array, count) if count > 1 else [array] for array in arrays.values())
    samples: list[Mapping[str, Array]] = [
        dict(zip(arrays, each, strict=True)) for each in zip(*parts, strict=True)
    ]
    try:
        for sample in samples:
            check_inputs(model, entry, sample)
    except InputError as error:
        raise InputError(f"{file}: {error.what}", remedy=error.remedy) from error
    floats = {name: array for name, array in arrays.items() if array.dtype.kind == "f"}
    if odd := [name for name, array in floats.items() if not np.isfinite(array).all()]:
        raise InputError(
            f"{file}: {', '.join(odd)} has NaN or infinity, which no range of quanta has",
            remedy="Take that sample away, or mend it.",
        )
    return samples


def _batches(array: Array, shape: Sequence[int | str]) -> int:
    """Count the inputs of *shape* that are one behind the other in *array*."""
    if not shape or array.ndim != len(shape) or array.shape[1:] != tuple(shape[1:]):
        return 1
    first = int(shape[0])
    return max(1, array.shape[0] // first) if array.shape[0] % first == 0 else 1
