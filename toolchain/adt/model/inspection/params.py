"""The parameters of a package as a table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from adt.errors import PackageError
from adt.model.package import ModelPackage
from adt.model.packaging.files import PARAMS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Param:
    """One parameter. Its range is over finite elements; None where there are none."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    min: float | None
    max: float | None
    mean: float | None
    not_finite: int
    """Elements that are infinite or not a number."""
    image: bool = False
    """On the device it lies in an image."""


def read_params(package: ModelPackage) -> tuple[Param, ...]:
    """Each parameter, in the order in which they follow the inputs of ``main``; others after them.

    Raises:
        PackageError: ``mod.params`` is no parameter file of TVM.
    """
    images = {name for entry in package.manifest.entries for name in entry.images}
    return tuple(_row(name, array, image=name in images) for name, array in load_arrays(package))


def load_arrays(package: ModelPackage) -> Iterator[tuple[str, NDArray[np.generic]]]:
    """Name and contents of each parameter, in the order of :func:`read_params`.

    Raises:
        PackageError: ``mod.params`` is no parameter file of TVM.
    """
    import tvm

    path = package.path / PARAMS
    try:
        found = tvm.runtime.load_param_dict_from_file(str(path))
    except Exception as why:  # TVM's reader raises InternalError, ValueError, …
        raise PackageError(
            f"{path} is not a parameter file of TVM, or is damaged",
            remedy=f"Compile the model again: {package.manifest.source.compile_command()}",
            details=str(why)[-500:],
        ) from why
    order = {name: index for index, name in enumerate(package.manifest.entry().params)}
    for name in sorted(found, key=lambda name: (order.get(name, len(order)), name)):
        yield str(name), found[name].numpy()


def _row(name: str, array: Any, *, image: bool) -> Param:
    import numpy as np

    size = int(array.nbytes)
    low = high = mean = None
    numbers = array.astype(np.float64) if array.dtype.kind not in "biu" else array
    finite = numbers[np.isfinite(numbers)]
    if finite.size:
        low, high, mean = float(finite.min()), float(finite.max()), float(finite.mean())
    missing = int(numbers.size - finite.size)
    shape = tuple(map(int, array.shape))
    return Param(name, shape, str(array.dtype), size, low, high, mean, missing, image)
