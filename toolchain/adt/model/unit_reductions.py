"""Kernels whose sums have one term only: made sums no longer.

TVM 0.25's schedule rules for GPUs drop axes of extent 1. A reduction over nothing else
(a depthwise convolution with a kernel of 1 × 1) then is a block that still adds to its
output, and what follows it is written into that block: a bias is added twice, without a word.
"""

from __future__ import annotations

from typing import Any

REDUCE = 2
"""TVM's kind of a block's iterator that is accumulated over."""


def plain_unit_reductions() -> Any:
    """A pass over TIR that makes each block whose reduced axes all have extent 1 a plain one."""
    import tvm
    from tvm import tirx

    @tirx.transform.prim_func_pass(opt_level=0, name="adt.PlainUnitReductions")  # type: ignore[untyped-decorator]
    def plain(function: Any, _module: Any, _context: Any) -> Any:
        if function.attrs is not None and function.attrs.get("tirx.is_scheduled", False):
            return function
        body = tirx.stmt_functor.ir_transform(function.body, None, _plain_block, ["tirx.SBlock"])
        return function if body.same_as(function.body) else function.with_body(body)

    return tvm.transform.Sequential([plain])


def _plain_block(block: Any) -> Any:
    """*block* without its reduction, if that is one over axes of extent 1; None: it stays."""
    from tvm import tirx

    reduced = [axis for axis in block.iter_vars if int(axis.iter_type) == REDUCE]
    if block.init is None or not all(_is_one(axis.dom.extent) for axis in reduced):
        return None
    store, first = block.body, block.init
    if not isinstance(store, tirx.BufferStore) or not isinstance(first, tirx.BufferStore):
        return None

    def initial(load: Any) -> Any:
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


def _is_one(extent: Any) -> bool:
    from tvm import tirx

    return isinstance(extent, tirx.IntImm) and int(extent) == 1
