"""Bounds of a scheduled kernel: it is called as before, and grows no more than schedules make kernels grow.

A trace may change the layout of an argument, which its callers do not know of, or unroll a loop of a million
iterations, which LLVM compiles for days. TVM does as it is told.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

MOST_COPIES = 1 << 14
"""Statements that unrolled and vectorized loops may become, in all; adt's rules make 2,000 at most."""
MOST_UNROLLED = 1 << 12
"""Steps that TVM may unroll on its own behind an annotation."""
GROWTH = 64
"""Times that a schedule may multiply the iterations and the memory of a kernel: tiles overlap, and rows are
padded."""
SLACK = 1 << 20
"""Iterations, and bytes, that each kernel may have."""
UNROLLING = "pragma_auto_unroll_max_step"


def fault(before: Any, after: Any) -> str:
    """Explain why the PrimFunc *after* is no schedule of *before*; empty if it is one."""
    if not _called_alike(before, after):
        return "it changes the arguments of the kernel"
    sizes, known = _size(after), _size(before)
    if sizes.copies > MOST_COPIES or sizes.unrolled > MOST_UNROLLED:
        return f"it unrolls and vectorizes loops to {max(sizes.copies, sizes.unrolled):,} statements"
    if sizes.iterations > GROWTH * known.iterations + SLACK:
        return f"it computes {sizes.iterations:,} iterations instead of {known.iterations:,}"
    arguments = sum(map(_bytes, before.buffer_map.values()))
    if sizes.memory > GROWTH * (known.memory + arguments) + SLACK:
        return f"it takes {sizes.memory:,} bytes of memory"
    return ""


def iterations(function: Any) -> int:
    """Count how often statements of the PrimFunc *function* run in one call; open extents count as 1."""
    return _size(function).iterations


def gpu_features(function: Any) -> str:
    """Return a feature of GPUs that the PrimFunc *function* uses: threads, or their memory; else empty."""
    from tvm import tirx

    from adt.compiler.ir.nodes import tir_nodes

    for loop in tir_nodes(function.body, tirx.For):
        if loop.thread_binding is not None:
            return f"threads ({loop.thread_binding.thread_tag})"
    scopes = {
        buffer.scope() for block in tir_nodes(function.body, tirx.SBlock) for buffer in block.alloc_buffers
    }
    return "".join(f"{scope} memory" for scope in sorted(scopes - {"global", ""})[:1])


def _called_alike(before: Any, after: Any) -> bool:
    """Return True if both functions have the same parameters and attributes, and the very same buffers: one
    of the same shape may have its axes exchanged."""
    import tvm_ffi
    from tvm import tirx

    empty = [f.with_body(tirx.Evaluate(0)) for f in (before, after)]
    buffers = ([f.buffer_map.get(parameter) for parameter in f.params] for f in (before, after))
    return bool(tvm_ffi.structural_equal(*empty)) and all(
        buffer is other or buffer.same_as(other) for buffer, other in zip(*buffers, strict=True)
    )


@dataclass
class _Size:
    """Sums over all statements of a function."""

    copies: int = 0
    iterations: int = 0
    memory: int = 0
    unrolled: int = 0
    """The largest of its annotations, no sum."""


def _size(function: Any) -> _Size:
    size = _Size()
    _add(function.body, 1, 1, size)
    return size


def _add(statement: Any, copies: int, times: int, size: _Size) -> None:
    """Add to *size* that of *statement*, of which there are *copies* in the code, each run *times* in all."""
    from tvm import tirx

    if isinstance(statement, tirx.For):
        extent = _number(statement.extent)
        times *= extent
        if int(statement.kind) in (tirx.ForKind.VECTORIZED, tirx.ForKind.UNROLLED):
            copies *= extent
    if isinstance(statement, tirx.SBlock):
        size.memory += sum(map(_bytes, statement.alloc_buffers))
    annotations = getattr(statement, "annotations", None) or {}
    if UNROLLING in annotations:
        size.unrolled = max(size.unrolled, _number(annotations[UNROLLING]))
    parts = list(_parts(statement))
    if not parts:
        size.copies += copies if copies > 1 else 0
        size.iterations += times
    for part in parts:
        _add(part, copies, times, size)


def _parts(statement: Any) -> Iterator[Any]:
    """Yield the statements directly within *statement*."""
    yield from getattr(statement, "seq", ())
    for name in ("block", "init", "body", "then_case", "else_case"):
        if (part := getattr(statement, name, None)) is not None:
            yield part


def _number(value: Any) -> int:
    """Return the integer *value*, of Python or TIR; 1 for one that is known at run time only."""
    value = getattr(value, "value", value)
    return max(int(value), 1) if isinstance(value, int | float) else 1


def _bytes(buffer: Any) -> int:
    import tvm_ffi

    return math.prod(map(_number, buffer.shape)) * max(int(tvm_ffi.dtype(buffer.dtype).bits) // 8, 1)
