"""Arguments of a kernel, and the numbers that it is run with to see that a schedule is right."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

UNWRITTEN_BYTE = 0xFF
"""Each byte of an output before a kernel computes it: NaN, for floats."""


@dataclass(frozen=True)
class Argument:
    """One argument of a kernel."""

    shape: tuple[int, ...]
    dtype: str
    scope: str = "global"
    """``global.texture``: an image."""

    @property
    def size(self) -> int:
        """Bytes."""
        import tvm_ffi

        kind = tvm_ffi.dtype(self.dtype)
        return (math.prod(self.shape) * int(kind.bits) * int(kind.lanes) + 7) // 8


def arguments(function: Any) -> tuple[Argument, ...]:
    """Return the buffers that *function* is called with, outputs last."""
    buffers = [function.buffer_map[parameter] for parameter in function.params]
    return tuple(
        Argument(tuple(map(int, buffer.shape)), str(buffer.dtype), str(buffer.scope())) for buffer in buffers
    )


def sample_data(argument: Argument, seed: int) -> bytes:
    """Draw numbers for *argument*: floats of [0, 1) and small integers, for which every kernel is defined.

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
        return bytes(argument.size)
    return data.tobytes()


def unwritten_data(argument: Argument) -> bytes:
    """Return the contents of an output before it is computed."""
    return bytes([UNWRITTEN_BYTE]) * argument.size


def upload(argument: Argument, device: Any, data: bytes) -> Any:
    """Upload *argument* as a tensor of *device* that holds *data*."""
    import tvm

    scope = None if argument.scope == "global" else argument.scope
    tensor = tvm.runtime.empty(argument.shape, argument.dtype, device, mem_scope=scope)
    buffer = bytearray(data)
    tvm.get_global_func("runtime.TVMTensorCopyFromBytes")(tensor, _pointer(buffer), len(buffer))
    return tensor


def download(argument: Argument, tensor: Any) -> bytes:
    """Return the contents of *tensor*."""
    import tvm

    buffer = bytearray(argument.size)
    tvm.get_global_func("runtime.TVMTensorCopyToBytes")(tensor, _pointer(buffer), len(buffer))
    return bytes(buffer)


def _pointer(buffer: bytearray) -> Any:
    import ctypes

    return ctypes.cast((ctypes.c_char * len(buffer)).from_buffer(buffer), ctypes.c_void_p)


def array_of(dtype: str, data: bytes) -> Any:
    """Return the numbers in *data* as an array; of bfloat16, as float32."""
    import numpy as np

    if dtype == "bfloat16":  # the upper half of float32
        return (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32)
    return np.frombuffer(data, dtype)
