"""A workload: a kernel before it is scheduled, in the form by which its records are found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tvm
import tvm_ffi

from adt.compiler.ir.flops import ATTRIBUTE
from adt.package.graphs import kernels_of

MARK = "adt.schedule"
"""Attribute of a PrimFunc; it travels with the function through scheduling and lowering."""
TUNED = "tuned"
"""The schedule is a record's."""
KEPT = "untuned: faster"
"""There are records, and the schedule that the kernel gets without them was faster on the device."""
REFUSED = "untuned: the record does not apply"
"""There is a record, and it does not fit the kernel: TVM's or adt's schedules are not what they were."""
OURS = (ATTRIBUTE, MARK)
"""Attributes of kernels that adt sets; they decide no code."""


def workload(function: Any) -> Any:
    """Return ``IRModule {"main": function}`` of an unscheduled kernel as TVM's extraction of tasks gives it.

    So records that other programs made with MetaSchedule for the same kernel are found, too.
    """
    return tvm.IRModule({"main": named_main(function).with_attr("tirx.noalias", True)})


def named_main(function: Any) -> Any:
    """Return the PrimFunc *function* called ``main``, without adt's attributes."""
    for name in OURS:
        if function.attrs is not None and name in function.attrs:
            function = function.without_attr(name)
    return function.with_attr("global_symbol", "main")


def same(one: Any, other: Any) -> bool:
    """Return True if two workloads are the same, whatever their variables are called."""
    return bool(tvm_ffi.structural_equal(one, other))


def structural_hash(module: Any) -> str:
    """Return TVM's structural hash of a workload, decimal: equal for equal workloads in one version."""
    return str(tvm_ffi.structural_hash(module) % (1 << 64))


def marked(function: Any, mark: str) -> Any:
    """Return *function* with *mark*."""
    return function.with_attr(MARK, mark)


def marks(module: Any) -> Iterator[tuple[str, Any, str]]:
    """Yield name, function and mark of each PrimFunc of *module* that has one, sorted by name."""
    for name, kernel in sorted(kernels_of(module).items()):
        if kernel.attrs is not None and MARK in kernel.attrs:
            yield name, kernel, str(kernel.attrs[MARK])
