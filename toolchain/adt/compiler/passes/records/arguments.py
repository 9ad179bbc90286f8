"""Arguments of a kernel, and the numbers that it is run with to see that a schedule is right."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any


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

    random, shape = np.random.default_rng(seed), argument.shape
    if argument.dtype in ("float16", "float32", "float64"):
        return random.random(shape, np.float32).astype(argument.dtype).tobytes()
    if argument.dtype == "bfloat16":  # the upper half of a float32
        return (random.random(shape, np.float32).view(np.uint32) >> 16).astype(np.uint16).tobytes()
    low, end = {"int8": (1, 4), "uint8": (1, 4), "bool": (0, 2)}.get(argument.dtype, (0, 0))
    return random.integers(low, end, shape, np.uint8).tobytes() if end else bytes(argument.size)


def unwritten_data(argument: Argument) -> bytes:
    """Return the contents of an output before it is computed: NaN, for floats."""
    return b"\xff" * argument.size


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
