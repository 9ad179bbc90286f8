"""Whether arrays fit the inputs of a package's entry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from adt.errors import InputError
from adt.model.package import Entry, TensorSpec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.generic]


def check_inputs(model: str, entry: Entry, inputs: Mapping[str, Array]) -> None:
    """Check that *inputs* are those of *entry*, by name, of its shapes and dtypes.

    Args:
        model: the package's name, for messages.

    Raises:
        InputError: one is missing, too much, or of another shape or dtype.
    """
    specs = {spec.name: spec for spec in entry.inputs}
    if set(specs) != set(inputs):
        raise InputError(
            f"the package {model} takes {', '.join(specs) or 'no inputs'}; given: "
            f"{', '.join(inputs) or 'none'}",
            remedy="Name each input as the package does.",
        )
    for name, array in inputs.items():
        if not fits(specs[name], array):
            raise InputError(
                f"input {name} of {model} is {kind(specs[name])}; given: {described_array(array)}",
                remedy="Convert the array to that shape and dtype.",
            )


def fits(spec: TensorSpec, array: Array) -> bool:
    """Whether *array* has the dtype of *spec*, and its shape where that is fixed."""
    return (
        str(array.dtype) == spec.dtype
        and array.ndim == len(spec.shape)
        and all(
            isinstance(want, str) or want == have for want, have in zip(spec.shape, array.shape, strict=True)
        )
    )


def kind(spec: TensorSpec) -> str:
    """``float32[1, 3, 224, 224]``."""
    return f"{spec.dtype}[{', '.join(map(str, spec.shape))}]"


def described_array(array: Array) -> str:
    """``float32[1, 3, 224, 224]``."""
    return f"{array.dtype}[{', '.join(map(str, array.shape))}]"
