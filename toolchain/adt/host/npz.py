"""Read and write .npz files: arrays by name."""

from __future__ import annotations

import io
import math
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from adt.errors import InputError
from adt.limits import MOST_ARRAY_BYTES
from adt.numerics import Array


class DamagedNpz(Exception):
    """The file is no .npz of plain arrays; the text says how."""


def read_npz(path: Path) -> dict[str, Array]:
    """Read every array of an .npz file by name; DamagedNpz for others than arrays of numbers."""
    found: dict[str, Array] = {}
    left = MOST_ARRAY_BYTES
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                left -= member.file_size
                if left < 0:
                    raise DamagedNpz(f"its arrays have more than {MOST_ARRAY_BYTES >> 30} GiB")
                with archive.open(member) as file:
                    found[member.filename.removesuffix(".npy")] = read_npy(file, member.file_size)
    except (FileNotFoundError, DamagedNpz):
        raise
    except Exception as error:  # zipfile's and zlib's: BadZipFile, OSError, RuntimeError, …
        raise DamagedNpz(str(error)) from error
    return found


def read_npy(file: IO[bytes], size: int) -> Array:
    """Read the array of numbers in *file*, an .npy of *size* bytes, with no more memory; else DamagedNpz."""
    import numpy as np

    formats = np.lib.format
    try:
        version = formats.read_magic(file)
        if version not in ((1, 0), (2, 0)):
            raise DamagedNpz(f"a header of version {version[0]}.{version[1]}")
        read_header = formats.read_array_header_1_0 if version == (1, 0) else formats.read_array_header_2_0
        with warnings.catch_warnings():  # of headers that Python 2 wrote
            warnings.simplefilter("ignore")
            shape, by_columns, dtype = read_header(file)
    except DamagedNpz:
        raise
    except Exception as error:  # numpy's parser: ValueError, SyntaxError, TokenError, MemoryError, …
        raise DamagedNpz("it is no .npy, or its header is damaged") from error
    if dtype.hasobject or dtype.names:
        raise DamagedNpz("it has Python objects or records, no numbers")
    expected = math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or expected != size - file.tell():
        raise DamagedNpz(f"its header tells of {expected:,} bytes of numbers, {size - file.tell():,} follow")
    if not expected:
        return np.empty(shape, dtype)
    data = np.frombuffer(bytearray(file.read(expected)), np.uint8)
    if len(data) != expected:
        raise DamagedNpz("it is truncated")
    return data.view(dtype).reshape(shape, order="F" if by_columns else "C")


def named_arrays(path: Path) -> dict[str, Array]:
    """Read an .npz file that the user names for inputs."""
    try:
        return read_npz(path)
    except FileNotFoundError as error:
        raise InputError(f"there is no input file {path}", remedy="Check its path.") from error
    except DamagedNpz as error:
        raise InputError(
            f"{path} is not an .npz file of plain arrays: {error}",
            remedy="Write it with numpy.savez(path, input_name=array).",
        ) from error


def npz_bytes(arrays: Mapping[str, Array]) -> bytes:
    """Return *arrays* as an uncompressed npz file; numpy.savez takes none that is called ``file``."""
    import numpy as np

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            try:
                data = npy_bytes(array)
            except ValueError as error:
                raise InputError(
                    f"the input {name} is of type {np.asarray(array).dtype}: {error}",
                    remedy="Give arrays of numbers or booleans.",
                ) from error
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), data)  # of no date: always the same
    return buffer.getvalue()


def npy_bytes(array: Array) -> bytes:
    """Return *array* as an .npy file; ValueError if it has objects."""
    import numpy as np

    file = io.BytesIO()
    np.lib.format.write_array(file, np.asarray(array, order="C"), allow_pickle=False)
    return file.getvalue()
