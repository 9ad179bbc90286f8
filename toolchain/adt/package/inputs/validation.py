"""Validation of arrays against the inputs of a package's entry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from adt.errors import InputError
from adt.numerics import Array
from adt.package.manifest import Entry, TensorSpec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def taken_inputs(entry: Entry, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return *inputs* without those of the model that *entry* does not take, which a caller may give, too."""
    unused = {spec.name for spec in entry.unused}
    return {name: array for name, array in inputs.items() if name not in unused}


def check_inputs(model: str, entry: Entry, inputs: Mapping[str, Array]) -> None:
    """Check that *inputs* are those of *entry*, by name, of its shapes and dtypes."""
    specs = {spec.name: spec for spec in entry.inputs}
    if set(specs) != set(inputs):
        raise InputError(
            f"{model} takes {', '.join(specs) or 'no inputs'}; given: {', '.join(inputs) or 'none'}",
            remedy="Name each input as the model does.",
        )
    for name, array in inputs.items():
        if not fits(specs[name], array):
            raise InputError(
                f"input {name} of {model} is {kind(specs[name])}; given: {kind(array)}",
                remedy="Convert the array to that shape and dtype.",
            )
        _check_values(specs[name], array)


def _check_values(spec: TensorSpec, array: Array) -> None:
    """Check that indices are in their range."""
    values = spec.values
    if values is None or not (values.is_index and array.size):
        return
    numbers: NDArray[np.int64] = array.astype("int64")
    wrong = numbers[(numbers < values.least) | (numbers > values.most)]
    if wrong.size:
        raise InputError(
            f"input {spec.name} has the value {wrong.flat[0]}; the model takes {values.least} to "
            f"{values.most}: it picks elements of a tensor by them",
            remedy="Give values in that range, made for this very model (its own tokenizer, its own table).",
        )


def fits(spec: TensorSpec, array: Array) -> bool:
    """Return True if *array* has the dtype of *spec*, and its shape where that is fixed."""
    return (
        str(array.dtype) == spec.dtype
        and array.ndim == len(spec.shape)
        and all(
            isinstance(want, str) or want == have for want, have in zip(spec.shape, array.shape, strict=True)
        )
    )


def kind(tensor: TensorSpec | Array) -> str:
    """Format type and shape: ``float32[1, 3, 224, 224]``."""
    return f"{tensor.dtype}[{', '.join(map(str, tensor.shape))}]"
