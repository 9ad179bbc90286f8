"""Reproducible random inputs, the same bits here and in the C++ runner.

The generator is called ``adt-splitmix64-v1``. All arithmetic is on unsigned
64-bit integers, modulo 2^64::

    mix(z):  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
             z = (z ^ (z >> 27)) * 0x94D049BB133111EB
             return z ^ (z >> 31)
    s   = mix(seed + fnv1a64(the input's name in UTF-8))     one stream for each input, by name
    z_k = mix(s + (k + 1) * 0x9E3779B97F4A7C15)              for element k in C order, from 0

    float64  (z_k >> 11) * 2^-53     float32  (z_k >> 40) * 2^-24     float16  (z_k >> 53) * 2^-11
    any integer  z_k mod 100         bool  z_k >> 63
    … of a known range  low + z_k mod (most - low + 1), where low is its least number, but at least 0

Every float is exact, in [0, 1). ``cpp_runner/src/random_inputs.cc`` is the
other copy; a test compares the two for every element type.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from adt.errors import InputError
from adt.model.package.manifest import UNKNOWN, TensorSpec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MULTIPLIERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_FLOAT_BITS = {"float16": 11, "float32": 24, "float64": 53}
_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


def random_inputs(specs: Sequence[TensorSpec], seed: int) -> dict[str, NDArray[np.generic]]:
    """Arrays for *specs*, by name: floats in [0, 1), bools, integers in their known range or in [0, 100).

    Args:
        specs: inputs with fixed shapes.
        seed: any integer from 0 to 2^64 - 1.

    Raises:
        InputError: a shape is symbolic, an element type is none of the above, or nothing is known of
            integers that become indices.
    """
    import numpy as np

    # Of a shape without dimensions numpy's operators make scalars, which runtimes refuse.
    return {spec.name: np.asarray(_array(spec, seed)) for spec in specs}


def _array(spec: TensorSpec, seed: int) -> NDArray[np.generic]:
    import numpy as np

    remedy = "Give the inputs in a file (--input in.npz), or compile with --shape."
    shape: list[int] = []
    for extent in spec.shape:
        if isinstance(extent, str):
            raise InputError(f"input {spec.name} has the symbolic dimension {extent}", remedy=remedy)
        shape.append(extent)
    stream = _mix(seed + _fnv1a64(spec.name))
    counters = np.arange(1, math.prod(shape) + 1, dtype=np.uint64) * np.uint64(_GOLDEN) + np.uint64(stream)
    words = _mix_all(counters).reshape(shape)
    if bits := _FLOAT_BITS.get(spec.dtype):
        # Exact all the way: the integer has no more bits than the type's significand.
        values: NDArray[np.float64] = (words >> np.uint64(64 - bits)).astype(np.float64) * 2.0**-bits
        return values.astype(spec.dtype)
    if spec.dtype in _INTEGERS:
        if spec.values is None:
            return (words % np.uint64(100)).astype(spec.dtype)
        if spec.values.meaning == UNKNOWN:
            raise InputError(
                f"the values of input {spec.name} become indices by a calculation, so none can be made up",
                remedy="Give the inputs in a file: --input in.npz.",
            )
        low = max(spec.values.least, 0)
        span = max(spec.values.most - low + 1, 1)
        return (words % np.uint64(span) + np.uint64(low)).astype(spec.dtype)
    if spec.dtype == "bool":
        return (words >> np.uint64(63)).astype("bool")
    raise InputError(f"no random values for input {spec.name} of type {spec.dtype}", remedy=remedy)


def _mix(z: int) -> int:
    z &= _MASK
    z = (z ^ (z >> 30)) * _MULTIPLIERS[0] & _MASK
    z = (z ^ (z >> 27)) * _MULTIPLIERS[1] & _MASK
    return z ^ (z >> 31)


def _mix_all(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    import numpy as np

    z = (z ^ (z >> np.uint64(30))) * np.uint64(_MULTIPLIERS[0])
    z = (z ^ (z >> np.uint64(27))) * np.uint64(_MULTIPLIERS[1])
    return z ^ (z >> np.uint64(31))


def _fnv1a64(text: str) -> int:
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 & _MASK
    return value
