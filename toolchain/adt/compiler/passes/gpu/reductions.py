"""Maxima, minima, products and their places: reductions that TVM's rules for sums do not take.

Where neighbouring results read neighbouring elements, each work-item computes one; else the work-items of a
group share its terms, each reading every P-th, and TVM puts their parts together in local memory.
"""

from __future__ import annotations

import math

from tvm import s_tir, tirx

from adt.compiler.ir.nodes import tir_nodes
from adt.compiler.passes.gpu.kernel_blocks import reduce_loops
from adt.compiler.passes.gpu.texels import writes_texels
from adt.compiler.passes.layout.signature import SPATIAL, reduces, variables_of
from adt.compiler.passes.scheduling import Decisions, divisors
from adt.compiler.targets.gpu import Gpu

LEAST_SHARED = 32
"""Terms from which work-items share them."""
LEAST_EACH = 4
"""Least number of terms of a work-item that shares them."""


def is_other_reduction(function: tirx.PrimFunc) -> bool:
    """Return True if the unscheduled TIR *function* reduces once, not to a sum, and writes no texels."""
    blocks = [block for block in tir_nodes(function.body, tirx.SBlock) if block.init is not None]
    if len(blocks) != 1 or writes_texels(function):
        return False
    body = blocks[0].body
    return not isinstance(body, tirx.BufferStore) or not isinstance(body.value, tirx.Add)


def reduction(schedule: s_tir.Schedule, gpu: Gpu, _decisions: Decisions) -> None:
    """Schedule a kernel for which :func:`is_other_reduction` is true."""
    root = schedule.get_sblock("root")
    blocks = schedule.get_child_blocks(root)
    (total,) = (block for block in blocks if reduces(schedule.get(block)))
    (output,) = schedule.get_output_blocks(root)
    store = output
    if schedule.get(output).same_as(schedule.get(total)):
        store = schedule.cache_write(total, 0, "local")
    for block in blocks:
        if not any(schedule.get(block).same_as(schedule.get(other)) for other in (total, store)):
            schedule.compute_inline(block)
    for place in range(len(schedule.get(total).writes)):
        schedule.set_scope(total, place, "local")
    loops = schedule.get_loops(store) or [schedule.add_unit_loop(store)]
    results = schedule.fuse(*loops) if len(loops) > 1 else loops[0]
    count = int(schedule.get(results).extent)
    terms = _terms(schedule.get(total))
    if terms < LEAST_SHARED or not _reads_along_terms(schedule.get(total)):
        group, item = schedule.split(results, [None, min(gpu.work_group, count)])
        schedule.bind(group, "blockIdx.x")
        schedule.bind(item, "threadIdx.x")
        schedule.compute_at(total, item, preserve_unit_loops=True)
        schedule.decompose_reduction(total, reduce_loops(schedule, total)[0])
        return
    sizes = [1 << power for power in range(11) if 1 << power <= min(gpu.work_group, terms // LEAST_EACH)]
    items = next((size for size in sizes[2:] if size * count >= gpu.items), sizes[-1])
    together = divisors(count, max(1, gpu.wave // items))[-1]
    group, one = schedule.split(results, [None, together])
    schedule.bind(group, "blockIdx.x")
    schedule.bind(one, "threadIdx.y")
    schedule.compute_at(total, one, preserve_unit_loops=True)
    reduce = reduce_loops(schedule, total)
    along = schedule.fuse(*reduce) if len(reduce) > 1 else reduce[0]
    step, item = schedule.split(along, [None, items])
    schedule.reorder(item, step)
    schedule.bind(item, "threadIdx.x")


def _terms(block: tirx.SBlock) -> int:
    return math.prod(int(axis.dom.extent) for axis in block.iter_vars if int(axis.iter_type) != SPATIAL)


def _reads_along_terms(block: tirx.SBlock) -> bool:
    """Return True if one term lies beside the other in memory."""
    last = {axis.var for axis in block.iter_vars if int(axis.iter_type) != SPATIAL}
    regions = [region for region in block.reads if region.region]
    return any(last & variables_of([region.region[-1].min]) for region in regions)
