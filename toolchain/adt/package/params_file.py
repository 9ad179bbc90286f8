"""File of parameters (mod.params) in TVM's format, in which a CPU's lie where kernels can read them.

The format (``tvm.runtime.save_param_dict``) puts tensors one behind the other. What aligns them are small
tensors between them, which belong to no entry: any reader of the format passes them over, and a runner on
a CPU maps the file in place of copying it.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

PADDING = "adt.padding."  # names of what aligns others begin so
LEAST_BYTES = 4096  # smaller parameters are copied sooner than a page of them is mapped
_NUMBER, _TENSOR_HEAD = 8, 40
"""Bytes of a count, and of a tensor's head without its extents, each as long as a count."""


def write_params(params: Mapping[str, Any], path: Path, alignment: int) -> None:
    """Write *params* as *path*; each larger parameter begins at a multiple of *alignment* bytes."""
    import tvm

    tvm.runtime.save_param_dict_to_file(
        dict(params) if alignment == 1 else _aligned(params, alignment), str(path)
    )


def read_params(path: Path) -> dict[str, Any]:
    """Return the parameters in *path*, tensors of TVM by name."""
    import tvm

    tensors = tvm.runtime.load_param_dict_from_file(str(path))
    return {str(name): tensor for name, tensor in tensors.items() if not str(name).startswith(PADDING)}


def _aligned(params: Mapping[str, Any], alignment: int) -> dict[str, Any]:
    """Put a padding before each larger one of *params*."""
    import numpy as np
    import tvm

    larger = {name: f"{PADDING}{name}" for name, tensor in params.items() if _bytes(tensor) >= LEAST_BYTES}
    names = [*params, *larger.values()]
    # Magic number, reserved number, how many names, each with its length, how many tensors.
    place = 4 * _NUMBER + sum(_NUMBER + len(name.encode()) for name in names)
    result: dict[str, Any] = {}
    for name, tensor in params.items():
        head = _TENSOR_HEAD + _NUMBER * len(tensor.shape)
        if name in larger:
            before = _TENSOR_HEAD + _NUMBER + head
            size = alignment - (place + before) % alignment  # never 0: TVM copies no empty tensor
            result[larger[name]] = tvm.runtime.tensor(np.zeros(size, np.uint8))
            place += _TENSOR_HEAD + _NUMBER + size
        result[name] = tensor
        place += head + _bytes(tensor)
    return result


def _bytes(tensor: Any) -> int:
    import tvm_ffi

    dtype = tvm_ffi.dtype(tensor.dtype)
    return prod(int(extent) for extent in tensor.shape) * (int(dtype.bits) * int(dtype.lanes) // 8)
