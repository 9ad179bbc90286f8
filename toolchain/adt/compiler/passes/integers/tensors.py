"""Meaning of tensors of 8 bits, weights and sums while a model is rewritten."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax

RANGES = {"int8": (-128, 127), "uint8": (0, 255)}
LARGEST = 255  # largest magnitude of what is multiplied, and of its distance from zero
SUMMED = 1 << 31  # integers below which int32 holds each
EXACT = 1 << 24  # integers up to which float32 holds each


@dataclass(frozen=True)
class Quantized:
    """Floats ``(values - zero) * scale``."""

    values: Any
    """A tensor of 8 bits, of the new function."""
    scale: float
    zero: Any
    """A number, or a scalar of int32 of the new function: what is quantized at run time has such."""


@dataclass(frozen=True)
class Weights:
    """Constant floats ``values * scale``."""

    values: Any
    """A numpy array of int16, from -255 to 255."""
    scale: Any
    """A numpy array of float32: one element, or as many as :attr:`values` has along :attr:`axis`."""
    axis: int


@dataclass(frozen=True)
class Sums:
    """Floats ``(sums - border) * scale``."""

    sums: Any
    """A tensor of integers, int32 or float32, of the new function."""
    border: Any
    scale: Any
    """Arrays, of integers and float32, that broadcast to it: an element for each channel, or one."""
    largest: int
    """No sum is larger."""


class Floats(Exception):
    """A convolution or product computes floats; the message says why."""


def array_of(value: relax.Expr) -> NDArray[np.generic] | None:
    """The numbers of a constant."""
    return value.data.numpy() if isinstance(value, relax.Constant) else None


def along(array: NDArray[np.generic], axis: int, rank: int) -> NDArray[np.generic]:
    """*array*, of one element or one axis, as it broadcasts along *axis* of a tensor of *rank*."""
    return array.reshape([-1 if at == axis else 1 for at in range(rank)])
