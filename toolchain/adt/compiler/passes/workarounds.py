"""Passes around what TVM 0.25 does wrong, or not at all, for any GPU.

*Scans.* TVM's kernel for running sums (``gpu_2d_continuous_cumsum``) counts on the work-items of a group
running in lockstep, 32 at a time, and has no barriers: where they do not, the result is wrong. Here an axis
of n elements is cut into about √n chunks: what a chunk adds up to, what comes before each chunk, and the
elements within it are three reductions, each a kernel of its own, in which no work-item waits for another.

*ScatterND.* TVM's kernel for GPUs takes one update behind the other, for those that add to the same place.
Those that replace what is there have places of their own, for ONNX does not say which of two would win: here
a work-item takes each element of the updates.

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

import hashlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, relax, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from adt.compiler.ir.flops import SCHEDULED
from adt.compiler.ir.nodes import operator_name
from adt.compiler.ir.passes import kernel_pass, module_pass, replaced_calls
from adt.compiler.ir.rewriter import static_shape
from adt.compiler.passes.layout.blocks import ceil_blocks

LEAST_CUT = 64
"""Elements from which an axis is cut into chunks; below, each element adds up all before it."""
LONGEST = 60  # characters
WORK_GROUP = 64  # work-items that any GPU has in a work-group
SIZE_OF_IMAGE = "DeviceGetMemSize.opencl"
"""The function that TVM's memory planner asks for the bytes of an image."""


def scans_as_reductions() -> tvm.transform.Pass:
    """Return a pass that replaces ``relax.cumsum`` and ``relax.cumprod`` of tensors with known extents."""

    def replaced(builder: relax.BlockBuilder, call: relax.Call) -> Any:
        (data,), attributes = call.args, call.attrs
        extents = static_shape(data)
        if extents is None:
            return call
        if attributes.axis is None:
            extents, axis = (math.prod(extents),), 0
        else:
            axis = int(attributes.axis) % len(extents)
        around = math.prod(extents[:axis]), extents[axis], math.prod(extents[axis + 1 :])
        flat = builder.emit(relax.op.reshape(data, around))
        dtype = call.struct_info.dtype
        operation = "sum" if operator_name(call) == "relax.cumsum" else "product"
        scanned = builder.emit_te(_scan, flat, operation, dtype, bool(attributes.exclusive))
        return relax.op.reshape(scanned, call.struct_info.shape)

    return replaced_calls("adt.ScansAsReductions", ("relax.cumsum", "relax.cumprod"), replaced)


def _scan(data: te.Tensor, operation: str, dtype: str, exclusive: bool) -> te.Tensor:
    """Compute the running *operation* (``sum`` or ``product``) of data[outer, n, inner] along n."""
    reduce, neutral = _reduction(operation, dtype)
    outer, length, inner = (int(extent) for extent in data.shape)
    size = length if length < LEAST_CUT else math.isqrt(length - 1) + 1
    chunks = -(-length // size)

    def chunk_total(
        row: tirx.PrimExpr, chunk: tirx.PrimExpr, column: tirx.PrimExpr, *limits: tirx.PrimExpr
    ) -> tirx.PrimExpr:
        """Reduce a chunk; with a limit only up to that position."""
        k = te.reduce_axis((0, size), "k")
        at = chunk * size + k
        conditions = [k < limit if exclusive else k <= limit for limit in limits]
        taken = tirx.all(at < length, *conditions)
        return reduce(tirx.if_then_else(taken, data[row, at, column].astype(dtype), neutral), k)

    within = te.compute(
        (outer, chunks, size, inner),
        lambda row, chunk, position, column: chunk_total(row, chunk, column, position),
        name="within",
    )
    offsets = None
    if chunks > 1:
        totals = te.compute(
            (outer, chunks, inner), lambda row, chunk, column: chunk_total(row, chunk, column), name="totals"
        )

        def sum_before(row: tirx.PrimExpr, chunk: tirx.PrimExpr, column: tirx.PrimExpr) -> tirx.PrimExpr:
            k = te.reduce_axis((0, chunks), "k")
            return reduce(tirx.if_then_else(k < chunk, totals[row, k, column], neutral), k)

        offsets = te.compute((outer, chunks, inner), sum_before, name="offsets")

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


def parallel_scatters() -> Any:
    """Return a pass that replaces ``relax.scatter_nd`` of known extents which adds nothing up."""

    def replaced(builder: relax.BlockBuilder, call: relax.Call) -> Any:
        shapes = [static_shape(tensor) for tensor in call.args]
        if call.attrs.reduction != "update" or not all(shapes):
            return call
        extents, (*counts, depth), _ = (shape or () for shape in shapes)
        flat_shapes = ([math.prod(extents)], [math.prod(counts), depth], [-1])
        flat = [
            builder.emit(relax.op.reshape(tensor, shape))
            for tensor, shape in zip(call.args, flat_shapes, strict=True)
        ]
        scattered = builder.emit_te(
            lambda *tensors: _scatter(extents, *tensors),
            *flat,
            primfunc_name_hint="scatter_nd",
            primfunc_attrs={SCHEDULED: True},
        )
        return relax.op.reshape(scattered, extents)

    return replaced_calls("adt.ParallelScatters", ("relax.scatter_nd",), replaced)


def _scatter(extents: Sequence[int], data: te.Tensor, indices: te.Tensor, updates: te.Tensor) -> Any:
    """Return flat *data* of *extents* with *updates* at *indices* ``[count, axes]`` into the first axes."""
    named = {"data": data, "indices": indices, "updates": updates, "result": data}
    *given, result = (
        tirx.decl_buffer(tensor.shape, tensor.dtype, name, layout=None) for name, tensor in named.items()
    )
    tensors = [data, indices, updates]
    sizes = [int(tensor.shape[0]) for tensor in tensors]
    axes = int(indices.shape[1])
    inner = math.prod(extents[axes:])

    def copied(at: tirx.PrimExpr) -> None:
        T.buffer_store(result, given[0][at], [at])

    def updated(at: tirx.PrimExpr) -> None:
        place: Any = 0
        for axis in range(axes):
            place = place * extents[axis] + given[1][at // inner, axis].astype("int32")
        T.buffer_store(result, given[2][at], [place * inner + at % inner])

    def body(_inputs: list[Any], _outputs: list[Any]) -> Any:
        statements = []
        for element, count in ((copied, sizes[0]), (updated, sizes[2])):
            with IRBuilder() as builder:
                with (
                    T.thread_binding(ceil_blocks(count, WORK_GROUP), thread="blockIdx.x") as group,
                    T.thread_binding(WORK_GROUP, thread="threadIdx.x") as item,
                ):
                    at = group * WORK_GROUP + item
                    with T.If(at < count), T.Then():
                        element(at)
                statements.append(builder.get())
        return tirx.SeqStmt(statements)

    return te.extern([result.shape], tensors, body, name="scatter", in_buffers=given, out_buffers=[result])


@kernel_pass("adt.PlainUnitReductions")
def plain_unit_reductions(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Make each block whose reduced axes all have extent 1 a plain one."""
    if function.attrs is not None and function.attrs.get("tirx.is_scheduled", False):
        return function
    body = tirx.stmt_functor.ir_transform(function.body, None, _plain_block, ["tirx.SBlock"])
    return function if body.same_as(function.body) else function.with_body(body)


def _plain_block(block: tirx.SBlock) -> tirx.SBlock | None:
    """Return *block* without its reduction, if that is one over axes of extent 1; None: it stays."""
    reduced = [axis for axis in block.iter_vars if int(axis.iter_type) == tirx.IterVar.CommReduce]
    if block.init is None or any(getattr(axis.dom.extent, "value", 0) != 1 for axis in reduced):
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


def short_name(name: str) -> str:
    """Shorten *name* to its beginning and a digest of it where it is longer than :data:`LONGEST`."""
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
    """Give tensors whose lives do not overlap the same memory by TVM's pass, with images at their size.

    The pass multiplies the size of an image by the bytes of an element, and gets elements meanwhile.
    """
    in_bytes = tvm_ffi.get_global_func(SIZE_OF_IMAGE)

    def in_elements(shape: Any, dtype: Any, device: Any) -> Any:
        size = int(in_bytes(shape, dtype, device))
        return tirx.IntImm("int64", size // (tvm_ffi.dtype(str(dtype)).bits // 8))

    tvm_ffi.register_global_func(SIZE_OF_IMAGE, in_elements, override=True)
    try:
        return relax.transform.StaticPlanBlockMemory()(module)
    finally:
        tvm_ffi.register_global_func(SIZE_OF_IMAGE, in_bytes, override=True)
