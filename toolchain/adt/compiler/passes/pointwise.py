"""Functions of one tensor of 8 bits, such as a sigmoid: what each of the 256 numbers gives.

What is quantized again is then looked up, where that takes less than to compute it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

from adt.compiler.ir.nodes import operator_name
from adt.compiler.ir.rewriter import static_shape

SLOW = frozenset(f"relax.{name}" for name in ("erf", "exp", "log", "nn.gelu", "nn.silu", "sigmoid", "tanh"))
"""Operators that take longer than to look a number up."""


@dataclass(frozen=True)
class Pointwise:
    """A function of a tensor of 8 bits."""

    base: Any
    """Tensor of the new function that it is computed from."""
    values: Any
    """A numpy array: what each bit pattern gives."""
    slow: bool = False
    """It is to be looked up."""


def applied(
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


def quantized(values: Any, scale: float, zero: int, least: int, most: int) -> Any:
    """The numpy array *values* of floats as integers from *least* to *most*, rounded as ONNX rounds."""
    return np.clip(np.rint(values / np.float32(scale)) + zero, least, most)


def _functions() -> Mapping[str, Callable[..., Any]]:
    """By the names of Relax's operators."""

    def sigmoid(x: Any) -> Any:
        return 1 / (1 + np.exp(-x))

    erf = np.vectorize(math.erf)
    return {
        "relax.add": np.add,
        "relax.clip": np.clip,
        "relax.divide": np.divide,
        "relax.erf": erf,
        "relax.exp": np.exp,
        "relax.log": np.log,
        "relax.maximum": np.maximum,
        "relax.minimum": np.minimum,
        "relax.multiply": np.multiply,
        "relax.negative": np.negative,
        "relax.nn.gelu": lambda x: x * (1 + erf(x / math.sqrt(2))) / 2,
        "relax.nn.relu": lambda x: np.maximum(x, 0),
        "relax.nn.silu": lambda x: x * sigmoid(x),
        "relax.sigmoid": sigmoid,
        "relax.sqrt": np.sqrt,
        "relax.subtract": np.subtract,
        "relax.tanh": np.tanh,
    }
