"""Read .npz files: arrays by name."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
