"""Schedules of kernels for CPUs, by rules and without a search.

The first rule that takes a kernel schedules it: a convolution or product on blocked tensors, one
reduction, several of each row, or no reduction. Anything but a convolution has its last axis in lanes
where that is long enough, its sums in registers, and what can be computed where it is read is. A kernel
that no rule takes stays a plain loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, s_tir, tirx

from adt.compiler.ir.flops import SCHEDULED
from adt.compiler.ir.nodes import block_with, tir_nodes
from adt.compiler.ir.passes import module_pass
from adt.compiler.passes.cpu.convolution import convolution
from adt.compiler.passes.cpu.elementwise import elements
from adt.compiler.passes.cpu.products import product
from adt.compiler.passes.cpu.reads import reads_differ
from adt.compiler.passes.cpu.recurrence import is_recurrence
from adt.compiler.passes.cpu.reduction import reduction, rows, whole_vectors
from adt.compiler.passes.cpu.vector_math import shared_divisors, vectorized_math
from adt.compiler.passes.cpu.vectors import Vectors
from adt.compiler.passes.indices import narrow_indices, simple_indices
from adt.compiler.passes.layout.signature import variables_of
from adt.compiler.passes.scheduling import Decisions, NoSchedule, refusals
from adt.errors import TRACE
from adt.package.inspection.graph import CPU_FINISH, CPU_SCHEDULE

log = logging.getLogger("adt.compile")


Rule = Callable[[Any, Vectors, Decisions], str]
"""Schedules a kernel and says in a few words how, or raises NoSchedule."""
TILED: tuple[Rule, ...] = (convolution,)
"""Rules that leave something open."""
RULES: tuple[Rule, ...] = (*TILED, product, reduction, rows, elements)


def schedule_kernels(vectors: Vectors) -> tvm.transform.Pass:
    """Return the pass that schedules each kernel that has no schedule yet."""

    @module_pass("adt.CpuSchedules")
    def schedule(module: tvm.IRModule) -> tvm.IRModule:
        for name, function in module.functions.items():
            if isinstance(function, tirx.PrimFunc) and SCHEDULED not in (function.attrs or {}):
                module.update_func(name, scheduled(function, vectors, name.name_hint))
        return module

    return schedule()


def scheduled(function: tirx.PrimFunc, vectors: Vectors, name: str = "") -> tirx.PrimFunc:
    """Schedule the TIR *function* by the first rule that takes it; return it as it is if none does."""
    if is_recurrence(function):
        return _finished(function, "all steps of a recurrent layer")
    try:
        return schedule_of(function, vectors, Decisions(), name=name)[1]
    except NoSchedule:
        return function


def schedule_of(
    function: tirx.PrimFunc,
    vectors: Vectors,
    decisions: Decisions,
    rules: Sequence[Rule] = RULES,
    name: str = "",
) -> tuple[s_tir.Schedule, tirx.PrimFunc]:
    """Schedule the TIR *function* by the first of *rules* that takes it with these *decisions*.

    Returns TVM's Schedule, in which an annotation says how, and the finished kernel; NoSchedule if none does.
    """
    for rule, start in _attempts(narrow_indices(function), vectors, rules):
        schedule = s_tir.Schedule(start)
        try:
            with refusals():
                words = rule(schedule, vectors, decisions)
                if rule is elements and reads_differ(function, schedule.mod["main"]):
                    raise NoSchedule("TVM makes wrong indices of it")
        except NoSchedule as reason:
            log.log(TRACE, "%s: %s does not apply: %s", name, rule.__name__, reason)
            continue
        root = schedule.get_sblock("root")
        schedule.annotate(root, CPU_SCHEDULE, words)
        if rule is rows:  # elsewhere what is divided may be rounded to quanta: there a last place counts
            schedule.annotate(root, CPU_FINISH, "shared_divisors")
        if rule is convolution and vectors.by_element:
            schedule.annotate(root, CPU_FINISH, "sums_from_bias")
        return schedule, finished(schedule.copy())
    raise NoSchedule("no rule takes it")


def _attempts(function: tirx.PrimFunc, vectors: Vectors, rules: Sequence[Rule]) -> Iterator[tuple[Rule, Any]]:
    yield from ((rule, whole_vectors(function, vectors) if rule is reduction else function) for rule in rules)
    if elements in rules:
        yield elements, simple_indices(function)


def finished(schedule: s_tir.Schedule) -> tirx.PrimFunc:
    """Return the function of a Schedule of :func:`schedule_of`, or of its trace; KeyError for others."""
    root = schedule.get_sblock("root")
    annotations = dict(schedule.get(root).annotations.items())
    words = str(annotations[CPU_SCHEDULE])
    for name in (CPU_SCHEDULE, CPU_FINISH):
        if name in annotations:
            schedule.unannotate(root, name)
    function = schedule.mod["main"]
    if CPU_FINISH in annotations:
        function = function.with_body(FINISHES[str(annotations[CPU_FINISH])](function.body))
    return _finished(function, words)


def _finished(function: tirx.PrimFunc, words: str) -> tirx.PrimFunc:
    """Return *function*, which was scheduled as *words* say, with its functions of numbers written out."""
    result = function.with_body(vectorized_math(function.body))
    return result.with_attr(SCHEDULED, True).with_attr(CPU_SCHEDULE, words)


def sums_from_bias(statement: tirx.Stmt) -> Any:
    """Have the sums of a scheduled convolution start from the bias, not from zero: one operation less.

    The *statement* is returned as it is where nothing is added that is the same at all positions.
    """
    blocks = tir_nodes(statement, tirx.SBlock)
    starts = [block for block in blocks if _starts_from_zero(block)]
    if len(starts) != 1:
        return statement
    (start,) = starts
    sums = start.body.buffer
    for store in blocks:
        addition = _bias_addition(store, sums)
        if addition is not None:
            break
    else:
        return statement
    of_store = dict(zip(addition.a.indices, start.body.indices, strict=True))
    place = [tirx.stmt_functor.substitute(index, of_store) for index in addition.b.indices]
    bias = tirx.BufferLoad(addition.b.buffer, place)
    region = tirx.BufferRegion(bias.buffer, [ir.Range.from_min_extent(index, 1) for index in place])

    def replaced(block: tirx.SBlock) -> Any:
        if block.same_as(start):
            return block_with(block, tirx.BufferStore(sums, bias, block.body.indices), [region])
        if not block.same_as(store):
            return None
        body = tirx.stmt_functor.ir_transform(block.body, without_bias, None, ["tirx.Add"])
        return block_with(block, body, block.reads)

    def without_bias(node: tirx.Add) -> Any:
        return node.a if tvm_ffi.structural_equal(node, addition) else None

    return tirx.stmt_functor.ir_transform(statement, replaced, None, ["tirx.SBlock"])


def _starts_from_zero(block: tirx.SBlock) -> bool:
    value = block.body.value if isinstance(block.body, tirx.BufferStore) else None
    return isinstance(value, tirx.FloatImm) and value.value == 0 and block.name_hint.endswith("_init")


def _bias_addition(block: tirx.SBlock, sums: Any) -> Any | None:
    """Return where *block* adds to *sums* what depends on their channel only."""
    if not isinstance(block.body, tirx.BufferStore) or block.body.buffer.same_as(sums):
        return None
    for addition in tir_nodes(block.body, tirx.Add):
        load, bias = addition.a, addition.b
        if (
            isinstance(load, tirx.BufferLoad)
            and load.buffer.same_as(sums)
            and isinstance(bias, tirx.BufferLoad)
        ):
            _, _, *positions, _ = load.indices
            if not variables_of(bias.indices) & variables_of(positions):
                return addition
    return None


FINISHES = {"shared_divisors": shared_divisors, "sums_from_bias": sums_from_bias}
"""Transformations of a scheduled body, by the name in an annotation."""
