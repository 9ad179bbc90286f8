"""Comparison of a candidate's results with those of the untuned schedule: same inputs, same device.

Compilers err, and drivers do: TVM 0.25 takes some index calculations for smaller than they are and leaves out
the checks that keep them inside a tensor. Such a kernel is fast, and wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import tirx

from adt.compiler.passes.records.arguments import Argument
from adt.numerics import REORDERED, gaps


def count_outputs(module: Any) -> int:
    """Count the last arguments of the workload *module* (``{"main": PrimFunc}``) that are outputs."""
    function = module["main"]
    stored: set[Any] = set()

    def visit(node: Any) -> None:
        if isinstance(node, tirx.BufferStore):
            stored.add(node.buffer)

    tirx.stmt_functor.post_order_visit(function.body, visit)
    count = 0
    for parameter in reversed(list(function.params)):
        buffer = function.buffer_map.get(parameter)
        if buffer is None or not any(buffer.same_as(other) for other in stored):
            break
        count += 1
    return count


def difference(arguments: Sequence[Argument], untuned: Sequence[bytes], tuned: Sequence[bytes]) -> str | None:
    """Describe what is wrong with a candidate's numbers; None if nothing is.

    Its outputs are the last of *arguments*; *untuned* and *tuned* have them as they lie in memory.
    """
    outputs = arguments[len(arguments) - len(untuned) :]
    for number, (argument, reference, data) in enumerate(zip(outputs, untuned, tuned, strict=True), 1):
        if reason := _output_difference(argument.dtype, data, reference):
            which = f" in output {number} of {len(outputs)}" if len(outputs) > 1 else ""
            return f"it computes other numbers than the untuned schedule{which}: {reason}"
    return None


def _output_difference(dtype: str, data: bytes, reference: bytes) -> str:
    if len(reference) != len(data):
        return f"{len(data)} bytes instead of {len(reference)}"
    if dtype not in REORDERED:
        return "" if reference == data else "they must be equal"
    return _float_difference(_floats(dtype, data), _floats(dtype, reference), REORDERED[dtype])


def _floats(dtype: str, data: bytes) -> Any:
    if dtype == "bfloat16":  # the upper half of float32
        return (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32)
    return np.frombuffer(data, dtype)


def _float_difference(got: Any, reference: Any, tolerance: float) -> str:
    pair = gaps(got, reference)
    odd = int((np.isfinite(pair.reference) & ~pair.finite).sum())
    if odd:
        return f"{odd} of {len(got)} are infinite or NaN"
    if not pair.comparable:
        return "infinities or NaNs in other places"
    if len(reference) and not pair.finite.any():
        return "nothing finite to compare: the untuned schedule gives only infinities or NaNs"
    relative = float(pair.gap.max(initial=0.0)) / max(pair.magnitude, float(np.finfo(np.float32).tiny))
    return f"off by {relative:.2g} of the largest, {tolerance:g} allowed" if relative > tolerance else ""
