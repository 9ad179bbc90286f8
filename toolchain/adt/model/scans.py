"""Running sums and products for OpenCL, as plain reductions.

TVM's kernel for them (0.25's ``gpu_2d_continuous_cumsum``) counts on the work-items of a group running
in lockstep, 32 at a time, and has no barriers: where they do not, the result is wrong. Here an axis of
n elements is cut into about √n chunks: what a chunk adds up to, what comes before each chunk, and the
elements within it are three reductions, each a kernel of its own, in which no work-item waits for another.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

LEAST_CUT = 64
"""Elements from which an axis is cut into chunks; below, each element adds up all before it."""


def scans_as_reductions() -> Any:
    """A pass that replaces ``relax.cumsum`` and ``relax.cumprod`` of tensors with known extents."""
    import tvm
    from tvm import relax
    from tvm.relax.expr_functor import PyExprMutator, mutator

    @mutator
    class Replace(PyExprMutator):  # type: ignore[misc]
        def visit_call_(self, call: Any) -> Any:
            call = super().visit_call_(call)
            name = getattr(call.op, "name", "")
            if name not in ("relax.cumsum", "relax.cumprod"):
                return call
            (data,), attributes = call.args, call.attrs
            shape = getattr(data.struct_info.shape, "values", None)
            if shape is None or not all(hasattr(extent, "value") for extent in shape):
                return call
            extents = [int(extent) for extent in shape]
            axis = attributes.axis
            outer, length, inner = (1, math.prod(extents), 1) if axis is None else _around(extents, int(axis))
            flat = self.builder_.emit(relax.op.reshape(data, (outer, length, inner)))
            dtype = call.struct_info.dtype
            operation = "sum" if name == "relax.cumsum" else "product"
            scanned = self.builder_.emit_te(_scan, flat, operation, dtype, bool(attributes.exclusive))
            return relax.op.reshape(scanned, call.struct_info.shape)

    @tvm.transform.module_pass(opt_level=0, name="adt.ScansAsReductions")  # type: ignore[untyped-decorator]
    def replace(module: Any, _context: Any) -> Any:
        visitor = Replace(module)
        for variable, function in module.functions_items():
            if isinstance(function, relax.Function):
                visitor.builder_.update_func(variable, visitor.visit_expr(function))
        return visitor.builder_.get()

    return replace


def _around(extents: list[int], axis: int) -> tuple[int, int, int]:
    """How many elements come before an axis, along it and after it."""
    axis %= len(extents)
    return math.prod(extents[:axis]), extents[axis], math.prod(extents[axis + 1 :])


def _scan(data: Any, operation: str, dtype: str, exclusive: bool) -> Any:
    """The running *operation* (``sum`` or ``product``) of data[outer, n, inner] along n."""
    from tvm import te, tirx

    reduce, neutral = _reduction(operation, dtype)
    outer, length, inner = (int(extent) for extent in data.shape)
    size = length if length < LEAST_CUT else math.isqrt(length - 1) + 1
    chunks = -(-length // size)

    def before(position: Any, limit: Any) -> Any:
        return position < limit if exclusive else position <= limit

    def element(row: Any, chunk: Any, position: Any, column: Any, *conditions: Any) -> Any:
        at = chunk * size + position
        taken = tirx.all(at < length, *conditions)
        return tirx.if_then_else(taken, data[row, at, column].astype(dtype), neutral)

    def scan(row: Any, chunk: Any, position: Any, column: Any) -> Any:
        k = te.reduce_axis((0, size), "k")
        return reduce(element(row, chunk, k, column, before(k, position)), k)

    within = te.compute((outer, chunks, size, inner), scan, name="within")
    if chunks > 1:

        def total(row: Any, chunk: Any, column: Any) -> Any:
            k = te.reduce_axis((0, size), "k")
            return reduce(element(row, chunk, k, column), k)

        totals = te.compute((outer, chunks, inner), total, name="totals")

        def sum_before(row: Any, chunk: Any, column: Any) -> Any:
            k = te.reduce_axis((0, chunks), "k")
            return reduce(tirx.if_then_else(k < chunk, totals[row, k, column], neutral), k)

        offsets = te.compute((outer, chunks, inner), sum_before, name="offsets")
    else:
        offsets = None

    def result(row: Any, position: Any, column: Any) -> Any:
        chunk = position // size
        value = within[row, chunk, position % size, column]
        if offsets is None:
            return value
        offset = offsets[row, chunk, column]
        return offset + value if operation == "sum" else offset * value

    return te.compute((outer, length, inner), result, name="scan")


def _reduction(operation: str, dtype: str) -> tuple[Callable[..., Any], Any]:
    from tvm import te, tirx

    if operation == "sum":
        return te.sum, tirx.const(0, dtype)
    product = te.comm_reducer(lambda a, b: a * b, lambda t: tirx.const(1, t), name="product")
    return product, tirx.const(1, dtype)
