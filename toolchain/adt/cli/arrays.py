"""Read and write the arrays of ``--input`` and ``--output``, and show them in one line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adt.errors import InputError
from adt.host.disk import disk_errors
from adt.host.npz import DamagedNpz, not_plain, npz_bytes, read_npz

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.generic]


def load_npz(path: Path) -> dict[str, Array]:
    """The arrays of an .npz file by name; pickled objects are refused.

    Raises:
        InputError: it is missing or no .npz file.
    """
    try:
        return read_npz(path)
    except FileNotFoundError as why:
        raise InputError(f"there is no input file {path}", remedy="Check --input.") from why
    except DamagedNpz as why:
        raise not_plain(path, why) from why


def save_npz(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays by name to an .npz file.

    Raises:
        DiskError: there is no room or no access.
    """
    with disk_errors(f"writing {path}", path):
        path.write_bytes(npz_bytes(arrays))


def summary(name: str, array: Array) -> str:
    """``name: float32[1, 214] min … max … argmax …``."""
    import numpy as np

    text = f"{name}: {array.dtype.name}[{', '.join(map(str, array.shape))}]"
    if array.size and np.issubdtype(array.dtype, np.number):
        numbers: Any = array
        text += f" min {numbers.min():.6g} max {numbers.max():.6g} argmax {int(numbers.argmax())}"
    return text


def describe(arrays: Mapping[str, Array]) -> list[dict[str, Any]]:
    """Name, dtype and shape of each array, for JSON."""
    return [{"name": n, "dtype": a.dtype.name, "shape": list(a.shape)} for n, a in arrays.items()]


def load_inputs(given: dict[str, Any]) -> None:
    """Put the arrays of the file that was named as ``inputs`` into its place."""
    given["inputs"] = load_npz(given["inputs"]) if given["inputs"] else None
