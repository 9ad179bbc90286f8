"""What kernels are given to compute with: the same numbers on every device, as bytes of whatever type."""

from __future__ import annotations

import math
from typing import Any

from adt.tuning.jobs import Argument

UNWRITTEN = 0xFF
"""Each byte of an output before a kernel computes it: NaN, for floats."""


def size(argument: Argument) -> int:
    """Bytes of *argument*."""
    import tvm_ffi

    kind = tvm_ffi.dtype(argument.dtype)
    return (math.prod(argument.shape) * int(kind.bits) * int(kind.lanes) + 7) // 8


def made_up(argument: Argument, seed: int) -> bytes:
    """Numbers for *argument*: floats of [0, 1) and small integers, for which every kernel is defined.

    Wider integers are zero, for they may be indices, and so are types that numpy does not have.
    """
    import numpy as np

    random = np.random.default_rng(seed)
    data: np.ndarray[Any, Any]
    if argument.dtype in ("float16", "float32", "float64"):
        data = random.random(argument.shape, np.float32).astype(argument.dtype)
    elif argument.dtype == "bfloat16":  # the upper half of a float32
        data = (random.random(argument.shape, np.float32).view(np.uint32) >> 16).astype(np.uint16)
    elif argument.dtype in ("int8", "uint8"):
        data = random.integers(1, 4, argument.shape, np.uint8)
    elif argument.dtype == "bool":
        data = random.integers(0, 2, argument.shape, np.uint8)
    else:
        return bytes(size(argument))
    return data.tobytes()


def unwritten(argument: Argument) -> bytes:
    """What an output holds before it is computed."""
    return bytes([UNWRITTEN]) * size(argument)


def on_device(argument: Argument, device: Any, data: bytes) -> Any:
    """*argument* as a tensor of *device* that holds *data*."""
    import tvm

    scope = None if argument.scope == "global" else argument.scope
    tensor = tvm.runtime.empty(argument.shape, argument.dtype, device, mem_scope=scope)
    kept = bytearray(data)
    tvm.get_global_func("runtime.TVMTensorCopyFromBytes")(tensor, _pointer(kept), len(kept))
    return tensor


def from_device(argument: Argument, tensor: Any) -> bytes:
    """What *tensor* holds."""
    import tvm

    kept = bytearray(size(argument))
    tvm.get_global_func("runtime.TVMTensorCopyToBytes")(tensor, _pointer(kept), len(kept))
    return bytes(kept)


def _pointer(kept: bytearray) -> Any:
    import ctypes

    return ctypes.cast((ctypes.c_char * len(kept)).from_buffer(kept), ctypes.c_void_p)
