"""Which sampled schedules of kernels with images are worth a driver's time: those of bounded length.

What a work-item computes is unrolled, so its tile decides how long the kernel is. On an NVIDIA
H200, of 179 candidates of ResNet-18's convolutions, those of over 1,000 statements took 1.5 to
800 times as long as the schedule that compiling takes, and from 3,000 on the driver compiled
for over 10 s.
"""

from __future__ import annotations

from typing import Any

from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule.postproc import PyPostproc

from adt.model.texture.tiles import STATEMENTS

MOST = 2 * STATEMENTS
"""Statements of a kernel, with those of unrolled loops as often as they are there."""


@derived_object
class Bounded(PyPostproc):  # type: ignore[misc]
    """A postprocessor of TVM's that refuses schedules of over :data:`MOST` statements."""

    def _initialize_with_tune_context(self, context: Any) -> None:
        pass

    def apply(self, schedule: Any) -> bool:
        """Whether the schedule may stay."""
        return all(statements(function) <= MOST for function in schedule.mod.functions.values())

    def clone(self) -> Any:
        """Another one."""
        return Bounded()


def statements(function: Any) -> int:
    """Stores in the TIR *function*, each as often as unrolled loops repeat it; a vector's is one."""
    from tvm import tirx

    def count(node: Any) -> int:
        if isinstance(node, tirx.BufferStore):
            return 1
        if isinstance(node, tirx.For):
            unrolled = int(node.kind) == int(tirx.ForKind.UNROLLED)
            return count(node.body) * (int(node.extent) if unrolled else 1)
        if isinstance(node, tirx.SeqStmt):
            return sum(map(count, node.seq))
        if isinstance(node, tirx.SBlockRealize):
            return count(node.block)
        if isinstance(node, tirx.SBlock):
            return count(node.body) + (count(node.init) if node.init is not None else 0)
        if isinstance(node, tirx.IfThenElse):
            otherwise = count(node.else_case) if node.else_case is not None else 0
            return count(node.then_case) + otherwise
        return count(node.body) if isinstance(node, tirx.AttrStmt) else 0

    return count(function.body)
