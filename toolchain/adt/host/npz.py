"""Read and write .npz files: arrays by name."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adt.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class DamagedNpz(Exception):
    """The file is no .npz of plain arrays; the text says how."""


def read_npz(path: Path) -> dict[str, NDArray[np.generic]]:
    """Every array of an .npz file by name; pickled objects are refused.

    Raises:
        FileNotFoundError: there is no such file.
        DamagedNpz: it cannot be read, or holds something else than arrays of numbers.
    """
    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as archive:
            found: dict[str, Any] = {name: archive[name] for name in archive.files}
    except FileNotFoundError:
        raise
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, KeyError, AttributeError) as why:
        raise DamagedNpz(str(why)) from why
    return found


def not_plain(path: Path, why: Exception) -> InputError:
    """The error for a file of inputs that :func:`read_npz` refuses."""
    return InputError(
        f"{path} is not an .npz file of plain arrays: {why}",
        remedy="Write it with numpy.savez(path, input_name=array).",
    )


def npz_bytes(arrays: Mapping[str, NDArray[np.generic]]) -> bytes:
    """*arrays* as an uncompressed npz file, each name kept as it is.

    (numpy.savez cannot take an array called ``file``.)

    Raises:
        InputError: an array holds Python objects.
    """
    import numpy as np

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            one = io.BytesIO()
            try:
                np.lib.format.write_array(one, np.asarray(array, order="C"), allow_pickle=False)
            except ValueError as why:
                raise InputError(
                    f"the input {name} is of type {np.asarray(array).dtype}: {why}",
                    remedy="Give arrays of numbers or booleans.",
                ) from why
            archive.writestr(f"{name}.npy", one.getvalue())
    return buffer.getvalue()
