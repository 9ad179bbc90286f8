"""ScatterND on a GPU with a work-item for each element of the updates.

TVM's kernel takes one update behind the other, for those that add to the same place. Those that replace what
is there have places of their own: ONNX does not say which of two would win.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tvm import relax, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from adt.compiler.ir.flops import SCHEDULED
from adt.compiler.ir.passes import replaced_calls
from adt.compiler.ir.rewriter import static_shape
from adt.compiler.passes.layout.blocks import ceil_blocks

WORK_GROUP = 64  # work-items that any GPU has in a work-group


def parallel_scatters() -> Any:
    """A pass that replaces ``relax.scatter_nd`` of tensors with known extents which adds nothing up."""

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
