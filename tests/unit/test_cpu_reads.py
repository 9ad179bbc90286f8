"""Reads of a scheduled kernel against those of the unscheduled one."""

from typing import Any

import pytest
from tvm import te, tirx
from tvm.s_tir import Schedule

from adt.compiler.ir.nodes import tir_nodes
from adt.compiler.passes.cpu import reads
from adt.compiler.passes.cpu.reads import reads_differ


def joined(first: int) -> Any:
    """Return the last *first* of 32 elements before the others, and one added."""
    x = te.placeholder((32,), name="x")
    ends = te.compute((32,), lambda i: tirx.if_then_else(i < first, x(i + 32 - first), x(i - first)))
    return te.create_prim_func([x, te.compute((32,), lambda i: ends(i) + 1)])


def inlined(function: Any) -> Any:
    schedule = Schedule(function)
    first, last = schedule.get_child_blocks(schedule.get_sblock("root"))
    schedule.compute_inline(first)
    (loop,) = schedule.get_loops(last)
    schedule.split(loop, [None, 5])  # the last ones are beyond the end
    return schedule.mod["main"]


def test_a_schedule_reads_what_the_kernel_did() -> None:
    assert not reads_differ(joined(8), inlined(joined(8)))


def test_other_elements_are_seen() -> None:
    assert reads_differ(joined(8), inlined(joined(9)))


def test_what_values_decide_is_not_known() -> None:
    x, places = te.placeholder((4,)), te.placeholder((4,), dtype="int32")
    taken = te.compute((4,), lambda i: x(places(i)))
    function = te.create_prim_func([x, places, te.compute((4,), lambda i: taken(i) * 2)])
    assert not reads_differ(function, inlined(function))


def test_each_node_is_looked_at_once_for_all_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    """Visit each node of a concatenation once: it has one for each tensor, and TVM's are slow to visit."""
    looked_at = []
    parts = reads._parts
    monkeypatch.setattr(reads, "_parts", lambda node: looked_at.append(node) or parts(node))
    assert not reads_differ(joined(8), inlined(joined(8)))
    nodes = [node for kernel in (joined(8), inlined(joined(8))) for node in tir_nodes(kernel.body, object)]
    assert 0 < len(looked_at) <= len(nodes)
