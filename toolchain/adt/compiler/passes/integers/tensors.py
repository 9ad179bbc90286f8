"""Meaning of tensors of 8 bits, weights and sums while a model is rewritten, and functions of such tensors.

A function of a tensor of 8 bits, such as a sigmoid, is known by its result for each of the 256 numbers. If
the result is quantized again, it is looked up where that takes less than to compute it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax

from adt.compiler.ir.nodes import operator_name
from adt.compiler.ir.rewriter import static_shape

RANGES = {"int8": (-128, 127), "uint8": (0, 255)}
LARGEST = 255  # largest magnitude of what is multiplied, and of its distance from zero
SUMMED = 1 << 31  # integers below which int32 holds each
EXACT = 1 << 24  # integers up to which float32 holds each
SLOW = frozenset(f"relax.{name}" for name in ("erf", "exp", "log", "nn.gelu", "nn.silu", "sigmoid", "tanh"))
"""Operators that take longer than to look a number up."""


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
    """Return the numbers of a constant."""
    return value.data.numpy() if isinstance(value, relax.Constant) else None


def along(array: NDArray[np.generic], axis: int, rank: int) -> NDArray[np.generic]:
    """Reshape *array*, of one element or one axis, to broadcast along *axis* of a tensor of *rank*."""
    return array.reshape([-1 if at == axis else 1 for at in range(rank)])


@dataclass(frozen=True)
class Pointwise:
    """A function of a tensor of 8 bits."""

    base: Any
    """Tensor of the new function that it is computed from."""
    values: Any
    """A numpy array: what each bit pattern gives."""
    slow: bool = False
    """It is to be looked up."""


def pointwise_of(
    variable: relax.Var, call: relax.Expr, known: Callable[[Any], Pointwise | None]
) -> Pointwise | None:
    """Return the function that *call* computes of *variable* alone, by those *known*; else None."""
    function = _functions().get(operator_name(call))
    if function is None or not any(isinstance(arg, relax.Var) and known(arg) for arg in call.args):
        return None
    operands: list[relax.Expr] = []
    sources: list[Pointwise] = []
    for arg in call.args:
        if isinstance(arg, relax.Constant) and arg.data.numpy().size == 1:
            operands.append(arg.data.numpy().reshape(()))
        elif isinstance(arg, relax.PrimValue):
            operands.append(arg.value.value)
        elif (source := known(arg)) and static_shape(arg) == static_shape(variable):
            operands.append(source.values)
            sources.append(source)
        else:
            return None
    if len({source.base for source in sources}) != 1:
        return None
    with np.errstate(all="ignore"):
        values = function(*operands).astype("float32")
    slow = call.op.name in SLOW or any(source.slow for source in sources)
    return Pointwise(sources[0].base, values, slow)


def quantized_values(values: Any, scale: float, zero: int, least: int, most: int) -> Any:
    """Quantize the numpy array *values* of floats to *least* up to *most*, rounded as ONNX rounds."""
    return np.clip(np.rint(values / np.float32(scale)) + zero, least, most)


_OF_NUMPY = (
    "add", "clip", "divide", "exp", "log", "maximum", "minimum", "multiply", "negative", "sqrt", "subtract",
    "tanh",
)  # fmt: skip


def _functions() -> Mapping[str, Callable[..., Any]]:
    """Return the functions by the names of Relax's operators."""

    def sigmoid(x: Any) -> Any:
        return 1 / (1 + np.exp(-x))

    erf = np.vectorize(math.erf)
    return {
        **{f"relax.{name}": getattr(np, name) for name in _OF_NUMPY},
        "relax.erf": erf,
        "relax.nn.gelu": lambda x: x * (1 + erf(x / math.sqrt(2))) / 2,
        "relax.nn.relu": lambda x: np.maximum(x, 0),
        "relax.nn.silu": lambda x: x * sigmoid(x),
        "relax.sigmoid": sigmoid,
    }
