"""Passes around what TVM 0.25 does wrong, or not at all, for any GPU.

*Scans.* TVM's kernel for running sums (``gpu_2d_continuous_cumsum``) counts on the work-items of a group
running in lockstep, 32 at a time, and has no barriers: where they do not, the result is wrong. Here an axis
of n elements is cut into about √n chunks: what a chunk adds up to, what comes before each chunk, and the
elements within it are three reductions, each a kernel of its own, in which no work-item waits for another.

*Reductions of one term.* TVM's schedule rules for GPUs drop axes of extent 1. A reduction over nothing else
(a depthwise convolution with a kernel of 1 × 1) then is a block that still adds to its output, and what
follows it is written into that block: a bias is added twice, without a word.

*Names.* Fusing names a kernel after all of its operators; of a long chain that is longer than some OpenCL
implementations allow (PoCL keeps a kernel in a directory of its name, and ends the process where the path
is too long).

*Memory.* The planner multiplies the size of an image, which is in bytes, by the bytes of an element once
more: a module in float32 would ask for four times the memory of its images.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, relax, te, tirx

from adt.compiler.ir.nodes import operator_name
from adt.compiler.ir.passes import kernel_pass, module_pass, replaced_calls

LEAST_CUT = 64
"""Elements from which an axis is cut into chunks; below, each element adds up all before it."""
LONGEST = 60  # characters
SIZE_OF_IMAGE = "DeviceGetMemSize.opencl"
"""The function that TVM's memory planner asks for the bytes of an image."""


def scans_as_reductions() -> tvm.transform.Pass:
    """A pass that replaces ``relax.cumsum`` and ``relax.cumprod`` of tensors with known extents."""

    def replaced(builder: relax.BlockBuilder, call: relax.Call) -> Any:
        (data,), attributes = call.args, call.attrs
        shape = getattr(data.struct_info.shape, "values", None)
        if shape is None or not all(hasattr(extent, "value") for extent in shape):
            return call
        extents = [int(extent) for extent in shape]
        axis = attributes.axis
        outer, length, inner = (1, math.prod(extents), 1) if axis is None else _around(extents, int(axis))
        flat = builder.emit(relax.op.reshape(data, (outer, length, inner)))
        dtype = call.struct_info.dtype
        operation = "sum" if operator_name(call) == "relax.cumsum" else "product"
        scanned = builder.emit_te(_scan, flat, operation, dtype, bool(attributes.exclusive))
        return relax.op.reshape(scanned, call.struct_info.shape)

    return replaced_calls("adt.ScansAsReductions", ("relax.cumsum", "relax.cumprod"), replaced)


def _around(extents: list[int], axis: int) -> tuple[int, int, int]:
    """Return the number of elements before an axis, along it and after it."""
    axis %= len(extents)
    return math.prod(extents[:axis]), extents[axis], math.prod(extents[axis + 1 :])


def _scan(data: te.Tensor, operation: str, dtype: str, exclusive: bool) -> te.Tensor:
    """The running *operation* (``sum`` or ``product``) of data[outer, n, inner] along n."""
    reduce, neutral = _reduction(operation, dtype)
    outer, length, inner = (int(extent) for extent in data.shape)
    size = length if length < LEAST_CUT else math.isqrt(length - 1) + 1
    chunks = -(-length // size)

    def before(position: tirx.PrimExpr, limit: tirx.PrimExpr) -> tirx.PrimExpr:
        return position < limit if exclusive else position <= limit

    def element(
        row: tirx.PrimExpr,
        chunk: tirx.PrimExpr,
        position: tirx.PrimExpr,
        column: tirx.PrimExpr,
        *conditions: tirx.PrimExpr,
    ) -> tirx.PrimExpr:
        at = chunk * size + position
        taken = tirx.all(at < length, *conditions)
        return tirx.if_then_else(taken, data[row, at, column].astype(dtype), neutral)

    def scan(
        row: tirx.PrimExpr, chunk: tirx.PrimExpr, position: tirx.PrimExpr, column: tirx.PrimExpr
    ) -> tirx.PrimExpr:
        k = te.reduce_axis((0, size), "k")
        return reduce(element(row, chunk, k, column, before(k, position)), k)

    within = te.compute((outer, chunks, size, inner), scan, name="within")
    if chunks > 1:

        def total(row: tirx.PrimExpr, chunk: tirx.PrimExpr, column: tirx.PrimExpr) -> tirx.PrimExpr:
            k = te.reduce_axis((0, size), "k")
            return reduce(element(row, chunk, k, column), k)

        totals = te.compute((outer, chunks, inner), total, name="totals")

        def sum_before(row: tirx.PrimExpr, chunk: tirx.PrimExpr, column: tirx.PrimExpr) -> tirx.PrimExpr:
            k = te.reduce_axis((0, chunks), "k")
            return reduce(tirx.if_then_else(k < chunk, totals[row, k, column], neutral), k)

        offsets = te.compute((outer, chunks, inner), sum_before, name="offsets")
    else:
        offsets = None

    def result(row: tirx.PrimExpr, position: tirx.PrimExpr, column: tirx.PrimExpr) -> tirx.PrimExpr:
        chunk = position // size
        value = within[row, chunk, position % size, column]
        if offsets is None:
            return value
        offset = offsets[row, chunk, column]
        return offset + value if operation == "sum" else offset * value

    return te.compute((outer, length, inner), result, name="scan")


def _reduction(operation: str, dtype: str) -> tuple[Callable[..., tirx.PrimExpr], Any]:
    if operation == "sum":
        return te.sum, tirx.const(0, dtype)
    product = te.comm_reducer(lambda a, b: a * b, lambda t: tirx.const(1, t), name="product")
    return product, tirx.const(1, dtype)


@kernel_pass("adt.PlainUnitReductions")
def plain_unit_reductions(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Make each block whose reduced axes all have extent 1 a plain one."""
    if function.attrs is not None and function.attrs.get("tirx.is_scheduled", False):
        return function
    body = tirx.stmt_functor.ir_transform(function.body, None, _plain_block, ["tirx.SBlock"])
    return function if body.same_as(function.body) else function.with_body(body)


def _plain_block(block: tirx.SBlock) -> tirx.SBlock | None:
    """*block* without its reduction, if that is one over axes of extent 1; None: it stays."""
    reduced = [axis for axis in block.iter_vars if int(axis.iter_type) == tirx.IterVar.CommReduce]
    if block.init is None or not all(_is_one(axis.dom.extent) for axis in reduced):
        return None
    store, first = block.body, block.init
    if not isinstance(store, tirx.BufferStore) or not isinstance(first, tirx.BufferStore):
        return None

    def initial(load: tirx.BufferLoad) -> tirx.PrimExpr | None:
        return first.value if load.buffer.same_as(store.buffer) else None

    term = tirx.stmt_functor.ir_transform(tirx.Evaluate(store.value), None, initial, ["tirx.BufferLoad"])
    return tirx.SBlock(
        [tirx.IterVar(axis.dom, axis.var, tirx.IterVar.DataPar, axis.thread_tag) for axis in block.iter_vars],
        [region for region in block.reads if not region.buffer.same_as(store.buffer)],
        block.writes,
        block.name_hint,
        tirx.BufferStore(store.buffer, term.value, store.indices),
        None,
        block.alloc_buffers,
        block.match_buffers,
        block.annotations,
    )


def _is_one(extent: tirx.PrimExpr) -> bool:
    return isinstance(extent, tirx.IntImm) and int(extent) == 1


def short_name(name: str) -> str:
    """*name*, or its beginning and a digest of it where it is longer than :data:`LONGEST`."""
    if len(name) <= LONGEST:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: LONGEST - 9].rstrip('_')}_{digest}"


@module_pass("adt.ShortenKernelNames")
def shorten_kernel_names(module: tvm.IRModule) -> tvm.IRModule:
    """Give the kernels of a Relax module names that are not too long."""
    renamed = {}
    for variable, function in module.functions.items():
        short = short_name(variable.name_hint)
        if isinstance(function, tirx.PrimFunc) and short != variable.name_hint:
            renamed[variable] = ir.GlobalVar(short)
            relax.expr._update_struct_info(renamed[variable], variable.struct_info)
    if not renamed:
        return module

    @relax.expr_functor.mutator
    class Rename(relax.PyExprMutator):  # type: ignore[misc]
        def visit_global_var_(self, variable: tvm.ir.GlobalVar) -> relax.Expr:
            return renamed.get(variable, variable)

    result = tvm.IRModule(attrs=module.attrs, global_infos=module.global_infos)
    for variable, function in module.functions.items():
        if isinstance(function, relax.Function):
            function = Rename(module).visit_expr(function)
        result.update_func(renamed.get(variable, variable), function)
    return result


@module_pass("adt.PlanMemory")
def plan_memory(module: tvm.IRModule) -> tvm.IRModule:
    """Give tensors whose lives do not overlap the same memory by TVM's pass, with images at their size."""
    with _sizes_in_elements():
        return relax.transform.StaticPlanBlockMemory()(module)


@contextlib.contextmanager
def _sizes_in_elements() -> Iterator[None]:
    """Meanwhile the planner gets elements, which it then multiplies by their bytes."""
    in_bytes = tvm_ffi.get_global_func(SIZE_OF_IMAGE)

    def in_elements(shape: Any, dtype: Any, device: Any) -> Any:
        size = int(in_bytes(shape, dtype, device))
        return tirx.IntImm("int64", size // (tvm_ffi.dtype(str(dtype)).bits // 8))

    tvm_ffi.register_global_func(SIZE_OF_IMAGE, in_elements, override=True)
    try:
        yield
    finally:
        tvm_ffi.register_global_func(SIZE_OF_IMAGE, in_bytes, override=True)
