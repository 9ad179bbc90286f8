"""Inputs that are made up, the same bits here and in the C++ runner.

The generator of random ones is called ``adt-splitmix64-v1``. All arithmetic is on unsigned
64-bit integers, modulo 2^64::

    mix(z):  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
             z = (z ^ (z >> 27)) * 0x94D049BB133111EB
             return z ^ (z >> 31)
    s   = mix(seed + fnv1a64(the input's name in UTF-8))     one stream for each input, by name
    z_k = mix(s + (k + 1) * 0x9E3779B97F4A7C15)              for element k in C order, from 0

    float64  (z_k >> 11) * 2^-53     float32  (z_k >> 40) * 2^-24     float16  (z_k >> 53) * 2^-11
    any integer  z_k mod 100         bool  z_k >> 63
    … of a known range  low + z_k mod (most - low + 1), where low is its least number, but at least 0

Every float is exact, in [0, 1).

Other fill modes number the elements (``zeros``: all 0, ``ones``: all 1, ``arange``: 0, 1, 2, … in C order). A
float is the number, modulo 2^24 (float16: 2^11), so that it is exact; an integer its low bytes, and in a
known range (n - low) mod (most - low + 1) + low, from low on; a bool its lowest bit.

``cpp_runner/src/random_inputs.cc`` is the other copy; a test compares the two for every element type.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from adt.errors import InputError
from adt.numerics import Array
from adt.package.manifest import UNKNOWN, TensorSpec

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MULTIPLIERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_FLOAT_BITS = {"float16": 11, "float32": 24, "float64": 53}
_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


def random_inputs(specs: Sequence[TensorSpec], seed: int, fill_mode: str = "random") -> dict[str, Array]:
    """Make arrays for *specs* of fixed shapes: floats in [0, 1), bools, integers in their range or [0, 100).

    *seed* is from 0 to 2^64 - 1, *fill_mode* one of :data:`adt.options.sections.FILL_MODES`.
    """
    # Of a shape without dimensions numpy's operators make scalars, which runtimes refuse.
    return {spec.name: np.asarray(_array(spec, seed, fill_mode)) for spec in specs}


def _array(spec: TensorSpec, seed: int, fill_mode: str) -> Array:
    remedy = "Give the inputs in a file (--input in.npz), or compile with --shape."
    if symbols := [extent for extent in spec.shape if isinstance(extent, str)]:
        raise InputError(f"input {spec.name} has the symbolic dimension {symbols[0]}", remedy=remedy)
    shape = tuple(map(int, spec.shape))
    if spec.dtype not in (*_FLOAT_BITS, *_INTEGERS, "bool"):
        raise InputError(
            f"no values can be made up for input {spec.name} of type {spec.dtype}", remedy=remedy
        )
    if spec.values is not None and spec.values.meaning == UNKNOWN:
        raise InputError(
            f"the values of input {spec.name} become indices by a calculation, so none can be made up",
            remedy="Give the inputs in a file: --input in.npz.",
        )
    size = math.prod(shape)
    values = _random(spec, size, seed) if fill_mode == "random" else _numbered(spec, size, fill_mode)
    return values.reshape(shape)


def _random(spec: TensorSpec, size: int, seed: int) -> Array:
    stream = _mixed(np.array([(seed + _fnv1a64(spec.name)) & _MASK], np.uint64))
    words = _mixed(np.arange(1, size + 1, dtype=np.uint64) * np.uint64(_GOLDEN) + stream)
    if bits := _FLOAT_BITS.get(spec.dtype):
        # Exact all the way: the integer has no more bits than the type's significand.
        values: NDArray[np.float64] = (words >> np.uint64(64 - bits)).astype(np.float64) * 2.0**-bits
        return values.astype(spec.dtype)
    if spec.dtype == "bool":
        return (words >> np.uint64(63)).astype("bool")
    low, count = _range(spec)
    return (words % np.uint64(count) + np.uint64(low)).astype(spec.dtype)


def _numbered(spec: TensorSpec, size: int, fill_mode: str) -> Array:
    numbers = np.arange(size) if fill_mode == "arange" else np.full(size, fill_mode == "ones", "int64")
    if bits := _FLOAT_BITS.get(spec.dtype):
        return (numbers % (1 << bits)).astype(spec.dtype)
    if spec.dtype == "bool":
        return (numbers % 2).astype("bool")
    if spec.values is not None:
        low, count = _range(spec)
        numbers = low + np.maximum(numbers - low, 0) % min(count, 2**63 - 1)
    return numbers.astype(spec.dtype)


def _range(spec: TensorSpec) -> tuple[int, int]:
    """Return the least integer, and the number of integers."""
    if spec.values is None:
        return 0, 100
    low = max(spec.values.least, 0)
    return low, max(spec.values.most - low + 1, 1)


def _mixed(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(_MULTIPLIERS[0])
    z = (z ^ (z >> np.uint64(27))) * np.uint64(_MULTIPLIERS[1])
    return z ^ (z >> np.uint64(31))


def _fnv1a64(text: str) -> int:
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 & _MASK
    return value
